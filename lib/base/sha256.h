// SHA-256 (FIPS 180-4), by the system's cryptographic library.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace llm {

class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;
  void update(std::span<const std::byte>);
  /// Of all that was given, as 64 lower-case hexadecimal digits. Ends it.
  std::string digest();

 private:
  void* context_;
};

}  // namespace llm
