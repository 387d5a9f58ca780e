// Where text whose spaces are U+2581 can be cut without changing its tokens: before a U+2581 that no token joins to
// what stands before it. No merge and no token goes across such a place, so that chunks encode alone to what they would
// be in the whole text.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>

#include "text/vocabulary.h"

namespace llm {

class SpaceCuts {
 public:
  /// A token that text can become.
  void add_token(std::string_view text) {
    for (std::size_t at = text.find(kEscapedSpace, 1); at != std::string_view::npos;
         at = text.find(kEscapedSpace, at + 1)) {
      joined_[static_cast<std::uint8_t>(text[at - 1])] = true;
    }
  }

  /// The end of the chunk that begins at `begin`.
  std::size_t chunk_end(std::string_view text, std::size_t begin) const {
    std::size_t at = text.find(kEscapedSpace, begin + 1);
    while (at != std::string_view::npos && joined_[static_cast<std::uint8_t>(text[at - 1])]) {
      at = text.find(kEscapedSpace, at + 1);
    }
    return std::min(at, text.size());
  }

 private:
  std::array<bool, 256> joined_{};  ///< some token has this byte just before a U+2581
};

}  // namespace llm
