// Instructions that work row by row: embedding, norms, gates, rotary embedding, the cache's rows.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>

#include "backend/cpu/cache_writer.h"
#include "backend/cpu/products.h"
#include "backend/cpu/step.h"
#include "backend/host/ops.h"
#include "base/error.h"
#include "tensor/decode.h"

namespace llm::cpu {
namespace {

/// Runs `body(begin, end)` on this thread's share of the step's rows.
template <class Body>
class RowInstruction final : public Instruction {
 public:
  RowInstruction(RowSpace rows, std::string description, Body body)
      : rows_(rows), description_(std::move(description)), body_(std::move(body)) {}
  void run(const Frame& f, const Worker& w) override {
    const auto [begin, end] = w.share(f.rows.count(rows_));
    if (begin < end) body_(f, begin, end);
  }
  std::string describe() const override { return description_; }

 private:
  RowSpace rows_;
  std::string description_;
  Body body_;
};

template <class Body>
std::unique_ptr<Instruction> by_rows(const InstructionSite& site, std::string description, Body body) {
  const RowSpace rows = site.out_info(0).kind == ValueKind::Cache ? site.in_info(0).rows : site.out_info(0).rows;
  return std::make_unique<RowInstruction<Body>>(rows, std::move(description), std::move(body));
}

/// Runs `body(begin, end)` on this thread's share of the elements of all rows: for operations on single elements.
template <class Body>
class ElementInstruction final : public Instruction {
 public:
  ElementInstruction(const ValueInfo& v, std::string description, Body body)
      : rows_(v.rows),
        row_elems_(llm::cpu::row_elems(v)),
        description_(std::move(description)),
        body_(std::move(body)) {}
  void run(const Frame& f, const Worker& w) override {
    const auto [begin, end] = w.share(f.rows.count(rows_) * row_elems_, 64);
    if (begin < end) body_(f, begin, end);
  }
  std::string describe() const override { return description_; }

 private:
  RowSpace rows_;
  std::int64_t row_elems_;
  std::string description_;
  Body body_;
};

template <class Body>
std::unique_ptr<Instruction> by_elements(const InstructionSite& site, std::string description, Body body) {
  return std::make_unique<ElementInstruction<Body>>(site.out_info(0), std::move(description), std::move(body));
}

/// A caller's function, on one thread: it may throw, and need not bear being called at once.
class MapInstruction final : public Instruction {
 public:
  MapInstruction(const Map& op, int x, int y, const ValueInfo& v)
      : op_(op), x_(x), y_(y), rows_(v.rows), row_elems_(llm::cpu::row_elems(v)) {}
  void run(const Frame& f, const Worker& w) override {
    if (w.thread != 0 || *f.failure) return;
    const float* x = f.f32(x_);
    try {
      std::transform(x, x + f.rows.count(rows_) * row_elems_, f.f32(y_), *op_.function);
    } catch (...) {
      *f.failure = std::current_exception();
    }
  }
  std::string describe() const override { return "map " + op_.name; }

 private:
  Map op_;
  int x_, y_;
  RowSpace rows_;
  std::int64_t row_elems_;
};

std::unique_ptr<Instruction> unary(const InstructionSite& site, std::string description, UnaryFn fn) {
  return by_elements(site, std::move(description),
                     [=, x = site.in[0], y = site.out[0]](const Frame& f, auto begin, auto end) {
                       fn(f.f32(x) + begin, f.f32(y) + begin, end - begin);
                     });
}

std::unique_ptr<Instruction> by_number(const InstructionSite& site, std::string description, ScaleFn fn, float number) {
  return by_elements(site, std::move(description),
                     [=, x = site.in[0], y = site.out[0]](const Frame& f, auto begin, auto end) {
                       fn(f.f32(x) + begin, f.f32(y) + begin, end - begin, number);
                     });
}

std::unique_ptr<Instruction> binary(const InstructionSite& site, std::string description, BinaryFn fn) {
  return by_elements(site, std::move(description),
                     [=, a = site.in[0], b = site.in[1], y = site.out[0]](const Frame& f, auto begin, auto end) {
                       fn(f.f32(a) + begin, f.f32(b) + begin, f.f32(y) + begin, end - begin);
                     });
}

struct Make {
  const InstructionSite& site;

  /// Of a norm: vectors that its weight has, one where it has none.
  std::int64_t norm_weights() const { return site.node.in.size() > 1 ? site.in_info(1).type.shape.rows() : 1; }

