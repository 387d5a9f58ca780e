// Splits work into steps, keeps the programs of the buckets that steps need, and the cache behind them.
#include "runtime/session.h"

#include <algorithm>
#include <array>
#include <deque>
#include <exception>
#include <map>
#include <utility>

#include "base/machine.h"
#include "runtime/fault.h"
#include "runtime/figures.h"
#include "runtime/memory_budget.h"
#include "runtime/recurrent_states.h"
#include "runtime/screening.h"

namespace llm {
namespace {

constexpr std::array kBuckets{1, 2, 4, 8, 16, 32, 64, 256, 512, 1024, 2048, 4096};
static_assert(kBuckets.back() == kMaxBatchTokens);
/// Rows of logits of one step: those of a vocabulary of 128 k take 256 MiB.
constexpr int kMaxOutputs = 512;

int bucket_for(std::int64_t tokens) {
  return *std::find_if(kBuckets.begin(), kBuckets.end(), [tokens](int b) { return b >= tokens; });
}

/// Rows of logits, grown without keeping or clearing what was there.
class LogitRows {
 public:
  float* reserve(Backend& backend, std::size_t n) {
    if (n > capacity_) {
      memory_.reset();
      capacity_ = 0;
      memory_ = backend.host_memory(n * sizeof(float));
      capacity_ = n;
    }
    return reinterpret_cast<float*>(memory_->data());
  }

 private:
  std::unique_ptr<HostMemory> memory_;
  std::size_t capacity_ = 0;
};

int tokens_of_a_step(const Backend& backend, const SessionOptions& o) {
  const int most = std::min(backend.most_step_tokens(), kMaxBatchTokens);
  return o.batch_tokens == 0 ? most : std::clamp(o.batch_tokens, 1, most);
}

Bucket bucket_of(int tokens, int sequences) {
  return {.tokens = tokens, .sequences = std::min(tokens, sequences), .outputs = std::min(tokens, kMaxOutputs)};
}

ContextRequest request_for(Model& model, const SessionOptions& o, const Graph& largest) {
  ContextRequest r{
      .context = o.context, .trained = model.dims().context, .sequences = o.pool ? 1 : o.sequences, .memories = {}};
  const std::int32_t slots = recurrent_slots(o.sequences, model.backend().draws());
  for (const MemoryShare& share : model.backend().memory({&largest, 1}))
    r.memories.push_back(needs_of(share, o.cache, slots));
  for (MemoryNeeds& m : r.memories) {
    if (m.weights != MemoryNeeds::Weights::Mapped) continue;
    m.available += std::min(model.held_bytes(), m.weight_bytes);
  }
  for (MemoryNeeds& m : r.memories) {  // results come into this machine's memory; on a device they are in the workspace
    if (m.weights == MemoryNeeds::Weights::Mapped)
      m.work_bytes += static_cast<std::uint64_t>(model.dims().vocab) * sizeof(float);
    if (model.reads_files()) m.weights = MemoryNeeds::Weights::Kept;
  }
  add_needs(r, o.beside);
  return r;
}

struct Program {
  Graph graph;
  std::unique_ptr<Executable> executable;
};

/// A step that draws, on its way.
struct Begun {
  Executable* program;
  Ticket ticket;
  std::size_t rows;
  std::vector<std::pair<SequenceId, std::int64_t>> lengths;  ///< of its sequences before it
  /// A token of it that the step before draws: where it is in the text.
  struct Unknown {
    SequenceId sequence;
    std::size_t position;
  };
  std::vector<Unknown> unknown = {};
};
constexpr std::size_t kMostBegun = 2;

/// Everything of one step; the vectors keep their memory from step to step.
struct StepWork {
  std::vector<std::int32_t> tokens, positions, slots, out_rows, table;
  std::vector<SequenceSpan> spans;
  std::vector<StateMove> moves;  ///< per span, of recurrent states
  std::vector<SequenceId> ids;   ///< per span
  StateGroup group;

