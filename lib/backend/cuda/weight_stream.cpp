#include "backend/cuda/weight_stream.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace llm::cuda {
namespace {

/// Small enough that every reader has a part of most matrices.
constexpr std::size_t kPieceBytes = std::size_t{4} << 20;
constexpr int kMostReaders = 8;

}  // namespace

void StreamSize::add(const StreamSize& other) {
  slot = std::max(slot, other.slot);
  piece = std::max(piece, other.piece);
}

std::size_t StreamSize::bytes() const { return StreamPlan::kSlots * slot + kMostReaders * piece; }

StreamPlan plan_streams(const Graph& graph) {
  StreamPlan plan;
  for (std::size_t i = 0; i < graph.nodes().size(); ++i) {
    const Node& node = graph.nodes()[i];
    StreamPlan::Use use{.node = i};
    std::size_t bytes = 0;
    for (const ProductOperands& p : product_operands(node.op)) {
      const ValueInfo& w = graph.info(node.in[p.weight]);
      if (!w.streamed) continue;
      use.weights.push_back({w.name, bytes});
      bytes += device_bytes(w.type);
      const MatrixType matrix = matrix_type(w.type);
      plan.size.add({.slot = 0, .piece = kTileRows * TensorType{matrix.type, {matrix.k}}.row_bytes()});
    }
    if (use.weights.empty()) continue;
    plan.uses.push_back(std::move(use));
    plan.size.add({.slot = bytes, .piece = kPieceBytes});
  }
  return plan;
}

/// A thread, and what it brings pieces through: page-locked memory for one that is filled while the one before is
/// copied, device memory for one that is unpacked.
struct WeightStream::Reader {
  std::array<PinnedBuffer, 2> pinned;
  std::array<Event, 2> copied;
  DeviceBuffer raw;
  Stream stream;
  std::array<Event, StreamPlan::kSlots> sent;  ///< behind its last piece for a slot
  std::size_t turn = 0;

  explicit Reader(std::size_t bytes) : pinned{PinnedBuffer(bytes), PinnedBuffer(bytes)}, raw(bytes) {}
};

std::vector<std::unique_ptr<WeightStream::Reader>> WeightStream::make_readers(std::size_t bytes, int readers) {
  std::vector<std::unique_ptr<Reader>> made;
  for (int i = 0; i < std::clamp(readers, 1, kMostReaders); ++i) made.push_back(std::make_unique<Reader>(bytes));
  return made;
}

WeightStream::WeightStream(const StreamSize& size, int readers)
    : size_(size),
      slots_(StreamPlan::kSlots * size.slot),
      readers_(make_readers(size.piece, readers)),
      threads_(readers_.size(), [this](std::size_t i) { run(*readers_[i]); }) {}

WeightStream::~WeightStream() = default;

void WeightStream::begin(const std::vector<StreamedUse>& uses) {
  check(uses_ == nullptr, "one step at a time brings weights");
  n_sent_.assign(uses.size(), 0);
  next_use_ = next_piece_ = n_left_ = 0;
  uses_ = &uses;
  threads_.begin();
}

void WeightStream::arrive(std::size_t use, cudaStream_t stream) {
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return error_ != nullptr || n_sent_[use] == (*uses_)[use].size(); });
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  }
  for (const auto& reader : readers_)
    check_cuda(cudaStreamWaitEvent(stream, reader->sent[use % StreamPlan::kSlots].get()), "waiting for weights");
}

void WeightStream::leave(std::size_t use, cudaStream_t stream) {
  check_cuda(cudaEventRecord(left_[use % StreamPlan::kSlots].get(), stream), "marking that weights were read");
  const std::lock_guard lock(mutex_);
  n_left_ = use + 1;
  changed_.notify_all();
}

void WeightStream::end() {
  {
    const std::lock_guard lock(mutex_);
    next_use_ = uses_->size();  // an error may have left some
    changed_.notify_all();
  }
  threads_.end();
  if (n_left_ < uses_->size()) {  // what is on its way would come after the next step's
    for (const auto& reader : readers_) cudaStreamSynchronize(reader->stream.get());
  }
  uses_ = nullptr;
  error_ = nullptr;
}

bool WeightStream::take(std::size_t& use, std::size_t& piece) {
  std::unique_lock lock(mutex_);
  // A slot is free again when the use before it there has left.
  changed_.wait(lock, [&] { return next_use_ == uses_->size() || next_use_ < n_left_ + StreamPlan::kSlots; });
  if (next_use_ == uses_->size()) return false;
  use = next_use_;
  piece = next_piece_++;
  if (next_piece_ == (*uses_)[use].size()) {
    ++next_use_;
    next_piece_ = 0;
  }
  return true;
}

void WeightStream::bring_all(Reader& r) {
  std::size_t use = 0, index = 0;
  while (take(use, index)) {
    const auto& [rows, piece] = (*uses_)[use][index];
    const std::size_t slot = use % StreamPlan::kSlots, mine = r.turn++ % 2;
    check_cuda(cudaEventSynchronize(r.copied[mine].get()), "bringing weights");
    fill(piece, rows, r.pinned[mine].data());
    check_cuda(cudaStreamWaitEvent(r.stream.get(), left_[slot].get()), "bringing weights");
    send(piece, r.pinned[mine].data(), r.raw.data(), r.stream.get());
    check_cuda(cudaEventRecord(r.copied[mine].get(), r.stream.get()), "bringing weights");
    check_cuda(cudaEventRecord(r.sent[slot].get(), r.stream.get()), "bringing weights");
    const std::lock_guard lock(mutex_);
    ++n_sent_[use];
    changed_.notify_all();
  }
}

void WeightStream::run(Reader& r) {
  try {
    bring_all(r);
  } catch (...) {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = std::current_exception();
    next_use_ = uses_->size();
    changed_.notify_all();
  }
}

StreamedWeights::StreamedWeights(const StreamPlan& plan, const CudaWeights& weights, const WeightStream* stream) {
  check(plan.uses.empty() || (stream != nullptr && plan.size.slot <= stream->size().slot),
        "the workspace was made for weights at least as large");
  for (std::size_t u = 0; u < plan.uses.size(); ++u) {
    StreamedUse& use = uses.emplace_back();
    for (const StreamPlan::Weight& w : plan.uses[u].weights) {
      const auto& [stored, rows] = weights.streamed(w.name);
      std::byte* const to = stream->slot(u) + w.offset;
      const CudaWeights::Matrix matrix{stored.type, to, matrix_bytes(stored.type)};
      check(matrices.emplace(std::pair(plan.uses[u].node, w.name), matrix).second, "a node reads a weight once");
      for (const WeightPiece& p : pieces_of(stored, to, kPieceBytes)) {
        check(p.copied_bytes() <= stream->size().piece, "a reader's memory holds every piece");
        use.push_back({rows + p.offset, p});
      }
    }
  }
}

}  // namespace llm::cuda
