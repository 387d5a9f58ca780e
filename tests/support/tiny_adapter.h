// Random LoRA adapters for tiny models, and the models that they amount to: their weights with the adapters' products
// added in double precision.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "support/tiny_model.h"

namespace llm::test {

struct TinyAdapterOptions {
  std::string arch = "llama";
  int rank = 4;
  float alpha = 8;
  DType type = DType::F32;
  std::vector<std::string> targets = {"*"};  ///< shell patterns over the names of the model's matrices
  std::uint64_t seed = 5;
};

/// A pair for each of the model's matrices that a pattern names.
TinyFile tiny_adapter(const TinyFile& model, const TinyAdapterOptions& = {});

struct AppliedAdapter {
  std::filesystem::path path;
  double factor = 1;  ///< of B A
};

/// Writes the F32 model in `model` with W + sum of factor * B A for each weight that the adapters change. Of a tied
/// model the table that tokens are looked up in and the head become two.
void write_merged(const std::filesystem::path& model, const std::vector<AppliedAdapter>& adapters,
                  const std::filesystem::path& merged);

}  // namespace llm::test
