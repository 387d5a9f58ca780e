#include "graph/verify.h"

#include <set>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/error.h"
#include "graph/shape_rules.h"

namespace llm {
namespace {

class Verifier {
 public:
  explicit Verifier(const Graph& g) : g_(g), ready_(g.values().size(), false) {}

  void run() {
    values();
    for (const Node& n : g_.nodes()) {
      if (std::holds_alternative<KvAppend>(n.op)) stale_.insert(n.in.back());
    }
    for (const Node& n : g_.nodes()) node(n);
    need(!g_.outputs().empty() || !appended_.empty(), [] { return "the graph has no output"; });
    for (std::uint32_t v : g_.outputs())
      need(v < ready_.size() && ready_[v], [] { return "an output is never computed"; });
  }

 private:
  /// `what` gives the text of the error: graphs are legal, and made in numbers.
  template <class F>
  static void need(bool ok, const F& what) {
    if (!ok) throw Error(ErrorKind::Internal, "graph is not legal: " + std::string(what()));
  }

  void values() {
    std::unordered_set<std::string_view> names;
    std::vector<bool> result(g_.values().size(), false);
    for (const Node& n : g_.nodes()) {
      for (std::uint32_t v : n.out) {
        need(v < result.size(), [] { return "a node's result is not a value"; });
        result[v] = true;
      }
    }
    for (std::uint32_t v = 0; v < g_.values().size(); ++v) {
      const ValueInfo& info = g_.info(v);
      ready_[v] = info.kind != ValueKind::Result && !result[v];
      const bool used = result[v] || info.kind != ValueKind::Result;  // passes leave orphans of merged nodes behind
      if (used) need(names.insert(info.name).second, [&] { return "two values are named " + info.name; });
    }
  }

  void node(const Node& n) {
    const auto where = [&] {
      return std::string(name(n.op)) + " -> " + (n.out.empty() ? "nothing" : g_.info(n.out[0]).name);
    };
    std::vector<const ValueInfo*> operands;
    for (std::uint32_t v : n.in) {
      need(v < ready_.size(), [&] { return where() + " reads something that is not a value"; });
      need(ready_[v], [&] { return where() + " reads " + g_.info(v).name + " before it is computed"; });
      operands.push_back(&g_.info(v));
    }
    const std::vector<ResultType> types = infer(n.op, operands, g_.bucket());
    need(types.size() == n.out.size(), [&] { return where() + " has the wrong number of results"; });
    for (std::size_t i = 0; i < types.size(); ++i) result(where, n, types[i], n.out[i]);
    if (std::holds_alternative<KvAppend>(n.op)) cache_order(where, n);
    for (const std::uint32_t v : n.in) {
      if (g_.info(v).kind != ValueKind::Recurrent) continue;
      need(advanced_.insert(v).second, [&] { return where() + ": " + g_.info(v).name + " goes on twice in a step"; });
    }
    if (std::holds_alternative<KvAppend>(n.op)) return;
    for (const std::uint32_t v : n.in)
      need(!stale_.contains(v), [&] { return where() + " reads a cache that this step's rows are not in"; });
  }

  template <class F>
  void result(const F& where, const Node& n, const ResultType& type, std::uint32_t v) {
    const ValueInfo& info = g_.info(v);
    const auto it = [&] { return where() + ": " + info.name; };
    need(!ready_[v], [&] { return it() + " is computed twice"; });
    need(info.kind == type.kind, [&] { return it() + " is of the wrong kind"; });
    if (info.kind == ValueKind::Result) {
      const bool reshape = std::holds_alternative<Reshape>(n.op);
      need(reshape ? info.type.shape.elements() == type.type.shape.elements() : info.type == type.type,
           [&] { return it() + " has type " + to_string(info.type) + ", the op gives " + to_string(type.type); });
      need(info.rows == type.rows, [&] { return it() + " counts the wrong rows"; });
    }
    ready_[v] = true;
  }

  /// A cache is appended to once.
  template <class F>
  void cache_order(const F& where, const Node& n) {
    const CacheType& cache = g_.info(n.out[0]).cache;
    need(g_.info(n.in.back()).cache == cache, [&] { return where() + " changes the cache's type"; });
    need(appended_.insert({cache.layer, cache.part}).second,
         [&] { return where() + ": a second append to one layer's cache"; });
  }

  const Graph& g_;
  std::vector<bool> ready_;
  std::set<std::pair<int, CacheType::Part>> appended_;
  std::unordered_set<std::uint32_t> stale_;     ///< caches as they were before this step's rows
  std::unordered_set<std::uint32_t> advanced_;  ///< recurrent states
};

}  // namespace

void verify(const Graph& g) { Verifier(g).run(); }

}  // namespace llm
