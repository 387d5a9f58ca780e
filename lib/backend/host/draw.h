// The meaning of a DrawRule, in double precision: what backends that draw are tested against.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "backend/draw.h"

namespace llm::host {

/// A token of the row `logits`, of which the first n_tokens count; `newest` is what the row rule.newest of the step
/// before drew. Nothing if one of the logits is not finite.
std::optional<std::int32_t> draw(const DrawRule&, std::span<const float> logits, std::int32_t newest);

}  // namespace llm::host
