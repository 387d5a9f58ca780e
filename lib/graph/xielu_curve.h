// The numbers of an xIELU, also for kernels, which see no standard containers.
#pragma once

namespace llm {

/// xIELU (arXiv:2411.13010): positive x^2 + slope x for x > 0, else negative (e^min(x, below) - 1 - x) + slope x.
struct XieluCurve {
  float positive = 0, negative = 0, slope = 0, below = 0;
  friend bool operator==(const XieluCurve&, const XieluCurve&) = default;
};

}  // namespace llm