  void clear() {
    for (auto* v : {&tokens, &positions, &slots, &out_rows, &table}) v->clear();
    spans.clear();
    moves.clear();
    ids.clear();
  }
  /// Valid until the step is another.
  StepData data(const KvCache&);
};

StepData StepWork::data(const KvCache& cache) {
  std::size_t stride = 0;
  for (const SequenceId id : ids) stride = std::max(stride, cache.blocks(id).size());
  table.assign(stride * ids.size(), -1);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const auto blocks = cache.blocks(ids[i]);
    std::copy(blocks.begin(), blocks.end(), table.begin() + static_cast<std::ptrdiff_t>(i * stride));
  }
  group = {.block_table = table, .stride = static_cast<std::int32_t>(stride), .slots = slots};
  return {.tokens = tokens,
          .positions = positions,
          .sequences = spans,
          .groups = {&group, 1},
          .out_rows = out_rows,
          .states = moves};
}

/// A step whose logits are wanted, on its way.
struct Evaluating {
  Program* program;
  Ticket ticket;
  StepData data;          ///< of one of Session::Impl::steps
  std::int64_t done = 0;  ///< tokens of the evaluation up to its end
  Binding rows;
};

/// Tokens that a sequence goes on with: those of an Append, and in front of them what its recurrent state has to see
/// again, whose keys and values are there.
struct Reading {
  SequenceId sequence;
  std::span<const Token> tokens;
  Logits logits;
  std::size_t again = 0;  ///< of the tokens
};

/// Where a text is cut so that a state stays behind that a next prompt can go on from: before its end, which a next one
/// often has in other words (of a chat, the beginning of the answer).
std::int64_t state_kept_before(std::int64_t end) {
  constexpr std::int64_t kOftenChanged = 16;
  return std::max<std::int64_t>(0, end - kOftenChanged) / kBlockPositions * kBlockPositions;
}

std::int64_t rows_wanted(const Append& a) {
  if (a.tokens.empty() || a.logits == Logits::None) return 0;
  return a.logits == Logits::All ? static_cast<std::int64_t>(a.tokens.size()) : 1;
}

}  // namespace

struct Session::Impl {
  Impl(Model& m, const SessionOptions& o)
      : model(m),
        sequences(o.sequences),
        batch_tokens(tokens_of_a_step(m.backend(), o)),
        format(o.cache),
        steps(static_cast<std::size_t>(m.backend().steps_at_once())) {
    check(o.sequences >= 1 && o.context >= 0, "options of a session");
    const Graph largest = model.graph(largest_bucket(model.backend(), o));
    const ContextRequest request = request_for(model, o, largest);  // before anything is taken
    workspace = model.backend().make_workspace(largest);
    const std::vector<RecurrentType> types = recurrent_types(largest);
    const std::int32_t slots = recurrent_slots(o.sequences, m.backend().draws());
    allocate(cache_types(largest), types, slots, request, o);
    if (types.empty()) return;
    recurrent.emplace(slots, o.sequences);
    texts.resize(static_cast<std::size_t>(o.sequences));
  }

  void allocate(const std::vector<CacheType>& types, std::span<const RecurrentType> remembered, std::int32_t slots,
                const ContextRequest& request, const SessionOptions& o) {
    position_bytes = bytes_per_position(types, o.cache);
    choice = choose_context(request);
    for (;;) {
      try {
        std::int64_t blocks = whole_blocks(choice.context) * sequences;
        if (o.pool) blocks = std::min(blocks, pool_blocks(request, choice.context, *o.pool));
        state = model.backend().allocate({.caches = types,
                                          .format = o.cache,
                                          .n_blocks = static_cast<std::int32_t>(blocks),
                                          .most_positions = whole_blocks(choice.context) * kBlockPositions,
                                          .recurrent = remembered,
                                          .n_slots = slots});
        cache.emplace(static_cast<std::int32_t>(blocks), kBlockPositions, sequences);
        return;
      } catch (const Error& error) {
        // Address space may be limited more than memory; a context nobody asked for may shrink.
        constexpr std::int64_t kWorthTrying = 4 * kBlockPositions;
        if (o.context != 0 || error.kind() != ErrorKind::Memory || choice.context < 2 * kWorthTrying) throw;
        choice = {choice.context / 2 / kBlockPositions * kBlockPositions, "limited by memory that could be had"};
      }
    }
  }

  Program& program(std::int64_t tokens) {
    const int size = bucket_for(tokens);
    if (const auto found = programs.find(size); found != programs.end()) return found->second;
    Program made{model.graph(bucket_of(size, sequences)), nullptr};
    Program& kept = programs.emplace(size, std::move(made)).first->second;  // programs may refer to their graph
    try {
      kept.executable = model.backend().compile(kept.graph, model.weights(), *state, *workspace);
    } catch (...) {
      programs.erase(size);
      throw;
    }
    return kept;
  }

