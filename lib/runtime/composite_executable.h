// A graph in segments that run in turn, each on its device: what one step hands over, and how several follow each
// other.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "graph/partition.h"
#include "runtime/borders.h"
#include "runtime/composite_stores.h"

namespace llm {

/// A segment on its way, or one that has ended.
struct Submitted {
  Executable* program = nullptr;
  Ticket ticket = {};
  bool ended = true;

  void wait() {
    if (!std::exchange(ended, true)) program->wait(ticket);
  }
};

struct BorderedWorkspace final : CompositeWorkspace {
  /// Values on their way from one segment to another lie there; a memory's number is that of Borders.
  struct Border {
    std::byte* data;
    std::size_t stride;  ///< from the places of one step to those of the next
  };
  Border border_of(int memory) const;

  std::unique_ptr<HostMemory> border;
  std::map<int, std::unique_ptr<DeviceMemory>> device_borders;
  std::map<int, std::uint64_t> border_bytes;  ///< of one step
  int at_once = 1;                            ///< steps on their way
  std::size_t steps = 0;                      ///< submitted
  Submitted last;                             ///< whichever program's; where steps go one by one all before have ended
  Submitted drew;                             ///< the last segment of the step that drew last
};

class CompositeExecutable final : public Executable {
 public:
  CompositeExecutable(std::vector<Segment>, const Graph& whole, BorderedWorkspace&,
                      std::span<const std::unique_ptr<Backend>> devices);

  const std::vector<Segment>& segments() const { return segments_; }
  void set_program(std::size_t segment, std::unique_ptr<Executable> program, std::string label);

  Ticket submit(const StepData&, std::span<const Binding> in, std::span<const Binding> out) override;
  void wait(Ticket) override;
  /// Logits are what the last segment gives.
  bool may_be_non_finite() const override { return pieces_.back().program->may_be_non_finite(); }
  std::span<const std::int32_t> drawn() const override { return pieces_.back().program->drawn(); }
  std::string describe() const override;
  void observe(Observer*) override;

 private:
  struct Place {
    Binding binding;          ///< of the first step of steps_at_once()
    std::size_t stride = 0;   ///< to that of the next
    bool is_callers = false;  ///< an output of the whole graph
  };
  struct Piece {
    std::unique_ptr<Executable> program;
    std::string label;    ///< of the device
    std::vector<Place> in, out;
  };

  static Place place(const ValueInfo&, const Borders&, const BorderedWorkspace&);
  static void bind_callers(Binding&, std::span<const Binding> out);
  static std::span<const Binding> bindings(const std::vector<Place>&, std::size_t turn, std::vector<Binding>& into);
  void follow(Piece&);
  std::span<const std::int32_t> known(std::span<const std::int32_t> tokens);

  std::vector<Segment> segments_;
  std::vector<Piece> pieces_;
  std::vector<Binding> in_, out_;
  std::vector<std::int32_t> known_;
  BorderedWorkspace& workspace_;
  Submitted &last_, &drew_;
  std::array<Submitted, kMostStepsAtOnce> ends_;  ///< last segments of the last steps
  std::uint64_t submitted_ = 0;
};

}  // namespace llm
