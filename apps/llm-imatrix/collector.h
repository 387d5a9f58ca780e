// Watches a model run and sums, for every matrix, the squares of what enters its columns.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "backend/backend.h"
#include "gguf/file.h"
#include "graph/graph.h"
#include "quantize/imatrix.h"

namespace llm::importance {

enum class LastProduct : std::uint8_t { Leave, Watch };  ///< the one that gives the logits

class Collector final : public Observer {
 public:
  /// `graph`: of any bucket; names are the same in all. `tensors`: of the file.
  Collector(const Graph& graph, const TensorIndex& tensors, LastProduct);
  Collector(const Collector&) = delete;
  Collector& operator=(const Collector&) = delete;

  bool wants_value(std::string_view name) override { return seen_.contains(std::string(name)); }
  void value(std::string_view name, const TensorView& view) override;

  /// By tensor; rows summed are counted per expert where there are experts. Throws ErrorKind::Numeric for sums that are
  /// not finite.
  std::vector<ImportanceEntry> entries() const;

 private:
  /// Of a tensor, whichever products it is in: rows of one are products of their own, and a layer may be gone through
  /// more than once.
  struct Sums {
    std::int64_t width = 0;
    std::vector<double> sums = {};  ///< [width, matrices]: thousands of tokens are summed
    std::vector<std::int64_t> counts = {};
  };
  struct Routed {
    std::string x = {}, ids = {};  ///< values
    std::vector<Sums*> sums = {};
  };
  /// What is to be done when a value has come.
  struct Seen {
    bool keep = false;           ///< for a product whose experts are chosen later
    std::vector<Sums*> add;      ///< of products with this input
    std::vector<Routed> routed;  ///< of products with experts, of which this is a result: their operands are there
  };
  struct Kept {
    TensorType type;
    std::vector<std::byte> data;
  };

  Sums& sums_of(const ValueInfo& weight, std::int64_t matrices);
  void watch_linear(const Graph&, const Node&, LastProduct);
  void watch_experts(const Graph&, const TensorIndex&, const Node&);
  static void add_rows(Sums&, const float* x, std::int64_t rows);
  static void add_routed(Sums&, const Kept& x, const Kept& ids);

  std::map<std::string, Sums> sums_;  ///< by tensor; they stay where they are
  std::unordered_map<std::string, Seen> seen_;
  std::unordered_map<std::string, Kept> kept_;
};

}  // namespace llm::importance