  void require_context(std::int64_t tokens) const;
  void check_work(std::span<const Append> work) const;
  bool is_token(Token) const;
  bool is_begun(SequenceId) const;
  std::span<const float> eval(std::span<const Append> work, const GoOn&, Observer* observer);
  bool compute(std::span<const Reading> work, float* rows, float* spare, const GoOn&, Observer* observer);
  bool run_all(std::span<const Reading> work, float* rows, float* spare, const GoOn&, Observer* observer);
  /// Adds tokens [first, first + n) of a reading to the step; their rows of logits as it wants them.
  void add(const Reading& r, std::size_t first, std::size_t n);
  std::int64_t position_of_next(SequenceId id) const { return recurrent ? recurrent->seen(id) : cache->length(id); }
  std::int64_t to_read_again(SequenceId id) const { return cache->length(id) - position_of_next(id); }
  std::vector<Reading> readings(std::span<const Append> work);
  std::size_t tokens_before_cut(std::span<const Reading> work, const Reading& r, std::size_t first,
                                std::size_t n) const;
  SequenceId create();
  SequenceId fork(SequenceId from, std::int64_t length);
  void remove(SequenceId);
  void rewind(SequenceId, std::int64_t length);
  void restore(SequenceId, const Restored&);
  std::vector<Token>& text(SequenceId id) { return texts[static_cast<std::size_t>(id)]; }
  void catch_up(std::span<const Append> work, Observer* observer);
  void abandon();
  void learn(std::span<const Token> drawn);
  void pass_on(const Begun& ended, std::span<const Token> drawn);
  int tokens_of_steps(std::int64_t all) const { return std::min(batch_tokens, model.backend().step_tokens(all)); }
  /// Tokens that the step can still take.
  std::size_t room_in_step(Logits wanted) const;
  void submit_step(float* rows, Observer* observer);
  void next_step();
  void finish_oldest();
  void abandon_steps() noexcept;
  StepWork& step() { return steps[step_number % steps.size()]; }
  const StepWork& step() const { return steps[step_number % steps.size()]; }
  void begin(std::span<const Drawing> work, Observer* observer);
  std::optional<std::span<const Token>> collect();
  void settle() const;
  [[noreturn]] void fail_numeric(const Evaluating&, std::size_t row);

  Model& model;
  int sequences;
  int batch_tokens;
  CacheFormat format;
  std::uint64_t position_bytes = 0;
  ContextChoice choice{};
  std::unique_ptr<Workspace> workspace;
  std::unique_ptr<StateStore> state;
  std::optional<KvCache> cache;
  std::map<int, Program> programs;
  std::vector<StepWork> steps;               ///< that may be on their way at once, in turns
  std::size_t step_number = 0;               ///< of the one that is being put together
  int step_tokens = 0;                       ///< most of it
  std::int64_t submitted = 0, computed = 0;  ///< tokens of the evaluation in steps that were begun, and that have ended
  std::vector<KvCache::BlockCopy> copies;
  std::optional<RecurrentStates> recurrent;
  std::vector<std::vector<Token>> texts;  ///< per sequence, where there are recurrent states
  std::vector<std::vector<Token>> again;  ///< memory of readings
  std::int64_t read_again = 0;
  LogitRows logits;
  std::deque<Evaluating> evaluating;
  std::deque<Begun> begun;
  std::vector<DrawRule> rules;
};

void Session::Impl::require_context(std::int64_t tokens) const {
  if (tokens <= choice.context) return;
  throw Error(ErrorKind::Context, "prompt " + number_text(tokens) + " tokens, context " + number_text(choice.context));
}

void Session::Impl::check_work(std::span<const Append> work) const {
  for (std::size_t i = 0; i < work.size(); ++i) {
    const Append& a = work[i];
    check(cache->alive(a.sequence), "tokens for a sequence that does not exist");
    for (std::size_t j = 0; j < i; ++j) check(work[j].sequence != a.sequence, "a sequence twice in one evaluation");
    for (const Token t : a.tokens) check(is_token(t), "a token id outside the vocabulary");
    const std::int64_t length = cache->length(a.sequence) + static_cast<std::int64_t>(a.tokens.size());
    if (length > choice.context) {
      throw Error(ErrorKind::Context,
                  "prompt " + number_text(length) + " tokens, context " + number_text(choice.context));
    }
  }
}

/// Of the vocabulary, or one that the step begun last draws.
bool Session::Impl::is_token(Token t) const {
  if (t >= 0) return t < model.dims().vocab;
  return !begun.empty() && static_cast<std::size_t>(~t) < begun.back().rows;
}

