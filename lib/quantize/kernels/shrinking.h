// What least squares takes from the size of elements, for types of few bits.
//
// If a part e of the elements' energy is lost, what is left is 1 - e times as large in their direction, and so is what
// each layer passes on: unlike the rest of the error, which falls this way and that, all of it adds up from layer to
// layer. A scale that is larger by 1 / (1 - e) undoes it and raises the error by about e / 2 of it; half of that in
// proportion raises it by e / 8.
//
// How much is worth undoing was tried on trained models, with experts and without. Half: distributions come nearer, by
// 3 to 8 % of the KL divergence with Q2_K, 3 to 10 % with IQ1 and IQ2, hardly with three bits, where there is little to
// undo. The whole moves a Q2_K file's perplexity down by another 0.3 to 1 %, but that of IQ2_XS and IQ2_XXS mixes,
// which have Q2_K in places, up by 2 % (half: 1 %); IQ2_XS and IQ2_XXS themselves become worse by it. IQ2_S is the
// exception: beside half, perplexity falls by 0.2 and 1.1 % where it fills a layer, and rises by 0.9 % where it is one
// matrix of it.
#pragma once

namespace llm::quantizers::LLM_ISA {

enum class Undo { Half, Whole };

/// What a scale is to be multiplied with, of elements of this energy with this squared error.
template <Undo kUndo = Undo::Half>
float growth(float error, float energy) {
  const float kept = error < 0.5f * energy ? 1 - error / energy : 1;  // more is lost only where halves are too coarse
  return 1 / (kUndo == Undo::Whole ? kept : __builtin_sqrtf(kept));
}

}  // namespace llm::quantizers::LLM_ISA
