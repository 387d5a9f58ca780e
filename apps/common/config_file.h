// A configuration file: TOML, a key for each option and no tables.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace llm::app {

struct ConfigEntry {
  std::size_t line = 0;
  std::string key;
  std::vector<std::string> values;  ///< texts as on a command line; several of an array
};

/// In the order of the lines. Throws ErrorKind::Usage with file and line.
std::vector<ConfigEntry> read_config_file(const std::string& path);

}  // namespace llm::app
