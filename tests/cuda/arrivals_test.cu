// What other segments hand over lies in the workspace from the beginning of a step to its last reader. Runs without a
// GPU.
#include <algorithm>
#include <initializer_list>
#include <string>
#include <variant>
#include <vector>

#include "backend/cuda/forms_plan.h"
#include "backend/cuda/kernels/act_layout.h"
#include "backend/cuda/kernels/half_panels.h"
#include "backend/cuda/program.h"
#include "graph/builder.h"
#include "graph/partition.h"
#include "graph/passes/passes.h"
#include "support/catch.h"

using namespace llm;

namespace {

constexpr int kEmbd = 512, kExperts = 4, kFf = 256;

/// Router and experts between two norms, as in a mixture: what runs before and behind the experts reads values of
/// others.
Graph mixture(int tokens, DType dense_type = DType::Q4_K, DType expert_type = DType::Q4_K) {
  GraphBuilder b({tokens, 1, tokens});
  Act x = b.embed(b.weight("table", {DType::Q8_0, {kEmbd, 64}}), b.step_input(StepInput::Tokens), "x");
  for (int layer = 0; layer < 2; ++layer) {
    const std::string p = "blk." + std::to_string(layer) + ".";
    b.set_place(layer, Role::Ffn, p);
    const auto linear = [&](Act in, const char* name, std::int64_t n) {
      const Weight w = b.weight(p + name + ".weight", {dense_type, {b.type(in).shape[0], n}});
      return b.linear(in, {.weight = w, .bias = nullptr, .name = name});
    };
    const auto experts = [&](Act in, Index ids, const char* name, std::int64_t n) {
      const Weight w = b.weight(p + name + ".weight", {expert_type, {b.type(in).shape[0], n, kExperts}});
      return b.expert_linear(in, ids, {.weight = w, .bias = nullptr, .name = name});
    };
    const Act h = b.rms_norm(x, b.weight(p + "norm.weight", {DType::F32, {kEmbd}}), 1e-5F, "h");
    const Act dense = linear(h, "dense", kEmbd);
    const Routes routes = b.route(linear(h, "router", kExperts), {.top_k = 2}, "routes");
    b.set_place(layer, Role::Experts, p);
    const Act inner =
        b.glu(Activation::Silu, experts(h, routes.expert, "gate", kFf), experts(h, routes.expert, "up", kFf), "glu");
    const Act moe = b.combine(experts(inner, routes.expert, "down", kEmbd), routes.weight, "moe");
    b.set_place(layer, Role::Ffn, p);
    x = b.add(b.add(x, linear(moe, "mix", kEmbd), "mixed"), dense, "out");
  }
  return std::move(b).finish(x);
}

struct Life {
  std::string name;
  std::size_t from, to;  ///< nodes, both included
  std::uint64_t begin, end;
};

/// Whether a product of the node may read this form of its input: FP8 is read by products in FP8, F16 (and its rest) by
/// the others of many columns; every product may read any other.
bool may_take(const Graph& g, const Node& n, cuda::Form form, cuda::Many many) {
  const bool of_f8 = form == cuda::Form::F8 || form == cuda::Form::F8Scale;
  if (!of_f8 && form != cuda::Form::F16 && form != cuda::Form::F16Rest && form != cuda::Form::F16Unscale) return true;
  const auto operands = product_operands(n.op);
  return std::any_of(operands.begin(), operands.end(), [&](const ProductOperands& p) {
    return cuda::takes_f8(n, g.info(n.in[p.weight]), many) == of_f8;
  });
}

/// Of a form of a value of `rows` rows of n, by what its kernels write; routes are sorted into four lists and 4 words.
std::uint64_t form_bytes(cuda::Form form, std::int64_t n, std::int64_t rows) {
  const auto elements = static_cast<std::uint64_t>(n * rows), of_rows = static_cast<std::uint64_t>(rows);
  switch (form) {
    case cuda::Form::Q8x256:
      return cuda::quantized_bytes(ActFormat::Q8x256, n, rows);
    case cuda::Form::Q8x32:
      return cuda::quantized_bytes(ActFormat::Q8x32, n, rows);
    case cuda::Form::RoundedBf16:
      return 4 * elements;
    case cuda::Form::F16:
    case cuda::Form::F16Rest:
      return 2 * elements;
    case cuda::Form::F16Panels:
      return static_cast<std::uint64_t>(cuda::half_panels_bytes(n, rows));
    case cuda::Form::F8:
      return elements;
    case cuda::Form::F16Unscale:
    case cuda::Form::F8Scale:
      return 4 * of_rows;
    case cuda::Form::RouteGroups:
      return 4 * (4 + 4 * elements);
  }
  return 0;
}

struct Use {
  std::uint32_t value;
  std::size_t node;
};
/// A kernel that serves several nodes runs at the last of them: it uses then what they read that none of them makes,
/// and the sum that a norm among them writes, read or not.
std::vector<Use> uses_of_fused(const Graph& g, const cuda::Fusions& fusions) {
  std::vector<Use> uses;
  const auto add = [&](std::initializer_list<std::size_t> nodes, std::size_t last) {
    for (const std::size_t i : nodes) {
      for (const std::uint32_t v : g.nodes()[i].in) {
        const bool inside = std::ranges::any_of(
            nodes, [&](std::size_t other) { return std::ranges::count(g.nodes()[other].out, v) > 0; });
        if (!inside) uses.push_back({v, last});
      }
      if (std::holds_alternative<AddRmsNorm>(g.nodes()[i].op)) uses.push_back({g.nodes()[i].out[0], last});
    }
  };
  for (const cuda::TokenExpertsNodes& m : fusions.token_experts) {
    add({m.route, m.gate_up, m.glu}, m.glu);
    add({m.down, m.combine}, m.combine);
  }
  for (const cuda::OwnColumn& m : fusions.own_columns) add({m.norm.value_or(m.linear), m.linear}, m.last());
  for (const cuda::CombineNormNodes& m : fusions.combine_norms) add({m.combine, m.norm}, m.norm);
  return uses;
}

/// Everything that is written into the workspace, with the last node that reads it.
std::vector<Life> lives(const Graph& g, const cuda::StepPlan& plan, cuda::Many many) {
  const std::vector<Use> late = uses_of_fused(g, plan.fusions);
  std::vector<Life> all;
  const auto last_use = [&](std::uint32_t value) {
    std::size_t last = 0;
    for (std::size_t i = 0; i < g.nodes().size(); ++i) {
      const Node& n = g.nodes()[i];
      if (std::find(n.in.begin(), n.in.end(), value) != n.in.end()) last = i;
    }
    for (const Use& l : late) {
      if (l.value == value) last = std::max(last, l.node);
    }
    const auto outputs = g.outputs();
    return std::find(outputs.begin(), outputs.end(), value) == outputs.end() ? last : g.nodes().size();
  };
  const auto last_product = [&](std::uint32_t value, cuda::Form form) {
    std::size_t last = 0;
    for (std::size_t i = 0; i < g.nodes().size(); ++i) {
      const Node& n = g.nodes()[i];
      if (!products(n.op).empty() && n.in[0] == value && may_take(g, n, form, many)) last = i;
    }
    return last;
  };
  for (std::size_t i = 0; i < g.nodes().size(); ++i) {
    for (const std::uint32_t v : g.nodes()[i].out) {
      const std::uint64_t at = plan.memory.offset[v];
      REQUIRE(at != MemoryPlan::kNone);
      const std::size_t last = std::max(i, last_use(v));
      all.push_back({g.info(v).name, i, last, at, at + g.info(v).type.bytes()});
      for (int f = 0; f < cuda::kForms; ++f) {
        const auto form = static_cast<cuda::Form>(f);
        const std::uint64_t at_form = plan.form(v, form);
        if (at_form == MemoryPlan::kNone) continue;
        const std::int64_t n = g.info(v).type.shape[0], rows = cuda::row_capacity(g.info(v));
        all.push_back(
            {g.info(v).name + " form", i, last_product(v, form), at_form, at_form + form_bytes(form, n, rows)});
      }
    }
  }
  return all;
}

/// No two that live at a time share bytes.
void expect_apart(const std::vector<Life>& all) {
  for (const Life& a : all) {
    for (const Life& b : all) {
      if (&a == &b || a.to < b.from || b.to < a.from) continue;
      INFO(a.name << " and " << b.name);
      CHECK((a.end <= b.begin || b.end <= a.begin));
    }
  }
}

/// As if the device had a kernel for whatever can be fused.
constexpr cuda::TokenKernels kAnyKernels{
    .makes_columns = [](std::span<const cuda::MatrixType>) { return true; },
    .makes_norms = [](std::span<const cuda::MatrixType>) { return true; },
    .takes_token_experts = [](const cuda::ExpertShapes&) { return true; },
};

const PlacementRule kExpertsElsewhere{
    .first_layer = {}, .last_layer = {}, .role = Role::Experts, .tensor_override = {}, .backend = 1};

}  // namespace

