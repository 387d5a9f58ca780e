// Kernels of every op except the matrix products, as templates over the accumulation type and over the loop that
// spreads independent items over threads. A loop has `threads` and run(n, cost, f): f(item, thread) for items 0 to n -
// 1 of about `cost` operations each; no item depends on another.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>
#include <variant>

#include "backend/host/host.h"
#include "backend/host/interpreter.h"
#include "backend/host/ops.h"
#include "base/error.h"
#include "tensor/activation.h"
#include "tensor/decode.h"

namespace llm::host {

struct SerialLoop {
  int threads = 1;
  template <class F>
  void run(std::int64_t n, std::int64_t /*cost*/, F&& f) const {
    for (std::int64_t i = 0; i < n; ++i) f(i, 0);
  }
};

template <class Acc>
using AttentionHeadFn = void (*)(const AttentionHead&, Acc* sums, float* buffer);
/// f of the rows that a cache of the type has.
template <class F>
auto with_row(DType t, F&& f) {
  switch (t) {
    case DType::F32:
      return f(PlainRow<float>());
    case DType::F16:
      return f(PlainRow<Half>());
    case DType::BF16:
      return f(PlainRow<BFloat16>());
    default:
      return f(DecodedRow());
  }
}
template <class Acc>
AttentionHeadFn<Acc> attention_head_for(CacheFormat format) {
  return with_row(format.k, [&]<class K>(K) {
    return with_row(format.v, []<class V>(V) -> AttentionHeadFn<Acc> { return attention_head<Acc, K, V>; });
  });
}

template <class Acc>
using SelectKeysFn = void (*)(const Selection&, ScoredKey<Acc>* best, float* row);
template <class Acc>
SelectKeysFn<Acc> select_keys_for(DType keys) {
  return with_row(keys, []<class K>(K) -> SelectKeysFn<Acc> { return select_keys<Acc, K>; });
}

template <class Acc>
using SelectBlocksFn = void (*)(const Selection&, const SelectBlocks&, ScoredKey<Acc>* best, float* row);
template <class Acc>
SelectBlocksFn<Acc> select_blocks_for(DType keys) {
  return with_row(keys, []<class K>(K) -> SelectBlocksFn<Acc> { return select_blocks<Acc, K>; });
}

/// One thread's memory in the scratch of a node that selects.
template <class Acc>
struct SelectionScratch {
  std::size_t best = 0;     ///< elements: [top_k + 1]
  std::size_t row = 0;      ///< a key, decoded
  std::size_t queries = 0;  ///< of all heads as their format has them

  SelectionScratch(int top_k, const Shape& q)
      : best(static_cast<std::size_t>(top_k) + 1),
        row(static_cast<std::size_t>(q[0])),
        queries(static_cast<std::size_t>(q[0] * q[1])) {}
  std::size_t bytes() const {
    const std::size_t all = best * sizeof(ScoredKey<Acc>) + (row + queries) * sizeof(float);
    return (all + alignof(ScoredKey<Acc>) - 1) / alignof(ScoredKey<Acc>) * alignof(ScoredKey<Acc>);
  }
};

/// One thread's memory in the scratch of an attention node.
template <class Acc>
struct AttentionScratch {
  std::size_t sums = 0;   ///< elements: [head_dim_v]
  std::size_t row = 0;    ///< a cache's row, decoded
  std::size_t query = 0;  ///< a query as its format has it

  explicit AttentionScratch(const CacheType& c)
      : sums(static_cast<std::size_t>(c.head_dim_v)),
        row(static_cast<std::size_t>(std::max(c.head_dim_k, c.head_dim_v))),
        query(static_cast<std::size_t>(c.head_dim_k)) {}
  std::size_t bytes() const {
    const std::size_t all = sums * sizeof(Acc) + (row + query) * sizeof(float);
    return (all + sizeof(Acc) - 1) / sizeof(Acc) * sizeof(Acc);
  }
};

/// The operand of a ShortConv or a WindowMean that is its state.
inline std::size_t conv_state(const Node& node) { return std::holds_alternative<ShortConv>(node.op) ? 2 : 1; }
/// Of each thread, in elements: a channel with what was before it; what delta_token() works with.
inline std::size_t line_elements(const Graph& graph, const Node& node) {
  return static_cast<std::size_t>(graph.info(node.in[conv_state(node)]).recurrent.shape[1] + graph.bucket().tokens);
}
inline std::size_t delta_elements(const Graph& graph, const Node& node) {
  const Shape& state = graph.info(node.in[5]).recurrent.shape;
  return static_cast<std::size_t>(2 * state[0] + 3 * state[1]);
}
/// What wkv6_token() and wkv7_token() work with; `state`: the operand.
inline std::size_t wkv_elements(const Graph& graph, const Node& node, std::size_t state) {
  return static_cast<std::size_t>(5 * graph.info(node.in[state]).recurrent.shape[0]);
}

/// Scratch of the ops in this file.
template <class Acc>
std::size_t common_scratch_bytes(const Graph& graph, const Node& node, int threads) {
  const auto of_all = [&](std::size_t bytes) { return static_cast<std::size_t>(threads) * bytes; };
  if (std::holds_alternative<Attention>(node.op) || std::holds_alternative<CompressedAttention>(node.op))
    return of_all(AttentionScratch<Acc>(graph.info(node.in[1]).cache).bytes());
  if (const auto* select = std::get_if<SelectKeys>(&node.op))
    return of_all(SelectionScratch<Acc>(select->top_k, graph.info(node.in[0]).type.shape).bytes());
  if (const auto* select = std::get_if<SelectBlocks>(&node.op))
    return of_all(SelectionScratch<Acc>(select->top_k / select->block, graph.info(node.in[0]).type.shape).bytes());
  if (std::holds_alternative<ShortConv>(node.op) || std::holds_alternative<WindowMean>(node.op))
    return of_all(line_elements(graph, node) * sizeof(float));
  if (std::holds_alternative<GatedDelta>(node.op)) return of_all(delta_elements(graph, node) * sizeof(Acc));
  if (std::holds_alternative<Wkv6>(node.op)) return of_all(wkv_elements(graph, node, 4) * sizeof(Acc));
  if (std::holds_alternative<Wkv7>(node.op)) return of_all(wkv_elements(graph, node, 8) * sizeof(Acc));
  if (std::holds_alternative<Route>(node.op))
    return of_all(static_cast<std::size_t>(graph.info(node.in[0]).type.shape[0]) * sizeof(Acc));
  return 0;
}

/// Visitor over Op. The matrix products are the subclass's business.
template <class Acc, class Loop>
class CommonKernels {
 public:
  using Run = std::function<void(const NodeRun&)>;

