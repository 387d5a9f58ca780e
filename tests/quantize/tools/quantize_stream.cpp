// quantize_stream TYPE COLUMNS [weighted]: rows of COLUMNS f32 on stdin (with `weighted`, the first row is the
// importance), blocks on stdout, and on stderr the seconds of
// processor time that quantising took, the best of three.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <vector>

#include "base/error.h"
#include "quantize/quantize.h"

int main(int argc, char** argv) {
  const auto type = argc >= 3 ? llm::dtype_from_name(argv[1]) : std::nullopt;
  if (!type) {
    std::fprintf(stderr, "usage: quantize_stream TYPE COLUMNS [weighted] < floats > blocks\n");
    return 2;
  }
  const std::int64_t n = std::atoll(argv[2]);
  const bool weighted = argc > 3 && std::strcmp(argv[3], "weighted") == 0;
  std::vector<float> x, part(1 << 20);
  while (const std::size_t got = std::fread(part.data(), sizeof(float), part.size(), stdin)) {
    x.insert(x.end(), part.begin(), part.begin() + static_cast<std::ptrdiff_t>(got));
  }
  const float* importance = weighted ? x.data() : nullptr;
  const float* rows = x.data() + (weighted ? n : 0);
  const std::int64_t n_rows = static_cast<std::int64_t>(x.size()) / n - (weighted ? 1 : 0);
  const llm::DTypeInfo& t = llm::info(*type);
  std::vector<std::byte> blocks(static_cast<std::size_t>(n_rows * n / t.block_elems * t.block_bytes));
  try {
    double fastest = 1e9;
    for (int k = 0; k < 3; ++k) {
      const std::clock_t began = std::clock();
      llm::quantize(*type, rows, blocks.data(), n_rows, n, importance);
      fastest = std::min(fastest, static_cast<double>(std::clock() - began) / CLOCKS_PER_SEC);
    }
    std::fprintf(stderr, "%.9f\n", fastest);
  } catch (const llm::Error& e) {
    std::fprintf(stderr, "quantize_stream: %s\n", e.what());
    return static_cast<int>(e.kind());
  }
  return std::fwrite(blocks.data(), 1, blocks.size(), stdout) == blocks.size() ? 0 : 8;
}
