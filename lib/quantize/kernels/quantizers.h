// The functions of the table: one per storage type.
#pragma once

#include "quantize/kernels/kernels.h"

namespace llm::quantizers::LLM_ISA {

void quantize_q4_0(const Source&, std::byte* dst);
void quantize_q5_0(const Source&, std::byte* dst);
void quantize_q4_1(const Source&, std::byte* dst);
void quantize_q5_1(const Source&, std::byte* dst);
void quantize_q2_k(const Source&, std::byte* dst);
void quantize_q4_k(const Source&, std::byte* dst);
void quantize_q5_k(const Source&, std::byte* dst);
void quantize_q8_0(const Source&, std::byte* dst);
void quantize_q3_k(const Source&, std::byte* dst);
void quantize_q6_k(const Source&, std::byte* dst);
void quantize_iq4_nl(const Source&, std::byte* dst);
void quantize_iq4_xs(const Source&, std::byte* dst);
void quantize_mxfp4(const Source&, std::byte* dst);
void quantize_nvfp4(const Source&, std::byte* dst);
void quantize_tq1_0(const Source&, std::byte* dst);
void quantize_tq2_0(const Source&, std::byte* dst);
void quantize_q1_0(const Source&, std::byte* dst);
void quantize_q2_0(const Source&, std::byte* dst);
void quantize_iq1_s(const Source&, std::byte* dst);
void quantize_iq1_m(const Source&, std::byte* dst);
void quantize_iq2_xxs(const Source&, std::byte* dst);
void quantize_iq2_xs(const Source&, std::byte* dst);
void quantize_iq2_s(const Source&, std::byte* dst);
void quantize_iq3_xxs(const Source&, std::byte* dst);
void quantize_iq3_s(const Source&, std::byte* dst);

}  // namespace llm::quantizers::LLM_ISA
