"""llama.cpp's quantisers and decoders, called one tensor at a time. Needs the packages llama-cpp-python and numpy.

Used by check-quantize and make-quantize-golden.
"""

import ctypes
import time
from pathlib import Path

from peer import packages

with packages():
    import llama_cpp
    import numpy as np

# name -> (id in GGUF, elements per block, bytes per block)
TYPES = {
    "Q4_0": (2, 32, 18), "Q4_1": (3, 32, 20), "Q5_0": (6, 32, 22), "Q5_1": (7, 32, 24), "Q8_0": (8, 32, 34),
    "Q2_K": (10, 256, 84), "Q3_K": (11, 256, 110), "Q4_K": (12, 256, 144), "Q5_K": (13, 256, 176),
    "Q6_K": (14, 256, 210), "IQ1_S": (19, 256, 50), "IQ1_M": (29, 256, 56), "IQ2_XXS": (16, 256, 66),
    "IQ2_XS": (17, 256, 74), "IQ2_S": (22, 256, 82), "IQ3_XXS": (18, 256, 98), "IQ3_S": (21, 256, 110),
    "IQ4_NL": (20, 32, 18), "IQ4_XS": (23, 256, 136), "TQ1_0": (34, 256, 54), "TQ2_0": (35, 256, 66),
    "MXFP4": (39, 32, 17), "NVFP4": (40, 64, 36), "Q1_0": (41, 128, 18), "Q2_0": (42, 64, 18),
}
NEED_IMPORTANCE = ("IQ1_S", "IQ2_XXS", "IQ2_XS")


class Ggml:
    def __init__(self):
        folder = Path(llama_cpp.__file__).parent / "lib"
        self.base = ctypes.CDLL(str(folder / "libggml-base.so"))
        self.base.ggml_quantize_chunk.restype = ctypes.c_size_t
        self.base.ggml_get_type_traits.restype = ctypes.POINTER(self.Traits)

    class Traits(ctypes.Structure):
        _fields_ = [("name", ctypes.c_char_p), ("block", ctypes.c_int64), ("interleave", ctypes.c_int64),
                    ("size", ctypes.c_size_t), ("quantized", ctypes.c_bool), ("decode", ctypes.c_void_p),
                    ("encode", ctypes.c_void_p)]

    def quantize(self, name, x, importance):
        """Blocks, seconds."""
        kind, elems, size = TYPES[name]
        rows, n = x.shape
        if importance is None and name in NEED_IMPORTANCE:
            importance = np.ones(n, np.float32)
        out = np.zeros(x.size // elems * size, np.uint8)

        def run(count):
            self.base.ggml_quantize_chunk(
                kind, x.ctypes.data_as(ctypes.c_void_p), out.ctypes.data_as(ctypes.c_void_p), ctypes.c_int64(0),
                ctypes.c_int64(count), ctypes.c_int64(n),
                None if importance is None else importance.ctypes.data_as(ctypes.c_void_p))

        run(1)  # makes the tables of its codebooks
        fastest = float("inf")
        for _ in range(3):
            began = time.process_time()
            run(rows)
            fastest = min(fastest, time.process_time() - began)
        return out, fastest

    def decode(self, name, blocks, count):
        traits = self.base.ggml_get_type_traits(TYPES[name][0]).contents
        out = np.empty(count, np.float32)
        ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(traits.decode)(
            blocks.ctypes.data, out.ctypes.data, count)
        return out


def rmse(decoded, x, importance):
    square = (decoded.reshape(x.shape).astype(np.float64) - x) ** 2
    return np.sqrt(square.mean() if importance is None else (square * importance).sum() / importance.sum() / len(x))