  CommonKernels(const NodeSite& site, Loop loop) : site_(site), loop_(loop) {}

  Run operator()(const Embed&) const {
    const TensorType table = site_.in(0).type;
    return [table, decode = decoder(table.dtype), loop = loop_](const NodeRun& run) {
      const Operand &ids = run.in[1], &y = run.out[0];
      const std::byte* const rows = run.in[0].data;
      for (std::int64_t i = 0; i < y.vectors(); ++i) {
        check(ids.i32()[i] >= 0 && ids.i32()[i] < table.shape[1], "a token or position is a row of its embedding");
      }
      loop.run(y.vectors(), y.width(), [&](std::int64_t i, int) {
        const auto id = static_cast<std::size_t>(ids.i32()[i]);
        decode(rows + id * table.row_bytes(), y.f32_out() + i * y.width(), y.width());
      });
    };
  }

  Run operator()(const HashIds& op) const {
    return [op, heads = std::ssize(op.sizes), states = states_of(site_.in(1))](const NodeRun& run) {
      for (std::size_t s = 0; s < run.step.sequences.size(); ++s) {
        const SequenceSpan& span = run.step.sequences[s];
        const StateMove& move = run.step.states[s];
        hash_ids(op, {run.in[0].i32() + span.first_token, static_cast<std::size_t>(span.n_tokens)}, states.from(move),
                 states.at(move.to), run.out[0].i32_out() + span.first_token * heads);
      }
    };
  }

  Run operator()(const LayerNorm& op) const {
    const std::int64_t weights = norm_weights();
    return [op, w = vector(1), bias = vector(2), weights, loop = loop_](const NodeRun& run) {
      const Operand &x = run.in[0], &y = run.out[0];
      const std::int64_t n = x.width();
      loop.run(x.vectors(), n, [&](std::int64_t i, int) {
        const std::int64_t own = i % weights * n;
        layer_norm<Acc>(x.f32() + i * n, w.data() ? w.data() + own : nullptr, bias.data() ? bias.data() + own : nullptr,
                        y.f32_out() + i * n, n, op.eps);
      });
    };
  }

  Run operator()(const RmsNorm& op) const {
    const std::int64_t weights = norm_weights();
    return [op, w = vector(1), weights, loop = loop_](const NodeRun& run) {
      const Operand &x = run.in[0], &y = run.out[0];
      const std::int64_t n = x.width();
      loop.run(x.vectors(), n, [&](std::int64_t i, int) {
        rms_norm<Acc>(x.f32() + i * n, w.data() ? w.data() + i % weights * n : nullptr, y.f32_out() + i * n, n, op.eps);
      });
    };
  }

  Run operator()(const AddRmsNorm& op) const {
    return [op, w = VectorWeight(site_.in(2), site_.weights), loop = loop_](const NodeRun& run) {
      const Operand &a = run.in[0], &b = run.in[1], &sum = run.out[0], &y = run.out[1];
      const std::int64_t n = a.width();
      loop.run(a.vectors(), n, [&](std::int64_t i, int) {
        const std::int64_t at = i * n;
        add_rms_norm<Acc>(a.f32() + at, b.f32() + at, w.data(), sum.f32_out() + at, y.f32_out() + at, n, op.eps);
      });
    };
  }

  Run operator()(const Glu& op) const {
    return [op, loop = loop_](const NodeRun& run) {
      const Operand &gate = run.in[0], &up = run.in[1], &y = run.out[0];
      const std::int64_t n = up.width();
      loop.run(up.vectors(), 16 * n, [&](std::int64_t i, int) {
        const float* const x = up.f32() + i * n;
        float* const out = y.f32_out() + i * n;
        if (gate.width() == n) {
          glu<Acc>(op, gate.f32() + i * n, x, out, n);
        } else {
          glu_of_one<Acc>(op, gate.f32()[i], x, out, n);
        }
      });
    };
  }

  Run operator()(const Activate& op) const {
    return [op, loop = loop_](const NodeRun& run) {
      const Operand &x = run.in[0], &y = run.out[0];
      const std::int64_t n = x.width();
      loop.run(x.vectors(), 16 * n,
               [&](std::int64_t i, int) { activate<Acc>(op, x.f32() + i * n, y.f32_out() + i * n, n); });
    };
  }

  Run operator()(const RopeTable& op) const {
    const VectorWeight factors = vector(1);
    return [angles = RopeAngles(op, factors.data()), loop = loop_](const NodeRun& run) {
      const Operand &positions = run.in[0], &y = run.out[0];
      loop.run(y.rows, 40 * y.row_elems,
               [&](std::int64_t i, int) { angles.row(positions.i32()[i], y.f32_out() + i * y.row_elems); });
    };
  }

  Run operator()(const PositionScale& op) const {
    return [op](const NodeRun& run) {
      const Operand &positions = run.in[0], &y = run.out[0];
      for (std::int64_t i = 0; i < y.rows; ++i)
        y.f32_out()[i] = static_cast<float>(position_scale<Acc>(op, positions.i32()[i]));
    };
  }

