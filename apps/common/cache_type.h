// Options that choose the number format of cached keys or values.
#pragma once

#include <string>

#include "common/command.h"
#include "tensor/dtype.h"

namespace llm::app {

/// --cache-type-k, --cache-type-v (-ctk, -ctv are the programs' aliases): those of kCacheTypes, by their names
/// in lower case. They throw ErrorKind::Usage for another one.
void add_cache_types(Command&, DType& keys, DType& values);

}  // namespace llm::app