std::span<const float> Session::Impl::eval(std::span<const Append> work, const GoOn& go_on, Observer* observer) {
  check(begun.empty(), "logits asked for while a step that draws runs");
  check_work(work);
  std::int64_t n_rows = 0;
  for (const Append& a : work) n_rows += rows_wanted(a);
  const auto vocab = static_cast<std::size_t>(model.dims().vocab);
  const std::size_t wanted = static_cast<std::size_t>(n_rows) * vocab;
  // Spare rows serve steps that nobody wants logits of.
  float* rows = logits.reserve(model.backend(), wanted + steps.size() * vocab);
  const std::vector<Reading> all = readings(work);
  return compute(all, rows, rows + wanted, go_on, observer) ? std::span<const float>{rows, wanted}
                                                            : std::span<const float>{};
}

/// Runs it all, or leaves every sequence as it was. False: `go_on` ended it.
bool Session::Impl::compute(std::span<const Reading> work, float* rows, float* spare, const GoOn& go_on,
                            Observer* observer) {
  std::vector<std::pair<std::int64_t, std::int64_t>> before;  // positions, and those that the state has seen
  for (const Reading& r : work) {
    before.emplace_back(cache->length(r.sequence), position_of_next(r.sequence));
    if (recurrent) recurrent->hold(r.sequence, before.back().second);
  }
  const auto release = [&] {
    for (const Reading& r : work) {
      if (recurrent) recurrent->release(r.sequence);
    }
  };
  try {
    const bool all = run_all(work, rows, spare, go_on, observer);
    release();
    return all;
  } catch (...) {
    abandon_steps();
    for (std::size_t i = 0; i < work.size(); ++i) {
      rewind(work[i].sequence, before[i].first);
      if (recurrent) recurrent->truncate(work[i].sequence, before[i].second);
    }
    release();
    throw;
  }
}

/// The work, with what recurrent states have to see again.
std::vector<Reading> Session::Impl::readings(std::span<const Append> work) {
  std::vector<Reading> all;
  again.resize(std::max(again.size(), work.size()));
  for (const Append& a : work) {
    all.push_back({a.sequence, a.tokens, a.logits});
    const auto length = static_cast<std::size_t>(cache->length(a.sequence));
    const auto seen = static_cast<std::size_t>(position_of_next(a.sequence));
    if (seen == length || a.tokens.empty()) continue;
    std::vector<Token>& tokens = again[all.size() - 1];
    const std::vector<Token>& known = text(a.sequence);
    tokens.assign(known.begin() + static_cast<std::ptrdiff_t>(seen), known.end());
    tokens.insert(tokens.end(), a.tokens.begin(), a.tokens.end());
    all.back().tokens = tokens;
    all.back().again = length - seen;
    read_again += static_cast<std::int64_t>(length - seen);
  }
  return all;
}

/// False: `go_on` ended it.
bool Session::Impl::run_all(std::span<const Reading> work, float* rows, float* spare, const GoOn& go_on,
                            Observer* observer) {
  const auto vocab = static_cast<std::size_t>(model.dims().vocab);
  std::int64_t asked = 0;
  std::int64_t all = 0, repeated = 0;
  for (const Reading& r : work) all += std::ssize(r.tokens), repeated += static_cast<std::int64_t>(r.again);
  const auto wanted = [&] {
    if (!go_on || computed == asked) return true;
    asked = computed;
    return go_on(std::max<std::int64_t>(0, computed - repeated));
  };
  const auto flush = [&] {
    if (step().tokens.empty()) return true;
    // Every step gives at least one row: a NaN is found in the step that made it, not where it surfaces later.
    const std::size_t n = step().out_rows.size();
    if (n == 0) step().out_rows.push_back(static_cast<std::int32_t>(step().tokens.size() - 1));
    submit_step(n == 0 ? spare + step_number % steps.size() * vocab : rows, observer);
    rows += n * vocab;
    next_step();
    return wanted();
  };
  const auto finish = [&] {
    while (!evaluating.empty()) {
      finish_oldest();
      (void)wanted();
    }
  };
  step().clear();
  if (recurrent) recurrent->next_step();
  submitted = computed = 0;
  step_tokens = tokens_of_steps(all);
  for (const Reading& r : work) {
    for (std::size_t first = 0; first < r.tokens.size();) {
      const std::size_t room = std::min(room_in_step(r.logits), r.tokens.size() - first);
      const std::size_t n = tokens_before_cut(work, r, first, room);
      add(r, first, n);
      first += n;
      if ((n == room && room_in_step(Logits::All) > 0) || flush() || submitted == all) continue;
      finish();
      return false;
    }
  }
  flush();
  finish();
  return true;
}

