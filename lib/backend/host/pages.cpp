// Anonymous memory by mmap: address space first, memory as it is touched.
#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "backend/host/host.h"
#include "base/error.h"

namespace llm::host {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

[[noreturn]] void no_memory(std::size_t bytes, int error) {
  throw Error(ErrorKind::Memory,
              "cannot reserve " + std::to_string(bytes) + " bytes of address space: " + std::strerror(error));
}

std::byte* map(std::size_t bytes) {
  void* p = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, /*fd=*/-1,
                   /*offset=*/0);
  if (p == MAP_FAILED) no_memory(bytes, errno);
  return static_cast<std::byte*>(p);
}

/// Starts at a huge page's boundary, so that the kernel can back all of it with huge pages.
std::byte* map_huge(std::size_t bytes) {
  if (bytes > ~std::size_t{0} - kHugePage) no_memory(bytes, ENOMEM);
  std::byte* const raw = map(bytes + kHugePage);
  const std::size_t head = (kHugePage - reinterpret_cast<std::uintptr_t>(raw) % kHugePage) % kHugePage;
  std::byte* const data = raw + head;
  if (head > 0) ::munmap(raw, head);
  ::munmap(data + bytes, kHugePage - head);
  ::madvise(data, bytes, MADV_HUGEPAGE);  // advice only: a kernel without huge pages works as well
  return data;
}

}  // namespace

Pages::Pages(std::size_t bytes, PageUse use) {
  if (bytes == 0) return;
  if (bytes > ~std::size_t{0} - kHugePage) no_memory(bytes, ENOMEM);
  const std::size_t page = 4096;
  const std::size_t rounded = (bytes + page - 1) / page * page;
  data_ = use == PageUse::Dense && rounded >= 2 * kHugePage ? map_huge(rounded) : map(rounded);
  mapped_ = rounded;
  bytes_ = bytes;
}

Pages::Pages(Pages&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      mapped_(std::exchange(other.mapped_, 0)) {}

Pages& Pages::operator=(Pages&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(mapped_, other.mapped_);
  return *this;
}

Pages::~Pages() {
  if (data_ != nullptr) ::munmap(data_, mapped_);
}

}  // namespace llm::host
