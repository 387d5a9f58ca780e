#include "runtime/logit_scan.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

namespace llm {
namespace {

using F32x4 = float __attribute__((vector_size(16)));
using I32x4 = std::int32_t __attribute__((vector_size(16)));
using F64x4 = double __attribute__((vector_size(32)));

constexpr std::size_t kLanes = 4;
constexpr std::size_t kBlock = 64;  ///< logits compared at once: of most blocks none passes

F32x4 load(const float* p) {
  F32x4 v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

F32x4 splat(float x) { return F32x4{x, x, x, x}; }

F32x4 larger(F32x4 a, F32x4 b) { return a > b ? a : b; }

float largest_of_block(const float* p) {
  F32x4 a = load(p), b = load(p + kLanes);
  for (std::size_t i = 2 * kLanes; i < kBlock; i += 2 * kLanes) {
    a = larger(a, load(p + i));
    b = larger(b, load(p + i + kLanes));
  }
  a = larger(a, b);
  return std::max(std::max(a[0], a[1]), std::max(a[2], a[3]));
}

/// Calls visit(first, end, largest) for blocks of the logits, the last of which may be short.
template <class Visit>
void for_each_block(std::span<const float> logits, Visit visit) {
  std::size_t i = 0;
  for (; i + kBlock <= logits.size(); i += kBlock) visit(i, i + kBlock, largest_of_block(&logits[i]));
  if (i == logits.size()) return;
  visit(i, logits.size(), *std::max_element(logits.begin() + static_cast<std::ptrdiff_t>(i), logits.end()));
}

/// e^d for d <= 0, to about 1e-7 of it; 0 below e^-87, where floats lose bits.
F32x4 exp_of(F32x4 d) {
  constexpr float kLeast = -87, kLog2e = 1.44269504F, kLn2High = 0.693359375F, kLn2Low = -2.12194440e-4F;
  constexpr float kRound = 12582912;  // 1.5 * 2^23: adding it leaves a whole number in the low bits
  constexpr std::int32_t kRoundBits = 0x4B400000, kBias = 127, kMantissaBits = 23;
  const F32x4 x = larger(d, splat(kLeast));
  const F32x4 shifted = x * kLog2e + kRound;
  const F32x4 n = shifted - kRound;
  const F32x4 r = (x - n * kLn2High) - n * kLn2Low;
  F32x4 sum = splat(1.0F / 5040);  // e^r, |r| <= 0.35, by its series up to r^7 / 7!
  for (const float c : {1.0F / 720, 1.0F / 120, 1.0F / 24, 1.0F / 6, 0.5F, 1.0F, 1.0F}) sum = sum * r + c;
  I32x4 bits;
  std::memcpy(&bits, &shifted, sizeof bits);
  bits = (bits - kRoundBits + kBias) << kMantissaBits;
  F32x4 power;
  std::memcpy(&power, &bits, sizeof power);
  return d < splat(kLeast) ? splat(0) : sum * power;
}

/// Up to four logits, padded with -infinity.
F32x4 load_some(std::span<const float> logits) {
  if (logits.size() >= kLanes) return load(logits.data());
  F32x4 v = splat(kNever);
  std::memcpy(&v, logits.data(), logits.size_bytes());
  return v;
}

double sum_of(const F64x4& v) { return (v[0] + v[1]) + (v[2] + v[3]); }

}  // namespace

float largest(std::span<const float> logits) {
  float most = kNever;
  for_each_block(logits, [&](std::size_t, std::size_t, float m) { most = std::max(most, m); });
  return most;
}

Candidate best_of(std::span<const float> logits) {
  Candidate best{0, kNever};
  for_each_block(logits, [&](std::size_t first, std::size_t end, float m) {
    if (!(m > best.logit)) return;
    const auto at = std::find(logits.begin() + static_cast<std::ptrdiff_t>(first),
                              logits.begin() + static_cast<std::ptrdiff_t>(end), m);
    best = {static_cast<Token>(at - logits.begin()), m};
  });
  return best;
}

std::size_t count_at_least(std::span<const float> logits, float least) {
  I32x4 count{};
  std::size_t i = 0;
  for (; i + kLanes <= logits.size(); i += kLanes) count -= (load(&logits[i]) >= least);  // true is -1
  auto total = static_cast<std::size_t>(count[0] + count[1] + count[2] + count[3]);
  for (; i < logits.size(); ++i) total += logits[i] >= least ? 1 : 0;
  return total;
}

void gather_at_least(std::span<const float> logits, float least, std::vector<Candidate>& found) {
  found.clear();
  const float bar = std::max(least, std::numeric_limits<float>::lowest());
  for_each_block(logits, [&](std::size_t first, std::size_t end, float m) {
    if (m < bar) return;
    for (std::size_t i = first; i < end; ++i) {
      if (logits[i] >= bar) found.push_back({static_cast<Token>(i), logits[i]});
    }
  });
}

/// One pass that collects what is above the worst of the best k so far, and sorts those out when twice as many came.
void gather_best(std::span<const float> logits, std::size_t k, std::vector<Candidate>& found) {
  found.clear();
  if (k == 0) return;
  const std::size_t many = 2 * std::min(k, logits.size()) + kBlock;
  float bar = kNever;  // an equal logit further on has a higher id, so it must be above
  const auto keep_k = [&] {
    if (found.size() <= k) return;
    std::nth_element(found.begin(), found.begin() + static_cast<std::ptrdiff_t>(k - 1), found.end(), better);
    found.resize(k);
    bar = found.back().logit;
  };
  for_each_block(logits, [&](std::size_t first, std::size_t end, float m) {
    if (!(m > bar)) return;
    for (std::size_t i = first; i < end; ++i) {
      if (logits[i] > bar) found.push_back({static_cast<Token>(i), logits[i]});
    }
    if (found.size() >= many) keep_k();
  });
  keep_k();
  std::sort(found.begin(), found.end(), better);
}

ExpSums exp_sums(std::span<const float> logits, float most) {
  F64x4 total{}, moment{};
  for (std::size_t i = 0; i < logits.size(); i += kLanes) {
    const F32x4 d = load_some(logits.subspan(i)) - most;
    const F32x4 e = exp_of(d);
    total += __builtin_convertvector(e, F64x4);
    moment += __builtin_convertvector(e > 0.0F ? d * e : splat(0), F64x4);  // not -infinity times 0
  }
  return {sum_of(total), sum_of(moment)};
}

void exps(std::span<const float> logits, float most, std::span<float> out) {
  for (std::size_t i = 0; i < logits.size(); i += kLanes) {
    const F32x4 e = exp_of(load_some(logits.subspan(i)) - most);
    std::memcpy(&out[i], &e, std::min(kLanes, logits.size() - i) * sizeof(float));
  }
}

Moments moments(std::span<const float> logits) {
  const auto values = [&](std::size_t i) { return load_some(logits.subspan(i)); };
  Moments m;
  F64x4 sum{};
  I32x4 count{};
  for (std::size_t i = 0; i < logits.size(); i += kLanes) {
    const F32x4 x = values(i);
    sum += __builtin_convertvector(x == kNever ? splat(0) : x, F64x4);
    count -= (x != kNever);  // true is -1
  }
  m.count = static_cast<std::size_t>(count[0] + count[1] + count[2] + count[3]);
  if (m.count == 0) return m;
  m.mean = sum_of(sum) / static_cast<double>(m.count);
  F64x4 squares{};
  for (std::size_t i = 0; i < logits.size(); i += kLanes) {
    const F32x4 x = values(i);
    const F32x4 away = x == kNever ? splat(0) : x - static_cast<float>(m.mean);
    squares += __builtin_convertvector(away, F64x4) * __builtin_convertvector(away, F64x4);
  }
  m.deviation = std::sqrt(sum_of(squares) / static_cast<double>(m.count));
  return m;
}

Token draw_from(std::span<const float> logits, double uniform) {
  constexpr std::size_t kPart = 1024;
  const float most = largest(logits);
  std::vector<double> parts;
  parts.reserve(logits.size() / kPart + 1);
  double total = 0;
  for (std::size_t i = 0; i < logits.size(); i += kPart) {
    parts.push_back(exp_sums(logits.subspan(i, std::min(kPart, logits.size() - i)), most).total);
    total += parts.back();
  }
  double before = 0;
  const double target = uniform * total;
  Token last = best_of(logits).token;  // where roundings leave the target beyond every sum
  for (std::size_t p = 0; p < parts.size(); before += parts[p], ++p) {
    if (before + parts[p] <= target) continue;
    const std::size_t end = std::min(logits.size(), (p + 1) * kPart);
    double sum = before;
    for (std::size_t i = p * kPart; i < end; ++i) {
      const double e = std::exp(static_cast<double>(logits[i]) - static_cast<double>(most));
      sum += e;
      if (e > 0) last = static_cast<Token>(i);
      if (sum > target) return last;
    }
    return last;
  }
  return last;
}

}  // namespace llm
