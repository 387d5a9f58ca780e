#include "backend/cuda/instructions.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <variant>

#include "backend/cuda/kernels/attend_compressed.h"
#include "backend/cuda/kernels/attend_masked.h"
#include "backend/cuda/kernels/attend_selected.h"
#include "backend/cuda/kernels/attention.h"
#include "backend/cuda/kernels/column_products.h"
#include "backend/cuda/kernels/compress.h"
#include "backend/cuda/kernels/finish.h"
#include "backend/cuda/kernels/grouped_products.h"
#include "backend/cuda/kernels/hash_ids.h"
#include "backend/cuda/kernels/matrix.h"
#include "backend/cuda/kernels/products.h"
#include "backend/cuda/kernels/recurrent.h"
#include "backend/cuda/kernels/rows.h"
#include "backend/cuda/kernels/select_blocks.h"
#include "backend/cuda/kernels/select_keys.h"
#include "backend/cuda/kernels/streams.h"
#include "backend/cuda/kernels/wgmma_experts.h"
#include "backend/cuda/kernels/wgmma_products.h"
#include "backend/cuda/kernels/wkv.h"
#include "backend/cuda/node_site.h"
#include "backend/host/host.h"
#include "base/error.h"

namespace llm::cuda {
namespace {

/// Prompts with fewer tokens a sequence are attended to token by token.
constexpr int kPromptTokens = 16;

/// f(some) for as many targets at a time as a call takes: adapters make more of one x.
template <class T, class F>
void for_calls(const std::vector<T>& all, const F& f) {
  std::span<const T> targets = all;
  while (!targets.empty()) {
    const std::size_t n = std::min<std::size_t>(targets.size(), kMaxTargets);
    f(targets.first(n));
    targets = targets.subspan(n);
  }
}

/// Most routes of a group, of products that are not grouped_products(). A token chooses an expert once, so that eight
/// tokens never need more than 8. Where there are more, 16 take little longer than 8, and 32 longer than two passes.
constexpr int few_group_columns(std::int64_t tokens) { return tokens <= 8 ? 8 : 16; }

bool is_prompt(const StepLaunch& s) {
  return s.spans != nullptr && s.tokens >= kPromptTokens * static_cast<int>(s.spans->size());
}

/// Behind the last position of a step's tokens.
int end_of(const StepLaunch& s) {
  int end = 0;
  for (const PromptSpan& span : *s.spans) end = std::max(end, span.first_position + span.n_tokens);
  return end;
}

Streams streams_of(const ValueInfo& x) {
  return {.n = static_cast<int>(x.type.shape[0]), .m = static_cast<int>(x.type.shape[1])};
}

/// Makes the instructions of one node.
class NodeCompiler : NodeSite {
 public:
  using NodeSite::NodeSite;

  void operator()(const Embed&) {
    const CudaWeights::Matrix& table = matrix(0);
    const std::int32_t* const ids = ids_of(node_.in[1]);
    const std::int32_t* const drawn = in(1).input == StepInput::Tokens ? site_.step.drawn : nullptr;
    add("gather " + type_text(table), [=, y = f32(out(0)), count = counter(node_.out[0])](const StepLaunch& s) {
      gather_rows(table.type, table.data, ids, drawn, count(s), y, s.at);
    });
    convert(node_.out[0]);
  }

  void operator()(const HashIds& op) {
    const auto bytes_of = [](const auto& list) { return list.size() * sizeof(list[0]); };
    const std::size_t multipliers = bytes_of(op.multipliers), sizes = bytes_of(op.sizes);
    DeviceBuffer& constant = into_.constants.emplace_back(multipliers + sizes + bytes_of(op.offsets));
    std::byte* const at = constant.data();
    copy_to_device(at, op.multipliers.data(), multipliers, "copying what tokens are hashed with");
    copy_to_device(at + multipliers, op.sizes.data(), sizes, "copying what tokens are hashed with");
    copy_to_device(at + multipliers + sizes, op.offsets.data(), sizes, "copying what tokens are hashed with");
    const HashRule rule{.multipliers = reinterpret_cast<const std::uint64_t*>(at),
                        .sizes = reinterpret_cast<const std::int32_t*>(at + multipliers),
                        .offsets = reinterpret_cast<const std::int32_t*>(at + multipliers + sizes),
                        .tokens = static_cast<int>(op.multipliers.size()),
                        .heads = static_cast<int>(op.sizes.size()),
                        .stop = op.stop};
    add("hash_ids",
        [=, states = site_.cache.recurrent(in(1).recurrent), step = site_.step, sequences = graph_.bucket().sequences,
         ids = i32(node_.out[0])](const StepLaunch& s) { hash_ids(rule, step, sequences, states, ids, s.at); });
  }

  void operator()(const LayerNorm& op) {
    const std::uint32_t y = node_.out[0];
    const int n = width(y), weights = node_.in.size() > 1 ? static_cast<int>(in(1).type.shape.rows()) : 1;
    add("layer_norm",
        [=, x = f32(in(0)), w = optional_vector(1), bias = optional_vector(2), to = f32(out(0)),
         count = counter(y)](const StepLaunch& s) { layer_norm(x, w, bias, weights, op.eps, n, count(s), to, s.at); });
    convert(y);
  }

  void operator()(const RmsNorm& op) {
    const std::uint32_t y = node_.out[0];
    const int n = width(y), weights = node_.in.size() > 1 ? static_cast<int>(in(1).type.shape.rows()) : 1;
    if (weights > 1) {
      add("rms_norm, weights of each row",
          [=, x = f32(in(0)), w = vector(1), to = f32(out(0)), count = counter(y)](const StepLaunch& s) {
            rms_norm_of_each(x, w, weights, op.eps, n, count(s), to, s.at);
          });
      return convert(y);
    }
    add("rms_norm" + forms_text(y), [=, x = f32(in(0)), w = optional_vector(1), forms = forms(y), count = counter(y)](
                                        const StepLaunch& s) { rms_norm(x, w, op.eps, n, count(s), forms, s.at); });
  }

  void operator()(const AddRmsNorm& op) {
    const std::uint32_t y = node_.out[1];
    const int n = width(y);
    add("add, rms_norm" + forms_text(y),
        [=, a = f32(in(0)), b = f32(in(1)), w = vector(2), sum = f32(out(0)), forms = forms(y),
         count = counter(y)](const StepLaunch& s) { add_rms_norm(a, b, w, op.eps, n, count(s), sum, forms, s.at); });
    convert(node_.out[0]);
  }