  Run operator()(const Rope& op) const {
    return [op, loop = loop_](const NodeRun& run) {
      const Operand &x = run.in[0], &table = run.in[1], &y = run.out[0];
      const std::int64_t head_dim = x.width(), heads = x.row_elems / head_dim;
      loop.run(x.rows, x.row_elems, [&](std::int64_t i, int) {
        for (std::int64_t h = 0; h < heads; ++h) {
          const std::int64_t at = i * x.row_elems + h * head_dim;
          rope_head<Acc>(op, x.f32() + at, table.f32() + i * table.row_elems, y.f32_out() + at, head_dim);
        }
      });
    };
  }

  Run operator()(const KvAppend&) const {
    const CacheSides sides = cache_sides(site_.in(site_.node.in.size() - 1).cache);
    return [sides](const NodeRun& run) {
      append(run, run.in[0], sides.keys, sides.k);
      if (run.in.size() > 2) append(run, run.in[1], sides.values, sides.v);
    };
  }

  Run operator()(const SelectKeys& op) const {
    const CacheSides sides = cache_sides(site_.in(site_.node.in.size() - 1).cache);
    const SelectionPlan plan{.weighted = site_.node.in.size() > 2,
                             .heads = site_.in(0).type.shape[1],
                             .top_k = op.top_k,
                             .choice = op.choice,
                             .index = sides.k,
                             .query = info(sides.k.type).quantized() ? op.query : ActFormat::F32,
                             .select = select_keys_for<Acc>(sides.k.type),
                             .scratch = SelectionScratch<Acc>(op.top_k, site_.in(0).type.shape)};
    return [plan, loop = loop_](const NodeRun& run) {
      const StateGroup& group = run.step.groups[0];
      for (std::size_t s = 0; s < run.step.sequences.size(); ++s)
        select_sequence(run, run.step.sequences[s],
                        group.block_table.data() + s * static_cast<std::size_t>(group.stride), plan, loop);
    };
  }

  Run operator()(const SelectBlocks& op) const {
    const CacheSides sides = cache_sides(site_.in(1).cache);
    const BlockPlan plan{.op = op,
                         .index = sides.k,
                         .query = info(sides.k.type).quantized() ? op.query : ActFormat::F32,
                         .select = select_blocks_for<Acc>(sides.k.type),
                         .scratch = SelectionScratch<Acc>(op.top_k / op.block, site_.in(0).type.shape)};
    return [plan, loop = loop_](const NodeRun& run) {
      const StateGroup& group = run.step.groups[0];
      for (std::size_t s = 0; s < run.step.sequences.size(); ++s)
        select_blocks_of(run, run.step.sequences[s],
                         group.block_table.data() + s * static_cast<std::size_t>(group.stride), plan, loop);
    };
  }

  Run operator()(const Attention& op) const {
    const CacheType cache = site_.in(1).cache;
    const CacheSides sides = cache_sides(cache);
    AttentionHead head;
    head.k = sides.k;
    head.v = sides.v;
    head.scale = op.scale;
    head.soft_cap = op.soft_cap;
    const AttentionPlan plan{.access = cache.access,
                             .window = op.window,
                             .max_bias = op.max_bias,
                             .query = info(sides.k.type).quantized() ? op.query : ActFormat::F32,
                             .attend = attention_head_for<Acc>(site_.cache.format()),
                             .scratch = AttentionScratch<Acc>(cache)};
    const VectorWeight sinks = cache.access == CacheType::Access::Whole ? vector(2) : VectorWeight();
    return attend(head, plan, sinks);
  }

  Run operator()(const CompressedAttention& op) const {
    const CacheType cache = site_.in(1).cache;
    const CacheSides sides = cache_sides(cache);
    AttentionHead head;
    head.k = sides.k;
    head.v = sides.v;
    head.scale = op.scale;
    head.compressed.rows = cache_sides(site_.in(2).cache).k;
    head.compressed.all = site_.node.in.size() == 4;
    const AttentionPlan plan{.access = cache.access,
                             .window = op.window,
                             .query = info(sides.k.type).quantized() ? op.query : ActFormat::F32,
                             .attend = attention_head_for<Acc>(site_.cache.format()),
                             .scratch = AttentionScratch<Acc>(cache)};
    return attend(head, plan, vector(3));
  }

  Run operator()(const ShortConv& op) const {
    ConvRun conv;
    conv.activation = op.activation;
    conv.width = site_.in(1).type.shape[0];
    conv.dilation = op.dilation;
    return convolve(conv, VectorWeight(site_.in(1), site_.weights), vector(3));
  }

  Run operator()(const WindowMean& op) const {
    ConvRun mean;
    mean.activation = Activation::Identity;
    mean.width = op.width;
    return convolve(mean, {}, {});
  }

  Run operator()(const Compress&) const {
    const Shape& state = site_.in(4).recurrent.shape;
    CompressRun shape;
    shape.n = state[0];
    shape.parts = state[2];
    shape.stride = site_.in(2).type.shape[1];
    return [shape, places = vector(2), states = states_of(site_.in(4)), loop = loop_](const NodeRun& run) {
      for (std::size_t s = 0; s < run.step.sequences.size(); ++s) {
        const SequenceSpan& span = run.step.sequences[s];
        const std::int64_t width = shape.parts * shape.n;
        CompressRun c = shape;
        c.x = run.in[0].f32() + span.first_token * width;
        c.scores = run.in[1].f32() + span.first_token * width;
        c.places = places.data();
        c.positions = run.in[3].i32() + span.first_token;
        c.state = states.begin(run.step.states[s], 0, 3 * width);
        c.y = run.out[0].f32_out() + span.first_token * c.n;
        c.tokens = span.n_tokens;
        loop.run(c.n, c.tokens * c.parts * 40, [&](std::int64_t i, int) { compress_element<Acc>(c, i); });
      }
    };
  }

