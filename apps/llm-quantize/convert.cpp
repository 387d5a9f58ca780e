#include "convert.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <span>
#include <string>
#include <utility>

#include "base/error.h"
#include "quantize/quantize.h"
#include "runtime/figures.h"
#include "tensor/decode.h"

namespace llm::quantization {
namespace {

constexpr std::int64_t kTaskElements = std::int64_t{1} << 16;   // of rows that one thread takes at once
constexpr std::int64_t kRangeElements = std::int64_t{1} << 23;  // of rows that are held at once, as they come and go
constexpr float kLargestHalf = 65504;

class Converter {
 public:
  Converter(const GgufFile& file, const TensorInfo& tensor, DType to, std::vector<float> importance, int threads)
      : file_(file),
        tensor_(tensor),
        to_{to, tensor.type.shape},
        importance_(std::move(importance)),
        threads_(threads),
        width_(tensor.type.shape[0]),
        matrix_rows_(tensor.type.shape[1]) {}

  void run(const ByteSink& sink) {
    const std::int64_t rows = tensor_.type.shape.rows();
    const std::int64_t at_once = std::clamp<std::int64_t>(kRangeElements / width_, 1, rows);
    for (std::int64_t first = 0; first < rows; first += at_once) {
      const std::int64_t n = std::min(at_once, rows - first);
      convert_range(first, n);
      sink(out_);
    }
    file_.shards()[tensor_.shard].check_unchanged();
  }

 private:
  void convert_range(std::int64_t first, std::int64_t n) {
    const std::uint64_t offset = static_cast<std::uint64_t>(first) * tensor_.type.row_bytes();
    in_.resize(static_cast<std::size_t>(n) * tensor_.type.row_bytes());
    out_.resize(static_cast<std::size_t>(n) * to_.row_bytes());
    file_.read(tensor_, offset, in_);
    const std::int64_t task_rows = std::max<std::int64_t>(1, kTaskElements / width_);
    const std::int64_t tasks = (n + task_rows - 1) / task_rows;
    std::exception_ptr failure;
#pragma omp parallel for num_threads(threads_) schedule(dynamic, 1)
    for (std::int64_t i = 0; i < tasks; ++i) {
      try {
        convert_rows(first, i * task_rows, std::min(n, (i + 1) * task_rows));
      } catch (...) {
#pragma omp critical(conversion_failure)
        if (!failure) failure = std::current_exception();
      }
    }
    if (failure) std::rethrow_exception(failure);
  }

  /// Rows [begin, end) of the range that begins at row `first` of the tensor.
  void convert_rows(std::int64_t first, std::int64_t begin, std::int64_t end) {
    std::vector<float> values(static_cast<std::size_t>((end - begin) * width_));
    const std::byte* src = in_.data() + static_cast<std::size_t>(begin) * tensor_.type.row_bytes();
    decode(tensor_.type.dtype, src, values.data(), std::ssize(values));
    require_finite(values, first + begin, "has");
    // Most scales have 16 bits: only values beyond these can be cut.
    const bool large = std::ranges::any_of(values, [](float v) { return std::fabs(v) > kLargestHalf; });
    const std::vector<float> source = large ? values : std::vector<float>();
    std::byte* dst = out_.data() + static_cast<std::size_t>(begin) * to_.row_bytes();
    for (std::int64_t row = begin; row < end;) {  // matrix by matrix: each has its importance
      const std::int64_t matrix = (first + row) / matrix_rows_;
      const std::int64_t n = std::min(end, (matrix + 1) * matrix_rows_ - first) - row;
      const float* importance = importance_.empty() ? nullptr : importance_.data() + matrix * width_;
      quantize(to_.dtype, values.data() + (row - begin) * width_,
               dst + static_cast<std::size_t>(row - begin) * to_.row_bytes(), n, width_, importance);
      row += n;
    }
    decode(to_.dtype, dst, values.data(), std::ssize(values));
    require_finite(values, first + begin, "cannot be held by " + std::string(name(to_.dtype)) + ": it would have");
    if (large) require_held(source, values, first + begin);
  }

  /// The largest value of a block comes back as at least half of itself, unless the block's scale was too small for it.
  void require_held(const std::vector<float>& source, const std::vector<float>& decoded, std::int64_t first_row) const {
    const std::size_t block = info(to_.dtype).block_elems;
    const auto less = [](float a, float b) { return std::fabs(a) < std::fabs(b); };
    for (std::size_t at = 0; at < source.size(); at += block) {
      const auto values = std::span(source).subspan(at, block);
      const auto largest = std::ranges::max_element(values, less);
      const std::size_t i = at + static_cast<std::size_t>(largest - values.begin());
      if (std::fabs(*largest) <= kLargestHalf || std::fabs(decoded[i]) >= std::fabs(*largest) / 2) continue;
      fail(first_row, i,
           "cannot be held by " + std::string(name(to_.dtype)) + ": it would have " +
               fixed_text(static_cast<double>(decoded[i]), 0) + " in place of " +
               fixed_text(static_cast<double>(source[i]), 0));
    }
  }

  void require_finite(const std::vector<float>& values, std::int64_t first_row, const std::string& has) const {
    const auto bad = std::ranges::find_if(values, [](float v) { return !std::isfinite(v); });
    if (bad == values.end()) return;
    fail(first_row, static_cast<std::size_t>(bad - values.begin()),
         has + (std::isnan(*bad) ? " NaN" : " an infinite value"));
  }

  /// `i`: of the elements from row `first_row` on.
  [[noreturn]] void fail(std::int64_t first_row, std::size_t i, const std::string& problem) const {
    const auto at = static_cast<std::int64_t>(i);
    throw Error(ErrorKind::Numeric, ErrorParts{.file = file_.shards()[tensor_.shard].path().string(),
                                               .subject = tensor_subject(tensor_.name),
                                               .problem = "row " + number_text(first_row + at / width_) + " " +
                                                          problem + " in column " + number_text(at % width_)});
  }

  const GgufFile& file_;
  const TensorInfo& tensor_;
  TensorType to_;
  std::vector<float> importance_;
  int threads_;
  std::int64_t width_, matrix_rows_;
  std::vector<std::byte> in_, out_;
};

}  // namespace

TensorSource converted(const GgufFile& file, const TensorInfo& tensor, DType to,
                       std::function<std::vector<float>()> importance, int threads) {
  return [&file, &tensor, to, importance = std::move(importance), threads](const ByteSink& sink) {
    Converter(file, tensor, to, importance(), threads).run(sink);
  };
}

}  // namespace llm::quantization
