// Which file is meant by what is said of a model: a file, a folder with one model, a name on Hugging Face's hub.
#pragma once

#include <functional>
#include <string>

#include "common/command.h"

namespace llm::app {

struct ModelPlace {
  std::string path;      ///< -m: a file or a folder
  std::string hub_name;  ///< -hf: USER/REPO[:QUANT]
  std::string hub_file;  ///< -hff: of that repository
  /// Whether there has to be one, asked when the command line is parsed.
  std::function<bool()> needed = [] { return true; };
};

/// -m, -hf, -hff, --offline. When the command line is parsed, `path` becomes the file that is meant. Throws
/// ErrorKind::Usage if there is no model and no command that needs none, or two of them.
void add_model_place_options(Command&, ModelPlace&);

/// The path itself, or the model's file in the folder that it names. Throws ErrorKind::Model if there is none in it,
/// ErrorKind::Usage if there are several, naming them.
std::string model_file(const std::string& path);

}  // namespace llm::app
