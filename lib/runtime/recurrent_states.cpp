#include "runtime/recurrent_states.h"

#include <algorithm>
#include <limits>

#include "base/error.h"

namespace llm {
namespace {

constexpr std::int32_t kSpareSlots = 2;
/// States left behind prompts of one sequence: behind its last one, before the part of that which a next prompt may
/// change, and where others begin as it does.
constexpr std::ptrdiff_t kMostMarks = 3;
constexpr std::uint64_t kNeeded = std::numeric_limits<std::uint64_t>::max();

}  // namespace

std::int32_t recurrent_slots(int sequences, bool steps_run_ahead) {
  return sequences * (steps_run_ahead ? 3 : 2) + kSpareSlots;
}

RecurrentStates::RecurrentStates(std::int32_t n_slots, int max_sequences)
    : references_(static_cast<std::size_t>(n_slots)), sequences_(static_cast<std::size_t>(max_sequences)) {
  check(n_slots >= 2 * max_sequences, "two slots for each sequence");
}

void RecurrentStates::create(SequenceId id) { at(id) = {}; }

void RecurrentStates::remove(SequenceId id) {
  for (const Saved& s : at(id).saved) drop(s);
  at(id) = {};
}

void RecurrentStates::fork(SequenceId from, SequenceId to, std::int64_t length) {
  at(to) = {};
  for (const Saved& s : at(from).saved) {
    if (s.length > length) break;
    ++references(s.slot);
    at(to).saved.push_back(s);
  }
  for (Saved& s : at(from).saved) {  // is of use
    if (s.length == seen(to)) s.used = step_;
  }
  prune(at(to));
}

void RecurrentStates::truncate(SequenceId id, std::int64_t length) {
  Sequence& s = at(id);
  if (!s.saved.empty() && !s.saved.back().mark && s.saved.back().length == length + 1) s.steps_back = length > 0;
  for (; !s.saved.empty() && s.saved.back().length > length; s.saved.pop_back()) drop(s.saved.back());
  if (s.held > length) s.held = -1;
}

std::int64_t RecurrentStates::seen(SequenceId id) const {
  return at(id).saved.empty() ? 0 : at(id).saved.back().length;
}

std::vector<RecurrentStates::Kept> RecurrentStates::kept(SequenceId id) const {
  std::vector<Kept> all;
  for (const Saved& s : at(id).saved) all.push_back({s.length, s.slot});
  return all;
}

StateMove RecurrentStates::advance(SequenceId id, std::int64_t n) {
  Sequence& s = at(id);
  const std::int64_t length = seen(id) + n;
  StateMove move;
  const bool in_place = n == 1 && goes_on_in_place(s);
  if (!s.saved.empty()) {
    s.saved.back().used = step_;
    move.from = s.saved.back().slot;
  }
  if (in_place) {
    s.saved.back().length = length;
    move.to = move.from;
    return move;
  }
  move.to = take(s);
  s.saved.push_back({.length = length, .slot = move.to, .used = step_, .mark = n > 1});
  prune(s);
  return move;
}

std::int32_t RecurrentStates::put(SequenceId id, std::int64_t length) {
  Sequence& s = at(id);
  check(length > seen(id), "states are put in the order of their lengths");
  const std::int32_t slot = take(s);
  s.saved.push_back({.length = length, .slot = slot, .used = step_, .mark = true});
  return slot;
}

void RecurrentStates::hold(SequenceId id, std::int64_t length) {
  Sequence& s = at(id);
  s.held = -1;
  for (const Saved& saved : s.saved) {
    if (saved.length <= length) s.held = saved.length;
  }
  prune(s);
}

void RecurrentStates::release(SequenceId id) { at(id).held = -1; }

/// Memory is read and written then; with a slot of its own for every step's state, what is written has to be fetched
/// first as well. A step that fails costs its sequence what was read since the last state behind a prompt.
bool RecurrentStates::goes_on_in_place(const Sequence& s) const {
  if (s.saved.empty() || s.held >= 0 || s.steps_back) return false;
  const Saved& last = s.saved.back();
  return !last.mark && last.used != step_ && references(last.slot) == 1;
}

bool RecurrentStates::is_needed(const Sequence& s, const Saved& saved) const {
  return saved.length == s.saved.back().length || saved.length == s.held || saved.used == step_;
}

std::int32_t RecurrentStates::free_slot() const {
  const auto found = std::ranges::find(references_, 0);
  return found == references_.end() ? -1 : static_cast<std::int32_t>(found - references_.begin());
}

/// How much each slot is worth to its sequences: the later it was used the more, behind a prompt more than between
/// single tokens; kNeeded if one of them needs it.
std::vector<std::uint64_t> RecurrentStates::worths() const {
  std::vector<std::uint64_t> most(references_.size(), 0);
  for (const Sequence& s : sequences_) {
    for (const Saved& saved : s.saved) {
      const std::uint64_t to_sequence = is_needed(s, saved) ? kNeeded : saved.used + (saved.mark ? step_ : 0);
      std::uint64_t& slot = most[static_cast<std::size_t>(saved.slot)];
      slot = std::max(slot, to_sequence);
    }
  }
  return most;
}

/// Forgets what is worth least; false if everything is needed.
bool RecurrentStates::evict_one() {
  const std::vector<std::uint64_t> worth = worths();
  const auto found = std::ranges::min_element(worth);
  if (found == worth.end() || *found == kNeeded) return false;
  const auto least = static_cast<std::int32_t>(found - worth.begin());
  for (Sequence& s : sequences_) std::erase_if(s.saved, [&](const Saved& saved) { return saved.slot == least; });
  references(least) = 0;
  return true;
}

/// A slot for the next state of a sequence: where there is none left, that of its last one, which it is made of.
std::int32_t RecurrentStates::take(Sequence& s) {
  std::int32_t slot = free_slot();
  if (slot < 0 && evict_one()) slot = free_slot();
  if (slot < 0) {
    check(!s.saved.empty() && references(s.saved.back().slot) == 1 && s.saved.back().length != s.held,
          "a slot for a sequence's next state");
    slot = s.saved.back().slot;
    s.saved.pop_back();
    return slot;
  }
  references(slot) = 1;
  return slot;
}

void RecurrentStates::drop(const Saved& s) { --references(s.slot); }

/// Keeps the last state, the one held and those since, and the last marks.
void RecurrentStates::prune(Sequence& s) {
  std::ptrdiff_t marks = 0;
  for (auto i = std::ssize(s.saved) - 2; i >= 0; --i) {
    const Saved& saved = s.saved[static_cast<std::size_t>(i)];
    const bool kept_mark = saved.mark && ++marks <= kMostMarks;
    if (kept_mark || (s.held >= 0 && saved.length >= s.held) || saved.used == step_) continue;
    drop(saved);
    s.saved.erase(s.saved.begin() + i);
  }
}

}  // namespace llm