  std::unique_ptr<Instruction> operator()(const Embed&) const {
    const TensorType& table = site.in_info(0).type;
    const std::int64_t d = table.shape[0], vectors = row_elems(site.out_info(0)) / d;
    return by_rows(site, "embed " + to_string(table),
                   [=, fn = decoder(table.dtype), row_bytes = table.row_bytes(), w = site.in[0], ids = site.in[1],
                    y = site.out[0]](const Frame& f, auto begin, auto end) {
                     for (auto r = begin * vectors; r < end * vectors; ++r) {
                       const auto id = static_cast<std::size_t>(f.i32(ids)[r]);
                       fn(f.slots[w].data + id * row_bytes, f.f32(y) + r * d, d);
                     }
                   });
  }

  std::unique_ptr<Instruction> operator()(const LayerNorm& op) const {
    const std::int64_t n = site.in_info(0).type.shape[0], vectors = row_elems(site.in_info(0)) / n;
    const std::int64_t weights = norm_weights();
    return by_rows(site, "layer_norm",
                   [=, fn = site.kernels.layer_norm, x = site.in[0], gains = site.optional_in(1),
                    bias = site.optional_in(2), y = site.out[0]](const Frame& f, auto begin, auto end) {
                     const float *const w = f.optional(gains), *const b = f.optional(bias);
                     for (auto r = begin * vectors; r < end * vectors; ++r) {
                       const auto own = r % weights * n;
                       fn(f.f32(x) + r * n, w != nullptr ? w + own : nullptr, b != nullptr ? b + own : nullptr,
                          f.f32(y) + r * n, n, op.eps);
                     }
                   });
  }

  std::unique_ptr<Instruction> operator()(const RmsNorm& op) const {
    const std::int64_t n = site.in_info(0).type.shape[0], vectors = row_elems(site.in_info(0)) / n;
    const std::int64_t weights = norm_weights();
    return by_rows(site, "rms_norm",
                   [=, fn = site.kernels.rms_norm, x = site.in[0], w = site.optional_in(1), y = site.out[0]](
                       const Frame& f, auto begin, auto end) {
                     const float* const of_all = f.optional(w);
                     for (auto r = begin * vectors; r < end * vectors; ++r) {
                       const float* const own = of_all != nullptr ? of_all + r % weights * n : nullptr;
                       fn(f.f32(x) + r * n, own, f.f32(y) + r * n, n, op.eps);
                     }
                   });
  }

  std::unique_ptr<Instruction> operator()(const AddRmsNorm& op) const {
    const std::int64_t n = site.in_info(0).type.shape[0], vectors = row_elems(site.in_info(0)) / n;
    return by_rows(site, "add_rms_norm",
                   [=, fn = site.kernels.add_rms_norm, a = site.in[0], b = site.in[1], w = site.in[2],
                    sum = site.out[0], y = site.out[1]](const Frame& f, auto begin, auto end) {
                     for (auto r = begin * vectors; r < end * vectors; ++r) {
                       fn(f.f32(a) + r * n, f.f32(b) + r * n, f.f32(w), f.f32(sum) + r * n, f.f32(y) + r * n, n,
                          op.eps);
                     }
                   });
  }

  BinaryFn glu(Activation activation) const {
    switch (activation) {
      case Activation::Silu:
        return site.kernels.silu_mul;
      case Activation::Gelu:
        return site.kernels.gelu_mul;
      case Activation::ClampedSilu:
        return site.kernels.clamped_silu_mul;
      case Activation::Relu:
        return site.kernels.relu_mul;
      case Activation::Sigmoid:
        return site.kernels.sigmoid_mul;
      case Activation::Softplus:
        return site.kernels.softplus_mul;
      case Activation::Identity:
        return site.kernels.mul;
    }
    return nullptr;
  }
  std::unique_ptr<Instruction> limited_glu(const Glu& op) const {
    return by_elements(site, "limited silu_mul",
                       [=, fn = site.kernels.limited_silu_mul, gate_limit = op.gate_limit, limit = op.limit,
                        gate = site.in[0], up = site.in[1], y = site.out[0]](const Frame& f, auto begin, auto end) {
                         fn(f.f32(gate) + begin, f.f32(up) + begin, f.f32(y) + begin, end - begin, gate_limit, limit);
                       });
  }
  std::unique_ptr<Instruction> operator()(const Glu& op) const {
    if (op.limit > 0) return limited_glu(op);
    std::string text(name(op.activation));
    std::ranges::replace(text, ' ', '_');
    text += "_mul";
    const std::int64_t n = site.in_info(1).type.shape[0], vectors = row_elems(site.in_info(1)) / n;
    if (site.in_info(0).type.shape[0] == n) return binary(site, std::move(text), glu(op.activation));
    return by_rows(site, text + " by one gate",
                   [=, fn = glu(op.activation), gate = site.in[0], up = site.in[1], y = site.out[0]](
                       const Frame& f, auto begin, auto end) {
                     for (auto r = begin * vectors; r < end * vectors; ++r)
                       glu_of_one(fn, f.f32(gate)[r], f.f32(up) + r * n, f.f32(y) + r * n, n);
                   });
  }

