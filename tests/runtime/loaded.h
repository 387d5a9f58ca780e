// Models on disk for the runtime's tests, loaded with given threads and backend.
#pragma once

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <string_view>
#include <vector>

#include "gguf/file.h"
#include "runtime/session.h"
#include "support/catch.h"
#include "support/temp_dir.h"
#include "support/tiny_model.h"

namespace llm::test {

struct ModelCase {
  const char* name;
  TinyOptions options;
  CacheFormat cache = {};
};

/// Wide enough for the types with blocks of 256.
inline TinyOptions wide(std::string arch, DType type, int layers = 2) {
  return {.arch = std::move(arch),
          .layers = layers,
          .n_embd = 256,
          .d_ff = 256,
          .heads = 4,
          .kv_heads = 2,
          .head_dim = 64,
          .context = 512,
          .type = type};
}

inline std::unique_ptr<Model> load_tiny(const TempDir& folder, const TinyFile& file, int threads = 1,
                                        const std::string& backend = "cpu", const std::string& isa = "") {
  const auto path = folder / "model.gguf";
  file.write(path);
  Warnings warnings;
  return Model::load(
      {.path = path, .backend = backend, .threads = threads, .isa = isa, .bytes_per_thread = 0, .progress = {}},
      warnings);
}

inline std::vector<Token> random_tokens(std::size_t n, std::int64_t vocab, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<Token> tokens(n);
  for (Token& t : tokens) t = static_cast<Token>(random() % static_cast<std::uint64_t>(vocab));
  return tokens;
}

/// Logits of every token, appended in chunks.
inline std::vector<float> logits_in_chunks(Session& session, SequenceId id, std::span<const Token> tokens,
                                           std::size_t chunk) {
  std::vector<float> all;
  for (std::size_t i = 0; i < tokens.size(); i += chunk) {
    const Append work{id, tokens.subspan(i, std::min(chunk, tokens.size() - i)), Logits::All};
    const auto rows = session.eval({&work, 1});
    all.insert(all.end(), rows.begin(), rows.end());
  }
  return all;
}

inline bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
}

/// Overwrites bytes of a tensor in a file that was written.
inline void patch(const std::filesystem::path& path, std::string_view tensor, std::size_t at,
                  std::vector<std::uint8_t> bytes) {
  Warnings warnings;
  std::uint64_t offset = 0;
  {
    const GgufFile file = GgufFile::open(path, warnings);
    const TensorInfo* info = file.tensors().find(tensor);
    REQUIRE(info != nullptr);
    offset = info->data_offset + at;
  }
  std::fstream out(path, std::ios::in | std::ios::out | std::ios::binary);
  out.seekp(static_cast<std::streamoff>(offset));
  out.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}

inline const std::vector<std::uint8_t> kNanF32{0x00, 0x00, 0xc0, 0x7f};
inline const std::vector<std::uint8_t> kInfF16{0x00, 0x7c};

}  // namespace llm::test
