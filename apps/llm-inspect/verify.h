// Whether a model file is whole: its structure, its numbers, its checksums.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/tensor_check.h"
#include "gguf/file.h"

namespace llm::inspect {

struct VerifyOptions {
  std::string file;
  std::string sha256;  ///< a sum, or a file of sums; empty: none expected
  int threads = 0;     ///< 0: what the machine gives
  bool json = false;
};
/// Prints the report. Throws ErrorKind::Model if anything is wrong, after the report.
void verify(const VerifyOptions&);

struct TensorCheck {
  const TensorInfo* tensor;
  std::string sha256;
  app::BadBlocks bad;
};

struct FileCheck {
  std::string path;
  std::uint64_t bytes;
  std::string sha256;
  std::string expected;  ///< empty: none
  bool ok() const { return expected.empty() || expected == sha256; }
};

struct Verification {
  std::vector<FileCheck> files;
  std::vector<TensorCheck> tensors;
};

/// Reads everything once for the tensors and once for the files.
Verification check_file(const GgufFile&, int threads, std::vector<std::string> expected_sums);

std::string text_of(const GgufFile&, const Verification&);
std::string json_of(const GgufFile&, const Verification&);

}  // namespace llm::inspect
