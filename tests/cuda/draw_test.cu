// Tokens drawn on the device, against the scalar meaning of their rules.
#include <cmath>
#include <limits>
#include <vector>

#include "backend/cuda/kernels/draw.h"
#include "backend/host/draw.h"
#include "device_data.h"
#include "support/catch.h"

namespace llm::cuda::test {
namespace {

struct Row {
  DrawRule rule;
  std::vector<LogitEdit> edits;
  std::int32_t newest = -1;  ///< token
};

/// Runs one launch as a step does: rules and edits in the step's data, what the step before drew in the other place.
class Drawer {
 public:
  Drawer(int n, int rows)
      : n_(n),
        rows_(rows),
        best_(static_cast<std::size_t>(rows) * draw_parts(n) * kMostDrawn),
        arrivals_(std::vector<std::uint32_t>(static_cast<std::size_t>(rows), 0)),
        results_(4 * static_cast<std::size_t>(rows) * sizeof(std::int32_t)) {}

  /// Tokens, -1 where a row is not finite; -2 where nothing was written.
  std::vector<std::int32_t> run(const std::vector<float>& logits, std::vector<Row>& rows, int used, int turn) {
    std::vector<std::int32_t> data{0, used, 0, 0};
    std::vector<std::int32_t> before(2 * static_cast<std::size_t>(rows_), -7);
    std::vector<DeviceRule> rules;
    const std::size_t rules_at = data.size();
    data.resize(data.size() + rows.size() * sizeof(DeviceRule) / 4);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      DrawRule& r = rows[i].rule;
      r.edits = rows[i].edits;
      before[(turn ^ 1) * rows_ + i] = rows[i].newest;
      rules.push_back(device_rule(r, turn, rows_, data.size()));
      const auto* const words = reinterpret_cast<const std::int32_t*>(rows[i].edits.data());
      data.insert(data.end(), words, words + 3 * rows[i].edits.size());
    }
    std::memcpy(data.data() + rules_at, rules.data(), rules.size() * sizeof(DeviceRule));
    const OnDevice<std::int32_t> on_device(data);
    const OnDevice<float> y(logits);
    const OnDevice<std::int32_t> drawn(before);
    auto* const here = reinterpret_cast<std::int32_t*>(results_.data());
    std::fill(here, here + 4 * rows_, -2);
    draw_tokens({.logits = y.data(),
                 .n = n_,
                 .rules = reinterpret_cast<const DeviceRule*>(on_device.data() + rules_at),
                 .data = on_device.data(),
                 .used_rows = on_device.data() + 1},
                rows_, {.drawn = drawn.data(), .best = best_.data(), .arrivals = arrivals_.data(), .rows = rows_},
                {.tokens = here, .bad = here + 2 * rows_, .capacity = rows_}, {});
    check_cuda(cudaDeviceSynchronize(), "drawing");
    const auto kept = drawn.read();
    std::vector<std::int32_t> tokens;
    for (int i = 0; i < rows_; ++i) {
      const std::int32_t token = here[turn * rows_ + i], bad = here[(2 + turn) * rows_ + i];
      CHECK(here[(turn ^ 1) * rows_ + i] == -2);
      if (i < used) CHECK(kept[turn * rows_ + i] == token);
      tokens.push_back(bad == 1 ? -1 : token);
    }
    for (const std::uint32_t a : arrivals_.read()) CHECK(a == 0);
    return tokens;
  }

 private:
  int n_, rows_;
  OnDevice<std::uint64_t> best_;
  OnDevice<std::uint32_t> arrivals_;
  PinnedBuffer results_;
};

/// Settings of every kind in turn.
Row some_row(Random& random, int i, int n) {
  Row row;
  DrawRule& r = row.rule;
  r.uniform = static_cast<double>(random.below(1 << 20)) / (1 << 20);
  r.temperature = i % 5 == 0 ? 0.0f : i % 5 == 1 ? 1.0f : 0.4f + 0.3f * static_cast<float>(i % 7);
  r.top_k = i % 3 == 0 ? 40 : 1 + static_cast<int>(random.below(kMostDrawn));
  r.top_p = i % 4 == 0 ? 1.0f : 0.8f;
  r.min_p = i % 6 == 0 ? 0.0f : 0.05f;
  r.min_keep = i % 8 == 0 ? 4 : 0;
  r.n_tokens = n - (i % 3);
  r.repeat = i % 2 == 0 ? 1.2f : 1.0f;
  r.presence = 0.1f, r.frequency = 0.3f;
  for (int e = 0; e < (i % 4) * 20 && e + 1 < n; ++e)
    row.edits.push_back({.token = (e * 37 + i) % n, .count = e % 3, .bias = e % 5 == 0 ? -INFINITY : 0.25f * (e % 9)});
  std::sort(row.edits.begin(), row.edits.end(), [](const auto& a, const auto& b) { return a.token < b.token; });
  row.edits.erase(
      std::unique(row.edits.begin(), row.edits.end(), [](const auto& a, const auto& b) { return a.token == b.token; }),
      row.edits.end());
  if (i % 3 != 1) {
    r.newest = i;
    row.newest = row.edits.empty() || i % 2 == 0 ? static_cast<int>(random.below(n)) : row.edits.front().token;
  }
  return row;
}

void compare(int n, int rows, Random& random, float step, float boost) {
  INFO(n << " logits, steps of " << step);
  Drawer drawer(n, rows);
  for (int turn = 0; turn < 2; ++turn) {
    std::vector<float> logits = random.floats(static_cast<std::size_t>(n) * rows);
    for (float& l : logits) l = step > 0 ? std::round(4 * l / step) * step : 4 * l;
    std::vector<Row> all;
    for (int i = 0; i < rows; ++i) {
      all.push_back(some_row(random, i, n));
      // What is edited is in the running.
      for (const LogitEdit& e : all.back().edits) logits[static_cast<std::size_t>(i) * n + e.token] += boost;
      if (all.back().newest >= 0) logits[static_cast<std::size_t>(i) * n + all.back().newest] += boost;
    }
    if (rows > 6) {
      logits[4 * static_cast<std::size_t>(n) + n - 1] = std::numeric_limits<float>::quiet_NaN();
      logits[5 * static_cast<std::size_t>(n)] = -INFINITY;
    }
    const int used = rows > 2 ? rows - 1 : rows;
    const std::vector<std::int32_t> got = drawer.run(logits, all, used, turn);
    for (int i = 0; i < rows; ++i) {
      INFO("row " << i);
      if (i >= used) {
        CHECK(got[i] == -2);
        continue;
      }
      DrawRule rule = all[i].rule;
      rule.edits = all[i].edits;
      const auto expected =
          host::draw(rule, std::span(logits).subspan(static_cast<std::size_t>(i) * n, n), all[i].newest);
      CHECK(got[i] == expected.value_or(-1));
    }
  }
}

}  // namespace

TEST_CASE("tokens drawn on the device are those of the rules", "[cuda][draw]") {
  if (no_device()) return;
  Random random(17);
  for (const int n : {300, 4095, 8192, 8193, 49'152, 128'256, 262'208}) {
    for (const int rows : {1, 9, 33}) {
      compare(n, n > 200'000 && rows > 9 ? 12 : rows, random, 0, 3);
      compare(n, n > 200'000 && rows > 9 ? 12 : rows, random, 0.5f, 3);  // many are equal
    }
  }
  compare(5000, 24, random, 1000, 0);  // all but all are equal
}

}  // namespace llm::cuda::test
