// The key/value section of a GGUF file: typed, checked access; strings and arrays stay views of the mapped file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace llm {

/// Value types by their ids in the file.
enum class GgufType : std::uint32_t {
  U8 = 0,
  I8 = 1,
  U16 = 2,
  I16 = 3,
  U32 = 4,
  I32 = 5,
  F32 = 6,
  Bool = 7,
  String = 8,
  Array = 9,
  U64 = 10,
  I64 = 11,
  F64 = 12,
};
std::string_view name(GgufType);
/// Bytes of one value; 0 for a string or an array.
std::size_t value_bytes(GgufType);

/// What somebody says about a model in place of its file.
struct KeyOverride {
  std::string key;
  std::variant<std::int64_t, double, bool, std::string> value;
  std::string origin;  ///< who says so, for messages: "--override-kv"
};
/// "llama.context_length=int:4096", as --override-kv takes it.
std::string to_string(const KeyOverride&);

class Metadata {
 public:
  struct Entry {
    std::string_view key;
    GgufType type;
    GgufType element;      ///< of an Array; else equal to type
    std::uint64_t count;   ///< elements of an Array; else 1
    std::uint64_t offset;  ///< of the value in the file (of the count, for an Array)
    std::span<const std::byte>
        raw;  ///< payload in the file's byte order; a string's without its length, an array's of strings with
    std::vector<std::string_view> strings;  ///< elements of an Array of strings
    struct Replacement;
    std::shared_ptr<const Replacement> by = {};  ///< whose value it is, where it is not the file's
  };

  std::span<const Entry> entries() const { return entries_; }
  const Entry* find(std::string_view key) const;
  bool has(std::string_view key) const { return find(key) != nullptr; }

  /// One value. T: bool, an integer (any integer type of the file, if the value fits), float or double (F32 or F64),
  /// std::string_view. Throws ErrorKind::Model: missing key, other type, value out of T's range.
  template <class T>
  T get(std::string_view key) const;
  /// The same, with a value to use if the key is absent; a key that is there with a wrong type still throws.
  template <class T>
  T get_or(std::string_view key, T fallback) const {
    return has(key) ? get<T>(key) : fallback;
  }
  /// All elements of an array. T: bool, integers (exact or lossless widening of the element type), float,
  /// std::string_view.
  template <class T>
  std::vector<T> array(std::string_view key) const;
  /// One value, or an array with exactly `count` of them: how per-layer hyper-parameters are stored.
  template <class T>
  std::vector<T> one_or_each(std::string_view key, std::size_t count) const;

  /// From here on the key has this value. A number keeps the type that the file has it in; a key that the file lacks is
  /// added. Throws ErrorKind::Usage naming origin and key: its value is of another kind, or does not fit its type.
  void replace(const KeyOverride&);
  /// Those that replace() was given, the last of each key.
  std::vector<KeyOverride> overrides() const;
  /// Of them those that nobody has looked up so far.
  std::vector<KeyOverride> unread_overrides() const;

  /// Throws ErrorKind::Model for `key`: names the file, the value's offset (of the section's start if the key is
  /// missing). A value that is not the file's is ErrorKind::Usage, and its origin is named.
  [[noreturn]] void fail(std::string_view key, std::string problem) const;

  const std::string& file() const { return file_; }

 private:
  friend class GgufFile;
  friend class GgufReader;
  friend class GgufWriter;
  template <class T>
  T value_of(const Entry&) const;
  const Entry& require(std::string_view key) const;

  std::string file_;
  bool swap_bytes_ = false;
  std::uint64_t section_offset_ = 0x18;
  std::vector<Entry> entries_;  ///< in the file's order
  std::vector<std::uint32_t>
      order_;  ///< indices into entries_, sorted by key: no hash that a file could be made to collide
};

}  // namespace llm
