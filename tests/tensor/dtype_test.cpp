// The table of storage types against the format's own numbers, shapes and sizes.
#include "tensor/dtype.h"

#include <algorithm>

#include "base/error.h"
#include "support/catch.h"
#include "tensor/tensor.h"

using namespace llm;

TEST_CASE("ids and block sizes are the format's") {
  struct Row {
    const char* name;
    std::uint32_t id, elems, bytes;
  };
  // GGUF specification and ggml's block definitions.
  constexpr Row kRows[] = {
      {"F32", 0, 1, 4},         {"F16", 1, 1, 2},        {"Q4_0", 2, 32, 18},      {"Q4_1", 3, 32, 20},
      {"Q5_0", 6, 32, 22},      {"Q5_1", 7, 32, 24},     {"Q8_0", 8, 32, 34},      {"Q8_1", 9, 32, 36},
      {"Q2_K", 10, 256, 84},    {"Q3_K", 11, 256, 110},  {"Q4_K", 12, 256, 144},   {"Q5_K", 13, 256, 176},
      {"Q6_K", 14, 256, 210},   {"Q8_K", 15, 256, 292},  {"I8", 24, 1, 1},         {"I16", 25, 1, 2},
      {"I32", 26, 1, 4},        {"I64", 27, 1, 8},       {"F64", 28, 1, 8},        {"BF16", 30, 1, 2},
      {"IQ2_XXS", 16, 256, 66}, {"IQ2_XS", 17, 256, 74}, {"IQ3_XXS", 18, 256, 98}, {"IQ1_S", 19, 256, 50},
      {"IQ4_NL", 20, 32, 18},   {"IQ3_S", 21, 256, 110}, {"IQ2_S", 22, 256, 82},   {"IQ4_XS", 23, 256, 136},
      {"IQ1_M", 29, 256, 56},   {"TQ1_0", 34, 256, 54},  {"TQ2_0", 35, 256, 66},   {"MXFP4", 39, 32, 17},
      {"NVFP4", 40, 64, 36},    {"Q1_0", 41, 128, 18},   {"Q2_0", 42, 64, 18},
  };
  const auto in_files = std::ranges::count_if(dtypes(), [](const DTypeInfo& t) { return t.gguf_id.has_value(); });
  REQUIRE(in_files == std::ssize(kRows));
  for (const Row& row : kRows) {
    INFO(row.name);
    const auto t = dtype_from_gguf(row.id);
    REQUIRE(t.has_value());
    CHECK(dtype_from_name(row.name) == t);
    CHECK(name(*t) == row.name);
    CHECK(info(*t).dtype == *t);
    CHECK(info(*t).block_elems == row.elems);
    CHECK(info(*t).block_bytes == row.bytes);
    CHECK(info(*t).quantized() == (row.elems > 1));
  }
}

TEST_CASE("what may be a weight, and the activations it takes") {
  CHECK(info(DType::Q4_K).use == DTypeUse::Weight);
  CHECK(info(DType::F64).use == DTypeUse::Weight);
  for (const DType t : {DType::Q8_1, DType::Q8_K, DType::I8, DType::I16, DType::I32, DType::I64}) {
    CHECK(info(t).use == DTypeUse::Data);
  }
  for (const DTypeInfo& t : dtypes()) {
    if (t.use != DTypeUse::Weight) continue;
    const ActFormat expected = t.block_elems == 256     ? ActFormat::Q8x256
                               : t.block_elems > 1      ? ActFormat::Q8x32
                               : t.dtype == DType::BF16 ? ActFormat::BF16
                                                        : ActFormat::F32;
    CHECK(t.activation == expected);
  }
  CHECK(name(ActFormat::Q8x256) == "Q8x256");
  CHECK(name(ActFormat::BF16) == "BF16");
}

