// 185 model files, four fifths of them broken in one exact way, each with how a run of it must end.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "raw_gguf.h"

namespace llm::test {

/// The part of the program that must notice.
enum class Layer {
  Gguf,   ///< opening the file
  Model,  ///< hyper-parameters, tensors, weight values at load
  Text,   ///< the vocabulary
  Run,    ///< the first tokens
};

enum class Outcome {
  Accepted,  ///< exit 0, no warning
  Warned,    ///< exit 0, exactly one warning line
  Refused,   ///< exit 3, one error line
  Template,  ///< exit 6, one error line, in a run that uses the chat template
  Numeric,   ///< exit 11, one error line
  Bounded,   ///< exit 0 with at most one warning, 3, or 4; quickly and in little memory
};

struct MalformedFile {
  std::string id;            ///< e.g. "B22"
  std::string construction;  ///< the recipe in words
  Layer layer;
  Outcome outcome;
  std::string must_contain;  ///< a word of the error or warning; empty: any
  std::function<Bytes()> build;
  std::string file_name;  ///< empty: id + ".gguf"

  std::string name() const { return file_name.empty() ? id + ".gguf" : file_name; }
};

/// All of them, in the order of their ids.
std::vector<MalformedFile> malformed_files();

// By group; malformed_files() joins them.
std::vector<MalformedFile> control_files();
std::vector<MalformedFile> header_files();
std::vector<MalformedFile> metadata_files();
std::vector<MalformedFile> directory_files();
std::vector<MalformedFile> hyper_parameter_files();
std::vector<MalformedFile> tokenizer_files();
std::vector<MalformedFile> weight_files();
std::vector<MalformedFile> template_files();
std::vector<MalformedFile> split_files();

/// Writes an unsigned number of 8 or 4 bytes over what is there.
void patch(Bytes& file, std::size_t at, std::uint64_t value);
void patch32(Bytes& file, std::size_t at, std::uint32_t value);
/// A base file after one change.
Bytes changed(RawGguf base, const std::function<void(RawGguf&)>& change);

}  // namespace llm::test
