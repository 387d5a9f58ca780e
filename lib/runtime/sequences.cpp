#include "runtime/sequences.h"

#include <algorithm>

#include "base/error.h"

namespace llm {

Sequences::Sequences(std::int32_t n_blocks, std::int32_t n_slots, int max_sequences)
    : cache_(n_blocks, kBlockPositions, max_sequences) {
  if (n_slots == 0) return;
  states_.emplace(n_slots, max_sequences);
  texts_.resize(static_cast<std::size_t>(max_sequences));
}

SequenceId Sequences::create() {
  const SequenceId id = cache_.create();
  if (!states_) return id;
  states_->create(id);
  text(id).clear();
  return id;
}

SequenceId Sequences::fork(SequenceId from, std::int64_t length) {
  const SequenceId id = cache_.fork(from, length);
  if (!states_) return id;
  states_->fork(from, id, length);
  text(id).assign(text(from).begin(), text(from).begin() + length);
  check(std::ranges::all_of(text(id), [](Token t) { return t >= 0; }), "a fork has tokens that a step is yet to draw");
  return id;
}

void Sequences::remove(SequenceId id) {
  cache_.remove(id);
  if (states_) states_->remove(id);
}

void Sequences::rewind(SequenceId id, std::int64_t length) {
  cache_.truncate(id, length);
  if (!states_) return;
  states_->truncate(id, length);
  text(id).resize(static_cast<std::size_t>(length));
}

std::vector<RecurrentStates::Kept> Sequences::kept_states(SequenceId id) const {
  return states_ ? states_->kept(id) : std::vector<RecurrentStates::Kept>{};
}

Sequences::Place Sequences::place(SequenceId id) const {
  return {.length = length(id), .seen = states_ ? states_->seen(id) : length(id)};
}

void Sequences::go_back(SequenceId id, Place to) {
  rewind(id, to.length);
  if (states_) states_->truncate(id, to.seen);
}

std::span<const Token> Sequences::to_read_again(SequenceId id) const {
  if (!states_) return {};
  return std::span(text(id)).subspan(static_cast<std::size_t>(states_->seen(id)));
}

void Sequences::next_step() {
  if (states_) states_->next_step();
}

Sequences::Appended Sequences::append(SequenceId id, std::span<const Token> tokens, std::vector<std::int32_t>& slots,
                                      std::vector<KvCache::BlockCopy>& copies) {
  const Place here = place(id);
  const auto stored = std::min(tokens.size(), static_cast<std::size_t>(here.length - here.seen));
  const std::span<const Token> fresh = tokens.subspan(stored);
  slots.insert(slots.end(), stored, -1);
  check(cache_.append(id, std::ssize(fresh), slots, copies), "the cache has no block left");
  Appended appended{.position = here.seen, .move = {}};
  if (!states_) return appended;
  appended.move = states_->advance(id, std::ssize(tokens));
  text(id).insert(text(id).end(), fresh.begin(), fresh.end());
  return appended;
}

bool Sequences::put(SequenceId id, std::span<const Token> tokens) {
  check(length(id) == 0, "only an empty sequence is given tokens without a step");
  std::vector<std::int32_t> slots;
  std::vector<KvCache::BlockCopy> none;
  if (!cache_.append(id, std::ssize(tokens), slots, none)) return false;
  if (states_) text(id).assign(tokens.begin(), tokens.end());
  return true;
}

std::int32_t Sequences::put_state(SequenceId id, std::int64_t length) {
  states_->next_step();
  return states_->put(id, length);
}

void Sequences::learn(SequenceId id, std::size_t position, std::span<const Token> drawn) {
  std::vector<Token>& known = text(id);
  if (position >= known.size() || known[position] >= 0) return;
  known[position] = drawn[static_cast<std::size_t>(~known[position])];
}

void Sequences::hold(SequenceId id, std::int64_t length) {
  if (states_) states_->hold(id, length);
}

void Sequences::release(SequenceId id) {
  if (states_) states_->release(id);
}

}  // namespace llm
