// What deepseek4 adds to a layer, of DeepSeek V4's shape: keys that stand for several positions are made and chosen,
// and attended to beside a window; weights of streams. us for one token, for 32 of as many sequences and for a part of
// a prompt, behind contexts of several lengths.
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "backend/cuda/device.h"
#include "backend/cuda/kernels/attend_compressed.h"
#include "backend/cuda/kernels/compress.h"
#include "backend/cuda/kernels/select_keys.h"
#include "backend/cuda/kernels/streams.h"
#include "bench_support.h"
#include "tensor/tensor.h"

namespace {
using namespace llm;
using namespace llm::cuda;

constexpr int kHeads = 64, kDim = 512, kIndexHeads = 64, kIndexDim = 128, kTopK = 512, kWindow = 128, kStreams = 4;
constexpr int kFew = 4, kMany = 128;  ///< positions of a key

std::size_t size(std::int64_t n) { return static_cast<std::size_t>(n); }

template <class T>
DeviceBuffer filled(const std::vector<T>& values) {
  DeviceBuffer b(values.size() * sizeof(T));
  copy_to_device(b.data(), values.data(), b.bytes(), "copying");
  return b;
}
/// Finite numbers as F16, BF16, E4M3 and in pairs as f32.
DeviceBuffer some(std::size_t bytes) {
  DeviceBuffer b(bytes / 4 * 4 + 16);
  fill_with_bits(b, 0xb3ffb3ffu);
  return b;
}

/// A step of `tokens` behind `context` positions of each sequence.
struct BenchStep {
  int tokens, sequences, context, stride;
  DeviceBuffer positions, sequence, table, runs;

