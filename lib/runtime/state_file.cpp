// Layout, numbers little-endian as in memory: the magic, then strings (32-bit length, bytes) and numbers that say whose
// it is, the tokens (32 bits each), the blocks of the cache, and the SHA-256 of all of that as 64 digits. Of models
// with recurrent layers another magic, and behind the blocks what they remember: how many states, after how many tokens
// each, the states.
#include "runtime/state_file.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>
#include <utility>

#include "base/output_file.h"
#include "base/sha256.h"

namespace llm {
namespace {

static_assert(std::endian::native == std::endian::little, "files of states are written as they are in memory");

constexpr std::string_view kMagic = "llm-run state 1\n", kRecurrentMagic = "llm-run state 2\n";
static_assert(kMagic.size() == kRecurrentMagic.size());
constexpr std::size_t kSumDigits = 64;

[[noreturn]] void refuse(const std::filesystem::path& path, std::string problem) {
  throw Error(ErrorKind::Usage, ErrorParts{.file = path.string(), .problem = std::move(problem)});
}

/// A device or a folder is no state, and no model either.
MappedFile map(const std::filesystem::path& path) {
  std::error_code unknown;
  if (is_there(path) && !std::filesystem::is_regular_file(path, unknown)) refuse(path, "is no saved state");
  return MappedFile::open(path);
}

/// Whose numbers these are.
struct Owner {
  std::string model, model_name, backend, cache;
};

std::string_view magic_of(const Session& session) { return session.bytes_per_state() > 0 ? kRecurrentMagic : kMagic; }

Owner owner_of(Model& model, const CacheFormat& format) {
  std::string backend(model.backend().name());
  if (const std::string_view variant = model.backend().variant(); !variant.empty())
    backend += ", " + std::string(variant);
  return {.model = model.fingerprint(),
          .model_name = model.title(),
          .backend = std::move(backend),
          .cache = std::string(name(format.k)) + "/" + std::string(name(format.v))};
}

class Writer {
 public:
  explicit Writer(const std::filesystem::path& path) : out_(path) {}
  void bytes(std::span<const std::byte> data) {
    sum_.update(data);
    out_.write(data);
  }
  void text(std::string_view t) {
    number(static_cast<std::uint32_t>(t.size()));
    bytes(std::as_bytes(std::span(t)));
  }
  template <class T>
  void number(T value) {
    bytes(std::as_bytes(std::span(&value, 1)));
  }
  void finish() {
    const std::string digits = sum_.digest();
    out_.write(std::as_bytes(std::span(digits)));
    out_.put_in_place();
  }

 private:
  OutputFile out_;
  Sha256 sum_;
};

/// Reads what a correct checksum vouches for; still, nothing is read beyond the end.
class Reader {
 public:
  Reader(const std::filesystem::path& path, std::span<const std::byte> data) : path_(path), data_(data) {}
  std::span<const std::byte> bytes(std::uint64_t n) {
    if (n > data_.size() - at_) refuse(path_, "ends too early");
    at_ += n;
    return data_.subspan(at_ - n, n);
  }
  template <class T>
  T number() {
    T value;
    std::memcpy(&value, bytes(sizeof value).data(), sizeof value);
    return value;
  }
  std::string text() {
    const auto t = bytes(number<std::uint32_t>());
    return {reinterpret_cast<const char*>(t.data()), t.size()};
  }
  std::size_t offset() const { return at_; }
  std::size_t left() const { return data_.size() - at_; }

