// Reads and writes of descriptors that the program was given. Others may use them, too, and may have made them not
// block: then these wait.
#pragma once

#include <sys/types.h>

#include <span>
#include <string_view>

namespace llm::app {

/// Writes all of `bytes`. Returns 0, or the system's number of what went wrong.
int write_all(int fd, std::string_view bytes);
/// Reads what is there, one byte at least: how many; 0 at the end; -1 with the reason in errno.
ssize_t read_some(int fd, std::span<char> to);

}  // namespace llm::app
