// Real files of all versions and byte orders: the same model must read the same.
#include <cstring>

#include "gguf/file.h"
#include "support/catch.h"
#include "support/paths.h"

namespace llm::test {
namespace {

GgufFile open_model(const std::filesystem::path& path) {
  Warnings warnings;
  GgufFile file = GgufFile::open(path, warnings);
  CHECK(warnings.empty());
  return file;
}

std::vector<std::byte> data_of(const GgufFile& file, const TensorInfo& t) {
  std::vector<std::byte> out(t.type.bytes());
  file.read(t, out);
  return out;
}

}  // namespace

TEST_CASE("a trained model's metadata") {
  const auto path = shared_file("data/models/stories260K-f32.gguf");
  if (!path) return;
  const GgufFile file = open_model(*path);
  const Metadata& md = file.metadata();
  // llama2.c's stories260K: dim 64, 5 layers, 8 heads, 4 KV heads, hidden 172, 512 tokens, sequence 512.
  CHECK(file.version() == 3);
  CHECK_FALSE(file.foreign_byte_order());
  CHECK(md.get<std::string_view>("general.architecture") == "llama");
  CHECK(md.get<int>("llama.embedding_length") == 64);
  CHECK(md.get<std::uint64_t>("llama.block_count") == 5);
  CHECK(md.get<std::int16_t>("llama.attention.head_count") == 8);
  CHECK(md.one_or_each<int>("llama.attention.head_count_kv", 5) == std::vector<int>{4, 4, 4, 4, 4});
  CHECK(md.get<float>("llama.rope.freq_base") == 10000.0f);
  CHECK(md.get<double>("llama.attention.layer_norm_rms_epsilon") == static_cast<double>(1e-5f));
  CHECK(md.get<bool>("tokenizer.ggml.add_bos_token"));
  const auto tokens = md.array<std::string_view>("tokenizer.ggml.tokens");
  REQUIRE(tokens.size() == 512);
  CHECK(tokens[1] == "<s>");
  CHECK(tokens[3] == "<0x00>");
  CHECK(md.array<float>("tokenizer.ggml.scores").size() == 512);
  const auto types = md.array<std::int64_t>("tokenizer.ggml.token_type");
  REQUIRE(types.size() == 512);
  CHECK(types[3] == 6);
  CHECK(file.tensors().all().size() == 47);
  const TensorInfo* embedding = file.tensors().find("token_embd.weight");
  REQUIRE(embedding);
  CHECK(embedding->type == TensorType{DType::F32, Shape{64, 512}});
  CHECK(file.view(*embedding).type == embedding->type);
  CHECK(file.file_bytes() == std::filesystem::file_size(*path));
  CHECK(file.tensors().find("no.such.weight") == nullptr);
}

TEST_CASE("versions and byte orders of one model hold the same") {
  const auto path = shared_file("data/models/stories260K-f32.gguf");
  if (!path) return;
  const GgufFile base = open_model(*path);
  struct Twin {
    const char* name;
    int version;
    bool foreign;
  };
  for (const Twin twin : {Twin{"v1", 1, false}, Twin{"v2", 2, false}, Twin{"be", 3, true}}) {
    const auto twin_path = shared_file(std::string("data/models/stories260K-f32-") + twin.name + ".gguf");
    if (!twin_path) continue;
    INFO(twin.name);
    const GgufFile other = open_model(*twin_path);
    CHECK(other.version() == twin.version);
    CHECK(other.foreign_byte_order() == twin.foreign);
    REQUIRE(other.metadata().entries().size() == base.metadata().entries().size());
    for (const Metadata::Entry& e : base.metadata().entries()) {
      INFO(e.key);
      const Metadata::Entry* twin_entry = other.metadata().find(e.key);
      REQUIRE(twin_entry);
      CHECK(twin_entry->type == e.type);
      CHECK(twin_entry->element == e.element);
      CHECK(twin_entry->strings == e.strings);
      if (e.type == GgufType::U32) CHECK(other.metadata().get<unsigned>(e.key) == base.metadata().get<unsigned>(e.key));
      if (e.type == GgufType::F32) CHECK(other.metadata().get<float>(e.key) == base.metadata().get<float>(e.key));
      if (e.type == GgufType::String)
        CHECK(other.metadata().get<std::string_view>(e.key) == base.metadata().get<std::string_view>(e.key));
    }
    CHECK(other.metadata().array<float>("tokenizer.ggml.scores") ==
          base.metadata().array<float>("tokenizer.ggml.scores"));
    CHECK(other.metadata().array<int>("tokenizer.ggml.token_type") ==
          base.metadata().array<int>("tokenizer.ggml.token_type"));
    REQUIRE(other.tensors().all().size() == base.tensors().all().size());
    for (const TensorInfo& t : base.tensors().all()) {
      INFO(t.name);
      const TensorInfo* o = other.tensors().find(t.name);
      REQUIRE(o);
      CHECK(o->type == t.type);
      CHECK(data_of(other, *o) == data_of(base, t));
    }
  }
}

TEST_CASE("a version 1 file of another writer") {
  const auto path = shared_file("data/models/tinyllamas-stories-260k-f32.crabml.gguf");
  if (!path) return;
  const GgufFile file = open_model(*path);
  CHECK(file.version() == 1);
  CHECK(file.metadata().get<std::string_view>("general.name") == "tinyllamas-stories-260k");
  CHECK(file.tensors().all().size() == 48);
  // The same training run as the other files, its embedding in the same order of rows.
  const auto twin = shared_file("data/models/stories260K-f32.gguf");
  if (!twin) return;
  const GgufFile other = open_model(*twin);
  CHECK(data_of(file, *file.tensors().find("token_embd.weight")) ==
        data_of(other, *other.tensors().find("token_embd.weight")));
}

TEST_CASE("files without data, and damaged ones found in the wild") {
  struct Case {
    const char* name;
    const char* word;  // of the error; empty: it is read
  };
  for (const Case c : {Case{"empty.gguf", ""},
                       {"lifecycle_integration_smoke_model.gguf", ""},
                       {"gguf_open/v3-empty.bin", ""},
                       {"gguf_open/valid-small.gguf", ""},
                       {"tiny.gguf", "truncated"},
                       {"gguf_open/hdr-zero-first-dim.gguf", "dimension"},
                       {"gguf_open/hdr-wrap-first-offset.gguf", "offset"},
                       {"gguf_open/huge-counts.bin", "tensor count"},
                       {"gguf_open/kv-arr-huge-n.bin", "array"},
                       {"gguf_open/kv-huge-strlen.bin", "key count"},
                       {"gguf_open/magic-only.bin", "size"},
                       {"gguf_open/tensor-huge-dims.bin", "overflow"},
                       {"gguf_open/trunc-magic.bin", "size"}}) {
    const auto path = shared_file(std::string("data/gguf-cases/") + c.name);
    if (!path) continue;
    INFO(c.name);
    const std::string word = c.word;
    if (word.empty()) {
      open_model(*path);
      continue;
    }
    try {
      open_model(*path);
      FAIL("was read");
    } catch (const Error& e) {
      INFO(e.what());
      CHECK(e.kind() == ErrorKind::Model);
      CHECK(e.parts().file == path->string());
      CHECK(std::string(e.what()).find(word) != std::string::npos);
    }
  }
}

}  // namespace llm::test
