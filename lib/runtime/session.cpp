// Puts together what a session is made of: its sequences, the memory behind them, and those that run steps of them.
#include "runtime/session.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "runtime/drawing_steps.h"
#include "runtime/evaluator.h"
#include "runtime/figures.h"
#include "runtime/programs.h"
#include "runtime/sequences.h"

namespace llm {
namespace {

constexpr int kMostBegun = 2;

}  // namespace

std::string problem_of_length(std::int64_t tokens, std::int64_t context) {
  return "prompt " + number_text(tokens) + " tokens, context " + number_text(context);
}

struct Session::Impl {
  Impl(Model& m, const SessionOptions& o)
      : model(m),
        batch_tokens(most_step_tokens(m.backend(), o)),
        format(o.cache),
        memory(memory_for(m, o)),
        sequences(memory.n_blocks, memory.n_slots, o.sequences),
        programs(m, o.sequences, *memory.store, *memory.workspace),
        evaluator(m, sequences, programs, *memory.store, batch_tokens),
        drawing(sequences, programs, *memory.store) {}

  static SessionMemory memory_for(Model& model, const SessionOptions& o) {
    check(o.sequences >= 1 && o.context >= 0, "options of a session");
    return take_memory(model, o);
  }

  /// Whoever guesses by hidden rows wants those of every step, which come with logits.
  bool draws() const { return model.backend().draws() && model.dims().vocab <= kMostLogits && !model.predicts(); }
  void require_context(std::int64_t tokens) const;
  bool is_token(Token) const;
  void check_work(std::span<const Append> work) const;
  void begin(std::span<const Drawing> work, Observer*);
  void restore(SequenceId, const Restored&);
  /// Until the steps on their way have ended: blocks and slots are read and written beside them.
  void settle() const;

