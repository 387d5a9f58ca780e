#include "backend/cuda/weights.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "base/error.h"
#include "tensor/decode.h"

namespace llm::cuda {
namespace {

/// Of a piece of the file: long enough for full speed, short enough that locking the readers' pages takes no time.
constexpr std::size_t kPieceBytes = std::size_t{4} << 20;

struct NamedPiece {
  std::string_view weight;
  WeightPiece piece;
};

/// One reader: its page-locked memory, its device memory to unpack from, its stream.
class Reader {
 public:
  Reader(const WeightSource& source, std::size_t bytes) : source_(source), pinned_(bytes), device_(bytes) {}

  void load(const NamedPiece& next) {
    const WeightPiece& piece = next.piece;
    stream_.synchronize("loading weights");  // both buffers are free again
    if (piece.copied_as_stored()) {
      source_.read(next.weight, piece.offset, {pinned_.data(), piece.copied_bytes()});
    } else {
      stored_.resize(piece.stored_bytes());
      source_.read(next.weight, piece.offset, stored_);
      fill(piece, stored_.data(), pinned_.data());
    }
    send(piece, pinned_.data(), device_.data(), stream_.get());
  }
  void finish() { stream_.synchronize("loading weights"); }

 private:
  const WeightSource& source_;
  std::vector<std::byte> stored_;
  PinnedBuffer pinned_;
  DeviceBuffer device_;
  Stream stream_;
};

/// Every piece once, by several threads; the first error stops all.
void load_pieces(const WeightSource& source, const std::vector<NamedPiece>& pieces, int n_readers) {
  std::size_t largest = 0;
  for (const NamedPiece& p : pieces) largest = std::max(largest, p.piece.copied_bytes());
  const int device = current_device();
  std::atomic<std::size_t> next{0};
  std::exception_ptr error;
  std::mutex error_mutex;
  const auto work = [&] {
    try {
      use_device(device);
      Reader reader(source, largest);
      for (std::size_t i; (i = next++) < pieces.size();) reader.load(pieces[i]);
      reader.finish();
    } catch (...) {
      next = pieces.size();
      const std::lock_guard lock(error_mutex);
      if (!error) error = std::current_exception();
    }
  };
  std::vector<std::thread> threads;
  const auto wanted = std::min<std::size_t>(static_cast<std::size_t>(std::max(1, n_readers)), pieces.size());
  for (std::size_t i = 1; i < wanted; ++i) {
    try {
      threads.emplace_back(work);
    } catch (const std::system_error&) {
      break;  // the system gives no more threads
    }
  }
  work();
  for (std::thread& t : threads) t.join();
  if (error) std::rethrow_exception(error);
}

}  // namespace

MatrixType matrix_type(const TensorType& type) {
  const DType kept = type.shape.n_dims() < 2 ? DType::F32 : device_type(type.dtype);
  return {.type = kept, .k = type.shape[0], .n = type.shape[1]};
}

std::size_t device_bytes(const TensorType& type) {
  return matrix_bytes(matrix_type(type)) * static_cast<std::size_t>(type.shape[2] * type.shape[3]);
}

std::size_t f8_scale_bytes(const TensorType& type) {
  const Shape& shape = type.shape;
  const bool experts = shape.n_dims() == 3 && has_tiles(device_type(type.dtype));
  if ((shape.n_dims() != 2 && !experts) || info(type.dtype).use != DTypeUse::Weight) return 0;
  return (static_cast<std::size_t>(shape[1] * shape[2]) * sizeof(float) + 127) / 128 * 128;
}

CudaWeights::CudaWeights(const WeightSource& source, std::span<const WeightPlan> plans, F8Scales f8, int readers) {
  std::size_t total = 0, scales = 0;
  for (const WeightPlan& plan : plans) {
    if (plan.layout == Layout::Streamed) continue;
    total += device_bytes(plan.type);
    if (f8 == F8Scales::Present) scales += f8_scale_bytes(plan.type);
  }
  memory_ = DeviceBuffer(total);
  scales_ = DeviceBuffer(scales);
  std::vector<NamedPiece> pieces;
  std::byte* to = memory_.data();
  for (const WeightPlan& plan : plans) {
    const Shape& shape = plan.type.shape;
    const StoredMatrix stored{plan.type.dtype, matrix_type(plan.type), shape[2] * shape[3]};
    if (plan.layout == Layout::Streamed) {
      const auto mapped = source.mapped(plan.name);
      check(mapped.has_value(), "weights that are brought are mapped");
      streamed_.emplace(plan.name, Streamed{stored, mapped->data()});
      continue;
    }
    entries_[plan.name].matrix = {.type = stored.type, .data = to, .expert_stride = matrix_bytes(stored.type)};
    if (shape.n_dims() >= 2) {
      for (const WeightPiece& p : pieces_of(stored, to, kPieceBytes)) pieces.push_back({plan.name, p});
    } else {
      load_vector(source, plan, to);
    }
    to += device_bytes(plan.type);
  }
  load_pieces(source, pieces, readers);
  if (f8 == F8Scales::Present) find_scales(plans);
}

void CudaWeights::load_vector(const WeightSource& source, const WeightPlan& plan, std::byte* to) {
  std::vector<std::byte> stored(plan.type.bytes());
  source.read(plan.name, 0, stored);
  std::vector<float>& values = entries_[plan.name].values;
  values.resize(static_cast<std::size_t>(plan.type.shape[0]));
  decode(plan.type.dtype, stored.data(), values.data(), plan.type.shape[0]);
  copy_to_device(to, values.data(), values.size() * sizeof(float), "copying weights");
}

void CudaWeights::find_scales(std::span<const WeightPlan> plans) {
  std::byte* to = scales_.data();
  const Stream stream;
  for (const WeightPlan& plan : plans) {
    const std::size_t bytes = f8_scale_bytes(plan.type);
    if (plan.layout == Layout::Streamed || bytes == 0) continue;
    Entry& e = entries_.at(plan.name);
    auto* const scales = reinterpret_cast<float*>(to);
    const Launch at{.stream = stream.get(), .overlap = false};
    const MatrixType& one = e.matrix.type;
    const std::int64_t experts = plan.type.shape[2];
    if (experts_are_rows(one)) {
      find_f8_scales({.type = one.type, .k = one.k, .n = one.n * experts}, e.matrix.data, scales, at);
    } else {
      for (std::int64_t i = 0; i < experts; ++i)
        find_f8_scales(one, e.matrix.data + static_cast<std::size_t>(i) * e.matrix.expert_stride, scales + i * one.n,
                       at);
    }
    e.f8_scales = scales;
    to += bytes;
  }
  stream.synchronize("looking for the largest weights");
}

const float* CudaWeights::f8_scales(std::string_view name) const {
  const float* const scales = entry(name).f8_scales;
  check(scales != nullptr, "a matrix whose rows have factors: " + std::string(name));
  return scales;
}

const CudaWeights::Streamed& CudaWeights::streamed(std::string_view name) const {
  const auto found = streamed_.find(std::string(name));
  check(found != streamed_.end(), "a weight that was planned to be brought: " + std::string(name));
  return found->second;
}

const CudaWeights::Entry& CudaWeights::entry(std::string_view name) const {
  const auto found = entries_.find(std::string(name));
  check(found != entries_.end(), "a weight that was not planned: " + std::string(name));
  return found->second;
}

const CudaWeights::Matrix& CudaWeights::matrix(std::string_view name) const { return entry(name).matrix; }

const float* CudaWeights::vector(std::string_view name) const {
  const Matrix& m = entry(name).matrix;
  return m.type.type == DType::F32 ? reinterpret_cast<const float*>(m.data) : nullptr;
}

const std::vector<float>& CudaWeights::host_vector(std::string_view name) const {
  const Entry& e = entry(name);
  check(!e.values.empty(), "a weight that is a vector: " + std::string(name));
  return e.values;
}

}  // namespace llm::cuda