  Run operator()(const GatedDelta& op) const {
    const Shape& shape = site_.in(5).recurrent.shape;
    const DeltaPlan plan{
        .op = op, .dk = shape[1], .dv = shape[0], .heads = shape[2], .work = delta_elements(site_.graph, site_.node)};
    return [plan, a = VectorWeight(site_.in(3), site_.weights), bias = VectorWeight(site_.in(4), site_.weights),
            states = states_of(site_.in(5)), loop = loop_](const NodeRun& run) {
      for (std::size_t s = 0; s < run.step.sequences.size(); ++s) {
        const SequenceSpan& span = run.step.sequences[s];
        const StateMove& move = run.step.states[s];
        const std::int64_t size = plan.dk * plan.dv;
        loop.run(plan.heads, 8 * size * span.n_tokens, [&](std::int64_t h, int thread) {
          float* const state = states.begin(move, h, size);
          Acc* const work = reinterpret_cast<Acc*>(run.scratch) + static_cast<std::size_t>(thread) * plan.work;
          for (std::int64_t t = span.first_token; t < span.first_token + span.n_tokens; ++t)
            delta_token(delta_operands(run, plan, a.data(), bias.data(), t, h), state, plan.dk, plan.dv, plan.op.eps,
                        work);
        });
      }
    };
  }

  Run operator()(const SelectiveScan& op) const {
    const Shape& shape = site_.in(5).recurrent.shape;
    const ScanPlan plan{.groups = op.groups,
                        .n = shape[1],
                        .p = shape[0],
                        .heads = shape[2],
                        .of_elements = scans_elements(site_.in(2).type.shape, shape)};
    return [plan, a = vector(2), d = vector(3), bias = vector(4), states = states_of(site_.in(5)),
            loop = loop_](const NodeRun& run) {
      for (std::size_t s = 0; s < run.step.sequences.size(); ++s) {
        const SequenceSpan& span = run.step.sequences[s];
        const std::int64_t size = plan.n * plan.p;
        loop.run(plan.heads, 5 * size * span.n_tokens, [&](std::int64_t h, int) {
          float* const state = states.begin(run.step.states[s], h, size);
          for (std::int64_t t = span.first_token; t < span.first_token + span.n_tokens; ++t)
            scan_token(scan_operands(run, plan, {a.data(), d.data(), bias.data()}, t, h), state, plan.n, plan.p);
        });
      }
    };
  }

  Run operator()(const TokenShift&) const {
    return [channels = site_.in(0).type.shape[0], states = states_of(site_.in(1)), loop = loop_](const NodeRun& run) {
      for (std::size_t s = 0; s < run.step.sequences.size(); ++s) {
        const SequenceSpan& span = run.step.sequences[s];
        const StateMove& move = run.step.states[s];
        const std::int64_t first = span.first_token * channels;
        loop.run(channels, span.n_tokens, [&](std::int64_t i, int) {
          shift_channel(run.in[0].f32() + first, states.from(move), states.at(move.to), run.out[0].f32_out() + first,
                        channels, span.n_tokens, i);
        });
      }
    };
  }

  Run operator()(const Lerp&) const {
    const Shape& w = site_.in(2).type.shape;
    return
        [n = w[0], m = w[1], more = site_.node.in.size() > 3, weights = vector(2), loop = loop_](const NodeRun& run) {
          loop.run(run.in[0].rows, 3 * n * m, [&](std::int64_t i, int) {
            for (std::int64_t j = 0; j < m; ++j)
              lerp<Acc>(run.in[0].f32() + i * n, run.in[1].f32() + i * n, weights.data() + j * n,
                        more ? run.in[3].f32() + (i * m + j) * n : nullptr,
                        run.out[static_cast<std::size_t>(j)].f32_out() + i * n, n);
          });
        };
  }

  Run operator()(const Wkv6&) const {
    const std::int64_t n = site_.in(4).recurrent.shape[0],
                       sharing = site_.in(0).type.shape[0] / site_.in(1).type.shape[0];
    const auto token = [n, sharing, first = vector(5)](const NodeRun& run, std::int64_t t, std::int64_t h) {
      const auto at = [&](std::size_t i, std::int64_t head) {
        return run.in[i].f32() + t * run.in[i].row_elems + head * n;
      };
      return Wkv6Token{.r = at(0, h),
                       .k = at(1, h / sharing),
                       .v = at(2, h / sharing),
                       .w = at(3, h),
                       .first = first.data() ? first.data() + h * n : nullptr,
                       .y = run.out[0].f32_out() + t * run.out[0].row_elems + h * n};
    };
    return wkv(4, [token, n](const NodeRun& run, std::int64_t t, std::int64_t h, float* state, Acc* work) {
      wkv6_token(token(run, t, h), state, n, work);
    });
  }

  Run operator()(const Wkv7&) const {
    const auto token = [n = site_.in(8).recurrent.shape[0], k_k = vector(5), k_a = vector(6), r_k = vector(7),
                        mixed = site_.node.in.size() > 9](const NodeRun& run, std::int64_t t, std::int64_t h) {
      const std::int64_t own = h * n, first = t * run.in[0].row_elems + own;
      const auto at = [&](std::size_t i) { return run.in[i].f32() + first; };
      return Wkv7Token{.r = at(0),
                       .k = at(1),
                       .v = at(2),
                       .w = at(3),
                       .a = at(4),
                       .k_k = k_k.data() + own,
                       .k_a = k_a.data() + own,
                       .r_k = r_k.data() + own,
                       .v_first = mixed ? at(9) : nullptr,
                       .mix = mixed ? at(10) : nullptr,
                       .y = run.out[0].f32_out() + first,
                       .own = run.out[1].f32_out() + first};
    };
    return wkv(
        8, [token, n = site_.in(8).recurrent.shape[0]](const NodeRun& run, std::int64_t t, std::int64_t h, float* state,
                                                       Acc* work) { wkv7_token(token(run, t, h), state, n, work); });
  }

  Run operator()(const Route& op) const {
    if (site_.node.in.size() == 3) return route_by_table(op);
    return [op, bias = vector(1), loop = loop_](const NodeRun& run) {
      const Operand &logits = run.in[0], &ids = run.out[0], &weights = run.out[1];
      const std::int64_t n = logits.width();
      loop.run(logits.rows, n * (op.top_k + 16), [&](std::int64_t i, int thread) {
        route_token(op, logits.f32() + i * n, bias.data(), n, ids.i32_out() + i * op.top_k,
                    weights.f32_out() + i * op.top_k, reinterpret_cast<Acc*>(run.scratch) + thread * n);
      });
    };
  }