  std::unique_ptr<Instruction> operator()(const Activate& op) const {
    switch (op.function) {
      case Nonlinearity::Gelu:
        return unary(site, "gelu", site.kernels.gelu);
      case Nonlinearity::SquaredRelu:
        return unary(site, "squared_relu", site.kernels.squared_relu);
      case Nonlinearity::Clamp:
        return by_number(site, "clamp", site.kernels.clamp, op.limit);
      case Nonlinearity::Xielu:
        return by_elements(
            site, "xielu",
            [=, fn = site.kernels.xielu, curve = op.xielu, x = site.in[0], y = site.out[0]](
                const Frame& f, auto begin, auto end) { fn(f.f32(x) + begin, f.f32(y) + begin, end - begin, curve); });
      case Nonlinearity::Sigmoid:
        return unary(site, "sigmoid", site.kernels.sigmoid);
    }
    return nullptr;
  }
  std::unique_ptr<Instruction> operator()(const Add&) const { return binary(site, "add", site.kernels.add); }

  std::unique_ptr<Instruction> operator()(const StreamMix&) const {
    const Shape &x = site.in_info(0).type.shape, &w = site.in_info(1).type.shape;
    const std::int64_t n = x[0], m = x[1], k = w[1];
    return by_rows(site, "stream_mix",
                   [=, axpy = site.kernels.axpy, x = site.in[0], w = site.in[1], y = site.out[0]](
                       const Frame& f, auto begin, auto end) {
                     for (auto r = begin; r < end; ++r)
                       mix_row(axpy, f.f32(x) + r * n * m, f.f32(w) + r * m * k, n, m, k, f.f32(y) + r * n * k);
                   });
  }

  std::unique_ptr<Instruction> operator()(const StreamAdd& op) const {
    const Shape& s = site.in_info(0).type.shape;
    const std::int64_t n = s[0], m = s[1];
    return by_rows(site, "stream_add",
                   [=, axpy = site.kernels.axpy, x = site.in[0], added = site.in[1], w = site.optional_in(2),
                    y = site.out[0]](const Frame& f, auto begin, auto end) {
                     const float* const weights = f.optional(w);
                     for (auto r = begin; r < end; ++r) {
                       float* const row = f.f32(y) + r * n * m;
                       std::copy_n(f.f32(x) + r * n * m, n * m, row);
                       for (std::int64_t i = op.first; i < m; ++i) {
                         const float factor = weights != nullptr ? 1 + weights[r * m + i] : 1;
                         axpy(factor, f.f32(added) + r * n, row + i * n, n);
                       }
                     }
                   });
  }

  std::unique_ptr<Instruction> operator()(const StreamWeights& op) const {
    const std::int64_t width = site.in_info(0).type.shape[0], m = site.out_info(0).type.shape[0];
    const bool whole = site.out.size() > 1;
    return by_rows(
        site, "stream_weights",
        [=, x = site.in[0], scales = site.in[1], biases = site.in[2], read = site.out[0],
         write = whole ? site.out[1] : 0, mix = whole ? site.out[2] : 0](const Frame& f, auto begin, auto end) {
          for (auto r = begin; r < end; ++r)
            host::stream_weights<double>(op, f.f32(x) + r * width, f.f32(scales), f.f32(biases), m, f.f32(read) + r * m,
                                         whole ? f.f32(write) + r * m : nullptr,
                                         whole ? f.f32(mix) + r * m * m : nullptr);
        });
  }

