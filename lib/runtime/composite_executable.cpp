#include "runtime/composite_executable.h"

#include <algorithm>

#include "base/error.h"

namespace llm {

BorderedWorkspace::Border BorderedWorkspace::border_of(int memory) const {
  const auto stride = static_cast<std::size_t>(border_bytes.at(memory));
  if (memory != kHostMemory) return {device_borders.at(memory)->data(), stride};
  const auto address = reinterpret_cast<std::uintptr_t>(border->data());
  return {border->data() + ((kBorderAlign - address % kBorderAlign) % kBorderAlign), stride};
}

CompositeExecutable::CompositeExecutable(std::vector<Segment> segments, const Graph& whole,
                                         BorderedWorkspace& workspace,
                                         std::span<const std::unique_ptr<Backend>> devices)
    : segments_(std::move(segments)), workspace_(workspace), last_(workspace.last), drew_(workspace.drew) {
  const Borders borders(segments_, whole, devices);
  for (const auto& [memory, bytes] : borders.bytes())
    check(bytes <= workspace.border_bytes.at(memory), "the workspace was made for a bucket at least as large");
  for (const Segment& s : segments_) {
    Piece piece;
    for (const ValueInfo& v : s.graph.values()) {
      if (is_handed_over(v)) piece.in.push_back(place(v, borders, workspace));
    }
    for (const std::uint32_t id : s.graph.outputs()) piece.out.push_back(place(s.graph.info(id), borders, workspace));
    pieces_.push_back(std::move(piece));
  }
  known_.reserve(static_cast<std::size_t>(whole.bucket().tokens));
}

CompositeExecutable::Place CompositeExecutable::place(const ValueInfo& v, const Borders& borders,
                                                      const BorderedWorkspace& workspace) {
  const auto [memory, offset] = borders.place(v.name);
  if (offset == MemoryPlan::kNone) return {.binding = {.value = v.name}, .is_callers = true};
  const BorderedWorkspace::Border border = workspace.border_of(memory);
  return {.binding = {.value = v.name, .data = border.data + offset, .bytes = v.type.bytes()}, .stride = border.stride};
}

void CompositeExecutable::set_program(std::size_t segment, std::unique_ptr<Executable> program, std::string label) {
  pieces_[segment].program = std::move(program);
  pieces_[segment].label = std::move(label);
}

Ticket CompositeExecutable::submit(const StepData& step, std::span<const Binding> in, std::span<const Binding> out) {
  check(in.empty(), "a whole graph has no inputs but the step's");
  if (workspace_.at_once == 1) last_.wait();  // what crosses borders has one place
  const std::size_t turn = workspace_.steps++ % static_cast<std::size_t>(workspace_.at_once);
  StepData inner = step;
  inner.tokens = known(step.tokens);
  inner.draws = {};
  for (Piece& piece : pieces_) {
    if (&piece != &pieces_.front()) follow(piece);
    const bool draws = &piece == &pieces_.back() && !step.draws.empty();
    if (draws) inner.draws = step.draws;
    for (auto* list : {&piece.in, &piece.out}) {
      for (Place& place : *list) {
        if (place.is_callers && !draws) bind_callers(place.binding, out);
      }
    }
    const Ticket ticket = piece.program->submit(inner, bindings(piece.in, turn, in_),
                                                draws ? std::span<const Binding>() : bindings(piece.out, turn, out_));
    last_ = {.program = piece.program.get(), .ticket = ticket, .ended = false};
  }
  ends_[++submitted_ % ends_.size()] = last_;
  if (!step.draws.empty()) drew_ = last_;
  return {submitted_};
}

void CompositeExecutable::bind_callers(Binding& binding, std::span<const Binding> out) {
  const auto found = std::find_if(out.begin(), out.end(), [&](const Binding& b) { return b.value == binding.value; });
  check(found != out.end(), "every output of the graph is bound");
  binding.data = found->data;
  binding.bytes = found->bytes;
}

std::span<const Binding> CompositeExecutable::bindings(const std::vector<Place>& places, std::size_t turn,
                                                       std::vector<Binding>& into) {
  into.clear();  // keeps its memory from step to step
  for (const Place& p : places) {
    into.push_back(p.binding);
    into.back().data += turn * p.stride;
  }
  return into;
}

/// Behind the segment before it, whose device tells that of this one, or the host waits.
void CompositeExecutable::follow(Piece& piece) {
  if (!last_.ended && !piece.program->begin_behind(*last_.program, last_.ticket)) last_.wait();
}

/// The tokens, with those in place that the step before drew, which has ended. Where its logits may not be finite it
/// drew none: whoever learns of that throws this step away.
std::span<const std::int32_t> CompositeExecutable::known(std::span<const std::int32_t> tokens) {
  if (std::all_of(tokens.begin(), tokens.end(), [](std::int32_t t) { return t >= 0; })) return tokens;
  drew_.program->wait(drew_.ticket);  // perhaps the step before it was asked about since
  const auto drawn = drew_.program->may_be_non_finite() ? std::span<const std::int32_t>() : drew_.program->drawn();
  known_.clear();
  for (const std::int32_t t : tokens)
    known_.push_back(t >= 0 ? t : drawn.empty() ? 0 : drawn[static_cast<std::size_t>(~t)]);
  return known_;
}

void CompositeExecutable::wait(Ticket ticket) {
  const Submitted& end = ends_[ticket.id % ends_.size()];
  check(ticket.id <= submitted_ && submitted_ - ticket.id < ends_.size(), "one of the last steps");
  if (last_.program == end.program && last_.ticket.id == end.ticket.id) last_.ended = true;
  end.program->wait(end.ticket);  // perhaps again: of that step are the results now
}

void CompositeExecutable::observe(Observer* observer) {
  for (Piece& piece : pieces_) piece.program->observe(observer);
}

/// Equal segments once: with experts elsewhere there are two of every layer.
std::string CompositeExecutable::describe() const {
  std::vector<std::pair<std::string, std::vector<std::size_t>>> kinds;  // in the order of their first appearance
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    std::string text = " on " + pieces_[i].label + ":\n" + pieces_[i].program->describe();
    if (!text.ends_with('\n')) text += '\n';
    const auto same = std::find_if(kinds.begin(), kinds.end(), [&](const auto& kind) { return kind.first == text; });
    if (same == kinds.end()) {
      kinds.push_back({std::move(text), {i}});
    } else {
      same->second.push_back(i);
    }
  }
  std::string all;
  for (const auto& [text, numbers] : kinds) {
    all += numbers.size() == 1 ? "segment " : std::to_string(numbers.size()) + " segments, the first ";
    all += std::to_string(numbers.front() + 1) + " of " + std::to_string(pieces_.size()) + text;
  }
  return all;
}

}  // namespace llm
