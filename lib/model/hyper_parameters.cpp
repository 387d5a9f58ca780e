#include "model/hyper_parameters.h"

#include <cmath>
#include <cstddef>
#include <cstdio>
#include <vector>

#include "base/error.h"

namespace llm {

std::string value_text(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", value);
  return text;
}

void HyperParameters::check_range(const IntegerRule& rule, std::int64_t value) const {
  if (value < rule.min || value > rule.max)
    fail(rule.key, "value " + std::to_string(value) + " is outside of " + std::to_string(rule.min) + " to " +
                       std::to_string(rule.max));
}

std::int64_t HyperParameters::integer(const IntegerRule& rule) const {
  const auto value = metadata_.get<std::int64_t>(key(rule.key));
  check_range(rule, value);
  return value;
}

std::optional<std::int64_t> HyperParameters::optional_integer(const IntegerRule& rule) const {
  if (!has(rule.key)) return std::nullopt;
  return integer(rule);
}

std::vector<std::int64_t> HyperParameters::in_each(const IntegerRule& rule, int layers) const {
  auto values = metadata_.one_or_each<std::int64_t>(key(rule.key), static_cast<std::size_t>(layers));
  for (const std::int64_t value : values) check_range(rule, value);
  return values;
}

std::int64_t HyperParameters::same_in_all(const IntegerRule& rule, int layers) const {
  const auto values = in_each(rule, layers);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i] != values[0])
      fail(rule.key, "is " + std::to_string(values[0]) + " in layer 0 and " + std::to_string(values[i]) + " in layer " +
                         std::to_string(i) + ": layers that differ are not supported for this architecture");
  }
  return values[0];
}

std::optional<std::int64_t> HyperParameters::optional_same_in_all(const IntegerRule& rule, int layers) const {
  if (!has(rule.key)) return std::nullopt;
  return same_in_all(rule, layers);
}

float HyperParameters::real(const RealRule& rule) const {
  const auto value = metadata_.get<float>(key(rule.key));
  if (!std::isfinite(value) || value <= rule.above || value >= rule.below) {
    const bool bounded = std::isfinite(rule.below);
    fail(rule.key, "value " + value_text(value) + " is not a finite number above " + value_text(rule.above) +
                       (bounded ? " and below " + value_text(rule.below) : ""));
  }
  return value;
}

std::optional<float> HyperParameters::optional_real(const RealRule& rule) const {
  if (!has(rule.key)) return std::nullopt;
  return real(rule);
}

std::optional<float> HyperParameters::nonzero_real(const RealRule& rule) const {
  if (!has(rule.key) || metadata_.get<float>(key(rule.key)) == 0) return std::nullopt;
  return real(rule);
}

std::string HyperParameters::text(std::string_view suffix, std::string_view fallback) const {
  return std::string(metadata_.get_or<std::string_view>(key(suffix), fallback));
}

bool HyperParameters::flag(std::string_view suffix, bool fallback) const {
  return metadata_.get_or<bool>(key(suffix), fallback);
}

std::optional<std::vector<bool>> HyperParameters::optional_flags(std::string_view suffix, int layers) const {
  const Metadata::Entry* entry = metadata_.find(key(suffix));
  if (!entry || entry->type != GgufType::Array) return std::nullopt;
  if (entry->count != static_cast<std::uint64_t>(layers))
    fail(suffix, "has " + std::to_string(entry->count) + " elements for " + std::to_string(layers) + " layers");
  if (entry->element == GgufType::Bool) return metadata_.array<bool>(entry->key);
  std::vector<bool> flags;
  for (const std::int64_t value : metadata_.array<std::int64_t>(entry->key)) {
    check_range({suffix, 0, 1}, value);
    flags.push_back(value != 0);
  }
  return flags;
}

void HyperParameters::expect_neutral(std::string_view suffix, double neutral, double also_neutral) const {
  const Metadata::Entry* entry = metadata_.find(key(suffix));
  if (!entry) return;
  double value = 0;
  switch (entry->type) {
    case GgufType::Bool:
      value = metadata_.get<bool>(entry->key) ? 1 : 0;
      break;
    case GgufType::F32:
    case GgufType::F64:
      value = metadata_.get<double>(entry->key);
      break;
    case GgufType::Array:
    case GgufType::String:
      fail(suffix, "changes what the model computes and is not supported for " + arch_);
    default:
      value = static_cast<double>(metadata_.get<std::int64_t>(entry->key));
  }
  if (value != neutral && value != also_neutral)
    fail(suffix, "value " + value_text(value) + " changes what the model computes and is not supported for " + arch_);
}

}  // namespace llm
