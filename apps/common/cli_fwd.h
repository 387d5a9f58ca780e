// Names of CLI11 for headers: its own are long, and only the files that declare or read options need them.
#pragma once

namespace CLI {
class App;
class Option;
}  // namespace CLI