  void operator()(const Glu& op) {
    const std::uint32_t y = node_.out[0];
    const int n = width(y), gates = width(node_.in[0]);
    add("glu" + forms_text(y),
        [=, gate = f32(in(0)), up = f32(in(1)), forms = forms(y), count = counter(y)](const StepLaunch& s) {
          if (gates == n)
            glu(op, gate, up, n, count(s), forms, s.at);
          else
            glu_of_one(op.activation, gate, up, n, count(s), forms, s.at);
        });
  }

  void operator()(const Activate& op) {
    add(std::string(name(op.function)), [=, x = f32(in(0)), y = f32(out(0)), count = elements(out(0))](
                                            const StepLaunch& s) { activate(op, x, y, count(s), s.at); });
    convert(node_.out[0]);
  }

  void operator()(const RopeTable& op) {
    const float* const factors = node_.in.size() > 1 ? site_.weights.host_vector(in(1).name).data() : nullptr;
    const host::RopeAngles angles(op, factors);
    const std::span<const double> theta = angles.theta();
    DeviceBuffer& constant = into_.constants.emplace_back(theta.size_bytes());
    copy_to_device(constant.data(), theta.data(), theta.size_bytes(), "copying rotary angles");
    add("rope_table", [op, theta = reinterpret_cast<const double*>(constant.data()), magnitude = angles.magnitude(),
                       y = f32(out(0)), step = site_.step](const StepLaunch& s) {
      rope_table(theta, magnitude, op.offset, op.n_rot, step, s.tokens, y, s.at);
    });
  }

  void operator()(const PositionScale& op) {
    add("position_scale",
        [=, y = f32(out(0)), step = site_.step](const StepLaunch& s) { position_scale(op, step, s.tokens, y, s.at); });
  }

  void operator()(const Rope& op) {
    const ValueInfo& x = in(0);
    const int head_dim = static_cast<int>(x.type.shape[0]), heads = static_cast<int>(x.type.shape[1]);
    add("rope", [=, x = f32(x), table = f32(in(1)), y = f32(out(0)), count = tokens(out(0))](const StepLaunch& s) {
      rope(op, x, table, heads, head_dim, count(s), y, s.at);
    });
    convert(node_.out[0]);
  }

  void operator()(const KvAppend&) {
    const CacheType& type = graph_.info(node_.in.back()).cache;
    const CacheView cache = site_.cache.view(type);
    if (type.keys_alone()) {
      add(type.part == CacheType::Part::Index ? "append to the index" : "append compressed keys",
          [=, k = f32(in(0)), stride = type.stride, step = site_.step](const StepLaunch& s) {
            append_keys(k, cache, stride, step, s.tokens, s.at);
          });
    } else {
      add("append", [=, k = f32(in(0)), v = f32(in(1)), step = site_.step](const StepLaunch& s) {
        append_to_cache(k, v, cache, step, s.tokens, s.at);
      });
    }
  }

  void operator()(const SelectKeys& op) {
    const CacheType& type = graph_.info(node_.in.back()).cache;
    const CacheView index = site_.cache.view(type);
    const SelectionShape shape{.heads = static_cast<int>(in(0).type.shape[1]),
                               .top_k = op.top_k,
                               .query = op.query,
                               .stride = type.stride,
                               .choice = op.choice};
    const std::int64_t most = site_.cache.most_positions();
    std::byte* const scratch = site_.cache.scratch(selection_scratch(index, shape, graph_.bucket().tokens, most));
    const bool rounds = site_.prompt_attention && graph_.bucket().tokens > kMaxColumns;
    add(rounds ? "select_keys: prompts by tensor cores, single tokens as in f32" : "select_keys as in f32",
        [=, q = f32(in(0)), w = node_.in.size() > 2 ? f32(in(1)) : nullptr, step = site_.step,
         to = i32(node_.out[0])](const StepLaunch& s) {
          const Scores scores = rounds && is_prompt(s) ? Scores::Rounded : Scores::Exact;
          cuda::select_keys(q, w, index, shape, step, s.tokens, most, scores, to, scratch, s.at);
        });
  }

  void operator()(const CompressedAttention& op) {
    CacheView cache = site_.cache.view(in(1).cache);
    cache.values_in_keys = values_in_keys(graph_, node_, cache);
    const bool chooses = node_.in.size() > 4;
    const CompressedKeys keys{.rows = site_.cache.view(in(2).cache).k,
                              .stride = in(2).cache.stride,
                              .chosen = chooses ? i32(node_.in[4]) : nullptr,
                              .top_k = chooses ? width(node_.in[4]) : 0};
    const AttentionShape shape{.heads = static_cast<int>(in(0).type.shape[1]),
                               .scale = op.scale,
                               .window = op.window,
                               .query = info(cache.k_type).quantized() ? op.query : ActFormat::F32,
                               .sinks = vector(3)};
    const std::int64_t most = site_.cache.most_positions();
    const AttentionMemory memory = compressed_attention_memory(cache, shape, keys, graph_.bucket().tokens, most);
    const bool rounds =
        site_.prompt_attention && graph_.bucket().tokens > kMaxColumns && attends_prompt_compressed(cache);
    add("attention to a window and " + (chooses ? std::to_string(keys.top_k) + " chosen" : std::string("all")) +
            " compressed keys" + (rounds ? ": by tensor cores, single tokens as in f32" : " as in f32"),
        [=, q = f32(in(0)), y = f32(out(0)), step = site_.step, scratch = site_.cache.scratch(memory.scratch),
         arrivals = site_.cache.arrivals(memory.arrivals)](const StepLaunch& s) {
          if (rounds && is_prompt(s))
            attend_prompt_compressed(q, y, cache, shape, keys, step, s.tokens, s.at);
          else
            attend_compressed(q, y, cache, shape, keys, step, s.tokens, most, scratch, arrivals, s.at);
        });
    convert(node_.out[0]);
  }

  void operator()(const Compress&) {
    const Shape& state = in(4).recurrent.shape;
    const CompressShape shape{.n = static_cast<int>(state[0]),
                              .parts = static_cast<int>(state[2]),
                              .stride = static_cast<int>(in(2).type.shape[1]),
                              .sequences = graph_.bucket().sequences};
    const CompressOperands operands{.x = f32(in(0)),
                                    .scores = f32(in(1)),
                                    .places = places(),
                                    .positions = ids_of(node_.in[3]),
                                    .states = site_.cache.recurrent(in(4).recurrent)};
    add("compress", [=, y = f32(out(0)), step = site_.step](const StepLaunch& s) {
      compress(shape, operands, step, s.tokens, y, s.at);
    });
    convert(node_.out[0]);
  }