  Run operator()(const Combine&) const {
    return [loop = loop_](const NodeRun& run) {
      const Operand &x = run.in[0], &weights = run.in[1], &y = run.out[0];
      const std::int64_t n = y.row_elems, top_k = x.row_elems / n;
      loop.run(y.rows, x.row_elems, [&](std::int64_t i, int) {
        combine_token<Acc>(x.f32() + i * x.row_elems, weights.f32() + i * top_k, top_k, y.f32_out() + i * n, n);
      });
    };
  }

  Run operator()(const StreamMix&) const {
    const Shape &x_shape = site_.in(0).type.shape, &w_shape = site_.in(1).type.shape;
    return [n = x_shape[0], m = x_shape[1], k = w_shape[1], loop = loop_](const NodeRun& run) {
      const Operand &x = run.in[0], &w = run.in[1], &y = run.out[0];
      loop.run(y.rows, n * m * k, [&](std::int64_t i, int) {
        mix_row<Acc>(x.f32() + i * n * m, w.f32() + i * m * k, n, m, k, y.f32_out() + i * n * k);
      });
    };
  }

  Run operator()(const StreamAdd& op) const {
    const Shape& shape = site_.in(0).type.shape;
    return [op, weighted = site_.node.in.size() > 2, n = shape[0], m = shape[1], loop = loop_](const NodeRun& run) {
      const Operand &x = run.in[0], &added = run.in[1], &y = run.out[0];
      loop.run(y.rows, n * m, [&](std::int64_t i, int) {
        const float* const w = weighted ? run.in[2].f32() + i * m : nullptr;
        spread_row<Acc>(op, x.f32() + i * n * m, added.f32() + i * n, w, n, m, y.f32_out() + i * n * m);
      });
    };
  }

  Run operator()(const StreamWeights& op) const {
    const bool whole = site_.node.out.size() > 1;
    return [op, whole, scales = vector(1), biases = vector(2), loop = loop_](const NodeRun& run) {
      const Operand &x = run.in[0], &read = run.out[0];
      const std::int64_t m = read.row_elems;
      loop.run(x.rows, op.iterations * m * m * 10, [&](std::int64_t i, int) {
        float* const write = whole ? run.out[1].f32_out() + i * m : nullptr;
        float* const mix = whole ? run.out[2].f32_out() + i * m * m : nullptr;
        stream_weights<Acc>(op, x.f32() + i * x.row_elems, scales.data(), biases.data(), m, read.f32_out() + i * m,
                            write, mix);
      });
    };
  }

  Run operator()(const StreamMean&) const {
    const Shape& shape = site_.in(0).type.shape;
    return [n = shape[0], m = shape[1], loop = loop_](const NodeRun& run) {
      const Operand &x = run.in[0], &gate = run.in[1], &y = run.out[0];
      loop.run(y.rows, 16 * n * m, [&](std::int64_t i, int) {
        stream_mean<Acc>(x.f32() + i * n * m, gate.f32() + i * n * m, n, m, y.f32_out() + i * n);
      });
    };
  }

  Run operator()(const StreamBlend& op) const {
    const Shape& shape = site_.in(0).type.shape;
    return [op, w = vector(2), n = shape[0], m = shape[1], loop = loop_](const NodeRun& run) {
      const Operand &x = run.in[0], &last = run.in[1], &y = run.out[0];
      loop.run(y.rows, 4 * n * (m + 1), [&](std::int64_t i, int) {
        stream_blend<Acc>(op, x.f32() + i * n * m, last.f32() + i * n, w.data(), n, m, y.f32_out() + i * n);
      });
    };
  }

  Run operator()(const MatchGate&) const {
    return [loop = loop_](const NodeRun& run) {
      const Operand &a = run.in[0], &b = run.in[1], &y = run.out[0];
      const std::int64_t n = a.width();
      loop.run(a.vectors(), n,
               [&](std::int64_t i, int) { y.f32_out()[i] = match_gate<Acc>(a.f32() + i * n, b.f32() + i * n, n); });
    };
  }

  Run operator()(const GaussianTop& op) const {
    return [op, loop = loop_](const NodeRun& run) {
      const Operand &x = run.in[0], &y = run.out[0];
      const std::int64_t n = x.width();
      loop.run(x.vectors(), 4 * n,
               [&](std::int64_t i, int) { gaussian_top<Acc>(x.f32() + i * n, y.f32_out() + i * n, n, op.deviations); });
    };
  }

  Run operator()(const Add&) const {
    return [](const NodeRun& run) {
      const float *a = run.in[0].f32(), *b = run.in[1].f32();
      float* const y = run.out[0].f32_out();
      for (std::int64_t i = 0; i < run.out[0].elements(); ++i) y[i] = a[i] + b[i];
    };
  }

  Run operator()(const Scale& op) const {
    const Shape of = site_.node.in.size() > 1 ? site_.in(1).type.shape : Shape{1};
    const std::int64_t weights = of.elements(), span = scales_vectors(of) ? site_.in(0).type.shape[0] : 1;
    return [op, weights, span, w = vector(1)](const NodeRun& run) {
      const float* const x = run.in[0].f32();
      float* const y = run.out[0].f32_out();
      for (std::int64_t i = 0; i < run.out[0].elements(); ++i)
        y[i] = x[i] * (w.data() != nullptr ? op.factor * w.data()[i / span % weights] : op.factor);
    };
  }

  Run operator()(const SoftCap& op) const {
    return [op, loop = loop_](const NodeRun& run) {
      const Operand &x = run.in[0], &y = run.out[0];
      const std::int64_t n = x.width();
      loop.run(x.vectors(), 16 * n, [&](std::int64_t row, int) {
        for (std::int64_t i = row * n; i < (row + 1) * n; ++i)
          y.f32_out()[i] = static_cast<float>(soft_capped<Acc>(x.f32()[i], op.cap));
      });
    };
  }

