// What this machine can do at most, measured: the figures that speeds are shown as a share of. The limits are
// taken between the samples of a benchmark, by the same threads, because a shared host's limits change within minutes.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

namespace llm::app {

struct Limits {
  std::optional<double> read_bytes;  ///< per second from memory; nothing if the memory for a fair test is not there
  std::optional<double> int8_ops;    ///< per second in int8 dot products, a multiply-add counts twice; x86-64 only
  std::optional<double> bf16_ops;    ///< per second in bfloat16 dot products, or as f32_ops where there are none
  std::optional<double> f32_ops;     ///< per second in f32 fused multiply-adds; x86-64 only
};

class LimitMeter {
 public:
  /// Takes the memory of the read test, several times the last-level caches of the processors used.
  explicit LimitMeter(int threads);
  ~LimitMeter();
  LimitMeter(const LimitMeter&) = delete;
  LimitMeter& operator=(const LimitMeter&) = delete;

  Limits measure() const;                                      ///< takes about 0.1 s
  std::size_t buffer_bytes() const { return buffer_.size(); }  ///< memory of the read test; 0: it cannot be made
  /// Cycles per second that each of the threads gets while all of them work; `threads` at most those of the meter.
  static std::optional<double> clock(int threads);

 private:
  double read_bandwidth() const;
  int threads_;
  std::span<std::byte> buffer_;  ///< mapped; empty if there is none
};

}  // namespace llm::app