  /// The matrix of a Compress in f32: where it is of another type a constant of the program.
  const float* places() {
    const CudaWeights::Matrix& m = matrix(2);
    if (m.type.type == DType::F32) return reinterpret_cast<const float*>(m.data);
    std::vector<std::int32_t> rows(static_cast<std::size_t>(m.type.n));
    std::iota(rows.begin(), rows.end(), 0);
    const DeviceBuffer ids(rows.size() * sizeof(rows[0]));
    copy_to_device(ids.data(), rows.data(), ids.bytes(), "copying the rows of a matrix");
    DeviceBuffer& decoded = into_.constants.emplace_back(static_cast<std::size_t>(m.type.n * m.type.k) * sizeof(float));
    auto* const to = reinterpret_cast<float*>(decoded.data());
    const Stream stream;
    gather_rows(m.type, m.data, reinterpret_cast<const std::int32_t*>(ids.data()), nullptr, m.type.n, to,
                {.stream = stream.get()});
    stream.synchronize("decoding a matrix");
    return to;
  }

  void operator()(const SelectBlocks& op) {
    const CacheView index = site_.cache.view(in(1).cache);
    const int heads = static_cast<int>(in(0).type.shape[1]);
    const std::int64_t most = site_.cache.most_positions();
    std::byte* const scratch =
        site_.cache.scratch(block_selection_scratch(index, op, heads, graph_.bucket().tokens, most));
    const bool rounds = site_.prompt_attention && graph_.bucket().tokens > kMaxColumns;
    add(rounds ? "select_blocks: prompts by tensor cores, single tokens as in f32" : "select_blocks as in f32",
        [=, q = f32(in(0)), step = site_.step, to = i32(node_.out[0])](const StepLaunch& s) {
          const Scores scores = rounds && is_prompt(s) ? Scores::Rounded : Scores::Exact;
          cuda::select_blocks(q, index, op, heads, step, s.tokens, most, scores, to, scratch, s.at);
        });
  }

  void operator()(const Attention&) {
    const AttentionSite at = attention_site();
    if (at.keys.top_k > 0) return attend_to_selected(at);
    const bool tensor_cores = site_.prompt_attention && graph_.bucket().tokens > kMaxColumns &&
                              at.shape.max_bias == 0 && prompt_attention_refusal(at.cache) == nullptr;
    add(tensor_cores ? "attention: by tensor cores, single tokens in f32" : "attention in f32",
        [=, q = f32(in(0)), y = f32(out(0)), step = site_.step](const StepLaunch& s) {
          if (tensor_cores && is_prompt(s)) {
            attend_prompt(q, y, at.cache, at.shape, step, s.spans->data(), static_cast<int>(s.spans->size()), s.at);
          } else {
            attend(q, y, at.cache, at.shape, step, s.tokens, at.positions, at.scratch, at.arrivals, s.at);
          }
        });
    convert(node_.out[0]);
  }

  void attend_to_selected(const AttentionSite& at) {
    const bool rounds = site_.prompt_attention && graph_.bucket().tokens > kMaxColumns;
    const bool in_place = rounds && attends_prompt_selected(at.cache);
    const bool of_all = rounds && prompt_attention_refusal(at.cache) == nullptr;
    const std::uint64_t mask_at = site_.plan.memory.scratch_offset[index_];
    const bool masked = of_all && mask_at != MemoryPlan::kNone;
    std::byte* const masks = masked ? site_.workspace.data() + mask_at : nullptr;
    const auto mask_bytes = static_cast<std::size_t>(key_mask_bytes(graph_.bucket().tokens));
    add("attention to " + std::to_string(at.keys.top_k) + " selected keys" +
            (at.keys.selections > 1 ? " of each KV head" : "") +
            (in_place ? ": by tensor cores, single tokens as in f32"
             : of_all ? ": prompts by tensor cores while keys are few enough, others as in f32"
                      : " as in f32"),
        [=, q = f32(in(0)), y = f32(out(0)), step = site_.step](const StepLaunch& s) {
          const bool prompt = of_all && is_prompt(s);
          if (prompt && end_of(s) <= at.keys.top_k) {
            attend_prompt(q, y, at.cache, at.shape, step, s.spans->data(), static_cast<int>(s.spans->size()), s.at);
          } else if (prompt && masked && attends_masked(at.cache, at.shape, at.keys, *s.spans, mask_bytes)) {
            attend_prompt_masked(q, y, at.cache, at.shape, at.keys, step, *s.spans, masks, mask_bytes, s.at);
          } else if (prompt && in_place) {
            attend_prompt_selected(q, y, at.cache, at.shape, at.keys, step, s.tokens, s.at);
          } else {
            attend_selected(q, y, at.cache, at.shape, at.keys, step, s.tokens, at.scratch, at.arrivals, s.at);
          }
        });
    convert(node_.out[0]);
  }

  void operator()(const Route& op) {
    std::byte* const memory = form(node_.out[0], Form::RouteGroups);
    if (memory == nullptr) return route_alone();
    const RouteSite r = route_site();
    if (r.router.table != nullptr ||
        !groups_while_routing(r.experts, static_cast<int>(row_capacity(out(0))), op.top_k)) {
      route_alone();
      return group(r.experts);
    }
    const auto groups = into_.routes[node_.out[0]] = std::make_shared<RouteGroups>();
    add("route, grouped by expert", [=, columns = group_columns(), step = counted_step()](const StepLaunch& s) {
      *groups =
          route_and_group(r.router, r.logits, r.experts, r.count(s), columns, step, r.ids, r.weights, memory, s.at);
    });
  }

  void operator()(const Combine&) {
    const int n = width(node_.out[0]), top_k = static_cast<int>(in(1).type.shape[0]);
    add("combine", [=, x = f32(in(0)), weights = f32(in(1)), y = f32(out(0)),
                    count = tokens(out(0))](const StepLaunch& s) { combine(x, weights, top_k, n, count(s), y, s.at); });
    convert(node_.out[0]);
  }