  /// The elements of a row, not rows: of a single token there are many.
  std::unique_ptr<Instruction> operator()(const StreamMean&) const {
    const Shape& s = site.in_info(0).type.shape;
    const std::int64_t n = s[0], m = s[1];
    return by_elements(
        site, "stream_mean",
        [=, gated = site.kernels.sigmoid_mul, axpy = site.kernels.axpy, scale = site.kernels.scale, x = site.in[0],
         gate = site.in[1], y = site.out[0]](const Frame& f, std::int64_t begin, std::int64_t end) {
          constexpr std::int64_t kStretch = 256;
          float part[kStretch];
          for (std::int64_t at = begin, length = 0; at < end; at += length) {
            length = std::min({kStretch, end - at, n - at % n});
            const std::int64_t first = at / n * n * m + at % n;
            float* const sum = f.f32(y) + at;
            gated(f.f32(gate) + first, f.f32(x) + first, sum, length);
            for (std::int64_t i = 1; i < m; ++i) {
              gated(f.f32(gate) + first + i * n, f.f32(x) + first + i * n, part, length);
              axpy(1, part, sum, length);
            }
            scale(sum, sum, length, 1 / static_cast<float>(m));
          }
        });
  }

  std::unique_ptr<Instruction> operator()(const StreamBlend& op) const {
    const Shape& s = site.in_info(0).type.shape;
    const std::int64_t n = s[0], m = s[1];
    return by_rows(site, "stream_blend",
                   [=, axpy = site.kernels.axpy, x = site.in[0], last = site.in[1], w = site.in[2], y = site.out[0]](
                       const Frame& f, auto begin, auto end) {
                     for (auto r = begin; r < end; ++r)
                       blend_row(op, axpy, f.f32(x) + r * n * m, f.f32(last) + r * n, f.f32(w), n, m, f.f32(y) + r * n);
                   });
  }

  std::unique_ptr<Instruction> operator()(const MatchGate&) const {
    const Shape& s = site.in_info(0).type.shape;
    const std::int64_t n = s[0], m = s[1];
    return by_rows(site, "match_gate",
                   [=, a = site.in[0], b = site.in[1], y = site.out[0]](const Frame& f, auto begin, auto end) {
                     for (auto i = begin * m; i < end * m; ++i)
                       f.f32(y)[i] = host::match_gate<double>(f.f32(a) + i * n, f.f32(b) + i * n, n);
                   });
  }

  /// By stretches of rows: of a single token there are many.
  std::unique_ptr<Instruction> operator()(const Lerp&) const {
    const std::int64_t n = site.in_info(0).type.shape[0];
    return by_elements(
        site, "lerp to " + std::to_string(site.out.size()),
        [=, add = site.kernels.add, mul = site.kernels.mul, x = site.in[0], d = site.in[1], w = site.in[2],
         more = site.optional_in(3), out = site.out](const Frame& f, std::int64_t begin, std::int64_t end) {
          constexpr std::int64_t kStretch = 256;
          float shares[kStretch];
          const auto m = std::ssize(out);
          for (std::int64_t at = begin, length = 0; at < end; at += length) {
            length = std::min({kStretch, end - at, n - at % n});
            for (std::int64_t j = 0; j < m; ++j) {
              const float* by = f.f32(w) + j * n + at % n;
              if (more != InstructionSite::kAbsent) {
                add(by, f.f32(more) + (at / n * m + j) * n + at % n, shares, length);
                by = shares;
              }
              float* const y = f.f32(out[static_cast<std::size_t>(j)]) + at;
              mul(f.f32(d) + at, by, y, length);
              add(f.f32(x) + at, y, y, length);
            }
          }
        });
  }

  std::unique_ptr<Instruction> operator()(const GaussianTop& op) const {
    const std::int64_t n = site.in_info(0).type.shape[0], vectors = row_elems(site.in_info(0)) / n;
    return by_rows(site, "gaussian_top", [=, x = site.in[0], y = site.out[0]](const Frame& f, auto begin, auto end) {
      for (auto r = begin * vectors; r < end * vectors; ++r)
        host::gaussian_top<double>(f.f32(x) + r * n, f.f32(y) + r * n, n, op.deviations);
    });
  }

