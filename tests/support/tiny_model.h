// Tiny GGUF models with random weights, of any family, shape and storage type: what tests run, change and break.
//
//   TinyFile f = tiny_model({.arch = "qwen3", .layers = 2});
//   f.set("qwen3.context_length", std::uint32_t{0});   // or erase(), resize(), retype() ...
//   f.write(path);
//
// What a family's files have is its row in tiny_families.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "support/tiny_file.h"
#include "support/tiny_vocabulary.h"

namespace llm::test {

enum class TinyRope { Plain, Linear, Yarn, Llama3 };  ///< Llama3: a rope_freqs tensor

/// Defaults: the base file of the tables of malformed inputs (one block of width 32, 12 tensors).
struct TinyOptions {
  std::string arch = "llama";
  int layers = 1;
  int n_embd = 32;
  int d_ff = 64;  ///< of an expert where there are experts
  int heads = 4;
  int kv_heads = 2;
  int head_dim = 8;
  int context = 64;
  int experts = 0;  ///< 0: the family's own (4 for families that have nothing else)
  int experts_used = 2;
  DType type = DType::F32;  ///< of the matrices; rows must be whole blocks
  bool tied = false;        ///< no output.weight
  bool biases = false;      ///< llama: on every projection (other families have their own)
  int window = 0;           ///< attention.sliding_window; of families that select keys, how many
  bool predicting = false;  ///< the last layer guesses ahead: of hybrids one that attends
  TinyRope rope = TinyRope::Plain;
  TinyTokenizer tokenizer = TinyTokenizer::Spm;
  std::uint64_t seed = 1;
  /// Storage types of single matrices, by shell pattern over the tensor's name; the last match counts.
  std::vector<std::pair<std::string, DType>> types = {};
};

TinyFile tiny_model(const TinyOptions& options = {});

}  // namespace llm::test
