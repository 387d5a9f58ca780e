// Handlers do only what is allowed inside one: lock-free atomics, write, _exit.
#include "common/signals.h"

#include <signal.h>
#include <unistd.h>

namespace llm::app {
namespace {

std::atomic<bool> g_stop{false};
std::atomic<bool> g_ask{false};
std::atomic<int> g_signal{0};
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<int>::is_always_lock_free);

void handle(int signal) {
  if (!g_ask.load() || g_stop.load()) ::_exit(128 + signal);
  g_signal.store(signal);
  g_stop.store(true);
}

}  // namespace

void install_signal_handlers() {
  struct sigaction action {};
  action.sa_handler = handle;
  action.sa_flags = SA_RESTART;
  ::sigemptyset(&action.sa_mask);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction before {};
    ::sigaction(signal, nullptr, &before);
    if (before.sa_handler != SIG_IGN) ::sigaction(signal, &action, nullptr);  // nohup, and jobs in the background
  }
}

void on_signal(OnSignal what) { g_ask.store(what == OnSignal::AskToStop); }
const std::atomic<bool>& stop_requested() { return g_stop; }
int signal_exit_code() { return g_signal.load() == 0 ? 0 : 128 + g_signal.load(); }

}  // namespace llm::app
