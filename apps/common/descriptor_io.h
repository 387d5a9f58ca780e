// Reads and writes of descriptors that the program was given. Others may use them, too, and may have made them not
// block: then these wait.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <span>
#include <string_view>

namespace llm::app {

/// Writes all of `bytes`. Returns 0, or the system's number of what went wrong.
int write_all(int fd, std::string_view bytes);
/// A signal may be delivered to any thread and then interrupts no wait of another: how long it may go unseen.
inline constexpr int kSignalDelayMs = 200;
/// Waits until there is something to read, or the end, or `stop`: false.
bool wait_for_input(int fd, const std::atomic<bool>& stop);
/// Reads what is there, one byte at least: how many; 0 at the end; -1 with the reason in errno.
ssize_t read_some(int fd, std::span<char> to);

}  // namespace llm::app