  Model& model;
  int batch_tokens;
  CacheFormat format;
  SessionMemory memory;
  Sequences sequences;
  Programs programs;
  Evaluator evaluator;
  DrawingSteps drawing;
};

void Session::Impl::require_context(std::int64_t tokens) const {
  const std::int64_t context = memory.context.context;
  if (tokens > context) throw Error(ErrorKind::Context, problem_of_length(tokens, context));
}

/// Of the vocabulary, or one that the step begun last draws.
bool Session::Impl::is_token(Token t) const {
  if (t >= 0) return t < model.dims().vocab;
  return static_cast<std::size_t>(~t) < drawing.last_rows();
}

void Session::Impl::check_work(std::span<const Append> work) const {
  for (std::size_t i = 0; i < work.size(); ++i) {
    const Append& a = work[i];
    check(sequences.cache().alive(a.sequence), "tokens for a sequence that does not exist");
    for (std::size_t j = 0; j < i; ++j) check(work[j].sequence != a.sequence, "a sequence twice in one evaluation");
    for (const Token t : a.tokens) check(is_token(t), "a token id outside the vocabulary");
    require_context(sequences.length(a.sequence) + std::ssize(a.tokens));
  }
}

void Session::Impl::begin(std::span<const Drawing> work, Observer* observer) {
  check(draws() && drawing.begun() < kMostBegun, "a step that draws, one of two");
  std::vector<Append> appends;
  std::int64_t tokens = 0, rules = 0, again = 0;
  for (const Drawing& d : work) {
    appends.push_back({d.sequence, d.tokens, d.rule ? Logits::Last : Logits::None});
    tokens += std::ssize(d.tokens);
    rules += d.rule ? 1 : 0;
  }
  check(rules > 0 && rules <= kMaxOutputs && tokens <= batch_tokens, "work of one step that draws");
  check_work(appends);
  for (const Append& a : appends) again += std::ssize(sequences.to_read_again(a.sequence));
  if (again > 0) {
    // That takes steps of their own, and a program knows those begun last alone: none may wait to be collected.
    check(drawing.begun() == 0, "states that lag while a step is on its way");
    evaluator.catch_up(appends, observer);
  }
  drawing.begin(work, observer);
}

void Session::Impl::restore(SequenceId id, const Restored& from) {
  const std::int64_t length = std::ssize(from.tokens);
  require_context(length);
  if (!sequences.put(id, from.tokens))
    throw Error(ErrorKind::Context, "the cache has no room for " + number_text(length) + " positions");
  const std::span<const std::int32_t> blocks = sequences.cache().blocks(id);
  settle();
  for (std::size_t i = 0; i < blocks.size(); ++i) memory.store->write_block(blocks[i], from.block(i));
  if (!sequences.recurrent()) return;
  for (std::size_t i = 0; i < from.remembered.size() && from.remembered[i] <= length; ++i) {
    if (from.remembered[i] > 0) memory.store->write_slot(sequences.put_state(id, from.remembered[i]), from.state(i));
  }
}

void Session::Impl::settle() const {
  evaluator.settle();
  drawing.settle();
}

Session::Session(Model& model, SessionOptions options) : impl_(std::make_unique<Impl>(model, options)) {}
Session::~Session() = default;

std::int64_t Session::context() const { return impl_->memory.context.context; }
SequenceId Session::create() { return impl_->sequences.create(); }
SequenceId Session::fork(SequenceId from, std::int64_t length) { return impl_->sequences.fork(from, length); }

void Session::remove(SequenceId id) {
  impl_->sequences.remove(id);
  impl_->drawing.forget(id);
}

std::int64_t Session::length(SequenceId id) const { return impl_->sequences.length(id); }
void Session::rewind(SequenceId id, std::int64_t length) { impl_->sequences.rewind(id, length); }

std::span<const float> Session::eval(std::span<const Append> work, const GoOn& go_on) {
  check(impl_->drawing.begun() == 0, "logits asked for while a step that draws runs");
  impl_->check_work(work);
  return impl_->evaluator.eval(work, go_on, observer);
}

bool Session::draws() const { return impl_->draws(); }
void Session::begin(std::span<const Drawing> work) { impl_->begin(work, observer); }
std::optional<std::span<const Token>> Session::collect() { return impl_->drawing.collect(); }
int Session::begun() const { return impl_->drawing.begun(); }
void Session::abandon() { impl_->drawing.abandon(); }

void Session::require_context(std::int64_t tokens) const { impl_->require_context(tokens); }

const CacheFormat& Session::cache_format() const { return impl_->format; }

int Session::batch_tokens() const { return impl_->batch_tokens; }
int Session::step_tokens(std::int64_t all) const { return impl_->evaluator.step_tokens(all); }
int Session::steps_at_once() const { return impl_->evaluator.steps_at_once(); }

std::int64_t Session::free_positions() const {
  return std::int64_t{impl_->sequences.cache().blocks_free()} * kBlockPositions;
}

std::int64_t Session::positions_needed(SequenceId id, std::int64_t n) const {
  return impl_->sequences.cache().blocks_needed(id, n) * kBlockPositions;
}

std::size_t Session::cache_block_bytes() const { return impl_->memory.store->bytes_per_block(); }

void Session::read_block(SequenceId id, std::size_t index, std::span<std::byte> dst) const {
  impl_->settle();
  const std::span<const std::int32_t> blocks = impl_->sequences.cache().blocks(id);
  check(index < blocks.size(), "a block of the sequence");
  impl_->memory.store->read_block(blocks[index], dst);
}

std::size_t Session::bytes_per_state() const {
  return impl_->sequences.recurrent() ? impl_->memory.store->bytes_per_slot() : 0;
}

std::vector<std::int64_t> Session::remembered(SequenceId id) const {
  std::vector<std::int64_t> lengths;
  for (const auto& kept : impl_->sequences.kept_states(id)) lengths.push_back(kept.length);
  return lengths;
}

void Session::read_state(SequenceId id, std::size_t index, std::span<std::byte> dst) const {
  impl_->settle();
  impl_->memory.store->read_slot(impl_->sequences.kept_states(id).at(index).slot, dst);
}

void Session::restore(SequenceId id, const Restored& from) { impl_->restore(id, from); }

void Session::tell_hidden(OnHidden f) { impl_->evaluator.on_hidden = std::move(f); }

std::int64_t Session::read_again() const { return impl_->evaluator.read_again(); }
std::int64_t Session::to_read_again(SequenceId id) const { return std::ssize(impl_->sequences.to_read_again(id)); }

std::size_t Session::programs() const { return impl_->programs.compiled(); }

std::uint64_t Session::cache_bytes_in_use() const {
  return static_cast<std::uint64_t>(impl_->sequences.cache().blocks_in_use()) * cache_block_bytes();
}

std::uint64_t Session::cache_bytes_per_position() const { return impl_->memory.bytes_per_position; }

std::string Session::describe() const {
  std::string text = "context " + number_text(context()) + " (" + impl_->memory.context.reason + "), workspace " +
                     bytes_text(impl_->memory.workspace->bytes()) + "\n";
  if (impl_->sequences.recurrent()) {
    text += "recurrent states of " + bytes_text(bytes_per_state()) + " a sequence; " + number_text(read_again()) +
            " tokens read again\n";
  }
  return text + impl_->programs.describe();
}

}  // namespace llm