  std::unique_ptr<Instruction> scale_elements(const Scale& op) const {
    const std::int64_t n = site.in_info(0).type.shape[0], vectors = row_elems(site.in_info(0)) / n;
    return by_rows(site, "scale elements",
                   [=, mul = site.kernels.mul, scale = site.kernels.scale, x = site.in[0], w = site.in[1],
                    y = site.out[0]](const Frame& f, auto begin, auto end) {
                     for (auto r = begin * vectors; r < end * vectors; ++r) {
                       float* const row = f.f32(y) + r * n;
                       mul(f.f32(x) + r * n, f.f32(w), row, n);
                       if (op.factor != 1) scale(row, row, n, op.factor);
                     }
                   });
  }
  std::unique_ptr<Instruction> scale_vectors(const Scale& op) const {
    const std::int64_t n = site.in_info(0).type.shape[0], vectors = row_elems(site.in_info(0)) / n;
    return by_rows(site, "scale vectors",
                   [=, scale = site.kernels.scale, x = site.in[0], w = site.in[1], y = site.out[0]](
                       const Frame& f, auto begin, auto end) {
                     for (auto r = begin * vectors; r < end * vectors; ++r)
                       scale(f.f32(x) + r * n, f.f32(y) + r * n, n, op.factor * f.f32(w)[r % vectors]);
                   });
  }
  std::unique_ptr<Instruction> operator()(const Scale& op) const {
    if (site.in.size() > 1 && scales_vectors(site.in_info(1).type.shape)) return scale_vectors(op);
    if (site.in.size() > 1 && site.in_info(1).type.shape[0] > 1) return scale_elements(op);
    return by_elements(site, "scale",
                       [=, fn = site.kernels.scale, x = site.in[0], w = site.optional_in(1), y = site.out[0]](
                           const Frame& f, auto begin, auto end) {
                         const float* const weight = f.optional(w);
                         fn(f.f32(x) + begin, f.f32(y) + begin, end - begin,
                            weight != nullptr ? op.factor * *weight : op.factor);
                       });
  }

  std::unique_ptr<Instruction> operator()(const SoftCap& op) const {
    return by_number(site, "soft_cap", site.kernels.soft_cap, op.cap);
  }

  std::unique_ptr<Instruction> operator()(const Map& op) const {
    return std::make_unique<MapInstruction>(op, site.in[0], site.out[0], site.out_info(0));
  }

  std::unique_ptr<Instruction> operator()(const Rope& op) const {
    const Shape& s = site.in_info(0).type.shape;
    const std::int64_t dim = s[0], heads = s[1];
    const RopeFn fn = op.pairing == RopePairing::Interleaved ? site.kernels.rope_interleaved : site.kernels.rope_halves;
    return by_rows(site, "rope " + attributes(site.node.op),
                   [=, n_rot = op.n_rot, x = site.in[0], table = site.in[1], y = site.out[0]](const Frame& f,
                                                                                              auto begin, auto end) {
                     for (auto r = begin; r < end; ++r) {
                       fn(f.f32(x) + r * dim * heads, f.f32(y) + r * dim * heads, f.f32(table) + r * n_rot, heads, dim,
                          n_rot);
                     }
                   });
  }

  std::unique_ptr<Instruction> operator()(const KvAppend&) const {
    const CacheType c = site.in_info(site.in.size() - 1).cache;
    const bool alone = c.keys_alone();
    const CacheWriter keys(CacheSide::Keys, site.cache.k, c.head_dim_k, site.kernels, c.access);
    const CacheWriter values(CacheSide::Values, site.cache.v, c.head_dim_v, site.kernels, c.access);
    std::string text = std::string(alone ? name(c.part) : "kv") + "_append " + std::string(name(site.cache.k));
    if (!alone) text += "/" + std::string(name(site.cache.v));
    if (c.stride > 1) return append_ends(keys, c, text + " stride " + std::to_string(c.stride));
    return by_rows(site, std::move(text),
                   [=, k = site.in[0], v = site.in[1], cache = site.in.back()](const Frame& f, auto begin, auto end) {
                     const std::span<const std::int32_t> slots = f.step->groups[0].slots;
                     for (std::int64_t r = begin, n = 0; r < end; r += n) {
                       n = neighbours(slots.subspan(static_cast<std::size_t>(r), static_cast<std::size_t>(end - r)));
                       const std::int32_t slot = slots[static_cast<std::size_t>(r)];
                       if (slot < 0) continue;
                       store_heads(keys, f.f32(k) + r * c.kv_heads * c.head_dim_k, n, c.kv_heads, c.head_dim_k, slot,
                                   f.slots[cache].data);
                       if (alone) continue;
                       store_heads(values, f.f32(v) + r * c.kv_heads * c.head_dim_v, n, c.kv_heads, c.head_dim_v, slot,
                                   f.slots[cache].values);
                     }
                   });
  }

