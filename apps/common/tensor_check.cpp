#include "common/tensor_check.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <exception>

#include "base/error.h"
#include "base/machine.h"
#include "common/messages.h"
#include "common/progress.h"
#include "tensor/blocks.h"
#include "tensor/decode.h"

namespace llm::app {
namespace {

constexpr std::size_t kPieceBytes = std::size_t{1} << 20;
constexpr std::size_t kDecoded = 4096;  // elements

/// F64 is looked at as it is: a number too large for f32 is no fault.
bool is_integer(DType t) { return t == DType::I8 || t == DType::I16 || t == DType::I32 || t == DType::I64; }

std::string name_of_value(double v) { return std::isnan(v) ? "NaN" : v > 0 ? "inf" : "-inf"; }

BadBlocks scan(const GgufFile& file, const TensorInfo& t) {
  const std::size_t block = info(t.type.dtype).block_bytes;
  BlockScan scan(t.type);
  std::vector<std::byte> piece;
  for (std::uint64_t at = 0, size = t.type.bytes(); at < size; at += piece.size()) {
    piece.resize(std::min<std::uint64_t>(kPieceBytes / block * block, size - at));
    file.read(t, at, piece);
    scan.take(piece);
  }
  return scan.bad();
}

}  // namespace

BlockScan::BlockScan(const TensorType& type)
    : type_(type), info_(info(type.dtype)), values_(std::max<std::size_t>(kDecoded, info_.block_elems)) {}

void BlockScan::take(std::span<const std::byte> data) {
  if (is_integer(type_.dtype)) return;
  const std::size_t at_once = std::max<std::size_t>(1, kDecoded / info_.block_elems);
  for (std::size_t blocks = data.size() / info_.block_bytes; blocks > 0;) {
    const std::size_t n = std::min(blocks, at_once);
    look(data.first(n * info_.block_bytes), n);
    data = data.subspan(n * info_.block_bytes);
    blocks -= n;
    block_ += n;
  }
}

void BlockScan::look(std::span<const std::byte> data, std::size_t blocks) {
  const std::size_t n = blocks * info_.block_elems;
  if (type_.dtype == DType::F64) {
    for (std::size_t i = 0; i < n; ++i) {
      double v = 0;
      std::memcpy(&v, data.data() + i * sizeof v, sizeof v);
      if (!std::isfinite(v)) report(i, 0, v);
    }
    return;
  }
  decode(type_.dtype, data.data(), values_.data(), static_cast<std::int64_t>(n));
  std::uint32_t finite = 1;  // no branch per element: this loop reads whole models
  for (std::size_t i = 0; i < n; ++i) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, &values_[i], sizeof bits);
    finite &= static_cast<std::uint32_t>((bits & 0x7f800000u) != 0x7f800000u);
  }
  const bool coded = type_.dtype == DType::MXFP4 || type_.dtype == DType::NVFP4;
  if (finite != 0 && !coded) return;
  for (std::size_t b = 0; b < blocks; ++b) {
    const auto nan_scale = coded ? first_nan_code(data.subspan(b * info_.block_bytes)) : std::nullopt;
    if (nan_scale) {
      report(b, *nan_scale, std::nan(""));
      continue;
    }
    const std::span<const float> block = std::span(values_).subspan(b * info_.block_elems, info_.block_elems);
    const auto bad = std::ranges::find_if(block, [](float v) { return !std::isfinite(v); });
    if (bad != block.end()) report(b, static_cast<std::size_t>(bad - block.begin()), static_cast<double>(*bad));
  }
}

/// The scales of MXFP4 and NVFP4 have a code for NaN that decoders read as a number: 255 of E8M0, 127 of E4M3 without
/// its sign (OCP Microscaling Formats 1.0, section 5). The first element under such a scale.
std::optional<std::size_t> BlockScan::first_nan_code(std::span<const std::byte> block) const {
  const bool mx = type_.dtype == DType::MXFP4;
  const std::size_t scales = mx ? 1 : sizeof(BlockNVFP4::d);
  for (std::size_t i = 0; i < scales; ++i) {
    const auto code = std::to_integer<unsigned>(block[i]);
    if (mx ? code == 0xffu : (code & 0x7fu) == 0x7fu) return i * info_.block_elems / scales;
  }
  return std::nullopt;
}

void BlockScan::report(std::size_t block, std::size_t element, double value) {
  if (bad_.count++ > 0) return;
  bad_.first = block_ + block;
  const auto at = static_cast<std::int64_t>(bad_.first * info_.block_elems + element);
  bad_.row = at / type_.shape[0];
  bad_.column = at % type_.shape[0];
  bad_.value = name_of_value(value);
}

std::string problem_of(const TensorInfo& tensor, const BadBlocks& bad) {
  const DTypeInfo& type = info(tensor.type.dtype);
  const std::string where = "row " + number_text(bad.row) + ", column " + number_text(bad.column);
  const auto count = static_cast<std::int64_t>(bad.count);
  if (!type.quantized())
    return number_text(count) + (count == 1 ? " element is" : " elements are") + " NaN or infinite, the first " +
           bad.value + " at " + where;
  return number_text(count) + (count == 1 ? " block has" : " blocks have") +
         " a scale that is NaN or infinite, the first is block " + number_text(bad.first) + " (" + bad.value + " at " +
         where + ")";
}

std::uint64_t offset_of(const TensorInfo& tensor, const BadBlocks& bad) {
  return tensor.data_offset + bad.first * info(tensor.type.dtype).block_bytes;
}

void require_sound_tensors(const GgufFile& file, int threads) {
  const std::span<const TensorInfo> tensors = file.tensors().all();
  std::uint64_t total = 0, done = 0;
  for (const TensorInfo& t : tensors) total += t.type.bytes();
  std::vector<BadBlocks> bad(tensors.size());
  Progress progress("checking tensors");
  std::exception_ptr failure;
#pragma omp parallel for num_threads(threads > 0 ? threads : default_threads().threads) schedule(dynamic, 1)
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    try {
      bad[i] = scan(file, tensors[i]);
    } catch (...) {
#pragma omp critical(check_tensors)
      failure = std::current_exception();
    }
#pragma omp critical(check_tensors)
    progress.update(static_cast<double>(done += tensors[i].type.bytes()) / static_cast<double>(total));
  }
  if (failure) std::rethrow_exception(failure);
  const auto first = std::ranges::find_if(bad, [](const BadBlocks& b) { return b.count > 0; });
  if (first == bad.end()) return verbose("tensors: all scales are numbers");
  const TensorInfo& tensor = tensors[static_cast<std::size_t>(first - bad.begin())];
  throw Error(ErrorKind::Model,
              ErrorParts{.file = file.shards()[tensor.shard].path().string(),
                         .offset = offset_of(tensor, *first),
                         .subject = tensor_subject(tensor.name),
                         .problem = problem_of(tensor, *first) + "; llm-inspect verify FILE lists all such places"});
}

}  // namespace llm::app
