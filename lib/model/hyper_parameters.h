// Numbers under "<architecture>." of a file's metadata, each read by a rule that says which values are possible.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gguf/metadata.h"

namespace llm {

/// Any integer type of the file, value in [min, max].
struct IntegerRule {
  std::string_view key;  ///< without "<architecture>."
  std::int64_t min, max;
};

/// F32 or F64, finite, value above `above` and below `below`.
struct RealRule {
  std::string_view key;
  double above, below;
};
inline constexpr double kUnbounded = std::numeric_limits<double>::infinity();  ///< for `below`

/// Every function throws ErrorKind::Model naming the key: a required one is missing, its type is another, its value is
/// impossible.
class HyperParameters {
 public:
  HyperParameters(const Metadata& metadata, std::string_view arch) : metadata_(metadata), arch_(arch) {}

  std::string key(std::string_view suffix) const { return arch_ + "." + std::string(suffix); }
  bool has(std::string_view suffix) const { return metadata_.has(key(suffix)); }

  std::int64_t integer(const IntegerRule&) const;
  std::optional<std::int64_t> optional_integer(const IntegerRule&) const;
  /// One value, or an array of `layers` equal ones: layers that differ are not supported.
  std::int64_t same_in_all(const IntegerRule&, int layers) const;
  std::optional<std::int64_t> optional_same_in_all(const IntegerRule&, int layers) const;
  /// One value for all `layers`, or an array of them.
  std::vector<std::int64_t> in_each(const IntegerRule&, int layers) const;
  float real(const RealRule&) const;
  std::optional<float> optional_real(const RealRule&) const;
  /// The same where 0 says, too, that there is none: some writers list every key.
  std::optional<float> nonzero_real(const RealRule&) const;
  std::string text(std::string_view suffix, std::string_view fallback) const;
  bool flag(std::string_view suffix, bool fallback) const;
  /// Nothing if the key is absent or is no array; one for each of `layers`, which is what an array must have.
  std::optional<std::vector<bool>> optional_flags(std::string_view suffix, int layers) const;
  /// Fails unless the key is absent or its number (a bool counts as 0 or 1) is one of two that change nothing.
  void expect_neutral(std::string_view suffix, double neutral, double also_neutral) const;

  [[noreturn]] void fail(std::string_view suffix, std::string problem) const { metadata_.fail(key(suffix), problem); }
  const Metadata& metadata() const { return metadata_; }
  const std::string& arch() const { return arch_; }

 private:
  void check_range(const IntegerRule&, std::int64_t value) const;
  const Metadata& metadata_;
  std::string arch_;
};

/// "0.0001", "nan": for messages.
std::string value_text(double);

}  // namespace llm
