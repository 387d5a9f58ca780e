#include "backend/cuda/weights.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "base/error.h"
#include "tensor/decode.h"

namespace llm::cuda {
namespace {

/// Of a piece of the file: long enough for full speed, short enough that all readers have some.
constexpr std::size_t kPieceBytes = std::size_t{16} << 20;

/// Rows of one matrix, as the file has them; a matrix may be all experts of one.
struct Piece {
  const std::byte* rows;  ///< in host memory
  DType stored;
  MatrixType type;
  std::int64_t first_row, n_rows;
  std::byte* matrix;

  std::size_t row_bytes() const { return TensorType{stored, {type.k}}.row_bytes(); }
  /// As they are copied: F64 becomes F32 on the way.
  std::size_t copied_row_bytes() const { return TensorType{type.type, {type.k}}.row_bytes(); }
};

/// One reader: its page-locked memory, its device memory to unpack from, its stream.
class Reader {
 public:
  explicit Reader(std::size_t bytes) : pinned_(bytes), device_(bytes) {}

  void load(const Piece& piece) {
    stream_.synchronize("loading weights");  // both buffers are free again
    const std::size_t bytes = piece.copied_row_bytes() * static_cast<std::size_t>(piece.n_rows);
    fill(piece);
    check_cuda(cudaMemcpyAsync(device_.data(), pinned_.data(), bytes, cudaMemcpyHostToDevice, stream_.get()),
               "copying weights");
    pack_rows(piece.type, device_.data(), piece.first_row, piece.n_rows, piece.matrix, {.stream = stream_.get()});
  }
  void finish() { stream_.synchronize("loading weights"); }

 private:
  void fill(const Piece& piece) {
    if (piece.stored == piece.type.type)
      std::memcpy(pinned_.data(), piece.rows, piece.row_bytes() * static_cast<std::size_t>(piece.n_rows));
    else
      decode(piece.stored, piece.rows, reinterpret_cast<float*>(pinned_.data()), piece.n_rows * piece.type.k);
  }

  PinnedBuffer pinned_;
  DeviceBuffer device_;
  Stream stream_;
};

/// Every piece once, by several threads; the first error stops all.
void load_pieces(const std::vector<Piece>& pieces, int n_readers) {
  std::size_t largest = 0;
  for (const Piece& p : pieces) largest = std::max(largest, p.copied_row_bytes() * static_cast<std::size_t>(p.n_rows));
  const int device = current_device();
  std::atomic<std::size_t> next{0};
  std::exception_ptr error;
  std::mutex error_mutex;
  const auto work = [&] {
    try {
      use_device(device);
      Reader reader(largest);
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
  for (std::size_t i = 1; i < wanted; ++i) threads.emplace_back(work);
  work();
  for (std::thread& t : threads) t.join();
  if (error) std::rethrow_exception(error);
}

/// In the file the rows of all experts follow one another; if they do so on the device, a piece takes rows of several.
void add_pieces(std::vector<Piece>& pieces, const std::byte* rows, DType stored, const CudaWeights::Matrix& m,
                std::int64_t experts) {
  Piece piece{rows, stored, m.type, 0, 0, const_cast<std::byte*>(m.data)};
  if (experts_are_rows(m.type)) {
    piece.type.n *= experts;
    experts = 1;
  }
  const auto fitting = static_cast<std::int64_t>(kPieceBytes / piece.copied_row_bytes());
  const std::int64_t height = std::max<std::int64_t>(kTileRows, fitting / kTileRows * kTileRows);
  for (std::int64_t e = 0; e < experts; ++e) {
    for (piece.first_row = 0; piece.first_row < piece.type.n; piece.first_row += height) {
      piece.n_rows = std::min(height, piece.type.n - piece.first_row);
      pieces.push_back(piece);
      piece.rows += piece.row_bytes() * static_cast<std::size_t>(piece.n_rows);
    }
    piece.matrix += m.expert_stride;
  }
}

/// Vectors become f32.
MatrixType matrix_type(const TensorType& type) {
  const DType kept = type.shape.n_dims() < 2 ? DType::F32 : device_type(type.dtype);
  return {.type = kept, .k = type.shape[0], .n = type.shape[1]};
}

}  // namespace

std::size_t device_bytes(const TensorType& type) {
  return matrix_bytes(matrix_type(type)) * static_cast<std::size_t>(type.shape[2] * type.shape[3]);
}

CudaWeights::CudaWeights(const WeightSource& source, std::span<const WeightPlan> plans, int readers) {
  std::size_t total = 0;
  std::vector<std::size_t> offsets;
  for (const WeightPlan& plan : plans) {
    Entry& e = entries_[plan.name];
    e.matrix.type = matrix_type(plan.type);
    e.matrix.expert_stride = matrix_bytes(e.matrix.type);
    offsets.push_back(total);
    total += device_bytes(plan.type);
  }
  memory_ = DeviceBuffer(total);

  std::vector<Piece> pieces;
  std::vector<std::vector<std::byte>> converted;  // of files in foreign byte order
  for (std::size_t i = 0; i < plans.size(); ++i) {
    const WeightPlan& plan = plans[i];
    Entry& e = entries_.at(plan.name);
    e.matrix.data = memory_.data() + offsets[i];
    std::span<const std::byte> bytes;
    if (const auto mapped = source.mapped(plan.name)) {
      bytes = *mapped;
    } else {
      converted.emplace_back(plan.type.bytes());
      source.read(plan.name, converted.back());
      bytes = converted.back();
    }
    const Shape& shape = plan.type.shape;
    if (shape.n_dims() >= 2) {
      add_pieces(pieces, bytes.data(), plan.type.dtype, e.matrix, shape[2] * shape[3]);
      continue;
    }
    e.values.resize(static_cast<std::size_t>(shape[0]));
    decode(plan.type.dtype, bytes.data(), e.values.data(), shape[0]);
    copy_to_device(const_cast<std::byte*>(e.matrix.data), e.values.data(), e.values.size() * sizeof(float),
                   "copying weights");
  }
  load_pieces(pieces, readers);
  for (const WeightPlan& plan : plans) source.release(plan.name);
}

const CudaWeights::Entry& CudaWeights::entry(std::string_view name) const {
  const auto found = entries_.find(std::string(name));
  check(found != entries_.end(), "a weight that was not planned: " + std::string(name));
  return found->second;
}

const CudaWeights::Matrix& CudaWeights::matrix(std::string_view name) const { return entry(name).matrix; }

const float* CudaWeights::vector(std::string_view name) const {
  const Matrix& m = entry(name).matrix;
  // Experts' rows of F32 follow one another only without padding between.
  const bool dense = m.type.type == DType::F32 && (m.type.n > 0);
  return dense ? reinterpret_cast<const float*>(m.data) : nullptr;
}

const std::vector<float>& CudaWeights::host_vector(std::string_view name) const {
  const Entry& e = entry(name);
  check(!e.values.empty(), "a weight that is a vector: " + std::string(name));
  return e.values;
}

}  // namespace llm::cuda
