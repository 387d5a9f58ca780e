// The files of a run: one list of all that it reads and writes. What would be overwritten while it is read, or by two
// options, is refused before anything is opened. Options declare theirs when they are parsed; what follows from them
// (the state of a batch, the cache of a chat) is added by whoever knows it.
#pragma once

#include <string>

namespace llm::app {

/// `by` says who reads it: an option, most often. With it go the other files of a model's set, and the models in a
/// folder; "-" is stdin, which can be read by one alone. Throws ErrorKind::Usage if the run writes the file.
void will_read(const std::string& by, const std::string& path);

/// Throws ErrorKind::Usage if the run reads the file, or somebody else writes it. "-" and the empty name are none.
void will_write(const std::string& by, const std::string& path);

/// From here on the file may be replaced.
void was_read(const std::string& path);

}  // namespace llm::app