  void operator()(const Add&) {
    add("add", [=, a = f32(in(0)), b = f32(in(1)), y = f32(out(0)), count = elements(out(0))](const StepLaunch& s) {
      cuda::add(a, b, y, count(s), s.at);
    });
    convert(node_.out[0]);
  }

  void operator()(const StreamMix&) {
    const Streams streams = streams_of(in(0));
    const int k = static_cast<int>(in(1).type.shape[1]);
    add("stream_mix", [=, x = f32(in(0)), w = f32(in(1)), y = f32(out(0)), count = tokens(out(0))](
                          const StepLaunch& s) { stream_mix(streams, x, w, k, count(s), y, s.at); });
    convert(node_.out[0]);
  }

  void operator()(const StreamWeights& op) {
    const StreamShareRows shares{.read = f32(out(0)),
                                 .write = node_.out.size() > 1 ? f32(out(1)) : nullptr,
                                 .mix = node_.out.size() > 1 ? f32(out(2)) : nullptr};
    add("stream_weights",
        [=, m = width(node_.out[0]), x = f32(in(0)), scales = vector(1), biases = vector(2), count = tokens(out(0))](
            const StepLaunch& s) { stream_weights(op, m, x, scales, biases, count(s), shares, s.at); });
    for (const std::uint32_t y : node_.out) convert(y);
  }

  void operator()(const StreamAdd& op) {
    const Streams streams = streams_of(in(0));
    add("stream_add",
        [=, x = f32(in(0)), added = f32(in(1)), w = node_.in.size() > 2 ? f32(in(2)) : nullptr, y = f32(out(0)),
         count = tokens(out(0))](const StepLaunch& s) { stream_add(op, streams, x, added, w, count(s), y, s.at); });
    convert(node_.out[0]);
  }

  void operator()(const StreamMean&) {
    const Streams streams = streams_of(in(0));
    add("stream_mean", [=, x = f32(in(0)), gate = f32(in(1)), y = f32(out(0)), count = tokens(out(0))](
                           const StepLaunch& s) { stream_mean(streams, x, gate, count(s), y, s.at); });
    convert(node_.out[0]);
  }

  void operator()(const StreamBlend& op) {
    const Streams streams = streams_of(in(0));
    add("stream_blend", [=, x = f32(in(0)), last = f32(in(1)), w = vector(2), y = f32(out(0)), count = tokens(out(0))](
                            const StepLaunch& s) { stream_blend(op, streams, x, last, w, count(s), y, s.at); });
    convert(node_.out[0]);
  }

  void operator()(const MatchGate&) {
    const int n = width(node_.in[0]);
    add("match_gate", [=, a = f32(in(0)), b = f32(in(1)), y = f32(out(0)),
                       count = elements(out(0))](const StepLaunch& s) { match_gate(a, b, n, count(s), y, s.at); });
    convert(node_.out[0]);
  }

  void operator()(const GaussianTop& op) {
    const int n = width(node_.out[0]);
    add("gaussian_top", [=, x = f32(in(0)), y = f32(out(0)), count = counter(node_.out[0])](const StepLaunch& s) {
      gaussian_top(x, op.deviations, n, count(s), y, s.at);
    });
    convert(node_.out[0]);
  }

  void operator()(const Scale& op) {
    if (node_.in.size() > 1 && in(1).type.shape.elements() > 1) return scale_by_each(op);
    add("scale", [=, x = f32(in(0)), w = optional_vector(1), y = f32(out(0)),
                  count = elements(out(0))](const StepLaunch& s) { scale(x, op.factor, w, y, count(s), s.at); });
    convert(node_.out[0]);
  }

  void scale_by_each(const Scale& op) {
    const Shape& of = in(1).type.shape;
    const EachWeights weights{
        .w = vector(1), .n = static_cast<int>(of.elements()), .span = scales_vectors(of) ? width(node_.out[0]) : 1};
    add(scales_vectors(of) ? "scale vectors" : "scale elements",
        [=, x = f32(in(0)), y = f32(out(0)), count = elements(out(0))](const StepLaunch& s) {
          scale_each(x, op.factor, weights, count(s), y, s.at);
        });
    convert(node_.out[0]);
  }

  void operator()(const SoftCap& op) {
    add("soft_cap", [=, x = f32(in(0)), y = f32(out(0)), count = elements(out(0))](const StepLaunch& s) {
      soft_cap(x, op.cap, y, count(s), s.at);
    });
    convert(node_.out[0]);
  }

  void operator()(const ShortConv& op) {
    const CudaWeights::Matrix& w = matrix(1);
    convolve("short_conv",
             {.channels = width(node_.in[0]),
              .width = static_cast<int>(in(1).type.shape[0]),
              .sequences = graph_.bucket().sequences,
              .activation = op.activation,
              .dilation = op.dilation},
             {.x = f32(in(0)),
              .w = w.data,
              .w_type = w.type.type,
              .bias = optional_vector(3),
              .states = site_.cache.recurrent(in(2).recurrent)});
  }

  void operator()(const WindowMean& op) {
    convolve("window_mean",
             {.channels = width(node_.in[0]),
              .width = op.width,
              .sequences = graph_.bucket().sequences,
              .activation = Activation::Identity},
             {.x = f32(in(0)),
              .w = nullptr,
              .w_type = DType::F32,
              .bias = nullptr,
              .states = site_.cache.recurrent(in(1).recurrent)});
  }

  void convolve(const char* how, const ConvShape& shape, const ConvOperands& operands) {
    add(how, [=, y = f32(out(0)), step = site_.step](const StepLaunch& s) {
      short_conv(shape, operands, step, s.tokens, y, s.at);
    });
    convert(node_.out[0]);
  }

  void operator()(const GatedDelta& op) {
    const Shape& state = in(5).recurrent.shape;
    const DeltaShape shape{.heads = static_cast<int>(state[2]),
                           .dk = static_cast<int>(state[1]),
                           .dv = static_cast<int>(state[0]),
                           .sequences = graph_.bucket().sequences,
                           .op = op,
                           .decays = width(node_.in[1]) == state[2] ? Decays::OfHeads : Decays::OfRows};
    const DeltaOperands operands{.qkv = f32(in(0)),
                                 .alpha = f32(in(1)),
                                 .beta = f32(in(2)),
                                 .a = vector(3),
                                 .bias = vector(4),
                                 .states = site_.cache.recurrent(in(5).recurrent)};
    add("gated_delta", [=, y = f32(out(0)), step = site_.step](const StepLaunch& s) {
      gated_delta(shape, operands, step, s.tokens, y, s.at);
    });
    convert(node_.out[0]);
  }

