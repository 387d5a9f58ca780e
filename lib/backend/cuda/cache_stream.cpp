#include "backend/cuda/cache_stream.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "backend/cuda/cache.h"
#include "base/error.h"
#include "tensor/tensor.h"

namespace llm::cuda {
namespace {

constexpr int kMostCarriers = 4;
constexpr std::size_t kPlaces = CacheType::kPlaces;

/// Keys or values of one layer, as they lie at its place.
struct Side {
  std::byte* place;
  std::size_t row_bytes;
  int kv_heads;

  std::size_t head_bytes() const { return kBlockPositions * row_bytes; }
  bool empty() const { return row_bytes == 0; }  // of an index
  std::size_t block_bytes() const { return static_cast<std::size_t>(kv_heads) * head_bytes(); }
  std::byte* block(std::int32_t b) const { return place + static_cast<std::size_t>(b) * block_bytes(); }
};
Side keys(const CacheView& c) { return {c.k, TensorType{c.k_type, {c.head_dim_k}}.row_bytes(), c.kv_heads}; }
Side values(const CacheView& c) {
  return {c.v, c.head_dim_v == 0 ? 0 : TensorType{c.v_type, {c.head_dim_v}}.row_bytes(), c.kv_heads};
}

/// A whole block.
void send(const Side& s, std::int32_t block, const std::byte* rows, cudaStream_t stream) {
  if (s.empty()) return;
  check_cuda(cudaMemcpyAsync(s.block(block), rows, s.block_bytes(), cudaMemcpyHostToDevice, stream),
             "bringing keys and values");
}
/// Some positions of every head.
void fetch(const Side& s, const CacheSlice& slice, std::byte* rows, cudaStream_t stream) {
  if (s.empty()) return;
  const std::size_t bytes = static_cast<std::size_t>(slice.end - slice.begin) * s.row_bytes;
  const std::byte* const from = s.block(slice.block) + static_cast<std::size_t>(slice.begin) * s.row_bytes;
  check_cuda(cudaMemcpy2DAsync(rows, bytes, from, s.head_bytes(), bytes, static_cast<std::size_t>(s.kv_heads),
                               cudaMemcpyDeviceToHost, stream),
             "sending keys and values back");
}

/// f(place, where its keys of a block are in `rows`, where its values are)
template <class F>
void for_each_place(const FleetingLayer& layer, std::byte* rows, const F& f) {
  for (const FleetingPlace& p : layer.places) {
    std::byte* const v_rows = rows + keys(p.view).block_bytes();
    f(p, rows, v_rows);
    rows = v_rows + values(p.view).block_bytes();
  }
}

}  // namespace

std::vector<FleetingLayer> fleeting_layers(const Graph& graph, const CudaCache& cache) {
  std::vector<FleetingLayer> layers;
  const auto nodes = graph.nodes();
  std::size_t append = 0;
  std::vector<CacheType> indexes;  // that were appended to since the last attention
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (std::holds_alternative<KvAppend>(nodes[i].op)) {
      append = i;
      const CacheType& appended = graph.info(nodes[i].out[0]).cache;
      if (appended.part == CacheType::Part::Index) indexes.push_back(appended);
    }
    if (!std::holds_alternative<Attention>(nodes[i].op)) continue;
    const CacheType& type = graph.info(nodes[i].in[1]).cache;
    const std::vector<CacheType> own_indexes = std::exchange(indexes, {});
    if (!type.fleeting()) continue;
    check(nodes[append].out[0] == nodes[i].in[1], "attention reads what was appended last");
    std::vector<FleetingPlace> places{{type.part, cache.view(type)}};
    for (const CacheType& index : own_indexes) {
      check(index.fleeting() && index.layer == type.layer, "an index is brought with its layer's keys and values");
      places.push_back({index.part, cache.view(index)});
    }
    const auto first =
        std::find_if(nodes.begin(), nodes.end(), [&](const Node& n) { return n.layer == nodes[i].layer; });
    layers.push_back({type.layer, static_cast<std::size_t>(type.place), std::move(places),
                      static_cast<std::size_t>(first - nodes.begin()), append, i});
    if (layers.size() > 1)
      check(layers.end()[-2].places[0].view.k != layers.back().places[0].view.k, "layers have places in turns");
  }
  return layers;
}

/// A thread, and the page-locked memory that it carries blocks through: one is filled while the other one is copied.
struct CacheStream::Carrier {
  std::array<PinnedBuffer, 2> pinned;
  std::array<Event, 2> copied;
  Stream stream;
  std::array<Event, kPlaces> sent;  ///< behind its last block for a place
  std::size_t turn = 0;