 private:
  const std::filesystem::path& path_;
  std::span<const std::byte> data_;
  std::size_t at_ = 0;
};

bool begins_with(std::span<const std::byte> bytes, std::string_view magic) {
  return bytes.size() >= magic.size() && std::memcmp(bytes.data(), magic.data(), magic.size()) == 0;
}
bool begins_as_state(std::span<const std::byte> bytes) {
  return begins_with(bytes, kMagic) || begins_with(bytes, kRecurrentMagic);
}

std::span<const std::byte> checked_content(const std::filesystem::path& path, std::span<const std::byte> all) {
  if (!begins_as_state(all)) refuse(path, "is no saved state of this version");
  if (all.size() < kMagic.size() + kSumDigits) refuse(path, "is damaged: it was cut");
  const auto content = all.first(all.size() - kSumDigits);
  Sha256 sum;
  sum.update(content);
  if (std::memcmp(sum.digest().data(), all.data() + content.size(), kSumDigits) != 0)
    refuse(path, "is damaged: its checksum is wrong");
  return content;
}

void require_owner(const std::filesystem::path& path, const Owner& made, const Owner& here) {
  const auto differs = [&](const std::string& what, const std::string& then, const std::string& now) {
    refuse(path, "holds the cache of " + what + " \"" + escaped(then) + "\", this is \"" + escaped(now) +
                     "\": name another file, or remove this one");
  };
  if (made.model != here.model && made.model_name == here.model_name)
    refuse(path, "holds the cache of another model by the name of " + escaped(here.model_name) +
                     ": name another file, or remove this one");
  if (made.model != here.model) differs("the model", made.model_name, here.model_name);
  if (made.backend != here.backend) differs("backend", made.backend, here.backend);
  if (made.cache != here.cache) differs("types", made.cache, here.cache);
}

std::size_t blocks_for(std::size_t tokens) {
  constexpr std::size_t kPositions = kBlockPositions;
  return (tokens + kPositions - 1) / kPositions;
}

/// Of the states of a sequence of `n` tokens.
std::vector<std::int64_t> read_lengths(const std::filesystem::path& path, Reader& in, std::uint64_t n) {
  std::vector<std::int64_t> lengths;
  const auto states = in.number<std::uint64_t>();
  if (states > n) refuse(path, "holds more states than tokens");
  for (std::uint64_t i = 0; i < states; ++i) {
    const auto length = in.number<std::uint64_t>();
    if (length == 0 || length > n || (i > 0 && static_cast<std::int64_t>(length) <= lengths.back()))
      refuse(path, "holds states in no order");
    lengths.push_back(static_cast<std::int64_t>(length));
  }
  return lengths;
}

void write_states(Writer& out, const Session& session, SequenceId sequence) {
  const std::vector<std::int64_t> remembered = session.remembered(sequence);
  out.number(static_cast<std::uint64_t>(remembered.size()));
  for (const std::int64_t length : remembered) out.number(static_cast<std::uint64_t>(length));
  std::vector<std::byte> state(session.bytes_per_state());
  for (std::size_t i = 0; i < remembered.size(); ++i) {
    session.read_state(sequence, i, state);
    out.bytes(state);
  }
}

}  // namespace

void require_state_or_nothing(const std::filesystem::path& path) {
  if (!is_there(path)) return;
  const MappedFile file = map(path);
  if (file.bytes().empty()) return;  // a file that was only made, as mktemp does
  if (!begins_as_state(file.bytes())) refuse(path, "is there already and is no saved state");
}

void save_state(const std::filesystem::path& path, Model& model, const Session& session, SequenceId sequence,
                std::span<const Token> tokens) {
  require_state_or_nothing(path);
  check(session.length(sequence) == static_cast<std::int64_t>(tokens.size()), "the tokens are those of the sequence");
  const Owner owner = owner_of(model, session.cache_format());
  const std::uint64_t block_bytes = session.cache_block_bytes(), bytes_per_state = session.bytes_per_state();
  Writer out(path);
  out.bytes(std::as_bytes(std::span(magic_of(session))));
  for (const std::string* t : {&owner.model, &owner.model_name, &owner.backend, &owner.cache}) out.text(*t);
  out.number(std::uint64_t{kBlockPositions});
  out.number(block_bytes);
  if (bytes_per_state > 0) out.number(bytes_per_state);
  out.number(static_cast<std::uint64_t>(tokens.size()));
  for (const Token t : tokens) out.number(static_cast<std::int32_t>(t));
  std::vector<std::byte> block(block_bytes);
  for (std::size_t i = 0; i < blocks_for(tokens.size()); ++i) {
    session.read_block(sequence, i, block);
    out.bytes(block);
  }
  if (bytes_per_state > 0) write_states(out, session, sequence);
  out.finish();
}

StateFile StateFile::open(const std::filesystem::path& path, Model& model, const CacheFormat& format) {
  StateFile state(path, map(path));
  Reader in(path, checked_content(path, state.file_.bytes()));
  const bool recurrent = begins_with(in.bytes(kMagic.size()), kRecurrentMagic);
  Owner made;
  for (std::string* t : {&made.model, &made.model_name, &made.backend, &made.cache}) *t = in.text();
  state.block_positions_ = in.number<std::uint64_t>();
  state.block_bytes_ = in.number<std::uint64_t>();
  if (recurrent) state.bytes_per_state_ = in.number<std::uint64_t>();
  require_owner(path, made, owner_of(model, format));
  const auto n = in.number<std::uint64_t>();
  if (n > in.left() / sizeof(std::int32_t)) refuse(path, "ends too early");
  for (std::uint64_t i = 0; i < n; ++i) {
    state.tokens_.push_back(in.number<std::int32_t>());
    const Token t = state.tokens_.back();
    if (t < 0 || t >= model.dims().vocab) refuse(path, "holds a token that the model does not have");
  }
  state.first_block_ = in.offset();
  if (recurrent) {
    (void)in.bytes(blocks_for(n) * state.block_bytes_);
    state.remembered_ = read_lengths(path, in, n);
    state.first_state_ = in.offset();
  }
  const std::uint64_t rest =
      recurrent ? state.remembered_.size() * state.bytes_per_state_ : blocks_for(n) * state.block_bytes_;
  if (in.left() != rest) refuse(path, "has not the size that its tokens ask for");
  return state;
}

void StateFile::restore(Session& session, SequenceId sequence, std::int64_t n) const {
  check(n >= 0 && n <= static_cast<std::int64_t>(tokens_.size()), "as many tokens as the file has");
  if (n == 0) return;
  const std::size_t bytes = session.cache_block_bytes(), state = session.bytes_per_state();
  if (block_positions_ != kBlockPositions || block_bytes_ != bytes || bytes_per_state_ != state)
    refuse(path_, "was written by another version of this program: remove it");
  session.restore(sequence,
                  {.tokens = tokens().first(static_cast<std::size_t>(n)),
                   .block = [&](std::size_t i) { return file_.bytes().subspan(first_block_ + i * bytes, bytes); },
                   .remembered = remembered_,
                   .state = [&](std::size_t i) { return file_.bytes().subspan(first_state_ + i * state, state); }});
}

}  // namespace llm