  /// To keys alone of a stride.
  std::unique_ptr<Instruction> append_ends(const CacheWriter& keys, const CacheType& c, std::string text) const {
    return by_rows(site, std::move(text),
                   [=, k = site.in[0], cache = site.in.back()](const Frame& f, auto begin, auto end) {
                     const std::int64_t n = std::int64_t{c.kv_heads} * c.head_dim_k;
                     for (auto r = begin; r < end; ++r) {
                       const std::int32_t slot = f.step->groups[0].slots[static_cast<std::size_t>(r)];
                       const std::int32_t position = f.step->positions[static_cast<std::size_t>(r)];
                       const std::int32_t in_block = position % kBlockPositions;
                       if (slot < 0 || (position + 1) % c.stride != 0) continue;
                       store_heads(keys, f.f32(k) + r * n, 1, c.kv_heads, c.head_dim_k,
                                   slot - in_block + in_block / c.stride, f.slots[cache].data);
                     }
                   });
  }

  std::unique_ptr<Instruction> operator()(const RopeTable&) const {
    check(false, "rope_table instructions are made by the program, which knows its weights");
    return nullptr;
  }

  std::unique_ptr<Instruction> operator()(const PositionScale& op) const {
    return by_rows(site, "position_scale " + attributes(site.node.op),
                   [=, positions = site.in[0], y = site.out[0]](const Frame& f, auto begin, auto end) {
                     for (auto r = begin; r < end; ++r)
                       f.f32(y)[r] = static_cast<float>(host::position_scale<double>(op, f.i32(positions)[r]));
                   });
  }

  std::unique_ptr<Instruction> operator()(const Route&) const { return make_route(site); }

  std::unique_ptr<Instruction> operator()(const Combine&) const {
    const Shape& s = site.in_info(0).type.shape;
    const std::int64_t n = s[0], top_k = s[1];
    return by_rows(site, "combine",
                   [=, axpy = site.kernels.axpy, x = site.in[0], w = site.in[1], y = site.out[0]](
                       const Frame& f, auto begin, auto end) {
                     for (auto r = begin; r < end; ++r) {
                       float* row = f.f32(y) + r * n;
                       std::fill(row, row + n, 0.0F);
                       for (std::int64_t j = 0; j < top_k; ++j)
                         axpy(f.f32(w)[r * top_k + j], f.f32(x) + (r * top_k + j) * n, row, n);
                     }
                   });
  }

  std::unique_ptr<Instruction> operator()(const Rows&) const {
    const auto bytes = static_cast<std::size_t>(row_elems(site.in_info(0))) * sizeof(float);
    return by_rows(
        site, "rows", [=, x = site.in[0], ids = site.in[1], y = site.out[0]](const Frame& f, auto begin, auto end) {
          for (auto r = begin; r < end; ++r) {
            const auto from = static_cast<std::size_t>(f.i32(ids)[r]);
            std::memcpy(f.slots[y].data + static_cast<std::size_t>(r) * bytes, f.slots[x].data + from * bytes, bytes);
          }
        });
  }

  std::unique_ptr<Instruction> operator()(const Slice& op) const {
    const std::int64_t m = site.in_info(0).type.shape[0], vectors = row_elems(site.in_info(0)) / m;
    return by_rows(site, "slice", [=, x = site.in[0], y = site.out[0]](const Frame& f, auto begin, auto end) {
      for (auto i = begin * vectors; i < end * vectors; ++i)
        std::copy_n(f.f32(x) + i * m + op.begin, op.n, f.f32(y) + i * op.n);
    });
  }

  std::unique_ptr<Instruction> operator()(const Concat&) const {
    const Shape &first = site.in_info(0).type.shape, &second = site.in_info(1).type.shape;
    const std::int64_t m = first[0], n = second[0], heads = first[1], of_one = second[1] == 1 ? heads : 1;
    return by_rows(site, "concat",
                   [=, a = site.in[0], b = site.in[1], y = site.out[0]](const Frame& f, auto begin, auto end) {
                     for (auto i = begin * heads; i < end * heads; ++i) {
                       float* const to = std::copy_n(f.f32(a) + i * m, m, f.f32(y) + i * (m + n));
                       std::copy_n(f.f32(b) + i / of_one * n, n, to);
                     }
                   });
  }

