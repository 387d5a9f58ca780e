// Ctrl-C and termination. While nothing has been printed that could be cut, a signal ends the program at once; while an
// answer streams, it asks for a stop after the current token. A second one ends at once, except in a chat. What ends at
// once leaves no file behind that is not whole.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace llm::app {

enum class OnSignal : std::uint8_t {
  ExitAtOnce,
  AskToStop,  ///< and end at once if it was asked before
  AskAgain,   ///< and if it was asked by Ctrl-C before, that is all: whoever taps twice wants the answer to end
};

void install_signal_handlers();
/// A mapped file that is cut or whose disk fails while it is in use raises SIGBUS: one line that names it and exit code
/// 8 then.
void report_lost_files();
void on_signal(OnSignal);
/// This goes to stderr, as it is, when a signal ends the program at once from now on; empty: nothing.
void set_last_words(const std::string& line);
/// The same where a signal asks for a stop: for work that does not stop at once. Said once, then forgotten.
void set_stop_words(const std::string& line);
const std::atomic<bool>& stop_requested();
/// Forgets a Ctrl-C that asked for a stop, once its work has stopped; other signals stay. True if there was one.
bool forget_interrupt();
/// What set_stop_words() takes while a prompt is read, step by step.
inline constexpr const char* kStopsBehindStep = "stopping, when the step that is computed has ended";
/// 128 + the signal's number: 130, 143, 129; 0 if none came.
int signal_exit_code();
inline constexpr int kInterrupted = 130;  ///< signal_exit_code() of Ctrl-C

}  // namespace llm::app
