#include "verify.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/machine.h"
#include "base/sha256.h"
#include "common/messages.h"
#include "common/output.h"
#include "common/progress.h"
#include "expected_sums.h"
#include "tensor/blocks.h"
#include "tensor/decode.h"

namespace llm::inspect {
namespace {

constexpr std::size_t kPieceBytes = std::size_t{1} << 20;
constexpr std::size_t kDecoded = 4096;  // elements

/// F64 is looked at as it is: a number too large for f32 is no fault.
bool is_integer(DType t) { return t == DType::I8 || t == DType::I16 || t == DType::I32 || t == DType::I64; }

std::string name_of_value(double v) { return std::isnan(v) ? "NaN" : v > 0 ? "inf" : "-inf"; }

/// Finds what is not finite in a tensor's blocks, given piece by piece. A block whose scale is NaN or infinite decodes
/// to such elements, whatever its quants: 0 times infinity is NaN.
class BlockScan {
 public:
  explicit BlockScan(const TensorType& type)
      : type_(type), info_(info(type.dtype)), values_(std::max<std::size_t>(kDecoded, info_.block_elems)) {}

  void take(std::span<const std::byte> data) {
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
  const BadBlocks& bad() const { return bad_; }

 private:
  void look(std::span<const std::byte> data, std::size_t blocks) {
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
  std::optional<std::size_t> first_nan_code(std::span<const std::byte> block) const {
    const bool mx = type_.dtype == DType::MXFP4;
    const std::size_t scales = mx ? 1 : sizeof(BlockNVFP4::d);
    for (std::size_t i = 0; i < scales; ++i) {
      const auto code = std::to_integer<unsigned>(block[i]);
      if (mx ? code == 0xffu : (code & 0x7fu) == 0x7fu) return i * info_.block_elems / scales;
    }
    return std::nullopt;
  }

  void report(std::size_t block, std::size_t element, double value) {
    if (bad_.count++ > 0) return;
    bad_.first = block_ + block;
    const auto at = static_cast<std::int64_t>(bad_.first * info_.block_elems + element);
    bad_.row = at / type_.shape[0];
    bad_.column = at % type_.shape[0];
    bad_.value = name_of_value(value);
  }

  TensorType type_;
  const DTypeInfo& info_;
  std::vector<float> values_;
  std::uint64_t block_ = 0;
  BadBlocks bad_;
};

TensorCheck check_tensor(const GgufFile& file, const TensorInfo& t, const std::function<void(std::uint64_t)>& done) {
  const std::size_t block = info(t.type.dtype).block_bytes;
  const std::uint64_t size = t.type.bytes();
  Sha256 sum;
  BlockScan scan(t.type);
  const std::span<const std::byte> stored = file.shards()[t.shard].bytes().subspan(t.data_offset, size);
  std::vector<std::byte> piece;
  for (std::uint64_t at = 0; at < size; at += piece.size()) {
    piece.resize(std::min<std::uint64_t>(kPieceBytes / block * block, size - at));
    sum.update(stored.subspan(at, piece.size()));  // as the file has it, in its own byte order
    file.read(t, at, piece);
    scan.take(piece);
    file.release(t, at, piece.size());
    done(piece.size());
  }
  return {&t, sum.digest(), scan.bad()};
}

std::string sum_of_file(const MappedFile& file, const std::function<void(std::uint64_t)>& done) {
  Sha256 sum;
  for (std::span<const std::byte> rest = file.bytes(); !rest.empty();) {
    const auto piece = rest.first(std::min(rest.size(), kPieceBytes));
    sum.update(piece);
    file.release(piece);
    done(piece.size());
    rest = rest.subspan(piece.size());
  }
  return sum.digest();
}

/// Runs all jobs on some threads, the first ones first; the first exception is thrown again at the end.
void run_jobs(std::span<const std::function<void()>> jobs, int threads) {
  std::exception_ptr failure;
#pragma omp parallel for num_threads(threads) schedule(dynamic, 1)
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    try {
      jobs[i]();
    } catch (...) {
#pragma omp critical
      if (!failure) failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
}

std::string problem_of(const TensorCheck& c) {
  const DTypeInfo& type = info(c.tensor->type.dtype);
  const std::string where = "row " + number_text(c.bad.row) + ", column " + number_text(c.bad.column);
  const auto count = static_cast<std::int64_t>(c.bad.count);
  if (!type.quantized())
    return number_text(count) + (count == 1 ? " element is" : " elements are") + " NaN or infinite, the first " +
           c.bad.value + " at " + where;
  return number_text(count) + (count == 1 ? " block has" : " blocks have") +
         " a scale that is NaN or infinite, the first " + "is block " +
         number_text(static_cast<std::int64_t>(c.bad.first)) + " (" + c.bad.value + " at " + where + ")";
}

std::uint64_t offset_of(const TensorCheck& c) {
  return c.tensor->data_offset + c.bad.first * info(c.tensor->type.dtype).block_bytes;
}

std::string sum_problem(const FileCheck& f) { return "its SHA-256 sum is " + f.sha256 + ", expected " + f.expected; }

void fail_if_bad(const GgufFile& file, const Verification& v) {
  for (const FileCheck& f : v.files) {
    if (!f.ok()) throw Error(ErrorKind::Model, ErrorParts{.file = f.path, .problem = sum_problem(f)});
  }
  const auto has_bad = [](const TensorCheck& c) { return c.bad.count > 0; };
  const auto first = std::ranges::find_if(v.tensors, has_bad);
  if (first == v.tensors.end()) return;
  const auto others = std::ranges::count_if(v.tensors, has_bad) - 1;
  const std::string more = others == 0
                               ? ""
                               : "; so " + std::string(others == 1 ? "has" : "have") + " " + std::to_string(others) +
                                     (others == 1 ? " other tensor" : " other tensors");
  throw Error(ErrorKind::Model, ErrorParts{.file = file.shards()[first->tensor->shard].path().string(),
                                           .offset = offset_of(*first),
                                           .subject = tensor_subject(first->tensor->name),
                                           .problem = problem_of(*first) + more});
}

using Json = nlohmann::ordered_json;

std::string dumped(const Json& j) { return j.dump(1, ' ', false, Json::error_handler_t::replace) + "\n"; }

Json json_of_error(const Error& e) {
  Json j{{"kind", "structure"}, {"file", e.parts().file}};
  if (e.parts().offset) j["offset"] = *e.parts().offset;
  if (!e.parts().subject.empty()) j["subject"] = e.parts().subject;
  j["problem"] = e.parts().problem;
  return {{"ok", false}, {"files", Json::array()}, {"tensors", Json::array()}, {"problems", Json::array({j})}};
}

GgufFile open_file(const VerifyOptions& o) {
  Warnings warnings;
  try {
    GgufFile file = GgufFile::open(o.file, warnings);
    app::print_warnings(warnings);
    return file;
  } catch (const Error& e) {
    if (o.json && e.kind() == ErrorKind::Model) app::write_stdout(dumped(json_of_error(e)));
    throw;
  }
}

}  // namespace

Verification check_file(const GgufFile& file, int threads, std::vector<std::string> expected_sums) {
  const std::span<const MappedFile> shards = file.shards();
  const std::span<const TensorInfo> tensors = file.tensors().all();
  Verification v;
  v.files.resize(shards.size());
  v.tensors.resize(tensors.size());
  std::uint64_t total = file.file_bytes();
  for (const TensorInfo& t : tensors) total += t.type.bytes();
  app::Progress progress("verifying");
  std::uint64_t bytes = 0;
  const std::function<void(std::uint64_t)> done = [&](std::uint64_t n) {
#pragma omp critical(verify_progress)
    progress.update(static_cast<double>(bytes += n) / static_cast<double>(total));
  };
  std::vector<std::function<void()>> jobs;  // the longest first
  for (std::size_t i = 0; i < shards.size(); ++i) {
    v.files[i] = {shards[i].path().string(), shards[i].bytes().size(), {}, expected_sums[i]};
    jobs.push_back([&, i] { v.files[i].sha256 = sum_of_file(shards[i], done); });
  }
  for (std::size_t i = 0; i < tensors.size(); ++i)
    jobs.push_back([&, i] { v.tensors[i] = check_tensor(file, tensors[i], done); });
  run_jobs(jobs, threads);
  return v;
}

std::string text_of(const GgufFile& file, const Verification& v) {
  std::string text = "files (SHA-256, name)\n";
  for (const FileCheck& f : v.files) text += "  " + f.sha256 + "  " + escaped(f.path, 4096) + "\n";
  text += "tensors: " + number_text(std::ssize(v.tensors)) + " (SHA-256 of the data, type, shape, name)\n";
  for (const TensorCheck& c : v.tensors) {
    std::string type = to_string(c.tensor->type);
    if (type.size() < 24) type.append(24 - type.size(), ' ');
    text += "  " + c.sha256 + "  " + type + "  " + escaped(c.tensor->name) + "\n";
  }
  std::string problems;
  for (const FileCheck& f : v.files) {
    if (!f.ok()) problems += "  " + escaped(f.path, 4096) + ": " + sum_problem(f) + "\n";
  }
  for (const TensorCheck& c : v.tensors) {
    if (c.bad.count > 0) problems += "  " + tensor_subject(c.tensor->name) + ": " + problem_of(c) + "\n";
  }
  const bool expected = std::ranges::any_of(v.files, [](const FileCheck& f) { return !f.expected.empty(); });
  if (!problems.empty()) return text + "problems\n" + problems;
  return text + "ok: GGUF version " + std::to_string(file.version()) +
         ", every tensor in its place, no NaN and no infinity" + (expected ? ", the sums are as expected" : "") + "\n";
}

std::string json_of(const GgufFile& file, const Verification& v) {
  Json files = Json::array(), tensors = Json::array(), problems = Json::array();
  for (const FileCheck& f : v.files) {
    files.push_back({{"path", f.path}, {"bytes", f.bytes}, {"sha256", f.sha256}});
    if (!f.expected.empty()) files.back()["expected"] = f.expected;
    if (!f.ok()) problems.push_back({{"kind", "sha256"}, {"file", f.path}, {"problem", sum_problem(f)}});
  }
  for (const TensorCheck& c : v.tensors) {
    tensors.push_back({{"name", c.tensor->name},
                       {"type", name(c.tensor->type.dtype)},
                       {"bytes", c.tensor->type.bytes()},
                       {"sha256", c.sha256}});
    if (c.bad.count == 0) continue;
    problems.push_back({{"kind", "values"},
                        {"file", file.shards()[c.tensor->shard].path().string()},
                        {"tensor", c.tensor->name},
                        {"blocks", c.bad.count},
                        {"first_block", c.bad.first},
                        {"row", c.bad.row},
                        {"column", c.bad.column},
                        {"value", c.bad.value},
                        {"offset", offset_of(c)},
                        {"problem", problem_of(c)}});
  }
  return dumped({{"ok", problems.empty()},
                 {"version", file.version()},
                 {"files", files},
                 {"tensors", tensors},
                 {"problems", problems}});
}

void verify(const VerifyOptions& o) {
  const GgufFile file = open_file(o);
  std::vector<std::string> expected(file.shards().size());
  if (!o.sha256.empty()) {
    const ExpectedSums sums(o.sha256);
    for (std::size_t i = 0; i < expected.size(); ++i)
      expected[i] = sums.sum_of(file.shards()[i].path(), expected.size());
  }
  const Verification v = check_file(file, o.threads > 0 ? o.threads : default_threads().threads, std::move(expected));
  app::write_stdout(o.json ? json_of(file, v) : text_of(file, v));
  fail_if_bad(file, v);
}

}  // namespace llm::inspect