/// One whose memory no step on its way needs.
void Session::Impl::next_step() {
  if (evaluating.size() == steps.size()) finish_oldest();
  ++step_number;
  step().clear();
  if (recurrent) recurrent->next_step();
}

/// Of the `n` tokens of a reading from `first` on, those up to where a state is to stay behind. Of a text that is read
/// alone: a batch's prompts have no next one. Nor has a text all of whose logits are wanted, a draft or a measurement.
std::size_t Session::Impl::tokens_before_cut(std::span<const Reading> work, const Reading& r, std::size_t first,
                                             std::size_t n) const {
  if (!recurrent || work.size() > 1 || r.logits == Logits::All) return n;
  const std::int64_t begin = recurrent->seen(r.sequence),
                     end = begin + static_cast<std::int64_t>(r.tokens.size() - first);
  const std::int64_t before_cut = state_kept_before(end) - begin;
  return before_cut > 0 ? std::min(n, static_cast<std::size_t>(before_cut)) : n;
}

std::size_t Session::Impl::room_in_step(Logits wanted) const {
  const std::size_t tokens = static_cast<std::size_t>(step_tokens) - step().tokens.size();
  const std::size_t outputs = kMaxOutputs - step().out_rows.size();
  return wanted == Logits::All ? std::min(tokens, outputs) : tokens;
}

void Session::Impl::add(const Reading& r, std::size_t first, std::size_t n) {
  StepWork& to = step();
  const std::int64_t position = position_of_next(r.sequence);
  const std::size_t stored = std::min(n, r.again - std::min(first, r.again));
  to.slots.insert(to.slots.end(), stored, -1);
  copies.clear();
  check(cache->append(r.sequence, static_cast<std::int64_t>(n - stored), to.slots, copies),
        "the cache has no block left");
  if (!copies.empty()) settle();
  for (const KvCache::BlockCopy& c : copies) state->copy_block(c.from, c.to);
  to.spans.push_back({.first_token = static_cast<std::int32_t>(to.tokens.size()),
                      .n_tokens = static_cast<std::int32_t>(n),
                      .kv_len = static_cast<std::int32_t>(position + static_cast<std::int64_t>(n))});
  to.ids.push_back(r.sequence);
  if (recurrent) to.moves.push_back(recurrent->advance(r.sequence, static_cast<std::int64_t>(n)));
  for (std::size_t i = 0; i < n; ++i) {
    const bool last = first + i + 1 == r.tokens.size();
    if ((r.logits == Logits::All && first + i >= r.again) || (r.logits == Logits::Last && last)) {
      to.out_rows.push_back(static_cast<std::int32_t>(to.tokens.size()));
    }
    to.tokens.push_back(r.tokens[first + i]);
    to.positions.push_back(static_cast<std::int32_t>(position + static_cast<std::int64_t>(i)));
    if (recurrent && i >= stored) text(r.sequence).push_back(r.tokens[first + i]);
  }
}

void Session::Impl::submit_step(float* rows, Observer* observer) {
  Program& p = program(static_cast<std::int64_t>(step().tokens.size()));
  const auto vocab = static_cast<std::size_t>(model.dims().vocab);
  const Binding out{.value = p.graph.info(p.graph.outputs().front()).name,
                    .data = reinterpret_cast<std::byte*>(rows),
                    .bytes = step().out_rows.size() * vocab * sizeof(float)};
  submitted += std::ssize(step().tokens);
  Evaluating next{.program = &p, .ticket = {}, .data = step().data(*cache), .done = submitted, .rows = out};
  p.executable->observe(observer);
  next.ticket = p.executable->submit(next.data, {}, {&out, 1});
  evaluating.push_back(next);
}

void Session::Impl::finish_oldest() {
  const Evaluating oldest = evaluating.front();
  Executable& program = *oldest.program->executable;
  program.wait(oldest.ticket);
  evaluating.pop_front();
  computed = oldest.done;
  if (!program.may_be_non_finite()) return;
  const std::span rows(reinterpret_cast<const float*>(oldest.rows.data), oldest.rows.bytes / sizeof(float));
  if (const auto bad = first_non_finite(rows))
    fail_numeric(oldest, *bad / static_cast<std::size_t>(model.dims().vocab));
}

