// decode_stream TYPE: raw blocks of TYPE on stdin, their elements as f32 on stdout.
#include <cstdio>
#include <vector>

#include "tensor/decode.h"

int main(int argc, char** argv) {
  const auto type = argc == 2 ? llm::dtype_from_name(argv[1]) : std::nullopt;
  if (!type) {
    std::fprintf(stderr, "usage: decode_stream TYPE < blocks > floats\n");
    return 2;
  }
  constexpr std::size_t kBlocks = 4096;
  const llm::DTypeInfo& t = llm::info(*type);
  std::vector<std::byte> blocks(kBlocks * t.block_bytes);
  std::vector<float> values(kBlocks * t.block_elems);
  while (const std::size_t n = std::fread(blocks.data(), t.block_bytes, kBlocks, stdin)) {
    const std::size_t elems = n * t.block_elems;
    llm::decode(*type, blocks.data(), values.data(), static_cast<std::int64_t>(elems));
    if (std::fwrite(values.data(), sizeof(float), elems, stdout) != elems) return 8;
  }
  return std::fflush(stdout) == 0 ? 0 : 8;
}