  /// One thread, element after element: the caller's function may throw, and need not bear being called at once.
  Run operator()(const Map& op) const {
    check(op.function != nullptr && *op.function, "a Map has its function");
    return [function = op.function](const NodeRun& run) {
      const float* const x = run.in[0].f32();
      float* const y = run.out[0].f32_out();
      for (std::int64_t i = 0; i < run.out[0].elements(); ++i) y[i] = (*function)(x[i]);
    };
  }

  Run operator()(const Rows&) const {
    return [](const NodeRun& run) {
      const Operand &x = run.in[0], &rows = run.in[1], &y = run.out[0];
      for (std::int64_t i = 0; i < y.rows; ++i) {
        std::copy_n(x.f32() + rows.i32()[i] * x.row_elems, x.row_elems, y.f32_out() + i * y.row_elems);
      }
    };
  }

  Run operator()(const Slice& op) const {
    return [op](const NodeRun& run) {
      const Operand &x = run.in[0], &y = run.out[0];
      for (std::int64_t i = 0; i < y.vectors(); ++i)
        std::copy_n(x.f32() + i * x.width() + op.begin, op.n, y.f32_out() + i * op.n);
    };
  }

  Run operator()(const Concat&) const {
    return [](const NodeRun& run) {
      const Operand &a = run.in[0], &b = run.in[1], &y = run.out[0];
      const std::int64_t of_one = b.shape()[1] == 1 ? a.shape()[1] : 1;  // heads of a to one of b
      for (std::int64_t i = 0; i < y.vectors(); ++i) {
        float* const to = std::copy_n(a.f32() + i * a.width(), a.width(), y.f32_out() + i * y.width());
        std::copy_n(b.f32() + i / of_one * b.width(), b.width(), to);
      }
    };
  }

  Run operator()(const HeadIds&) const {
    return [](const NodeRun& run) {
      const Operand& ids = run.out[0];
      for (std::int64_t i = 0; i < ids.elements(); ++i) ids.i32_out()[i] = static_cast<std::int32_t>(i % ids.row_elems);
    };
  }

  Run operator()(const GroupIds& op) const {
    return [op](const NodeRun& run) {
      const Operand &ids = run.in[0], &groups = run.out[0];
      for (std::int64_t i = 0; i < groups.elements(); ++i) groups.i32_out()[i] = ids.i32()[i] / op.size;
    };
  }

  Run operator()(const Silence& op) const {
    return [op](const NodeRun& run) {
      const Operand &x = run.in[0], &y = run.out[0];
      for (std::int64_t i = 0; i < y.rows; ++i) {
        float* const row = y.f32_out() + i * y.row_elems;
        std::copy_n(x.f32() + i * x.row_elems, x.row_elems, row);
        std::fill_n(row + op.begin, op.n, std::numeric_limits<float>::lowest());
      }
    };
  }

  /// The memory plan lets both sides share their bytes, except where the caller brings memory for both.
  Run operator()(const Reshape&) const {
    return [](const NodeRun& run) {
      if (run.in[0].data == run.out[0].data) return;
      std::memcpy(run.out[0].data, run.in[0].data, static_cast<std::size_t>(run.out[0].elements()) * sizeof(float));
    };
  }

 protected:
  /// Operand i, a weight; nothing where the node has not so many.
  VectorWeight vector(std::size_t i) const {
    return i < site_.node.in.size() ? VectorWeight(site_.in(i), site_.weights) : VectorWeight();
  }
  /// Of a norm: vectors that its weight has, one where it has none.
  std::int64_t norm_weights() const { return site_.node.in.size() > 1 ? site_.in(1).type.shape.rows() : 1; }

  NodeSite site_;
  Loop loop_;

 private:
  /// Both sides of a layer's cache; `keys` and `values` are their bytes to write to.
  struct CacheSides {
    std::byte *keys, *values;
    CacheRows k, v;
  };
  CacheSides cache_sides(const CacheType& c) const {
    std::byte* const keys = site_.cache.k(c.layer, c.part);
    std::byte* const values = site_.cache.v(c.layer, c.part);
    const CacheFormat format = site_.cache.format();
    return {keys,
            values,
            {keys, format.k, c.kv_heads, c.head_dim_k, c.stride},
            {values, format.v, c.kv_heads, c.head_dim_v}};
  }

  Run convolve(ConvRun conv, const VectorWeight& w, const VectorWeight& bias) const {
    conv.channels = site_.in(0).type.shape[0];
    return [conv, w, bias, states = states_of(site_.in(conv_state(site_.node))),
            line = line_elements(site_.graph, site_.node), loop = loop_](const NodeRun& run) {
      for (std::size_t s = 0; s < run.step.sequences.size(); ++s) {
        const SequenceSpan& span = run.step.sequences[s];
        ConvRun c = conv;
        c.w = w.data();
        c.bias = bias.data();
        c.tokens = span.n_tokens;
        c.x = run.in[0].f32() + span.first_token * c.channels;
        c.y = run.out[0].f32_out() + span.first_token * c.channels;
        c.from = states.from(run.step.states[s]);
        c.to = states.at(run.step.states[s].to);
        loop.run(c.channels, c.tokens * (2 * c.width + 16), [&](std::int64_t channel, int thread) {
          convolve_channel<Acc>(c, channel,
                                reinterpret_cast<float*>(run.scratch) + static_cast<std::size_t>(thread) * line);
        });
      }
    };
  }

  /// A layer's recurrent state, slot by slot.
  struct States {
    float* first;
    std::int64_t elements;
    float* at(std::int32_t slot) const { return first + slot * elements; }
    const float* from(const StateMove& move) const { return move.from < 0 ? nullptr : at(move.from); }
    /// Part `i` of a slot's parts of `size` elements where a step leaves it, with what it was before the step.
    float* begin(const StateMove& move, std::int64_t i, std::int64_t size) const {
      float* const state = at(move.to) + i * size;
      if (move.from < 0) {
        std::fill_n(state, size, 0.0f);
      } else if (move.from != move.to) {
        std::copy_n(at(move.from) + i * size, size, state);
      }
      return state;
    }
  };
  States states_of(const ValueInfo& v) const {
    return {reinterpret_cast<float*>(site_.cache.recurrent(v.recurrent)), v.recurrent.shape.elements()};
  }

