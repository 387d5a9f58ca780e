// A run as events for other programs: a JSON object per line, in a file or a descriptor of the caller's. Nothing of it
// is for people, and nothing that happens to its reader changes the run.
//
// Each has "event", "t" (seconds since the program's start) and its own fields; docs/cli.md lists them.
#pragma once

#include <chrono>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/error.h"

namespace llm::app {

using EventFields = nlohmann::ordered_json;

/// "FILE" or "fd:N". Throws ErrorKind::Usage for a descriptor that is not open, ErrorKind::Io for a file.
void open_events(const std::string& where);
bool events_wanted();
/// Does nothing if no events are wanted.
void emit_event(std::string_view event, EventFields fields);
void emit_error(const Error&);

/// For what happens often: true at most twice a second, and for the first and the last time.
class EventPace {
 public:
  bool due(bool is_last);

 private:
  Clock::time_point last_{};
};

}  // namespace llm::app