  std::unique_ptr<Instruction> operator()(const HeadIds&) const {
    const std::int64_t heads = site.out_info(0).type.shape[0];
    return by_rows(site, "head_ids", [=, y = site.out[0]](const Frame& f, auto begin, auto end) {
      for (auto i = begin * heads; i < end * heads; ++i) f.i32(y)[i] = static_cast<std::int32_t>(i % heads);
    });
  }

  std::unique_ptr<Instruction> operator()(const GroupIds& op) const {
    const std::int64_t top_k = site.out_info(0).type.shape[0];
    return by_rows(site, "group_ids", [=, x = site.in[0], y = site.out[0]](const Frame& f, auto begin, auto end) {
      for (auto i = begin * top_k; i < end * top_k; ++i) f.i32(y)[i] = f.i32(x)[i] / op.size;
    });
  }

  std::unique_ptr<Instruction> operator()(const Silence& op) const {
    const std::int64_t n = site.in_info(0).type.shape[0];
    return by_rows(site, "silence", [=, x = site.in[0], y = site.out[0]](const Frame& f, auto begin, auto end) {
      for (auto r = begin; r < end; ++r) {
        std::copy_n(f.f32(x) + r * n, n, f.f32(y) + r * n);
        std::fill_n(f.f32(y) + r * n + op.begin, op.n, std::numeric_limits<float>::lowest());
      }
    });
  }

  /// The plan gives both sides the same bytes.
  std::unique_ptr<Instruction> operator()(const Reshape&) const { return nullptr; }

  // Instructions in files of their own.
  std::unique_ptr<Instruction> operator()(const Linear&) const { return make_linear(site); }
  std::unique_ptr<Instruction> operator()(const ExpertLinear&) const { return make_expert_linear(site); }
  std::unique_ptr<Instruction> operator()(const SelectKeys&) const { return make_select_keys(site); }
  std::unique_ptr<Instruction> operator()(const SelectBlocks&) const { return make_select_blocks(site); }
  std::unique_ptr<Instruction> operator()(const Attention&) const {
    const bool selected = site.in_info(1).cache.access == CacheType::Access::Selected;
    return selected ? make_selected_attention(site) : make_attention(site);
  }
  std::unique_ptr<Instruction> operator()(const CompressedAttention&) const { return make_compressed_attention(site); }
  std::unique_ptr<Instruction> operator()(const Compress&) const { return make_compress(site); }
  std::unique_ptr<Instruction> operator()(const ShortConv&) const { return make_short_conv(site); }
  std::unique_ptr<Instruction> operator()(const WindowMean&) const { return make_window_mean(site); }
  std::unique_ptr<Instruction> operator()(const HashIds&) const { return make_hash_ids(site); }
  std::unique_ptr<Instruction> operator()(const GatedDelta&) const { return make_gated_delta(site); }
  std::unique_ptr<Instruction> operator()(const SelectiveScan&) const { return make_selective_scan(site); }
  std::unique_ptr<Instruction> operator()(const TokenShift&) const { return make_token_shift(site); }
  std::unique_ptr<Instruction> operator()(const Wkv6&) const { return make_wkv6(site); }
  std::unique_ptr<Instruction> operator()(const Wkv7&) const { return make_wkv7(site); }

 private:
  /// A row by one gate, of which there are as many copies as a stretch of it is long.
  static void glu_of_one(BinaryFn fn, float gate, const float* up, float* y, std::int64_t n) {
    constexpr std::int64_t kStretch = 256;
    float gates[kStretch];
    std::fill_n(gates, std::min(n, kStretch), gate);
    for (std::int64_t i = 0; i < n; i += kStretch) fn(gates, up + i, y + i, std::min(kStretch, n - i));
  }

  /// Long vectors are added up one after another, short ones element by element.
  static void mix_row(AxpyFn axpy, const float* x, const float* w, std::int64_t n, std::int64_t m, std::int64_t k,
                      float* y) {
    constexpr std::int64_t kLong = 16;
    if (n < kLong) return host::mix_row<double>(x, w, n, m, k, y);
    std::fill_n(y, n * k, 0.0F);
    for (std::int64_t j = 0; j < k; ++j) {
      for (std::int64_t i = 0; i < m; ++i) axpy(w[j * m + i], x + i * n, y + j * n, n);
    }
  }