  /// f(run, token, head, its state, the thread's work); `state`: the operand.
  template <class F>
  Run wkv(std::size_t state, const F& f) const {
    const Shape& shape = site_.in(state).recurrent.shape;
    return [f, size = shape[0] * shape[1], heads = shape[2], all = wkv_elements(site_.graph, site_.node, state),
            states = states_of(site_.in(state)), loop = loop_](const NodeRun& run) {
      for (std::size_t s = 0; s < run.step.sequences.size(); ++s) {
        const SequenceSpan& span = run.step.sequences[s];
        loop.run(heads, 8 * size * span.n_tokens, [&](std::int64_t h, int thread) {
          float* const memory = states.begin(run.step.states[s], h, size);
          Acc* const work = reinterpret_cast<Acc*>(run.scratch) + static_cast<std::size_t>(thread) * all;
          for (std::int64_t t = span.first_token; t < span.first_token + span.n_tokens; ++t) f(run, t, h, memory, work);
        });
      }
    };
  }

  struct DeltaPlan {
    GatedDelta op;
    std::int64_t dk, dv, heads;
    std::size_t work;
  };
  /// Of token t and value head h.
  static DeltaToken<Acc> delta_operands(const NodeRun& run, const DeltaPlan& p, const float* a, const float* bias,
                                        std::int64_t t, std::int64_t h) {
    const std::int64_t key_head =
        p.op.sharing == HeadSharing::Tiled ? h % p.op.key_heads : h / (p.heads / p.op.key_heads);
    const float* const qkv = run.in[0].f32() + t * run.in[0].row_elems;
    const std::int64_t decays = run.in[1].row_elems / p.heads;
    const auto rate = static_cast<Acc>(run.in[2].f32()[t * p.heads + h]);
    return {.q = qkv + key_head * p.dk,
            .k = qkv + (p.op.key_heads + key_head) * p.dk,
            .v = qkv + 2 * p.op.key_heads * p.dk + h * p.dv,
            .alpha = run.in[1].f32() + (t * p.heads + h) * decays,
            .bias = bias + h * decays,
            .decays = decays,
            .a = static_cast<Acc>(a[h]),
            .rate = sigmoid(rate),
            .floor = static_cast<Acc>(p.op.floor),
            .y = run.out[0].f32_out() + (t * p.heads + h) * p.dv};
  }

  struct ScanPlan {
    std::int64_t groups, n, p, heads;
    bool of_elements;
  };
  /// Of all heads.
  struct ScanWeights {
    const float *a, *d, *bias;
  };
  /// Of token t and head h.
  static ScanToken<Acc> scan_operands(const NodeRun& run, const ScanPlan& p, const ScanWeights& w, std::int64_t t,
                                      std::int64_t h) {
    const float* const x = run.in[0].f32() + t * run.in[0].row_elems;
    const float* const b = x + p.heads * p.p + h / (p.heads / p.groups) * p.n;
    const std::int64_t own = p.of_elements ? p.p : 1;
    return {.x = x + h * p.p,
            .b = b,
            .c = b + p.groups * p.n,
            .dt = run.in[1].f32() + (t * p.heads + h) * own,
            .a = w.a + h * own * (p.of_elements ? p.n : 1),
            .d = w.d + h * own,
            .bias = w.bias + h * own,
            .of_elements = p.of_elements,
            .y = run.out[0].f32_out() + (t * p.heads + h) * p.p};
  }

  Run route_by_table(const Route& op) const {
    const std::int64_t experts = site_.in(0).type.shape[0], vocab = site_.in(1).type.shape[1];
    return [op, experts, vocab, loop = loop_](const NodeRun& run) {
      const Operand &logits = run.in[0], &table = run.in[1], &tokens = run.in[2];
      for (std::int64_t i = 0; i < logits.rows; ++i) {
        check(tokens.i32()[i] >= 0 && tokens.i32()[i] < vocab, "a token is a row of the table");
        std::int32_t* const ids = run.out[0].i32_out() + i * op.top_k;
        std::copy_n(table.i32() + std::int64_t{tokens.i32()[i]} * op.top_k, op.top_k, ids);
        check(std::all_of(ids, ids + op.top_k, [&](std::int32_t id) { return id >= 0 && id < experts; }),
              "a table names experts");
      }
      loop.run(logits.rows, experts * 16, [&](std::int64_t i, int) {
        weigh_experts(op, TokenGates<Acc>(op, logits.f32() + i * experts, experts), run.out[0].i32_out() + i * op.top_k,
                      run.out[1].f32_out() + i * op.top_k);
      });
    };
  }

  /// Stores x [head_dim, kv_heads, tokens] at the step's slots.
  static void append(const NodeRun& run, const Operand& x, std::byte* cache, const CacheRows& rows) {
    for (std::int64_t i = 0; i < x.rows; ++i) {
      const std::int32_t slot = run.step.groups[0].slots[static_cast<std::size_t>(i)];
      if (slot < 0 || !rows.has_row(run.step.positions[static_cast<std::size_t>(i)])) continue;
      for (std::int64_t h = 0; h < rows.kv_heads; ++h) {
        store_cache_row(rows.type, x.f32() + i * x.row_elems + h * rows.head_dim,
                        cache + rows.row_offset(slot / kBlockPositions, slot % kBlockPositions, h), rows.head_dim);
      }
    }
  }

  struct SelectionPlan {
    bool weighted;
    std::int64_t heads;
    std::int64_t top_k;
    SelectKeys::Choice choice;
    CacheRows index;
    ActFormat query;
    SelectKeysFn<Acc> select;
    SelectionScratch<Acc> scratch;
  };