TEST_CASE("a type that only caches have") {
  for (const DTypeInfo& t : dtypes()) {
    INFO(t.name);
    CHECK((t.use == DTypeUse::Cache) == (t.dtype == DType::F8_E4M3));
    CHECK(t.gguf_id.has_value() == (t.dtype != DType::F8_E4M3));
  }
  const DTypeInfo& f8 = info(DType::F8_E4M3);
  CHECK(f8.block_elems == 1);
  CHECK(f8.block_bytes == 1);
  CHECK(f8.activation == ActFormat::F32);
  CHECK(dtype_from_name("F8_E4M3") == DType::F8_E4M3);
}

TEST_CASE("names and ids that are not there") {
  CHECK_FALSE(dtype_from_name("q4_k").has_value());
  CHECK_FALSE(dtype_from_name("").has_value());
  for (const std::uint32_t id : {4u, 5u, 31u, 36u, 38u, 43u, 133u, 0xffffffffu}) {
    CHECK_FALSE(dtype_from_gguf(id).has_value());
  }
}

TEST_CASE("types that cannot be used are explained by name") {
  CHECK(explain_unsupported_gguf_type(4) == "type Q4_2 (4) was removed from the format; requantize from the original");
  CHECK(explain_unsupported_gguf_type(33) ==
        "type Q4_0_8_8 (33) was removed from the format; requantize from the original");
  CHECK(
      explain_unsupported_gguf_type(36) ==
      "type IQ4_NL_4_4 (36) was removed from the format (or it is I2_S of ik_llama.cpp); requantize from the original");
  CHECK(explain_unsupported_gguf_type(144) ==
        "type IQ4_KS (144) exists only in ik_llama.cpp; requantize to a type of the GGUF format");
  CHECK(explain_unsupported_gguf_type(212) ==
        "type 212 is one of ik_llama.cpp's interleaved types; requantize to a type of the GGUF format");
  CHECK(explain_unsupported_gguf_type(43) == "unknown type 43");
  CHECK(explain_unsupported_gguf_type(400) == "unknown type 400");
  CHECK(explain_unsupported_gguf_type(0xffffffffu) == "unknown type 4294967295");
  // Every id up to the newest is a type of ours or one removed.
  for (std::uint32_t id = 0; id <= 42; ++id) {
    INFO(id);
    CHECK((dtype_from_gguf(id) || !explain_unsupported_gguf_type(id).starts_with("unknown")));
  }
}

TEST_CASE("shapes") {
  const Shape matrix{32, 100};
  CHECK(matrix.n_dims() == 2);
  CHECK(matrix[0] == 32);
  CHECK(matrix[3] == 1);
  CHECK(matrix.elements() == 3200);
  CHECK(matrix.rows() == 100);
  CHECK(to_string(matrix) == "[32, 100]");
  CHECK(to_string(Shape{}) == "[]");
  CHECK(Shape{}.elements() == 1);
  CHECK(matrix == Shape{32, 100, 1});
  CHECK_FALSE(matrix == Shape{32, 100, 2});
  CHECK_FALSE(matrix == Shape{100, 32});

  Shape grown;
  for (const std::int64_t dim : {2, 3, 4, 5}) grown.push_back(dim);
  CHECK(grown == Shape{2, 3, 4, 5});
  CHECK(grown.elements() == 120);
  CHECK(grown.rows() == 60);
  CHECK_THROWS_AS(grown.push_back(1), Error);
  CHECK_THROWS_AS((Shape{1, -1}), Error);
}

TEST_CASE("sizes of typed shapes") {
  const TensorType type{DType::Q4_K, {2048, 8192}};
  CHECK(type.row_bytes() == 8 * 144);
  CHECK(type.bytes() == 8192u * 8 * 144);
  CHECK(to_string(type) == "Q4_K [2048, 8192]");
  CHECK(TensorType{DType::F32, {5}}.bytes() == 20);
  CHECK(TensorType{DType::BF16, {3, 2, 2}}.bytes() == 24);
  CHECK(TensorType{DType::Q8_0, {64, 3, 2}}.row_bytes() == 68);
  CHECK(TensorType{DType::F32, {0, 7}}.bytes() == 0);
  CHECK(type == TensorType{DType::Q4_K, {2048, 8192, 1}});
  CHECK_FALSE(type == TensorType{DType::Q5_K, {2048, 8192}});
}
