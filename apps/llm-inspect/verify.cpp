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

TensorCheck check_tensor(const GgufFile& file, const TensorInfo& t, const std::function<void(std::uint64_t)>& done) {
  const std::size_t block = info(t.type.dtype).block_bytes;
  const std::uint64_t size = t.type.bytes();
  Sha256 sum;
  app::BlockScan scan(t.type);
  const std::span<const std::byte> stored = file.shards()[t.shard].bytes().subspan(t.data_offset, size);
  std::vector<std::byte> piece;
  for (std::uint64_t at = 0; at < size; at += piece.size()) {
    piece.resize(std::min<std::uint64_t>(kPieceBytes / block * block, size - at));
    const auto as_stored = stored.subspan(at, piece.size());  // in the file's own byte order
    sum.update(as_stored);
    file.shards()[t.shard].release(as_stored);
    file.read(t, at, piece);
    scan.take(piece);
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

std::string sum_problem(const FileCheck& f) { return "its SHA-256 sum is " + f.sha256 + ", expected " + f.expected; }

void fail_if_bad(const GgufFile& file, const Verification& v) {
  for (const FileCheck& f : v.files) {
    if (!f.ok())
      throw Error(ErrorKind::Model, ErrorParts{.file = f.path, .problem = sum_problem(f) + "; fetch the file again"});
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
                                           .offset = app::offset_of(*first->tensor, first->bad),
                                           .subject = tensor_subject(first->tensor->name),
                                           .problem = app::problem_of(*first->tensor, first->bad) + more});
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
    if (e.kind() != ErrorKind::Model) throw;
    if (o.json) app::write_stdout(dumped(json_of_error(e)));
    const bool in_the_file = e.parts().offset || !e.parts().subject.empty();
    if (!in_the_file || e.parts().problem.find("; ") != std::string::npos) throw;
    ErrorParts parts = e.parts();
    parts.problem += "; nothing behind it was looked at: fetch the file again, or convert it again";
    throw Error(e.kind(), std::move(parts));
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
    if (c.bad.count > 0)
      problems += "  " + tensor_subject(c.tensor->name) + ": " + app::problem_of(*c.tensor, c.bad) + "\n";
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
                        {"offset", app::offset_of(*c.tensor, c.bad)},
                        {"problem", app::problem_of(*c.tensor, c.bad)}});
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
