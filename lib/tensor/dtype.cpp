// The table of storage types, and words for those that are not in it.
#include "tensor/dtype.h"

#include <algorithm>

#include "tensor/blocks.h"

namespace llm {
namespace {

constexpr auto kNoFile = std::nullopt;

constexpr DTypeInfo kTypes[] = {
#define LLM_DTYPE(name, id, elems, block, use, activation) \
  {DType::name, #name, id, elems, sizeof(block), DTypeUse::use, ActFormat::activation},
#include "tensor/dtypes.def"
#undef LLM_DTYPE
};
static_assert(
    std::ranges::all_of(kTypes, [](const DTypeInfo& t) { return t.gguf_id.has_value() == (t.use != DTypeUse::Cache); }),
    "a cache's own types are those without an id in files");

struct NamedId {
  std::uint32_t id;
  std::string_view name;
};

constexpr NamedId kRemoved[] = {
    {4, "Q4_2"},      {5, "Q4_3"},        {31, "Q4_0_4_4"},   {32, "Q4_0_4_8"},
    {33, "Q4_0_8_8"}, {36, "IQ4_NL_4_4"}, {37, "IQ4_NL_4_8"}, {38, "IQ4_NL_8_8"},
};

constexpr NamedId kOfIkLlama[] = {
    {133, "Q6_0"},    {134, "IQ1_BN"}, {135, "IQ2_BN"}, {137, "IQ2_K"},  {138, "IQ3_K"},
    {139, "IQ4_K"},   {140, "IQ5_K"},  {141, "IQ6_K"},  {144, "IQ4_KS"}, {145, "IQ2_KS"},
    {146, "IQ4_KSS"}, {151, "Q8_KV"},  {152, "IQ5_KS"}, {153, "IQ2_KT"}, {154, "IQ3_KT"},
    {155, "IQ4_KT"},  {156, "IQ3_KS"}, {157, "IQ2_KL"}, {158, "IQ1_KT"},
};
constexpr std::uint32_t kFirstInterleaved = 200, kLastInterleaved = 399;  // ik_llama.cpp's _R4, _R8 and _R16 forms
constexpr std::uint32_t kSharedId = 36;  // removed from the format as IQ4_NL_4_4, used by ik_llama.cpp for I2_S

std::string_view find_name(std::span<const NamedId> list, std::uint32_t id) {
  const auto it = std::find_if(list.begin(), list.end(), [id](const NamedId& t) { return t.id == id; });
  return it == list.end() ? std::string_view{} : it->name;
}

std::string label(std::string_view name, std::uint32_t id) {
  return "type " + std::string(name) + " (" + std::to_string(id) + ")";
}

}  // namespace

std::span<const DTypeInfo> dtypes() { return kTypes; }

const DTypeInfo& info(DType t) { return kTypes[static_cast<std::size_t>(t)]; }

std::string_view name(ActFormat f) {
  switch (f) {
    case ActFormat::F32:
      return "F32";
    case ActFormat::BF16:
      return "BF16";
    case ActFormat::Q8x32:
      return "Q8x32";
    case ActFormat::Q8x256:
      return "Q8x256";
  }
  return "?";
}

std::optional<DType> dtype_from_gguf(std::uint32_t gguf_id) {
  for (const DTypeInfo& t : kTypes) {
    if (t.gguf_id == gguf_id) return t.dtype;
  }
  return std::nullopt;
}

std::optional<DType> dtype_from_name(std::string_view name) {
  for (const DTypeInfo& t : kTypes) {
    if (t.name == name) return t.dtype;
  }
  return std::nullopt;
}

std::string_view other_use_of_gguf_id(DType t) {
  if (t == DType::Q2_0) return "forks of llama.cpp write Q2_0 in blocks of 128 elements; requantize to blocks of 64";
  return {};
}

std::string explain_unsupported_gguf_type(std::uint32_t id) {
  if (const auto removed = find_name(kRemoved, id); !removed.empty()) {
    const std::string also = id == kSharedId ? " (or it is I2_S of ik_llama.cpp)" : "";
    return label(removed, id) + " was removed from the format" + also + "; requantize from the original";
  }
  if (const auto ik = find_name(kOfIkLlama, id); !ik.empty()) {
    return label(ik, id) + " exists only in ik_llama.cpp; requantize to a type of the GGUF format";
  }
  if (id >= kFirstInterleaved && id <= kLastInterleaved) {
    return "type " + std::to_string(id) +
           " is one of ik_llama.cpp's interleaved types; requantize to a type of the GGUF format";
  }
  return "unknown type " + std::to_string(id);
}

}  // namespace llm