TEST_CASE("values of other segments keep their place until they were read") {
  for (const int tokens : {1, 8, 512}) {
    for (const cuda::Many many :
         {cuda::Many::AsFew, cuda::Many::F16, cuda::Many::F8, cuda::Many::Wgmma, cuda::Many::WgmmaExperts}) {
      INFO(tokens << " tokens, products of many columns " << static_cast<int>(many));
      std::size_t arrivals = 0, forms = 0;
      for (const Segment& s : partition(mixture(tokens), {&kExpertsElsewhere, 1})) {
        if (s.backend == 1) continue;
        const Graph g = cuda::with_arrivals(s.graph);
        const cuda::StepPlan plan = cuda::plan_step(g, many, {});
        const std::vector<Life> all = lives(g, plan, many);
        for (std::size_t i = 0; i < g.nodes().size(); ++i) {
          const Node& n = g.nodes()[i];
          const bool arrives = std::holds_alternative<Reshape>(n.op) && n.in == n.out;
          if (!arrives) continue;
          ++arrivals;
          CHECK(g.info(n.out[0]).kind == ValueKind::Result);
          for (const Node& before : g.nodes().first(i)) CHECK(before.in == before.out);  // only others that arrive
        }
        for (const Life& life : all) forms += life.name.ends_with(" form");
        expect_apart(all);
        CHECK(plan.bytes > 0);
      }
      // Of two layers: what the experts gave, the sum and the dense product that wait for it.
      CHECK(arrivals == 6);
      CHECK(forms > 0);
    }
  }
}

