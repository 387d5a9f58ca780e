// Watches a model run and sums, for every matrix, the squares of what enters its columns.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "backend/backend.h"
#include "graph/graph.h"
#include "quantize/imatrix.h"

namespace llm::importance {

enum class LastProduct : std::uint8_t { Leave, Watch };  ///< the one that gives the logits

class Collector final : public Observer {
 public:
  /// `graph`: of any bucket; names are the same in all.
  Collector(const Graph& graph, LastProduct);

  bool wants_value(std::string_view name) override { return seen_.contains(std::string(name)); }
  void value(std::string_view name, const TensorView& view) override;

  /// By tensor; rows summed are counted per expert where there are experts. Throws ErrorKind::Numeric for sums that are
  /// not finite.
  std::vector<ImportanceEntry> entries() const;

 private:
  /// Matrices that share their input, and so their sums.
  struct Product {
    std::vector<std::string> weights = {};
    std::int64_t width = 0;
    std::int64_t experts = 0;  ///< 0: no experts
    std::string x = {};
    std::string ids = {};           ///< a value, only with experts
    std::vector<double> sums = {};  ///< [width, max(1, experts)]: thousands of tokens are summed
    std::vector<std::int64_t> counts = {};
  };
  /// What is to be done when a value has come.
  struct Seen {
    bool keep = false;                ///< for a product whose experts are chosen later
    std::vector<std::size_t> add;     ///< products with this input
    std::vector<std::size_t> routed;  ///< products with experts, of which this is a result: their operands are there
  };
  struct Kept {
    TensorType type;
    std::vector<std::byte> data;
  };

  void watch_linear(const Graph&, const Node&, LastProduct);
  void watch_experts(const Graph&, const Node&);
  void add_rows(Product&, const float* x, std::int64_t rows);
  void add_routed(Product&);

  std::vector<Product> products_;
  std::unordered_map<std::string, Seen> seen_;
  std::unordered_map<std::string, Kept> kept_;
};

}  // namespace llm::importance
