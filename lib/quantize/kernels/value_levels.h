// Levels that are not evenly spaced: those of IQ4_NL and IQ4_XS, and of MXFP4 and NVFP4.
#pragma once

#include "quantize/kernels/lanes.h"
#include "tensor/codebooks.h"

namespace llm::quantizers::LLM_ISA {

/// kValuesIQ4, ascending: the nearest is the first and as many steps as thresholds lie below.
struct LevelsIQ4 {
  static constexpr float threshold(int k) { return 0.5f * static_cast<float>(kValuesIQ4[k] + kValuesIQ4[k + 1]); }
  static Floats nearest(Floats x) {
    Floats value = all(kValuesIQ4[0]);
    for (int k = 0; k < 15; ++k) {
      const float step = static_cast<float>(kValuesIQ4[k + 1] - kValuesIQ4[k]);
      value += x > threshold(k) ? all(step) : Floats{};
    }
    return value;
  }
  static Ints code(Floats x) {
    Ints code = {};
    for (int k = 0; k < 15; ++k) code -= x > threshold(k);
    return code;
  }
};

/// kValuesE2M1: a magnitude among the first eight, and eight more for a minus.
struct LevelsE2M1 {
  static constexpr float threshold(int k) { return 0.5f * static_cast<float>(kValuesE2M1[k] + kValuesE2M1[k + 1]); }
  static Floats nearest(Floats x) {
    const Floats magnitude = abs(x);
    Floats value = {};
    for (int k = 0; k < 7; ++k) {
      const float step = static_cast<float>(kValuesE2M1[k + 1] - kValuesE2M1[k]);
      value += magnitude > threshold(k) ? all(step) : Floats{};
    }
    return x < Floats{} ? -value : value;
  }
  static Ints code(Floats x) {
    const Floats magnitude = abs(x);
    Ints code = {};
    for (int k = 0; k < 7; ++k) code -= magnitude > threshold(k);
    return code + ((x < -threshold(0)) & 8);  // no minus zero
  }
};

}  // namespace llm::quantizers::LLM_ISA