  explicit Carrier(std::size_t bytes) : pinned{PinnedBuffer(bytes), PinnedBuffer(bytes)} {}
};

std::vector<std::unique_ptr<CacheStream::Carrier>> CacheStream::make_carriers(std::size_t block_bytes, int threads) {
  std::vector<std::unique_ptr<Carrier>> made;
  for (int i = 0; i < std::clamp(threads, 1, kMostCarriers); ++i)
    made.push_back(std::make_unique<Carrier>(block_bytes));
  return made;
}

CacheStream::CacheStream(CacheKeeper& keeper, std::size_t block_bytes, int threads)
    : keeper_(keeper),
      carriers_(make_carriers(block_bytes, threads)),
      threads_(carriers_.size(), [this](std::size_t i) { run(*carriers_[i]); }) {}

CacheStream::~CacheStream() = default;

void CacheStream::begin(std::span<const FleetingLayer> layers, const StepData& step) {
  check(layers_.empty(), "one step at a time brings keys and values");
  find_blocks(step);
  sent_.assign(layers.size(), 0);
  kept_.assign(layers.size(), 0);
  next_ = next_piece_ = n_appended_ = n_left_ = 0;
  layers_ = layers;
  threads_.begin();
}

/// What a layer's place had before is kept before the next one's rows are brought there.
CacheStream::Errand CacheStream::errand(std::size_t i) const {
  if (i + 1 == n_errands()) return {Errand::Way::Keep, layers_.size() - 1};
  if (i == 0 || i % 2 == 1) return {Errand::Way::Bring, (i + 1) / 2};
  return {Errand::Way::Keep, i / 2 - 1};
}

void CacheStream::find_blocks(const StepData& step) {
  past_.clear();
  fresh_.clear();
  const StateGroup& group = step.groups[0];
  for (std::size_t s = 0; s < step.sequences.size(); ++s) {
    const SequenceSpan& span = step.sequences[s];
    const auto* const table = group.block_table.data() + s * static_cast<std::size_t>(group.stride);
    const std::int32_t past = span.kv_len - span.n_tokens;
    past_.insert(past_.end(), table, table + (past + kBlockPositions - 1) / kBlockPositions);
    for (std::int32_t t = span.first_token; t < span.first_token + span.n_tokens; ++t) {
      const std::int32_t slot = group.slots[static_cast<std::size_t>(t)];
      if (slot < 0) continue;
      const std::int32_t block = slot / kBlockPositions, position = slot % kBlockPositions;
      const bool next = !fresh_.empty() && fresh_.back().block == block && fresh_.back().end == position;
      if (next) {
        ++fresh_.back().end;
      } else {
        fresh_.push_back({.layer = 0, .block = block, .begin = position, .end = position + 1});
      }
    }
  }
  // Sequences share blocks.
  std::sort(past_.begin(), past_.end());
  past_.erase(std::unique(past_.begin(), past_.end()), past_.end());
}

void CacheStream::Step::reach(std::size_t node) {
  const auto& layers = stream_.layers_;
  const auto passed = [&](std::size_t count, std::size_t FleetingLayer::*last) {
    return count < layers.size() && layers[count].*last < node;
  };
  for (; passed(appended_, &FleetingLayer::append); ++appended_) stream_.appended(appended_, at_);
  for (; passed(left_, &FleetingLayer::attention); ++left_) stream_.leave(left_, at_);
  for (; arrived_ < layers.size() && layers[arrived_].first <= node; ++arrived_) stream_.arrive(arrived_, at_);
}

void CacheStream::Step::finish() {
  reach(stream_.layers_.back().attention + 1);
  for (std::size_t i = 0; i < stream_.layers_.size(); ++i) stream_.wait_kept(i);
}

void CacheStream::arrive(std::size_t layer, cudaStream_t stream) {
  if (layer >= kPlaces) wait_kept(layer - kPlaces);
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return error_ != nullptr || sent_[layer] == past_.size(); });
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  }
  for (const auto& carrier : carriers_)
    check_cuda(cudaStreamWaitEvent(stream, carrier->sent[place(layer)].get()), "waiting for keys and values");
}

void CacheStream::appended(std::size_t layer, cudaStream_t stream) {
  check_cuda(cudaEventRecord(appended_events_[place(layer)].get(), stream), "marking that rows were appended");
  const std::lock_guard lock(mutex_);
  n_appended_ = layer + 1;
  changed_.notify_all();
}

void CacheStream::leave(std::size_t layer, cudaStream_t stream) {
  check_cuda(cudaEventRecord(left_events_[place(layer)].get(), stream), "marking that rows were read");
  const std::lock_guard lock(mutex_);
  n_left_ = layer + 1;
  changed_.notify_all();
}

