// References between documents, as RFC 3986 has them.
#pragma once

#include <string>
#include <string_view>

namespace llm {

/// What `reference` means where `base`, an absolute URI, is the document around it (RFC 3986, section 5.2). Spellings
/// of one URI that differ by case or by escapes stay different.
std::string resolved_uri(std::string_view base, std::string_view reference);

}  // namespace llm
