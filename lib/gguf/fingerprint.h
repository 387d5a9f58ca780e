// Which model a file holds, for what is kept beside it: a cache, a batch that was stopped.
#pragma once

#include <string>

#include "gguf/file.h"

namespace llm {

/// 64 hexadecimal digits that differ for models with other headers, overrides, sizes or weights. Of each tensor two
/// pieces of a page are looked at, so that it takes milliseconds: two trainings of one model are told apart, a change
/// of a single weight may not be.
std::string fingerprint(const GgufFile&);

}  // namespace llm