void CacheStream::wait_kept(std::size_t layer) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return error_ != nullptr || is_kept(layer); });
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void CacheStream::end() {
  bool all = true;
  {
    const std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i < layers_.size(); ++i) all = all && is_kept(i);
    next_ = n_errands();  // an error may have left some
    changed_.notify_all();
  }
  threads_.end();
  if (!all) {  // what is on its way would come after the next step's
    for (const auto& carrier : carriers_) cudaStreamSynchronize(carrier->stream.get());
  }
  layers_ = {};
  error_ = nullptr;
}

bool CacheStream::is_ready(const Errand& e) const {
  if (e.way == Errand::Way::Keep) return e.layer < n_appended_;
  return e.layer < kPlaces || (e.layer - kPlaces < n_left_ && is_kept(e.layer - kPlaces));
}

bool CacheStream::take(Errand& taken, std::size_t& piece) {
  std::unique_lock lock(mutex_);
  const auto skip_empty = [&] {
    while (!is_over() && pieces(errand(next_)) == 0) ++next_;
  };
  changed_.wait(lock, [&] {
    skip_empty();
    return is_over() || is_ready(errand(next_));
  });
  if (is_over()) return false;
  taken = errand(next_);
  piece = next_piece_++;
  if (next_piece_ < pieces(taken)) return true;
  ++next_;
  next_piece_ = 0;
  return true;
}

void CacheStream::run(Carrier& c) {
  try {
    Errand errand;
    std::size_t piece = 0;
    while (take(errand, piece)) {
      if (errand.way == Errand::Way::Bring) {
        bring(c, errand.layer, piece);
      } else {
        keep(c, errand.layer, piece);
      }
      const std::lock_guard lock(mutex_);
      ++(errand.way == Errand::Way::Bring ? sent_ : kept_)[errand.layer];
      changed_.notify_all();
    }
  } catch (...) {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = std::current_exception();
    next_ = n_errands();
    changed_.notify_all();
  }
}

void CacheStream::bring(Carrier& c, std::size_t layer, std::size_t piece) {
  const FleetingLayer& l = layers_[layer];
  const std::size_t mine = c.turn++ % c.pinned.size();
  check_cuda(cudaEventSynchronize(c.copied[mine].get()), "bringing keys and values");
  for_each_place(l, c.pinned[mine].data(), [&](const FleetingPlace& p, std::byte* k_rows, std::byte* v_rows) {
    keeper_.read_rows({.layer = l.layer, .part = p.part, .block = past_[piece]}, k_rows, v_rows);
  });
  check_cuda(cudaStreamWaitEvent(c.stream.get(), left_events_[place(layer)].get()), "bringing keys and values");
  for_each_place(l, c.pinned[mine].data(), [&](const FleetingPlace& p, std::byte* k_rows, std::byte* v_rows) {
    send(keys(p.view), past_[piece], k_rows, c.stream.get());
    send(values(p.view), past_[piece], v_rows, c.stream.get());
  });
  check_cuda(cudaEventRecord(c.copied[mine].get(), c.stream.get()), "bringing keys and values");
  check_cuda(cudaEventRecord(c.sent[place(layer)].get(), c.stream.get()), "bringing keys and values");
}

void CacheStream::keep(Carrier& c, std::size_t layer, std::size_t piece) {
  const FleetingLayer& l = layers_[layer];
  CacheSlice slice = fresh_[piece];
  slice.layer = l.layer;
  const std::size_t mine = c.turn++ % c.pinned.size();
  check_cuda(cudaEventSynchronize(c.copied[mine].get()), "sending keys and values back");
  check_cuda(cudaStreamWaitEvent(c.stream.get(), appended_events_[place(layer)].get()), "sending keys and values back");
  for_each_place(l, c.pinned[mine].data(), [&](const FleetingPlace& p, std::byte* k_rows, std::byte* v_rows) {
    fetch(keys(p.view), slice, k_rows, c.stream.get());
    fetch(values(p.view), slice, v_rows, c.stream.get());
  });
  check_cuda(cudaEventRecord(c.copied[mine].get(), c.stream.get()), "sending keys and values back");
  check_cuda(cudaEventSynchronize(c.copied[mine].get()), "sending keys and values back");
  for_each_place(l, c.pinned[mine].data(), [&](const FleetingPlace& p, std::byte* k_rows, std::byte* v_rows) {
    slice.part = p.part;
    keeper_.write_rows(slice, k_rows, v_rows);
  });
}

}  // namespace llm::cuda