void Session::Impl::fail_numeric(const Evaluating& failed, std::size_t row) {
  settle();
  const StepData& data = failed.data;
  const std::int32_t position = data.positions[static_cast<std::size_t>(data.out_rows[row])];
  // A recurrent state that the step, or one behind it, has gone on with is no longer what the step read.
  const bool repeatable =
      data.states.empty() ||
      (evaluating.empty() && std::ranges::all_of(data.states, [](StateMove m) { return m.from != m.to; }));
  std::string cause;
  if (repeatable) {
    Executable& program = *failed.program->executable;
    FirstBadValue watcher;
    program.observe(&watcher);
    program.wait(program.submit(data, {}, {&failed.rows, 1}));  // writes the same rows to the same slots again
    program.observe(nullptr);
    cause = watcher.explain(failed.program->graph);
  }
  throw Error(ErrorKind::Numeric, ErrorParts{.file = model.file().metadata().file(),
                                             .problem = "non-finite logits at token " + std::to_string(position) +
                                                        (cause.empty() ? "" : ": " + cause)});
}

/// What a failed evaluation has left on its way, which may fail as well.
void Session::Impl::abandon_steps() noexcept {
  try {
    settle();
  } catch (...) {
  }
  evaluating.clear();
}

void Session::Impl::begin(std::span<const Drawing> work, Observer* observer) {
  check(model.backend().draws() && model.dims().vocab <= kMostLogits && begun.size() < kMostBegun,
        "a step that draws, one of two");
  std::vector<Append> appends;
  std::int64_t tokens = 0;
  rules.clear();
  for (const Drawing& d : work) {
    appends.push_back({d.sequence, d.tokens, d.rule ? Logits::Last : Logits::None});
    tokens += std::ssize(d.tokens);
    if (d.rule) rules.push_back(*d.rule);
  }
  check(!rules.empty() && rules.size() <= kMaxOutputs && tokens <= batch_tokens, "work of one step that draws");
  check_work(appends);
  catch_up(appends, observer);
  Begun next{.program = nullptr, .ticket = {}, .rows = rules.size(), .lengths = {}};
  for (const Append& a : appends) {
    next.lengths.emplace_back(a.sequence, cache->length(a.sequence));
    for (std::size_t i = 0; recurrent && i < a.tokens.size(); ++i) {
      if (a.tokens[i] < 0) next.unknown.push_back({a.sequence, text(a.sequence).size() + i});
    }
  }
  step().clear();
  if (recurrent) recurrent->next_step();
  try {
    for (const Append& a : appends) {
      if (recurrent && !is_begun(a.sequence)) recurrent->hold(a.sequence, cache->length(a.sequence));
      add({a.sequence, a.tokens, a.logits}, 0, a.tokens.size());
    }
    Program& p = program(tokens);
    StepData data = step().data(*cache);
    data.draws = rules;
    p.executable->observe(observer);
    next.program = p.executable.get();
    next.ticket = p.executable->submit(data, {}, {});
  } catch (...) {
    for (const auto& [sequence, length] : next.lengths) {
      rewind(sequence, length);
      if (recurrent && !is_begun(sequence)) recurrent->release(sequence);  // what a step begun holds is still its own
    }
    throw;
  }
  begun.push_back(std::move(next));
}

/// States of sequences that were taken back see again what they missed, so that a step of the work's tokens is left.
/// That takes steps of its own, and a program knows those begun last alone: none may wait to be collected.
void Session::Impl::catch_up(std::span<const Append> work, Observer* observer) {
  if (!recurrent) return;
  std::vector<Reading> missed;
  for (const Append& a : work) {
    const auto n = static_cast<std::size_t>(to_read_again(a.sequence));
    if (n > 0) missed.push_back({a.sequence, std::span(text(a.sequence)).last(n), Logits::None, n});
  }
  if (missed.empty()) return;
  check(begun.empty(), "states that lag while a step is on its way");
  for (const Reading& r : missed) read_again += std::ssize(r.tokens);
  float* const spare = logits.reserve(model.backend(), steps.size() * static_cast<std::size_t>(model.dims().vocab));
  compute(missed, spare, spare, {}, observer);
}

/// Whether a step on its way has tokens of the sequence.
bool Session::Impl::is_begun(SequenceId id) const {
  return std::ranges::any_of(begun, [id](const Begun& b) {
    return std::ranges::any_of(b.lengths, [id](const auto& l) { return l.first == id; });
  });
}

