// Selecting keys and attending to them, of DeepSeek V3.2's shape, of one whose keys are selected by fours and whose
// heads are 256 wide, and of MiniMax-M3's, each of whose KV heads selects blocks of 128: us a layer for one token, for
// 32 of as many sequences and for a part of a prompt, behind contexts of several lengths. Prompts by each of the ways:
// selected keys alone, all keys masked by a selection, where it lies anywhere and where it is a token's last keys, and
// all keys; "pays" is what the rule says of the mask.
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "backend/cuda/device.h"
#include "backend/cuda/kernels/attend_masked.h"
#include "backend/cuda/kernels/attend_selected.h"
#include "backend/cuda/kernels/attend_wide.h"
#include "backend/cuda/kernels/select_blocks.h"
#include "backend/cuda/kernels/select_keys.h"
#include "bench_support.h"
#include "tensor/tensor.h"

namespace {
using namespace llm;
using namespace llm::cuda;

struct Layer {
  const char* name;
  int index_heads, top_k, stride;  ///< stride: keys that are selected together
  int heads, kv_heads, dim_k, dim_v;
  int block = 1;  ///< keys that each KV head selects together; 1: all heads select the same
  bool latents() const { return dim_k == 576; }
  bool of_each() const { return block > 1; }
};
constexpr Layer kLatents{"latents", 64, 2048, 1, 128, 1, 576, 512}, kFours{"by fours", 32, 2051, 4, 16, 2, 256, 256},
    kBlocks{"blocks of each KV head", 4, 2048, 1, 64, 4, 128, 128, 128};

std::size_t size(int n) { return static_cast<std::size_t>(n); }

template <class T>
DeviceBuffer filled(const std::vector<T>& values) {
  DeviceBuffer b(values.size() * sizeof(T));
  copy_to_device(b.data(), values.data(), b.bytes(), "copying");
  return b;
}
/// Finite numbers as F16, BF16, E4M3, in blocks of Q8_0 and as f32. Made on the device: queries of a prompt of latents
/// are 600 MB.
DeviceBuffer some(std::size_t bytes) {
  DeviceBuffer b(bytes / 4 * 4 + 16);
  fill_with_bits(b, 0xb3ffb3ffu);
  return b;
}

/// Each token's last keys, for each of its selections.
std::vector<std::int32_t> last_keys(const std::vector<std::int32_t>& positions, int selections, int top_k) {
  std::vector<std::int32_t> keys;
  for (const std::int32_t position : positions) {
    const std::int32_t first = std::max(0, position - top_k + 1);
    for (int s = 0; s < selections; ++s) {
      for (int i = 0; i < top_k; ++i) keys.push_back(first + i <= position ? first + i : -1);
    }
  }
  return keys;
}

template <class F>
double microseconds(cudaStream_t stream, const F& f) {
  constexpr int kRuns = 10;
  const Clock clock(stream);
  for (int i = 0; i < 2; ++i) f();
  clock.start();
  for (int i = 0; i < kRuns; ++i) f();
  return clock.microseconds() / kRuns;
}

void run(const Layer& l, DType type, int tokens, int sequences, int context) {
  const int last = context + tokens / sequences, stride = (last + 63) / 64;
  std::vector<std::int32_t> positions, sequence, table;
  for (int t = 0; t < tokens; ++t) {
    positions.push_back(context + t % (tokens / sequences));
    sequence.push_back(t / (tokens / sequences));
  }
  for (int i = 0; i < stride * sequences; ++i)
    table.push_back(static_cast<std::int32_t>(i * 7919LL % (stride * sequences)));
  const auto bytes = [&](int dim) {
    return static_cast<std::size_t>(stride) * static_cast<std::size_t>(sequences) * 64 *
           TensorType{type, {dim}}.bytes();
  };
  const DeviceBuffer k = some(bytes(l.kv_heads * l.dim_k)), v = some(bytes(l.kv_heads * l.dim_v)),
                     index_keys = some(bytes(128));
  const auto n = static_cast<std::size_t>(tokens);
  const DeviceBuffer p = filled(positions), s = filled(sequence), b = filled(table),
                     iq = some(n * size(l.index_heads) * 128 * 4), iw = some(n * size(l.index_heads) * 4),
                     q = some(n * size(l.heads * l.dim_k) * 4);
  const int selections = l.of_each() ? l.kv_heads : 1;
  DeviceBuffer y(n * size(l.heads * l.dim_v) * 4), chosen(n * size(l.top_k * selections) * 4);
  const CacheView cache{.k = k.data(),
                        .v = v.data(),
                        .k_type = type,
                        .v_type = type,
                        .kv_heads = l.kv_heads,
                        .head_dim_k = l.dim_k,
                        .head_dim_v = l.dim_v,
                        .values_in_keys = l.latents()};
  const CacheView index{.k = index_keys.data(), .k_type = type, .v_type = type, .kv_heads = 1, .head_dim_k = 128};
  StepView step;
  step.positions = reinterpret_cast<const std::int32_t*>(p.data());
  step.sequence = reinterpret_cast<const std::int32_t*>(s.data());
  step.block_table = reinterpret_cast<const std::int32_t*>(b.data());
  step.table_stride = stride;
  const SelectionShape selection{l.index_heads, l.top_k, ActFormat::Q8x32, l.stride};
  const AttentionShape attention{.heads = l.heads, .scale = 0.04f, .query = ActFormat::Q8x32};
  const std::int64_t most = std::int64_t{stride} * 64;
  const SelectBlocks blocks{.top_k = l.top_k, .block = l.block, .query = ActFormat::Q8x32};
  auto* const ids = reinterpret_cast<std::int32_t*>(chosen.data());
  const Selected keys{ids, l.top_k, selections, l.block};
  const AttentionMemory of_selected = selected_attention_memory(cache, attention, keys, tokens),
                        of_all = attention_memory(cache, attention, tokens, most);
  DeviceBuffer scratch(std::max({l.of_each() ? block_selection_scratch(index, blocks, l.index_heads, tokens, most)
                                             : selection_scratch(index, selection, tokens, most),
                                 of_selected.scratch, of_all.scratch, std::size_t{16}})),
      arrivals(std::max({of_selected.arrivals, of_all.arrivals, std::size_t{16}}));
  fill_device(arrivals.data(), 0, arrivals.bytes(), "clearing");
  const Stream stream;
  const Launch at{stream.get(), true};
  const auto f = [](const DeviceBuffer& x) { return reinterpret_cast<float*>(x.data()); };
  const bool prompt = tokens / sequences > 16;
  const float* const weights = l.stride == 1 ? f(iw) : nullptr;
  const auto select_by = [&](Scores scores) {
    return microseconds(stream.get(), [&] {
      if (l.of_each())
        select_blocks(f(iq), index, blocks, l.index_heads, step, tokens, most, scores, ids, scratch.data(), at);
      else
        select_keys(f(iq), weights, index, selection, step, tokens, most, scores, ids, scratch.data(), at);
    });
  };
  const double select = select_by(prompt ? Scores::Rounded : Scores::Exact), exact = select_by(Scores::Exact);
  const double attend_us = microseconds(stream.get(), [&] {
    if (prompt && attends_prompt_selected(cache))
      attend_prompt_selected(f(q), f(y), cache, attention, keys, step, tokens, at);
    else
      attend_selected(f(q), f(y), cache, attention, keys, step, tokens, scratch.data(), arrivals.data(), at);
  });
  const PromptSpan span{0, tokens, context, 0};
  const double all = microseconds(stream.get(), [&] {
    if (prompt)
      attend_prompt(f(q), f(y), cache, attention, step, &span, 1, at);
    else
      attend(f(q), f(y), cache, attention, step, tokens, most, scratch.data(), arrivals.data(), at);
  });
  std::printf("%s, %s, tokens %d sequences %d context %d: select %.1f (exact %.1f), attend %.1f; to all %.1f us",
              l.name, std::string(name(type)).c_str(), tokens, sequences, context, select, exact, attend_us, all);
  if (prompt) {
    const DeviceBuffer masks(static_cast<std::size_t>(key_mask_bytes(tokens)));
    const auto masked = [&] {
      return microseconds(stream.get(), [&] {
        attend_prompt_masked(f(q), f(y), cache, attention, keys, step, {&span, 1}, masks.data(), masks.bytes(), at);
      });
    };
    const double anywhere = masked();
    const std::vector<std::int32_t> last = last_keys(positions, selections, l.top_k);
    copy_to_device(chosen.data(), last.data(), chosen.bytes(), "copying");
    const double neighbours = masked();
    std::printf("; masked %.1f, of last keys %.1f us%s", anywhere, neighbours,
                attends_masked(cache, attention, keys, {&span, 1}, masks.bytes()) ? ", pays" : "");
  }
  std::printf("\n");
}

}  // namespace

int main() {
  for (const Layer& l : {kLatents, kFours, kBlocks}) {
    for (const int context : {512, 8192, 32768, 131072}) run(l, DType::F16, 1, 1, context);
    for (const int context : {8192, 32768}) run(l, DType::F16, 32, 32, context);
    for (const int context : {0, 8192, 32768}) run(l, DType::F16, 2048, 1, context);
    for (const int tokens : {128, 512}) run(l, DType::F16, tokens, 1, 8192);
    for (const DType type : {DType::BF16, DType::F8_E4M3, DType::Q8_0}) {
      run(l, type, 1, 1, 8192);
      run(l, type, 2048, 1, 8192);
    }
  }
  return 0;
}