  void operator()(const SelectiveScan& op) {
    const Shape& state = in(5).recurrent.shape;
    const ScanShape shape{.heads = static_cast<int>(state[2]),
                          .n = static_cast<int>(state[1]),
                          .p = static_cast<int>(state[0]),
                          .groups = op.groups,
                          .sequences = graph_.bucket().sequences,
                          .steps = scans_elements(in(2).type.shape, state) ? Steps::OfElements : Steps::OfHeads};
    const ScanOperands operands{.xbc = f32(in(0)),
                                .dt = f32(in(1)),
                                .a = vector(2),
                                .d = vector(3),
                                .bias = vector(4),
                                .states = site_.cache.recurrent(in(5).recurrent)};
    add("selective_scan", [=, y = f32(out(0)), step = site_.step](const StepLaunch& s) {
      selective_scan(shape, operands, step, s.tokens, y, s.at);
    });
    convert(node_.out[0]);
  }

  void operator()(const TokenShift&) {
    add("token_shift", [=, x = f32(in(0)), states = site_.cache.recurrent(in(1).recurrent), n = width(node_.in[0]),
                        sequences = graph_.bucket().sequences, y = f32(out(0)), step = site_.step](
                           const StepLaunch& s) { token_shift(x, states, n, sequences, step, s.tokens, y, s.at); });
    convert(node_.out[0]);
  }

  void operator()(const Lerp&) {
    LerpOperands o{.x = f32(in(0)), .d = f32(in(1)), .w = vector(2), .more = nullptr, .y = {}};
    if (node_.in.size() > 3) o.more = f32(in(3));
    o.n = width(node_.in[0]);
    o.m = static_cast<int>(node_.out.size());
    for (std::size_t i = 0; i < node_.out.size(); ++i) o.y[i] = f32(out(i));
    add("lerp", [=, count = counter(node_.in[0])](const StepLaunch& s) { lerp(o, count(s), s.at); });
    for (const std::uint32_t y : node_.out) convert(y);
  }

  /// `state`, `keys`: the operands.
  WkvShape wkv_shape(std::size_t state, std::size_t keys) const {
    const Shape& shape = in(state).recurrent.shape;
    return {.n = static_cast<int>(shape[0]),
            .heads = static_cast<int>(shape[2]),
            .kv_heads = static_cast<int>(width(node_.in[keys]) / shape[0]),
            .sequences = graph_.bucket().sequences};
  }
  WkvOperands wkv_operands(std::size_t state) const {
    return {.r = f32(in(0)),
            .k = f32(in(1)),
            .v = f32(in(2)),
            .w = f32(in(3)),
            .states = site_.cache.recurrent(in(state).recurrent)};
  }

  void operator()(const Wkv6&) {
    const WkvShape shape = wkv_shape(4, 1);
    WkvOperands operands = wkv_operands(4);
    operands.first = optional_vector(5);
    add("wkv6", [=, y = f32(out(0)), step = site_.step](const StepLaunch& s) {
      wkv6(shape, operands, step, s.tokens, y, s.at);
    });
    convert(node_.out[0]);
  }

  void operator()(const Wkv7&) {
    const WkvShape shape = wkv_shape(8, 1);
    WkvOperands operands = wkv_operands(8);
    operands.a = f32(in(4));
    operands.k_k = vector(5), operands.k_a = vector(6), operands.r_k = vector(7);
    if (node_.in.size() > 9) operands.v_first = f32(in(9)), operands.mix = f32(in(10));
    operands.own = f32(out(1));
    add("wkv7", [=, y = f32(out(0)), step = site_.step](const StepLaunch& s) {
      wkv7(shape, operands, step, s.tokens, y, s.at);
    });
    for (const std::uint32_t y : node_.out) convert(y);
  }

  void operator()(const Map&) { check(false, "a Map was refused when the model was loaded"); }

  void operator()(const Rows&) {
    const ValueInfo& x = in(0);
    const int n = static_cast<int>(x.type.shape.elements() / graph_.bucket().tokens);
    const bool whole = x.type.dtype == DType::I32;  // numbers are copied as they are
    const float* const from = whole ? reinterpret_cast<const float*>(ids_of(node_.in[0])) : f32(x);
    add("rows", [=, x = from, y = f32(out(0)), step = site_.step](const StepLaunch& s) {
      select_rows(x, n, step, s.outputs, y, s.at);
    });
    convert(node_.out[0]);
  }

  void operator()(const Slice& op) {
    const int m = width(node_.in[0]), n = static_cast<int>(op.n), begin = static_cast<int>(op.begin);
    add("slice", [=, x = f32(in(0)), y = f32(out(0)), count = elements(out(0))](const StepLaunch& s) {
      slice(x, m, begin, n, count(s) / n, y, s.at);
    });
    convert(node_.out[0]);
  }

  void operator()(const Concat&) {
    const int m = width(node_.in[0]), n = width(node_.in[1]);
    const int of_one = in(1).type.shape[1] == 1 ? static_cast<int>(in(0).type.shape[1]) : 1;
    add("concat", [=, a = f32(in(0)), b = f32(in(1)), y = f32(out(0)), count = elements(out(0))](const StepLaunch& s) {
      concat(a, m, b, n, of_one, count(s) / (m + n), y, s.at);
    });
    convert(node_.out[0]);
  }

  void operator()(const HeadIds&) {
    add("head_ids", [=, ids = i32(node_.out[0]), heads = width(node_.out[0]),
                     count = elements(out(0))](const StepLaunch& s) { head_ids(heads, count(s), ids, s.at); });
    if (form(node_.out[0], Form::RouteGroups) != nullptr) group(experts_of(node_.out[0]));
  }

  void operator()(const GroupIds& op) {
    add("group_ids", [=, experts = ids_of(node_.in[0]), ids = i32(node_.out[0]), count = elements(out(0))](
                         const StepLaunch& s) { group_ids(experts, op.size, count(s), ids, s.at); });
    if (form(node_.out[0], Form::RouteGroups) != nullptr) group(experts_of(node_.out[0]));
  }

