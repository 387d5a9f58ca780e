// Kernels of layers with a recurrent state: the short convolution, rows that become one, the gated delta rule,
// selective state spaces, the recurrences of RWKV.
#pragma once

#include "backend/cpu/kernels/kernels.h"

namespace llm::cpu::LLM_ISA {

void short_conv(const ShortConvArgs&, std::int64_t begin, std::int64_t end);
void compress(const CompressArgs&, std::int64_t begin, std::int64_t end);
void gated_delta(const GatedDeltaArgs&, std::int64_t begin, std::int64_t end, std::byte* scratch);
void selective_scan(const SelectiveScanArgs&, std::int64_t begin, std::int64_t end, std::byte* scratch);
void wkv(const WkvArgs&, std::int64_t begin, std::int64_t end, std::byte* scratch);

}  // namespace llm::cpu::LLM_ISA