/// Tokens of the step that is now the oldest one begun, which the one before it drew.
void Session::Impl::learn(std::span<const Token> drawn) {
  if (begun.empty()) return;
  for (const Begun::Unknown& u : begun.front().unknown) {
    std::vector<Token>& known = text(u.sequence);
    if (u.position >= known.size() || known[u.position] >= 0) continue;  // taken back meanwhile
    known[u.position] = drawn[static_cast<std::size_t>(~known[u.position])];
  }
}

void Session::Impl::abandon() {
  for (; !begun.empty();) {
    const Begun oldest = std::move(begun.front());
    begun.pop_front();
    oldest.program->wait(oldest.ticket);
    if (recurrent && !oldest.program->may_be_non_finite()) learn(oldest.program->drawn());
    for (const auto& [sequence, length] : oldest.lengths) {
      if (recurrent) recurrent->release(sequence);
    }
  }
}

void Session::Impl::restore(SequenceId id, const Restored& from) {
  check(cache->length(id) == 0, "only an empty sequence is restored");
  const std::int64_t length = std::ssize(from.tokens);
  require_context(length);
  std::vector<std::int32_t> slots;
  copies.clear();
  if (!cache->append(id, length, slots, copies))
    throw Error(ErrorKind::Context, "the cache has no room for " + number_text(length) + " positions");
  const std::span<const std::int32_t> blocks = cache->blocks(id);
  settle();
  for (std::size_t i = 0; i < blocks.size(); ++i) state->write_block(blocks[i], from.block(i));
  if (!recurrent) return;
  text(id).assign(from.tokens.begin(), from.tokens.end());
  recurrent->next_step();
  for (std::size_t i = 0; i < from.remembered.size() && from.remembered[i] <= length; ++i) {
    if (from.remembered[i] == 0) continue;
    const std::int32_t slot = recurrent->put(id, from.remembered[i]);
    state->write_slot(slot, from.state(i));
    recurrent->next_step();
  }
}

SequenceId Session::Impl::create() {
  const SequenceId id = cache->create();
  if (recurrent) {
    recurrent->create(id);
    text(id).clear();
  }
  return id;
}

SequenceId Session::Impl::fork(SequenceId from, std::int64_t length) {
  const SequenceId id = cache->fork(from, length);
  if (recurrent) {
    recurrent->fork(from, id, length);
    text(id).assign(text(from).begin(), text(from).begin() + length);
  }
  return id;
}

void Session::Impl::remove(SequenceId id) {
  cache->remove(id);
  if (recurrent) recurrent->remove(id);
  // Another sequence may get the id, which no step that is taken back concerns.
  for (Begun& b : begun) {
    std::erase_if(b.lengths, [id](const auto& l) { return l.first == id; });
    std::erase_if(b.unknown, [id](const auto& u) { return u.sequence == id; });
  }
}

void Session::Impl::rewind(SequenceId id, std::int64_t length) {
  cache->truncate(id, length);
  if (!recurrent) return;
  recurrent->truncate(id, length);
  text(id).resize(static_cast<std::size_t>(length));
}

std::optional<std::span<const Token>> Session::Impl::collect() {
  check(!begun.empty(), "a step that was begun");
  const Begun oldest = std::move(begun.front());
  begun.pop_front();
  oldest.program->wait(oldest.ticket);
  if (!oldest.program->may_be_non_finite()) {
    const std::span<const Token> drawn = oldest.program->drawn();
    if (recurrent) pass_on(oldest, drawn);
    return drawn;
  }
  settle();
  begun.push_front(oldest);
  for (; !begun.empty(); begun.pop_back()) {
    for (const auto& [sequence, length] : begun.back().lengths) {
      if (!cache->alive(sequence)) continue;
      rewind(sequence, std::min(length, cache->length(sequence)));
      if (recurrent) recurrent->release(sequence);
    }
  }
  return std::nullopt;
}

/// A step has ended well: the one behind it goes on with what it drew, and goes back to where it began.
void Session::Impl::pass_on(const Begun& ended, std::span<const Token> drawn) {
  learn(drawn);
  for (const auto& [sequence, length] : ended.lengths) recurrent->release(sequence);
  if (begun.empty()) return;
  for (const auto& [sequence, length] : begun.front().lengths) recurrent->hold(sequence, length);
}

/// Until the steps on their way have ended: blocks are read and copied beside them.
void Session::Impl::settle() const {
  for (const Evaluating& e : evaluating) e.program->executable->wait(e.ticket);
  for (const Begun& b : begun) b.program->wait(b.ticket);
}