  void operator()(const Silence& op) {
    add("silence", [=, x = f32(in(0)), n = width(node_.out[0]), y = f32(out(0)),
                    count = elements(out(0))](const StepLaunch& s) { silence(op, x, n, count(s), y, s.at); });
    convert(node_.out[0]);
  }

  /// The plan gives both sides the same bytes.
  void operator()(const Reshape&) {
    // Routes that another segment has made.
    if (form(node_.out[0], Form::RouteGroups) != nullptr) return group(experts_of(node_.out[0]));
    convert(node_.out[0]);
  }

  void operator()(const Linear&) {
    if (site_.plan.fusions.makes_column(index_)) return make_column();
    const std::vector<Target> targets = make_targets(node_);
    const bool has_many = has_many_columns(graph_, node_, site_.many);
    const bool always = has_many && columns_of(graph_, node_.in[0]) == Columns::Many;
    const Emit few = always ? Emit() : few_columns(targets);
    const Emit many = has_many ? many_columns(targets) : Emit();
    std::string how = (always ? "" : "few columns: " + few_text(targets)) + (has_many && !always ? "; " : "");
    if (has_many) how += many_text();
    add(std::move(how), [=, count = counter(node_.in[0])](const StepLaunch& s) {
      const bool use_many = has_many && (always || count(s) > kMaxColumns);
      (use_many ? many : few)(s);
    });
    for (const std::uint32_t y : node_.out) convert(y);
  }

  void operator()(const ExpertLinear&) {
    const std::vector<Target> targets = make_targets(node_);
    const ValueInfo &x = in(0), &ids = in(1);
    const int per_row = x.type.shape.n_dims() == 3 ? 1 : static_cast<int>(ids.type.shape[0]);
    const auto routes = into_.routes.at(node_.in[1]);
    const auto groups_of_row = [=] {
      RouteGroups groups = *routes;
      groups.routes_per_row = per_row;
      return groups;
    };
    if (uses_grouped_products(graph_, node_.in[1], site_.many)) {
      const SplitExperts split = split_experts(targets);
      const ManyColumns columns = many_columns_of(node_.in[0]);
      const int capacity = static_cast<int>(row_capacity(x));
      const auto experts = static_cast<int>(in(2).type.shape[2]);
      add(split.text(), [=, routes = counter(node_.out[0])](const StepLaunch& s) {
        const RouteGroups groups = groups_of_row();
        for_calls(split.f8, [&](const auto& some) {
          wgmma_expert_products_f8(some, columns.f8, capacity, columns.f8_scale, groups, s.at);
        });
        for_calls(split.panels, [&](const auto& some) {
          wgmma_expert_products(some, columns.f16_panels, capacity, columns.f16_unscale, groups, routes(s) / experts,
                                s.at);
        });
        const HalfRows rows{columns.f16, columns.f16_rest, columns.f16_unscale};
        for_calls(split.others, [&](const auto& some) { grouped_products(some, rows, groups, s.at); });
      });
      for (const std::uint32_t y : node_.out) convert(y);
      return;
    }
    const Split split(*this, targets);
    add("experts: " + few_text(targets),
        [=, x = f32(x), capacity = static_cast<int>(row_capacity(x))](const StepLaunch& s) {
          const RouteGroups groups = groups_of_row();
          const auto by_tiles = [&](const std::vector<Target>& t, const std::byte* codes) {
            for_calls(t, [&](const auto& some) { expert_tile_products(some, codes, capacity, groups, s.at); });
          };
          const auto by_floats = [&](const std::vector<Target>& t, const float* rows) {
            for_calls(t, [&](const auto& some) { expert_float_products(some, rows, groups, s.at); });
          };
          by_tiles(split.q8x256, split.x256);
          by_tiles(split.q8x32, split.x32);
          by_floats(split.plain, x);
          by_floats(split.bf16, split.rounded);
        });
    for (const std::uint32_t y : node_.out) convert(y);
  }

 private:
  /// The targets of a node by the form of x that they take.
  struct Split {
    Split(const NodeCompiler& c, const std::vector<Target>& targets) {
      const std::uint32_t x = c.node_.in[0];
      x256 = c.form(x, Form::Q8x256);
      x32 = c.form(x, Form::Q8x32);
      rounded = reinterpret_cast<const float*>(c.form(x, Form::RoundedBf16));
      for (const Target& t : targets) {
        const FewForm few = few_form(t.type.type);
        (!few.any ? plain : few.form == Form::Q8x256 ? q8x256 : few.form == Form::Q8x32 ? q8x32 : bf16).push_back(t);
      }
    }
    std::vector<Target> q8x256, q8x32, plain, bf16;
    const std::byte *x256, *x32;
    const float* rounded;
  };

  static constexpr const char* kTwoParts = " times activations in two parts";

  /// The targets of experts' products in groups, by how they are made.
  struct SplitExperts {
    std::vector<Float8Target> f8;
    std::vector<Target> panels, others;
    bool has_rest = false;  ///< whether activations of others have a second part

    std::string text() const {
      const bool f16 = !panels.empty() || !others.empty();
      const std::string type = f8.empty() ? "F16" : f16 ? "FP8 or F16" : "FP8";
      const std::string kernel = f8.empty() && panels.empty() ? "" : " by wgmma";
      return "experts: decoded to " + type + ", grouped on tensor cores" + kernel + (has_rest ? kTwoParts : "");
    }
  };
  SplitExperts split_experts(const std::vector<Target>& targets) const {
    SplitExperts split;
    const auto operands = product_operands(node_.op);
    for (std::size_t i = 0; i < targets.size(); ++i) {
      if (is_f8(operands[i]))
        split.f8.push_back({targets[i], site_.weights.f8_scales(in(operands[i].weight).name)});
      else
        (has_panels(operands[i]) ? split.panels : split.others).push_back(targets[i]);
    }
    split.has_rest = form(node_.in[0], Form::F16Rest) != nullptr;
    return split;
  }

  /// A Linear for whose input the plan has no forms.
  void make_column() {
    const std::vector<Target> targets = make_targets(node_);
    add("makes its column: " + few_text(targets),
        [=, source = ColumnSource{.x = f32(in(0))}, count = counter(node_.in[0])](const StepLaunch& s) {
          if (count(s) > 0) column_products(targets, source, s.at);
        });
    for (const std::uint32_t y : node_.out) convert(y);
  }

  // Of a node that gives expert ids [top_k, tokens].

