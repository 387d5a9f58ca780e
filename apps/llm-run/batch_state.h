// OUT.state: what a batch was asked for and how far it came, as JSON. The results hold rows only.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "batch_request.h"
#include "runtime/model.h"

namespace llm::app {

struct BatchState {
  Json options;            ///< everything that shapes an answer, by the options' names
  std::uint64_t seed = 0;  ///< of rows without their own
  std::int64_t time = 0;   ///< that templates read, in seconds since 1970; 0: nobody kept it
  Json model;              ///< which file
  std::size_t rows = 0, answered = 0, failed = 0;
  std::map<std::string, std::string> digests;  ///< of the rows, by id
  std::string status;                          ///< running, finished, interrupted, failed
};

/// Enough of it to tell texts apart that somebody has changed.
std::string digest_of(std::string_view text);

/// Names, size and fingerprint: other files by the same names are told apart.
Json describe_model(const Model&);
/// Its name there.
std::string model_name(const Model&);
/// Whether these describe the same weights with the same changes, whatever their files are called.
bool is_same_model(Json then, Json today);

std::string state_path(const std::string& results);
/// Nothing if there is no such file. Throws ErrorKind::Usage if it is no state of a batch.
std::optional<BatchState> read_state(const std::string& path);
/// The process that wrote it last, if that is still there.
std::optional<int> writer_of(const std::string& path);
/// Takes the old one's place in one step, also if the power fails. Throws ErrorKind::Io.
void write_state(const std::string& path, const BatchState&);
/// Throws ErrorKind::Usage naming what was asked for otherwise in the run that is to go on.
void require_same_run(const std::string& path, const BatchState& before, const BatchState& now);

}  // namespace llm::app
