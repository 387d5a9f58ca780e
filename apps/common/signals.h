// Ctrl-C and termination. While nothing has been printed that could be cut, a signal ends the program at once; while an
// answer streams, it asks for a stop after the current token. A second one always ends at once.
#pragma once

#include <atomic>
#include <cstdint>

namespace llm::app {

enum class OnSignal : std::uint8_t { ExitAtOnce, AskToStop };

void install_signal_handlers();
/// A mapped file that is cut or whose disk fails while it is in use raises SIGBUS: one line and exit code 8 then.
void report_lost_files();
void on_signal(OnSignal);
const std::atomic<bool>& stop_requested();
/// 128 + the signal's number: 130, 143, 129; 0 if none came.
int signal_exit_code();

}  // namespace llm::app
