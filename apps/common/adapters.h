// --lora and --lora-scaled: which adapters change the model.
#pragma once

#include <string>
#include <vector>

#include "common/command.h"
#include "model/lora.h"

namespace llm::app {

struct Adapters {
  std::vector<AdapterFile> plain, scaled;  ///< by the two options
  std::vector<AdapterFile> all() const;
};

void add_adapter_options(Command&, Adapters&);

/// The adapters of "FILE,FILE:SCALE,..." A name with commas or colons means the file by that name, if there is one.
/// Throws ErrorKind::Usage for what can be no scale.
std::vector<AdapterFile> parse_adapters(const std::string& text);
/// Of "FILE:SCALE,...": every one has a scale, behind its last colon.
std::vector<AdapterFile> parse_scaled_adapters(const std::string& text);

/// Throws ErrorKind::Model naming the first that is not there.
void require_adapters(const std::vector<AdapterFile>&);

}  // namespace llm::app
