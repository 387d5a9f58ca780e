// A program on a pseudo-terminal: what a person at a keyboard sees and types.
#pragma once

#include <poll.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "support/process.h"

namespace llm::test {

class Terminal {
 public:
  explicit Terminal(const Command& c) : limit_(c.limit) {
    winsize size{.ws_row = 40, .ws_col = 120, .ws_xpixel = 0, .ws_ypixel = 0};
    std::vector<std::string> words{c.program.string()};
    words.insert(words.end(), c.arguments.begin(), c.arguments.end());
    std::vector<char*> argv;
    for (std::string& w : words) argv.push_back(w.data());
    argv.push_back(nullptr);
    pid_ = ::forkpty(&fd_, nullptr, nullptr, &size);
    if (pid_ < 0) throw std::runtime_error("no pseudo-terminal");
    if (pid_ > 0) return;
    ::setenv("TERM", "xterm", 1);
    ::setenv("LC_ALL", "C.UTF-8", 1);
    ::unsetenv("NO_COLOR");
    for (const auto& [name, value] : c.environment) ::setenv(name.c_str(), value.c_str(), 1);
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;
  ~Terminal() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
    ::close(fd_);
  }

  void type(std::string_view keys) {
    while (!keys.empty()) {
      const ssize_t n = ::write(fd_, keys.data(), keys.size());
      if (n < 0) throw std::runtime_error("the terminal is closed");
      keys.remove_prefix(static_cast<std::size_t>(n));
    }
  }
  void send(int signal) const { ::kill(pid_, signal); }
  /// Stops the program as Ctrl-Z does, and sets the terminal as a shell would for itself.
  void suspend() const {
    int status = 0;
    ::kill(pid_, SIGSTOP);
    ::waitpid(pid_, &status, WUNTRACED);
    termios state{};
    ::tcgetattr(fd_, &state);
    state.c_lflag |= ICANON | ECHO | ISIG;
    ::tcsetattr(fd_, TCSANOW, &state);
  }
  void resume() const { ::kill(pid_, SIGCONT); }
  void resize(int columns) const {
    const winsize size{.ws_row = 40, .ws_col = static_cast<unsigned short>(columns), .ws_xpixel = 0, .ws_ypixel = 0};
    ::ioctl(fd_, TIOCSWINSZ, &size);  // the program gets SIGWINCH
  }

  /// Everything since the last call, up to and with this text.
  std::string until(std::string_view text) {
    const auto deadline = std::chrono::steady_clock::now() + limit_;
    for (;;) {
      if (const std::size_t at = unread_.find(text); at != std::string::npos) {
        const std::string seen = unread_.substr(0, at + text.size());
        unread_.erase(0, at + text.size());
        return seen;
      }
      if (!read(deadline)) throw std::runtime_error("\"" + std::string(text) + "\" did not come; there is: " + unread_);
    }
  }

  /// Echo and whole lines, as a shell expects the terminal back.
  bool is_cooked() const {
    termios state{};
    return ::tcgetattr(fd_, &state) == 0 && (state.c_lflag & ECHO) != 0 && (state.c_lflag & ICANON) != 0;
  }

  /// Waits for the end: the exit code, 128 + signal if one ended it.
  int end() {
    const auto deadline = std::chrono::steady_clock::now() + limit_;
    while (read(deadline)) {
    }
    if (std::chrono::steady_clock::now() >= deadline) throw std::runtime_error("no end; there is: " + unread_);
    int status = 0;
    while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  const std::string& rest() const { return unread_; }

 private:
  /// False at the end, or when the time is up.
  bool read(std::chrono::steady_clock::time_point deadline) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    pollfd waiting{fd_, POLLIN, 0};
    if (left.count() <= 0 || ::poll(&waiting, 1, static_cast<int>(left.count())) <= 0) return false;
    char bytes[4096];
    const ssize_t n = ::read(fd_, bytes, sizeof bytes);
    if (n <= 0) return false;  // EIO: the other side is closed
    unread_.append(bytes, static_cast<std::size_t>(n));
    return true;
  }

  int fd_ = -1;
  pid_t pid_ = -1;
  std::chrono::seconds limit_;
  std::string unread_;
};

}  // namespace llm::test