Bucket largest_bucket(const Backend& backend, const SessionOptions& o) {
  return bucket_of(bucket_for(tokens_of_a_step(backend, o)), o.sequences);
}

ContextRequest memory_request(Model& model, const SessionOptions& options) {
  return request_for(model, options, model.graph(largest_bucket(model.backend(), options)));
}

Session::Session(Model& model, SessionOptions options) : impl_(std::make_unique<Impl>(model, options)) {}
Session::~Session() = default;

std::int64_t Session::context() const { return impl_->choice.context; }
SequenceId Session::create() { return impl_->create(); }
SequenceId Session::fork(SequenceId from, std::int64_t length) { return impl_->fork(from, length); }
void Session::remove(SequenceId id) { impl_->remove(id); }
std::int64_t Session::length(SequenceId id) const { return impl_->cache->length(id); }
void Session::rewind(SequenceId id, std::int64_t length) { impl_->rewind(id, length); }
std::span<const float> Session::eval(std::span<const Append> work, const GoOn& go_on) {
  return impl_->eval(work, go_on, observer);
}

bool Session::draws() const { return impl_->model.backend().draws() && impl_->model.dims().vocab <= kMostLogits; }
void Session::begin(std::span<const Drawing> work) { impl_->begin(work, observer); }
std::optional<std::span<const Token>> Session::collect() { return impl_->collect(); }
int Session::begun() const { return static_cast<int>(impl_->begun.size()); }
void Session::abandon() { impl_->abandon(); }

void Session::require_context(std::int64_t tokens) const { impl_->require_context(tokens); }

const CacheFormat& Session::cache_format() const { return impl_->format; }

int Session::batch_tokens() const { return impl_->batch_tokens; }
int Session::step_tokens(std::int64_t all) const { return impl_->tokens_of_steps(all); }
int Session::steps_at_once() const { return static_cast<int>(impl_->steps.size()); }

std::int64_t Session::free_positions() const { return std::int64_t{impl_->cache->blocks_free()} * kBlockPositions; }

std::int64_t Session::positions_needed(SequenceId id, std::int64_t n) const {
  return impl_->cache->blocks_needed(id, n) * kBlockPositions;
}

std::size_t Session::cache_block_bytes() const { return impl_->state->bytes_per_block(); }

void Session::read_block(SequenceId id, std::size_t index, std::span<std::byte> dst) const {
  impl_->settle();
  const std::span<const std::int32_t> blocks = impl_->cache->blocks(id);
  check(index < blocks.size(), "a block of the sequence");
  impl_->state->read_block(blocks[index], dst);
}

std::size_t Session::bytes_per_state() const { return impl_->recurrent ? impl_->state->bytes_per_slot() : 0; }

std::vector<std::int64_t> Session::remembered(SequenceId id) const {
  std::vector<std::int64_t> lengths;
  if (!impl_->recurrent) return lengths;
  for (const auto& kept : impl_->recurrent->kept(id)) lengths.push_back(kept.length);
  return lengths;
}

void Session::read_state(SequenceId id, std::size_t index, std::span<std::byte> dst) const {
  impl_->settle();
  impl_->state->read_slot(impl_->recurrent->kept(id).at(index).slot, dst);
}

void Session::restore(SequenceId id, const Restored& from) { impl_->restore(id, from); }

std::int64_t Session::read_again() const { return impl_->read_again; }
std::int64_t Session::to_read_again(SequenceId id) const { return impl_->to_read_again(id); }

std::size_t Session::programs() const { return impl_->programs.size(); }

std::uint64_t Session::cache_bytes_in_use() const {
  return static_cast<std::uint64_t>(impl_->cache->blocks_in_use()) * impl_->state->bytes_per_block();
}

std::uint64_t Session::cache_bytes_per_position() const { return impl_->position_bytes; }

std::string Session::describe() const {
  std::string text = "context " + number_text(context()) + " (" + impl_->choice.reason + "), workspace " +
                     bytes_text(impl_->workspace->bytes()) + "\n";
  if (impl_->recurrent) {
    text += "recurrent states of " + bytes_text(bytes_per_state()) + " a sequence; " + number_text(read_again()) +
            " tokens read again\n";
  }
  for (const auto& [tokens, program] : impl_->programs) {
    text += "program for up to " + std::to_string(tokens) + (tokens == 1 ? " token:\n" : " tokens:\n");
    text += program.executable->describe();
    if (!text.ends_with('\n')) text += '\n';
  }
  return text;
}

}  // namespace llm
