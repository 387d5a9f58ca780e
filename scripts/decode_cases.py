"""Blocks for checking the decoders and what they decode to, shared by make-decode-golden and check-decode.

Needs the packages gguf (0.17 or later) and numpy.
"""

import numpy as np
from gguf import GGMLQuantizationType as T
from gguf.constants import GGML_QUANT_SIZES
from gguf.quants import dequantize

# name -> byte offsets of the half-precision scales in a block; IQ1_M keeps its one in nibbles, see put_half()
HALVES = {
    "F16": [], "BF16": [],
    "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0],
    "Q2_K": [80, 82], "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208],
    "IQ2_XXS": [0], "IQ2_XS": [0], "IQ2_S": [0], "IQ3_XXS": [0], "IQ3_S": [0], "IQ1_S": [0], "IQ1_M": [48],
    "IQ4_NL": [0], "IQ4_XS": [0], "TQ1_0": [52], "TQ2_0": [64], "Q1_0": [0], "Q2_0": [0], "MXFP4": [], "NVFP4": [],
}
# name -> bytes of the packed scales
PACKED = {"Q2_K": (0, 16), "Q3_K": (96, 108), "Q4_K": (4, 16), "Q5_K": (4, 16), "Q6_K": (192, 208), "IQ2_XS": (66, 74),
          "IQ2_S": (74, 82), "IQ3_S": (106, 110), "IQ4_XS": (2, 8), "NVFP4": (0, 4)}
# name -> the bytes that are scales of their own, of which 0, 1 and the last are extremes (E8M0 and E4M3 alike)
BYTES = {"MXFP4": [0], "NVFP4": [0, 1, 2, 3]}
# types that the package knows too little of: id, elements, bytes
BY_LAYOUT = {"Q1_0": (41, 128, 18), "Q2_0": (42, 64, 18)}

# zero, -zero, largest, -largest, smallest and largest subnormal, smallest normal, infinities, NaN
EXTREMES = [0x0000, 0x8000, 0x7BFF, 0xFBFF, 0x0001, 0x83FF, 0x0400, 0x7C00, 0xFC00, 0x7E00]
EXTREME_BYTES = [0x00, 0x01, 0x02, 0x7E, 0x7F, 0x80, 0xFD, 0xFE, 0xFF]


def block_elems(name):
    return BY_LAYOUT[name][1] if name in BY_LAYOUT else GGML_QUANT_SIZES[T[name]][0]


def block_bytes(name):
    return BY_LAYOUT[name][2] if name in BY_LAYOUT else GGML_QUANT_SIZES[T[name]][1]


def put_half(name, blocks, at, bits):
    """Sets the half at `at` of every block to the given bits."""
    bits = np.broadcast_to(np.asarray(bits, np.uint16), len(blocks))
    if name == "IQ1_M":  # nibble i of the half is the top nibble of byte at + 2 i + 1
        for i in range(4):
            byte = blocks[:, at + 2 * i + 1]
            byte[:] = (byte & 0x0F) | (((bits >> (4 * i)) & 0x0F) << 4).astype(np.uint8)
    else:
        blocks[:, at:at + 2] = bits.copy().view(np.uint8).reshape(-1, 2)


def random_blocks(name, n, rng):
    """Random bytes; scales are random finite halves."""
    blocks = rng.integers(0, 256, (n, block_bytes(name)), dtype=np.uint8)
    for at in HALVES[name]:
        put_half(name, blocks, at, (rng.standard_normal(n) * 0.1).astype(np.float16).view(np.uint16))
    return blocks


def extreme_blocks(name, rng):
    """One block per extreme of every scale (the others random), then packed scales all zero and all ones."""
    blocks = []
    for at in HALVES[name]:
        for bits in EXTREMES:
            block = random_blocks(name, 1, rng)
            put_half(name, block, at, bits)
            blocks.append(block[0])
    for at in BYTES.get(name, []):
        for byte in EXTREME_BYTES:
            block = random_blocks(name, 1, rng)[0]
            block[at] = byte
            blocks.append(block)
    for first, last in [PACKED[name]] if name in PACKED else []:
        for byte in (0x00, 0xFF):
            block = random_blocks(name, 1, rng)[0]
            block[first:last] = byte
            blocks.append(block)
    return np.array(blocks, np.uint8).reshape(-1, block_bytes(name))


def stream_blocks(name):
    """64 KiB of blocks from a generator that decode_test.cpp has too: every row of every grid and every scale of a byte comes
    about 16 times or more, infinite and NaN halves among them."""
    state, stream = T[name].value if name not in BY_LAYOUT else BY_LAYOUT[name][0], bytearray()
    for _ in range(65536 // block_bytes(name) * block_bytes(name)):
        state = (state * 1664525 + 1013904223) & 0xFFFFFFFF
        stream.append(state >> 24)
    return np.frombuffer(bytes(stream), np.uint8).reshape(-1, block_bytes(name))


def digest(values):
    """FNV-1a over the bits of f32 values as words, NaNs made equal."""
    bits = np.where(np.isnan(values), np.uint32(0x7FC00000), values.view(np.uint32))
    state = 0xCBF29CE484222325
    for word in bits.tolist():
        state = ((state ^ word) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return state


def decode_by_layout(name, blocks):
    """Q1_0 and Q2_0 straight from their layout: a half, then elements of 1 or 2 bits, the lowest bits first."""
    bits = {"Q1_0": 1, "Q2_0": 2}[name]
    blocks = blocks.reshape(-1, block_bytes(name))
    d = blocks[:, :2].copy().view(np.float16).astype(np.float32)
    q = (blocks[:, 2:, None] >> np.arange(0, 8, bits, dtype=np.uint8)) & ((1 << bits) - 1)
    q = q.reshape(len(blocks), -1).astype(np.float32)
    return d * (2 * q - 1 if bits == 1 else q - 1)


def decode(name, blocks):
    with np.errstate(all="ignore"):
        if name in BY_LAYOUT:
            return decode_by_layout(name, blocks).reshape(-1)
        return dequantize(blocks.reshape(-1), T[name]).reshape(-1).astype(np.float32)