  void group(int experts) {
    const std::int32_t* const ids = i32(node_.out[0]);
    const int top_k = static_cast<int>(out(0).type.shape[0]);
    const auto groups = into_.routes[node_.out[0]] = std::make_shared<RouteGroups>();
    add("group routes by expert",
        [=, count = tokens(out(0)), columns = group_columns(), step = counted_step(), f8 = groups_are_f8(),
         memory = form(node_.out[0], Form::RouteGroups)](const StepLaunch& s) {
          const int n = count(s), most = f8 ? wgmma_expert_columns_f8(n * top_k / experts) : columns;
          *groups = group_routes(ids, experts, n, top_k, most, step, memory, s.at);
        });
  }
  /// Whether all that is multiplied by the experts of the node's ids is FP8.
  bool groups_are_f8() const {
    return std::ranges::all_of(graph_.nodes(), [&](const Node& n) {
      if (!std::holds_alternative<ExpertLinear>(n.op) || n.in[1] != node_.out[0]) return true;
      return std::ranges::all_of(product_operands(n.op), [&](const ProductOperands& p) {
        return takes_f8(n, graph_.info(n.in[p.weight]), site_.many);
      });
    });
  }
  int experts_of(std::uint32_t ids) const {
    const auto nodes = graph_.nodes();
    const auto reader = std::find_if(nodes.begin(), nodes.end(), [&](const Node& n) {
      return std::holds_alternative<ExpertLinear>(n.op) && n.in[1] == ids;
    });
    check(reader != nodes.end(), "somebody multiplies by the experts");
    return static_cast<int>(graph_.info(reader->in[2]).type.shape[2]);
  }
  int group_columns() const {
    if (uses_grouped_products(graph_, node_.out[0], site_.many)) return kGroupedColumns;
    return few_group_columns(row_capacity(out(0)));
  }
  /// Counts as many tokens as the step wants rows, where these are the node's.
  StepView counted_step() const {
    StepView step = site_.step;
    if (out(0).rows == RowSpace::Outputs) ++step.counts;
    return step;
  }
  static std::string type_text(const CudaWeights::Matrix& m) { return std::string(name(m.type.type)); }

  Emit few_columns(const std::vector<Target>& targets) const {
    const Split split(*this, targets);
    return [=, x = f32(in(0)), capacity = static_cast<int>(row_capacity(in(0))),
            count = counter(node_.in[0])](const StepLaunch& s) {
      const int columns = count(s);
      const auto by_tiles = [&](const std::vector<Target>& t, const std::byte* codes) {
        for_calls(t, [&](const auto& some) { tile_products(some, codes, capacity, columns, s.at); });
      };
      const auto by_floats = [&](const std::vector<Target>& t, const float* rows) {
        for_calls(t, [&](const auto& some) { float_products(some, rows, columns, s.at); });
      };
      by_tiles(split.q8x256, split.x256);
      by_tiles(split.q8x32, split.x32);
      by_floats(split.plain, x);
      by_floats(split.bf16, split.rounded);
    };
  }

  bool is_f8(const ProductOperands& p) const { return takes_f8(node_, in(p.weight), site_.many); }
  bool has_panels(const ProductOperands& p) const { return takes_panels(node_, in(p.weight), site_.many); }
  std::string many_text() const {
    const auto operands = product_operands(node_.op);
    const auto any = [&](const auto& is) { return std::any_of(operands.begin(), operands.end(), is); };
    std::string text;
    if (any([&](const auto& p) { return has_panels(p); })) text = "decoded to F16 on the way to the tensor cores";
    const bool f8 = any([&](const auto& p) { return is_f8(p); });
    const bool f16 = any([&](const auto& p) { return !is_f8(p) && !has_panels(p); });
    if (!f8 && !f16) return text;
    const std::string type = !f16 ? "FP8" : f8 ? "FP8 or F16" : "F16";
    const char* const parts = form(node_.in[0], Form::F16Rest) != nullptr ? kTwoParts : "";
    return (text.empty() ? "" : text + "; ") + "decoded to " + type + parts + ", " + site_.gemm->describe();
  }

  /// A product of many columns, and how it is made.
  struct ManyTarget {
    Target target;
    std::int64_t height;               ///< rows that are decoded at a time
    const float* f8_scales = nullptr;  ///< of the weight's rows; null: in F16, or F32 where the weight is
  };

  Emit many_columns(const std::vector<Target>& targets) const {
    std::vector<ManyTarget> products;
    std::vector<Target> on_way;
    const auto operands = product_operands(node_.op);
    for (std::size_t i = 0; i < operands.size(); ++i) {
      const ValueInfo& weight = in(operands[i].weight);
      if (has_panels(operands[i])) {
        on_way.push_back(targets[i]);
        continue;
      }
      products.push_back({targets[i], decoded_rows(node_, weight, site_.many),
                          is_f8(operands[i]) ? site_.weights.f8_scales(weight.name) : nullptr});
    }
    const std::uint64_t at = site_.plan.memory.scratch_offset[index_];
    std::byte* const decoded = at == MemoryPlan::kNone ? nullptr : site_.workspace.data() + at;
    const ManyColumns columns = many_columns_of(node_.in[0]);
    return [=, gemm = site_.gemm, count = counter(node_.in[0]),
            capacity = static_cast<int>(row_capacity(in(0)))](const StepLaunch& s) {
      for_calls(on_way, [&](const auto& some) {
        wgmma_products(some, columns.f16_panels, capacity, columns.f16_unscale, count(s), s.at);
      });
      for (const ManyTarget& t : products) multiply_many(*gemm, t, columns, count(s), decoded, s.at);
    };
  }

