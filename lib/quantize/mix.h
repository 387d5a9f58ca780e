// Which storage type each tensor of a model gets when the model is quantised to a named mix: a pure function of names,
// shapes and a few of the model's numbers. The names and the choices are llama.cpp's; scripts/check-mixes compares
// them with its own, tensor by tensor.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gguf/metadata.h"
#include "tensor/tensor.h"

namespace llm {

/// What `general.file_type` can say and a file can be quantised to.
enum class FileType : std::uint32_t {
  F32 = 0,
  F16 = 1,
  Q4_0 = 2,
  Q4_1 = 3,
  Q8_0 = 7,
  Q5_0 = 8,
  Q5_1 = 9,
  Q2_K = 10,
  Q3_K_S = 11,
  Q3_K_M = 12,
  Q3_K_L = 13,
  Q4_K_S = 14,
  Q4_K_M = 15,
  Q5_K_S = 16,
  Q5_K_M = 17,
  Q6_K = 18,
  IQ2_XXS = 19,
  IQ2_XS = 20,
  Q2_K_S = 21,
  IQ3_XS = 22,
  IQ3_XXS = 23,
  IQ1_S = 24,
  IQ4_NL = 25,
  IQ3_S = 26,
  IQ3_M = 27,
  IQ2_S = 28,
  IQ2_M = 29,
  IQ4_XS = 30,
  IQ1_M = 31,
  BF16 = 32,
  TQ1_0 = 36,
  TQ2_0 = 37,
  MXFP4_MOE = 38,
  Q1_0 = 40,
  Q2_0 = 41,
};

struct Mix {
  std::string_view name;
  FileType file_type;
  DType base;             ///< of most matrices
  std::string_view note;  ///< for people
};
std::span<const Mix> mixes();
/// By name in any case; "Q3_K", "Q4_K" and "Q5_K" are their _M. nullptr if there is none.
const Mix* find_mix(std::string_view name);

/// What the choice depends on beside the tensors.
struct MixModel {
  std::string architecture;
  int layers = 0, experts = 0;
  int heads = 0, kv_heads = 0;  ///< of the first layer
};
/// Numbers that the file lacks stay 0. Throws ErrorKind::Model for a file without an architecture.
MixModel read_mix_model(const Metadata&);

struct NamedTensor {
  std::string_view name;
  TensorType type;
};

/// A regular expression (ECMAScript) that is searched for in tensors' names; the first that matches counts.
struct TypeOverride {
  std::string pattern;
  DType type;
};

struct MixOptions {
  bool pure = false;            ///< every matrix gets the base type
  bool leave_output = false;    ///< output.weight stays as it is
  bool has_importance = false;  ///< there is an importance matrix
  std::optional<DType> output = {};
  std::optional<DType> token_embedding = {};
  std::vector<TypeOverride> overrides = {};
};

struct TypeChoice {
  DType type;
  DType wanted;  ///< what it would be if its rows were whole blocks of that
  bool needs_importance = false;
  std::optional<std::size_t> matched = {};  ///< the first of MixOptions::overrides that its name matches
};

/// One for each tensor, in their order; what the options name counts before the mix. Throws ErrorKind::Usage for a
/// pattern that is no regular expression.
std::vector<TypeChoice> choose_types(const Mix&, const MixModel&, std::span<const NamedTensor>, const MixOptions&);

}  // namespace llm