TEST_CASE("what fused kernels of one token read and write keeps its place until they have run") {
  const auto check_plan = [](const Graph& g, cuda::Many many) {
    const cuda::StepPlan plan = cuda::plan_step(g, many, kAnyKernels);
    expect_apart(lives(g, plan, many));
    return plan.fusions;
  };
  const Graph whole = optimize(mixture(1));
  for (const cuda::Many many : {cuda::Many::AsFew, cuda::Many::F16, cuda::Many::F8}) {
    const cuda::Fusions found = check_plan(whole, many);
    CHECK(found.token_experts.size() == 2);
    CHECK(std::ranges::count_if(found.own_columns, [](const cuda::OwnColumn& o) { return o.norm && o.shared; }) == 2);
    for (const Segment& s : partition(whole, {&kExpertsElsewhere, 1})) {
      if (s.backend == 0) check_plan(cuda::with_arrivals(s.graph), many);
    }
  }
}

TEST_CASE("activations come in two parts where rounding them could choose another expert and the weights would not") {
  const auto values_with_rest = [](const Graph& g, cuda::Many many = cuda::Many::F16) {
    const cuda::StepPlan plan = cuda::plan_step(g, many, {});
    std::size_t n = 0;
    for (const Node& node : g.nodes())
      for (const std::uint32_t v : node.out) n += plan.form(v, cuda::Form::F16Rest) != MemoryPlan::kNone;
    return n;
  };
  const auto of_gpu = [](const Graph& whole) {
    const auto segments = partition(whole, {&kExpertsElsewhere, 1});
    return cuda::with_arrivals(segments.front().graph);
  };
  const Graph floats = mixture(512, DType::F16, DType::F16), quantized_experts = mixture(512, DType::F16, DType::Q4_K);
  CHECK(values_with_rest(floats) == 6);  // of a layer: what dense and router share, glu, and moe
  CHECK(values_with_rest(floats, cuda::Many::F8) == 0);
  CHECK(values_with_rest(quantized_experts) == 0);
  CHECK(values_with_rest(mixture(512, DType::Q4_K, DType::Q4_K)) == 0);
  CHECK(values_with_rest(mixture(512, DType::Q4_K, DType::F16)) == 4);  // h and glu
  CHECK(values_with_rest(of_gpu(quantized_experts)) == 1);              // experts elsewhere may be any: h
}
