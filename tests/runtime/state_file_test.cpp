// A cache that went through a file gives the bits of one that was never away, or is refused.
#include "runtime/state_file.h"

#include <fstream>
#include <iterator>

#include "loaded.h"

using namespace llm;
using namespace llm::test;

namespace {

constexpr std::int64_t kContext = 512;

std::string read_bytes(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void write_bytes(const std::filesystem::path& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

struct Saved {
  std::unique_ptr<Model> model;
  std::vector<Token> tokens;
};

/// 150 tokens: two blocks and a part of a third.
Saved save(const TempDir& folder, const TinyFile& file, const std::filesystem::path& path, const CacheFormat& format) {
  Saved s{load_tiny(folder, file), {}};
  s.tokens = random_tokens(150, s.model->dims().vocab, 3);
  Session session(*s.model, {.context = kContext, .sequences = 2, .cache = format});
  const SequenceId id = session.create();
  const Append work{id, s.tokens, Logits::Last};
  (void)session.eval({&work, 1});
  save_state(path, *s.model, session, id, s.tokens);
  return s;
}

TinyFile two_layers() { return tiny_model({.layers = 2, .context = kContext}); }

}  // namespace

TEST_CASE("what follows a restored beginning has the bits of a whole evaluation") {
  const TempDir folder;
  const auto path = folder / "state";
  struct Kind {
    CacheFormat format;
    const char* arch = "llama";
  };
  for (const auto& [format, arch] :
       {Kind{}, Kind{{DType::F32, DType::BF16}}, Kind{{DType::F8_E4M3, DType::F8_E4M3}}, Kind{{}, "qwen35"}}) {
    INFO(arch);
    const Saved s = save(folder, tiny_model({.arch = arch, .layers = 2, .context = kContext}), path, format);
    const SessionOptions options{.context = kContext, .sequences = 2, .cache = format};
    for (const std::size_t kept : {1u, 63u, 64u, 65u, 128u, 150u}) {
      INFO(kept);
      std::vector<Token> all(s.tokens.begin(), s.tokens.begin() + static_cast<std::ptrdiff_t>(kept));
      const std::vector<Token> rest = random_tokens(70, s.model->dims().vocab, 9);
      all.insert(all.end(), rest.begin(), rest.end());
      Session fresh(*s.model, options), restored(*s.model, options);
      const std::vector<float> expected = logits_in_chunks(fresh, fresh.create(), all, 512);
      const StateFile file = StateFile::open(path, *s.model, restored.cache_format());
      REQUIRE(std::ranges::equal(file.tokens(), s.tokens));
      (void)restored.create();  // other blocks than those it was saved from
      const SequenceId first = 0;
      const Append other{first, rest, Logits::Last};
      (void)restored.eval({&other, 1});
      const SequenceId id = restored.create();
      file.restore(restored, id, static_cast<std::int64_t>(kept));
      CHECK(restored.length(id) == static_cast<std::int64_t>(kept));
      const std::vector<float> got = logits_in_chunks(restored, id, rest, 512);
      CHECK(same_bits(got, std::span(expected).last(got.size())));
    }
  }
}

TEST_CASE("a damaged state is refused wherever it is damaged") {
  const TempDir folder;
  const auto path = folder / "state";
  const char* const arch = GENERATE("llama", "qwen35");
  const Saved s = save(folder, tiny_model({.arch = arch, .layers = 2, .context = kContext}), path, {});
  Session session(*s.model, {.context = kContext});
  const std::string whole = read_bytes(path);
  for (std::size_t at = 0; at < whole.size(); at += at < 300 || at + 70 > whole.size() ? 1 : 997) {
    INFO(at);
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    write_bytes(path, damaged);
    CHECK_THROWS_WITH(StateFile::open(path, *s.model, session.cache_format()), contains("state"));
    write_bytes(path, whole.substr(0, at));
    CHECK_THROWS_AS(StateFile::open(path, *s.model, session.cache_format()), Error);
  }
  write_bytes(path, whole);
  CHECK_NOTHROW(StateFile::open(path, *s.model, session.cache_format()));
}

TEST_CASE("a state is refused by all but what made it") {
  const TempDir folder;
  const auto path = folder / "state";
  const Saved s = save(folder, two_layers(), path, {});
  const auto opened_by = [&](Model& model, const CacheFormat& format) {
    const Session session(model, {.context = kContext, .cache = format});
    (void)StateFile::open(path, model, session.cache_format());
  };
  CHECK_THROWS_WITH(opened_by(*s.model, {DType::F16, DType::F32}), contains("F16/F32"));
  CHECK_THROWS_WITH(opened_by(*s.model, {DType::F8_E4M3, DType::F16}), contains("F8_E4M3/F16"));
  CHECK_THROWS_WITH(opened_by(*load_tiny(folder, two_layers(), 1, "reference"), {}), contains("reference"));
  // The same header, one weight of another training.
  const TempDir elsewhere;
  const auto other = elsewhere / "model.gguf";
  two_layers().write(other);
  patch(other, "blk.1.attn_q.weight", 0, {0, 0, 0, 0x3f});
  Warnings warnings;
  CHECK_THROWS_WITH(opened_by(*Model::load({.path = other, .threads = 1, .progress = {}}, warnings), {}),
                    contains("another model"));
  CHECK_NOTHROW(opened_by(*load_tiny(elsewhere, two_layers(), 2), {}));  // other place, other threads
}