  /// x_i . w / sqrt(mean(x_i^2) + eps), in lanes of sums that a compiler can keep side by side.
  static double blend_score(const StreamBlend& op, const float* x, const float* w, std::int64_t n) {
    constexpr std::int64_t kLanes = 8;
    double products[kLanes] = {}, squares[kLanes] = {};
    const auto take = [&](std::int64_t i, std::int64_t lane) {
      products[lane] += double{x[i]} * double{w[i]};
      squares[lane] += double{x[i]} * double{x[i]};
    };
    std::int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes)
      for (std::int64_t lane = 0; lane < kLanes; ++lane) take(i + lane, lane);
    for (std::int64_t lane = 0; i < n; ++i, ++lane) take(i, lane);
    double product = 0, square = 0;
    for (std::int64_t lane = 0; lane < kLanes; ++lane) product += products[lane], square += squares[lane];
    return product / std::sqrt(square / static_cast<double>(n) + double{op.eps});
  }

  static void blend_row(const StreamBlend& op, AxpyFn axpy, const float* x, const float* last, const float* w,
                        std::int64_t n, std::int64_t m, float* y) {
    const auto vector = [&](std::int64_t i) { return i < m ? x + i * n : last; };
    double shares[kMostBlended + 1];
    for (std::int64_t i = 0; i <= m; ++i) shares[i] = blend_score(op, vector(i), w, n);
    const double best = *std::max_element(shares, shares + m + 1);
    double total = 0;
    for (std::int64_t i = 0; i <= m; ++i) total += shares[i] = std::exp(shares[i] - best);
    std::fill_n(y, n, 0.0F);
    for (std::int64_t i = 0; i <= m; ++i) axpy(static_cast<float>(shares[i] / total), vector(i), y, n);
  }

  /// How many of the first tokens have places side by side in one block of the cache, or none; at least one.
  static std::int64_t neighbours(std::span<const std::int32_t> slots) {
    std::size_t n = 1;
    while (slots[0] >= 0 && n < slots.size() && slots[n] == slots[n - 1] + 1 && slots[n] % kBlockPositions != 0) ++n;
    return static_cast<std::int64_t>(n);
  }

  /// The heads of tokens with places side by side, the first in `slot`, to the cache.
  static void store_heads(const CacheWriter& writer, const float* heads, std::int64_t tokens, std::int64_t kv_heads,
                          std::int64_t head_dim, std::int32_t slot, std::byte* cache) {
    const std::size_t bytes = writer.layout().block_bytes();
    const std::int32_t first = slot % kBlockPositions;
    std::byte* block = cache + static_cast<std::size_t>(slot / kBlockPositions * kv_heads) * bytes;
    for (std::int64_t h = 0; h < kv_heads; ++h, block += bytes) {
      writer.store(heads + h * head_dim, kv_heads * head_dim, block, first, first + static_cast<std::int32_t>(tokens));
    }
  }
};

}  // namespace

std::size_t scratch_bytes(const Graph& g, const Node& n, int threads) {
  if (std::holds_alternative<Linear>(n.op)) return Products::scratch_bytes(g, n);
  if (std::holds_alternative<ExpertLinear>(n.op)) return expert_linear_scratch_bytes(g, n);
  if (std::holds_alternative<SelectKeys>(n.op)) return select_keys_scratch_bytes(g, n, threads);
  if (std::holds_alternative<SelectBlocks>(n.op)) return select_blocks_scratch_bytes(g, n, threads);
  if (std::holds_alternative<Attention>(n.op)) {
    const bool selected = g.info(n.in[1]).cache.access == CacheType::Access::Selected;
    return selected ? selected_attention_scratch_bytes(g, n, threads) : attention_scratch_bytes(g, n, threads);
  }
  if (std::holds_alternative<CompressedAttention>(n.op)) return compressed_attention_scratch_bytes(g, n, threads);
  if (std::holds_alternative<GatedDelta>(n.op)) return gated_delta_scratch_bytes(g, n);
  if (std::holds_alternative<SelectiveScan>(n.op)) return selective_scan_scratch_bytes(g, n);
  if (std::holds_alternative<Wkv6>(n.op)) return wkv6_scratch_bytes(g, n);
  if (std::holds_alternative<Wkv7>(n.op)) return wkv7_scratch_bytes(g, n);
  return 0;
}

std::unique_ptr<Instruction> make_instruction(const InstructionSite& site) {
  return std::visit(Make{site}, site.node.op);
}

}  // namespace llm::cpu