  static void select_sequence(const NodeRun& run, const SequenceSpan& span, const std::int32_t* blocks,
                              const SelectionPlan& plan, const Loop& loop) {
    const Operand &q = run.in[0], &positions = run.out[0];
    const float* const weights = plan.weighted ? run.in[1].f32() : nullptr;
    loop.run(span.n_tokens, span.kv_len * q.row_elems, [&](std::int64_t item, int thread) {
      const std::int64_t token = span.first_token + item;
      auto* const best =
          reinterpret_cast<ScoredKey<Acc>*>(run.scratch + static_cast<std::size_t>(thread) * plan.scratch.bytes());
      float* const row = reinterpret_cast<float*>(best + plan.scratch.best);
      float* const queries = row + plan.scratch.row;
      round_trip_activation(plan.query, q.f32() + token * q.row_elems, queries, q.row_elems);
      plan.select({.q = queries,
                   .weights = weights ? weights + token * plan.heads : nullptr,
                   .index = plan.index,
                   .heads = plan.heads,
                   .keys = run.step.positions[static_cast<std::size_t>(token)] + std::int64_t{1},
                   .top_k = plan.top_k,
                   .choice = plan.choice,
                   .blocks = blocks,
                   .positions = positions.i32_out() + token * plan.top_k},
                  best, row);
    });
  }

  struct BlockPlan {
    SelectBlocks op;
    CacheRows index;
    ActFormat query;
    SelectBlocksFn<Acc> select;
    SelectionScratch<Acc> scratch;
  };

  static void select_blocks_of(const NodeRun& run, const SequenceSpan& span, const std::int32_t* blocks,
                               const BlockPlan& plan, const Loop& loop) {
    const Operand &q = run.in[0], &positions = run.out[0];
    const std::int64_t dim = q.width(), heads = q.row_elems / dim;
    loop.run(span.n_tokens * heads, span.kv_len * dim, [&](std::int64_t item, int thread) {
      const std::int64_t pair = span.first_token * heads + item, token = pair / heads;
      auto* const best =
          reinterpret_cast<ScoredKey<Acc>*>(run.scratch + static_cast<std::size_t>(thread) * plan.scratch.bytes());
      float* const row = reinterpret_cast<float*>(best + plan.scratch.best);
      float* const query = row + plan.scratch.row;
      round_trip_activation(plan.query, q.f32() + pair * dim, query, dim);
      plan.select({.q = query,
                   .index = plan.index,
                   .heads = 1,
                   .keys = run.step.positions[static_cast<std::size_t>(token)] + std::int64_t{1},
                   .top_k = plan.op.top_k,
                   .blocks = blocks,
                   .positions = positions.i32_out() + pair * plan.op.top_k},
                  plan.op, best, row);
    });
  }

  struct AttentionPlan {
    CacheType::Access access;
    KeyWindow window = {};
    float max_bias = 0;
    ActFormat query;
    AttentionHeadFn<Acc> attend;
    AttentionScratch<Acc> scratch;
  };

  Run attend(const AttentionHead& head, const AttentionPlan& plan, const VectorWeight& sinks) const {
    return [head, plan, sinks, loop = loop_](const NodeRun& run) {
      const StateGroup& group = run.step.groups[0];
      for (std::size_t s = 0; s < run.step.sequences.size(); ++s) {
        AttentionHead sequence = head;
        sequence.blocks = group.block_table.data() + s * static_cast<std::size_t>(group.stride);
        sequence.sink = sinks.data();
        attend_sequence(run, run.step.sequences[s], sequence, plan, loop);
      }
    };
  }

  /// A token's selection, of its own for each KV head where `chosen` has several.
  static std::span<const std::int32_t> chosen_of(const Operand& chosen, std::int64_t token, std::int64_t kv_head) {
    const std::int64_t top_k = chosen.width(), selections = chosen.row_elems / top_k;
    const std::int64_t own = selections > 1 ? kv_head : 0;
    return {chosen.i32() + (token * selections + own) * top_k, static_cast<std::size_t>(top_k)};
  }

  static void attend_sequence(const NodeRun& run, const SequenceSpan& span, const AttentionHead& sequence,
                              const AttentionPlan& plan, const Loop& loop) {
    const Operand &q = run.in[0], &y = run.out[0];
    const std::int64_t dim_k = sequence.k.head_dim, dim_v = sequence.v.head_dim;
    const std::int64_t heads = q.row_elems / dim_k, group = heads / sequence.k.kv_heads;
    loop.run(span.n_tokens * heads, span.kv_len * (dim_k + dim_v), [&](std::int64_t item, int thread) {
      const std::int64_t token = span.first_token + item / heads, h = item % heads;
      const std::int32_t position = run.step.positions[static_cast<std::size_t>(token)];
      Acc* const sums = reinterpret_cast<Acc*>(run.scratch + static_cast<std::size_t>(thread) * plan.scratch.bytes());
      float* const row = reinterpret_cast<float*>(sums + plan.scratch.sums);
      float* const query = row + plan.scratch.row;
      round_trip_activation(plan.query, q.f32() + token * q.row_elems + h * dim_k, query, dim_k);
      AttentionHead head = sequence;
      head.q = query;
      head.y = y.f32_out() + token * y.row_elems + h * dim_v;
      head.kv_head = h / group;
      if (plan.max_bias > 0) head.slope = alibi_slope(plan.max_bias, static_cast<int>(heads), static_cast<int>(h));
      if (sequence.sink) head.sink = sequence.sink + h;
      head.first_key = plan.window.first_key(position);
      head.end_key = position + 1;
      if (plan.access == CacheType::Access::Selected) head.selected = chosen_of(run.in[2], token, head.kv_head);
      if (sequence.compressed.rows.data != nullptr) head.compressed.n = head.end_key / head.compressed.rows.stride;
      if (!sequence.compressed.all) head.compressed.chosen = chosen_of(run.in[4], token, head.kv_head);
      plan.attend(head, sums, row);
    });
  }
};

}  // namespace llm::host
