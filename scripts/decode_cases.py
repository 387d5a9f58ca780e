"""Blocks for checking the decoders, shared by make-decode-golden and check-decode. Needs the packages gguf and numpy."""

import numpy as np
from gguf import GGMLQuantizationType as T
from gguf.constants import GGML_QUANT_SIZES
from gguf.quants import dequantize

# name -> byte offsets of the half-precision scales in a block
HALVES = {
    "F16": [], "BF16": [],
    "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0],
    "Q2_K": [80, 82], "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208],
}
# name -> bytes of the packed scales
PACKED = {"Q2_K": (0, 16), "Q3_K": (96, 108), "Q4_K": (4, 16), "Q5_K": (4, 16), "Q6_K": (192, 208)}

# zero, -zero, largest, -largest, smallest and largest subnormal, smallest normal, infinities, NaN
EXTREMES = [0x0000, 0x8000, 0x7BFF, 0xFBFF, 0x0001, 0x83FF, 0x0400, 0x7C00, 0xFC00, 0x7E00]


def block_bytes(name):
    return GGML_QUANT_SIZES[T[name]][1]


def random_blocks(name, n, rng):
    """Random bytes; scales are random finite halves."""
    blocks = rng.integers(0, 256, (n, block_bytes(name)), dtype=np.uint8)
    for at in HALVES[name]:
        halves = (rng.standard_normal(n) * 0.1).astype(np.float16)
        blocks[:, at:at + 2] = halves.view(np.uint8).reshape(n, 2)
    return blocks


def extreme_blocks(name, rng):
    """One block per extreme of every half (the others random), then packed scales all zero and all ones."""
    blocks = []
    for at in HALVES[name]:
        for bits in EXTREMES:
            block = random_blocks(name, 1, rng)[0]
            block[at:at + 2] = np.frombuffer(np.uint16(bits).tobytes(), np.uint8)
            blocks.append(block)
    for first, last in [PACKED[name]] if name in PACKED else []:
        for byte in (0x00, 0xFF):
            block = random_blocks(name, 1, rng)[0]
            block[first:last] = byte
            blocks.append(block)
    return np.array(blocks, np.uint8).reshape(-1, block_bytes(name))


def decode(name, blocks):
    with np.errstate(all="ignore"):
        return dequantize(blocks.reshape(-1), T[name]).reshape(-1).astype(np.float32)