  /// The forms of x that products of many columns take.
  struct ManyColumns {
    const float* f32;
    const std::byte* f16;
    const std::byte* f16_rest;
    const std::byte* f16_panels;
    const float* f16_unscale;
    const std::byte* f8;
    const float* f8_scale;
  };
  ManyColumns many_columns_of(std::uint32_t x) const {
    return {.f32 = f32(graph_.info(x)),
            .f16 = form(x, Form::F16),
            .f16_rest = form(x, Form::F16Rest),
            .f16_panels = form(x, Form::F16Panels),
            .f16_unscale = reinterpret_cast<const float*>(form(x, Form::F16Unscale)),
            .f8 = form(x, Form::F8),
            .f8_scale = reinterpret_cast<const float*>(form(x, Form::F8Scale))};
  }
  static void multiply_many(Gemm& gemm, const ManyTarget& many, const ManyColumns& x, int columns, std::byte* decoded,
                            const Launch& at) {
    const Target& t = many.target;
    const int n = static_cast<int>(t.type.n), k = static_cast<int>(t.type.k);
    const GemmShape shape{.n = n, .rows = columns, .k = k, .ldy = n};
    const float* unscale = nullptr;
    if (t.type.type == DType::F32) {
      gemm.run(DType::F32, t.matrix, x.f32, t.y, shape, at.stream);
    } else if (many.f8_scales == nullptr && t.type.type == DType::F16) {
      gemm.run(DType::F16, t.matrix, x.f16, t.y, shape, at.stream);
      if (x.f16_rest != nullptr) gemm.add(t.matrix, x.f16_rest, kRestUnit, t.y, shape, at.stream);
      unscale = x.f16_unscale;
    } else {
      for (std::int64_t row = 0; row < n; row += many.height) {
        GemmShape some = shape;
        some.n = static_cast<int>(std::min<std::int64_t>(many.height, n - row));
        if (many.f8_scales != nullptr) {
          const float* const scales = many.f8_scales + row;
          decode_rows_f8(t.type, t.matrix, row, some.n, scales, decoded, at);
          gemm.run_f8({decoded, scales}, {x.f8, x.f8_scale}, t.y + row, some, at.stream);
        } else {
          decode_rows_f16(t.type, t.matrix, row, some.n, decoded, at);
          gemm.run(DType::F16, decoded, x.f16, t.y + row, some, at.stream);
        }
      }
      if (many.f8_scales == nullptr) unscale = x.f16_unscale;
    }
    finish_products(t.y, n, columns, unscale, t.scale, t.bias, at);
  }
};

}  // namespace

void compile_node(const Site& site, std::size_t index, const std::vector<bool>* f32_reads, Compiled& into) {
  NodeCompiler compiler(site, index, f32_reads, into);
  std::visit(compiler, site.graph.nodes()[index].op);
}

Compiled compile_nodes(const Site& site) {
  Compiled compiled;
  for (std::size_t i = 0; i < site.graph.nodes().size(); ++i) compile_node(site, i, nullptr, compiled);
  return compiled;
}

namespace {

/// Whether the node attends to latents, which kernels read where they lie, by keys that are selected several at a time.
bool reads_latents_of_blocks(const Graph& graph, const Node& node) {
  if (!std::holds_alternative<Attention>(node.op)) return false;
  const CacheType& cache = graph.info(node.in[1]).cache;
  if (cache.access != CacheType::Access::Selected || cache.head_dim_k != 576 || cache.head_dim_v != 512) return false;
  const auto nodes = graph.nodes();
  const auto selects =
      std::ranges::find_if(nodes, [&](const Node& n) { return std::ranges::find(n.out, node.in[2]) != n.out.end(); });
  return selects != nodes.end() &&
         (std::holds_alternative<SelectBlocks>(selects->op) || graph.info(selects->in.back()).cache.stride != 1);
}

}  // namespace

std::string refusal(const Graph& graph, const Node& node) {
  if (std::holds_alternative<Map>(node.op)) return "Map runs a function of the program, which the GPU cannot call";
  if (reads_latents_of_blocks(graph, node))
    return "the GPU attends to latents by keys that are selected one by one, not by blocks of them";
  const auto is_brought = [&](std::uint32_t id) {
    const CacheType& cache = graph.info(id).cache;
    return cache.stride != 1 && cache.fleeting();
  };
  if (std::ranges::any_of(node.in, is_brought))
    return "indexes with a key for several positions are not brought to the GPU";
  if (std::holds_alternative<CompressedAttention>(node.op) &&
      graph.info(node.in[1]).cache.head_dim_k > kMostCompressedDim)
    return "the GPU takes heads of up to " + std::to_string(kMostCompressedDim) + " elements beside compressed keys";
  const bool has_rows = std::holds_alternative<GatedDelta>(node.op) || std::holds_alternative<SelectiveScan>(node.op);
  if (has_rows && graph.info(node.in[5]).recurrent.shape[1] > kMaxStateRows)
    return "the GPU takes keys and states of up to " + std::to_string(kMaxStateRows) + " elements in recurrent layers";
  const std::size_t wkv = std::holds_alternative<Wkv6>(node.op) ? 4 : std::holds_alternative<Wkv7>(node.op) ? 8 : 0;
  if (wkv != 0 && graph.info(node.in[wkv]).recurrent.shape[0] > kMaxWkvHead)
    return "the GPU takes heads of up to " + std::to_string(kMaxWkvHead) + " elements in layers of RWKV";
  if (std::holds_alternative<Attention>(node.op) && graph.info(node.in[0]).rows != RowSpace::Tokens)
    return "Attention needs a query for every token";
  if (std::holds_alternative<Route>(node.op)) {
    const std::int64_t experts = graph.info(node.in[0]).type.shape[0];
    if (experts > kMostExperts)
      return "the GPU's router takes up to " + std::to_string(kMostExperts) + " experts, not " +
             std::to_string(experts);
    if (std::get<Route>(node.op).groups > kMostRouteGroups)
      return "the GPU's router takes up to " + std::to_string(kMostRouteGroups) + " groups of experts";
  }
  for (const std::uint32_t id : node.in) {
    const ValueInfo& v = graph.info(id);
    if (v.kind != ValueKind::Cache) continue;
    // Types other than the default are the user's wish and refused when the cache is made.
    const char* reason = cache_refusal(DType::F16, DType::F16, v.cache.head_dim_k, v.cache.head_dim_v);
    if (reason != nullptr) return reason;
  }
  for (const ProductOperands& p : product_operands(node.op)) {
    const ValueInfo& w = graph.info(node.in[p.weight]);
    const DTypeInfo& type = info(w.type.dtype);
    if (type.use != DTypeUse::Weight)
      return "weight \"" + w.name + "\": type " + std::string(name(w.type.dtype)) + " cannot be a matrix";
    if (type.quantized() && !has_tiles(w.type.dtype))
      return "weight \"" + w.name + "\": the GPU has no kernels for type " + std::string(name(w.type.dtype));
    if (w.type.shape[0] % type.block_elems != 0)
      return "weight \"" + w.name + "\": rows of " + std::to_string(w.type.shape[0]) + " are not whole blocks of " +
             std::string(name(w.type.dtype));
  }
  return {};
}

}  // namespace llm::cuda