  BenchStep(int tokens, int sequences, int context)
      : tokens(tokens), sequences(sequences), context(context), stride((context + tokens / sequences + 63) / 64) {
    std::vector<std::int32_t> p, s, t;
    std::vector<SequenceRun> r;
    const int each = tokens / sequences;
    for (int i = 0; i < tokens; ++i) {
      p.push_back(context + i % each);
      s.push_back(i / each);
    }
    for (int i = 0; i < sequences; ++i) r.push_back({i * each, each, i, i});
    for (int i = 0; i < stride * sequences; ++i)
      t.push_back(static_cast<std::int32_t>(i * 7919LL % (stride * sequences)));
    positions = filled(p);
    sequence = filled(s);
    table = filled(t);
    runs = filled(r);
  }
  StepView view() const {
    StepView v;
    v.positions = reinterpret_cast<const std::int32_t*>(positions.data());
    v.sequence = reinterpret_cast<const std::int32_t*>(sequence.data());
    v.block_table = reinterpret_cast<const std::int32_t*>(table.data());
    v.runs = reinterpret_cast<const SequenceRun*>(runs.data());
    v.table_stride = stride;
    return v;
  }
  std::int64_t most() const { return std::int64_t{stride} * 64; }
  std::size_t cache_bytes(DType type, int dim) const {
    return size(most() * sequences) * TensorType{type, {dim}}.bytes();
  }
};

template <class F>
double measured(const F& f) {
  const Stream stream;
  const Launch at{stream.get(), true};
  return microseconds(stream.get(), 4, [&](int) { f(at); });
}
float* floats(const DeviceBuffer& b) { return reinterpret_cast<float*>(b.data()); }

double attention(const BenchStep& step, DType type, int stride, const std::int32_t* chosen) {
  const DeviceBuffer k = some(step.cache_bytes(type, kDim)), more = some(step.cache_bytes(type, kDim)),
                     q = some(size(step.tokens) * kHeads * kDim * 4), sinks = some(kHeads * 4);
  const DeviceBuffer y(q.bytes());
  const CacheView cache{.k = k.data(),
                        .v = k.data(),
                        .k_type = type,
                        .v_type = type,
                        .kv_heads = 1,
                        .head_dim_k = kDim,
                        .head_dim_v = kDim,
                        .values_in_keys = true};
  const CompressedKeys keys{more.data(), stride, chosen, chosen != nullptr ? kTopK : 0};
  const AttentionShape shape{
      .heads = kHeads, .scale = 0.04f, .window = kWindow, .query = ActFormat::Q8x32, .sinks = floats(sinks)};
  const AttentionMemory need = compressed_attention_memory(cache, shape, keys, step.tokens, step.most());
  const DeviceBuffer scratch(need.scratch + 16), arrivals(need.arrivals + 16);
  fill_device(arrivals.data(), 0, arrivals.bytes(), "clearing");
  const bool prompt = step.tokens / step.sequences > 16 && attends_prompt_compressed(cache);
  return measured([&](const Launch& at) {
    if (prompt)
      attend_prompt_compressed(floats(q), floats(y), cache, shape, keys, step.view(), step.tokens, at);
    else
      attend_compressed(floats(q), floats(y), cache, shape, keys, step.view(), step.tokens, step.most(), scratch.data(),
                        arrivals.data(), at);
  });
}

double compression(const BenchStep& step, int parts, int stride) {
  const std::int64_t width = std::int64_t{parts} * kDim;
  const DeviceBuffer x = some(size(step.tokens * width) * 4), scores = some(x.bytes()),
                     places = some(size(stride * width) * 4), states = some(size(step.sequences * 3 * width) * 4),
                     y(size(step.tokens) * kDim * 4);
  const CompressShape shape{.n = kDim, .parts = parts, .stride = stride, .sequences = step.sequences};
  const CompressOperands operands{.x = floats(x),
                                  .scores = floats(scores),
                                  .places = floats(places),
                                  .positions = step.view().positions,
                                  .states = floats(states)};
  return measured([&](const Launch& at) { compress(shape, operands, step.view(), step.tokens, floats(y), at); });
}

double weights_of_streams(int tokens) {
  constexpr int kWidth = (2 + kStreams) * kStreams;
  const DeviceBuffer x = some(size(tokens) * kWidth * 4), scales = some(16), biases = some(kWidth * 4),
                     read(size(tokens) * kStreams * 4), write(size(tokens) * kStreams * 4),
                     mix(size(tokens) * kStreams * kStreams * 4);
  return measured([&](const Launch& at) {
    stream_weights({.eps = 1e-6f, .iterations = 20}, kStreams, floats(x), floats(scales), floats(biases), tokens,
                   {floats(read), floats(write), floats(mix)}, at);
  });
}

void run(DType type, int tokens, int sequences, int context) {
  const BenchStep step(tokens, sequences, context);
  const DeviceBuffer index_keys = some(step.cache_bytes(type, kIndexDim)),
                     iq = some(size(tokens) * kIndexHeads * kIndexDim * 4), iw = some(size(tokens) * kIndexHeads * 4),
                     chosen(size(tokens) * kTopK * 4);
  const CacheView index{.k = index_keys.data(), .k_type = type, .v_type = type, .kv_heads = 1, .head_dim_k = kIndexDim};
  const SelectionShape selection{.heads = kIndexHeads,
                                 .top_k = kTopK,
                                 .query = ActFormat::Q8x32,
                                 .stride = kFew,
                                 .choice = SelectKeys::Choice::Keys};
  const DeviceBuffer scratch(selection_scratch(index, selection, tokens, step.most()) + 16);
  auto* const ids = reinterpret_cast<std::int32_t*>(chosen.data());
  const Scores scores = tokens / sequences > 16 ? Scores::Rounded : Scores::Exact;
  const double select = measured([&](const Launch& at) {
    select_keys(floats(iq), floats(iw), index, selection, step.view(), tokens, step.most(), scores, ids, scratch.data(),
                at);
  });
  std::printf("%s, tokens %d sequences %d context %d: choose %.1f, attend to chosen %.1f, to all of %d %.1f us\n",
              std::string(name(type)).c_str(), tokens, sequences, context, select, attention(step, type, kFew, ids),
              kMany, attention(step, type, kMany, nullptr));
  std::printf("  keys of %d positions %.1f, of %d %.1f; weights of streams %.1f us\n", kFew, compression(step, 2, kFew),
              kMany, compression(step, 1, kMany), weights_of_streams(tokens));
}

}  // namespace

int main() {
  for (const int context : {512, 8192, 32768, 131072}) run(DType::F16, 1, 1, context);
  for (const int context : {8192, 32768}) run(DType::F16, 32, 32, context);
  for (const int context : {0, 8192, 32768}) run(DType::F16, 2048, 1, context);
  for (const DType type : {DType::BF16, DType::F8_E4M3, DType::Q8_0}) {
    run(type, 1, 1, 8192);
    run(type, 2048, 1, 8192);
  }
  return 0;
}
