"""Writes GGUF files, version 3, little endian: metadata, then tensors as F32, F16 or Q8_0. Needs NumPy only."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from packages import packages

with packages():
    import numpy as np

ALIGNMENT = 32
Q8_0_BLOCK = 32  # weights that share one scale


@dataclass(frozen=True)
class U32:
    """An integer, told apart from a float and from a 32-bit signed array element."""

    value: int


@dataclass(frozen=True)
class TensorType:
    """Name, the id that the format gives it, and the id that general.file_type has for files of it."""

    name: str
    id: int
    file_type: int


F32 = TensorType("F32", 0, 0)
F16 = TensorType("F16", 1, 1)
Q8_0 = TensorType("Q8_0", 8, 7)
TYPES = {t.name: t for t in (F32, F16, Q8_0)}

Value = U32 | float | bool | str | Sequence[str] | Sequence[int]
_INT32, _UINT32, _FLOAT32, _BOOL, _STRING, _ARRAY = 5, 4, 6, 7, 8, 9


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _value(value: Value) -> bytes:
    """The type's id and the value; a list of integers is written as int32."""
    match value:
        case U32(n):
            return struct.pack("<II", _UINT32, n)
        case bool():
            return struct.pack("<I?", _BOOL, value)
        case float():
            return struct.pack("<If", _FLOAT32, value)
        case str():
            return struct.pack("<I", _STRING) + _string(value)
    if value and isinstance(value[0], str):
        return struct.pack("<IIQ", _ARRAY, _STRING, len(value)) + b"".join(_string(str(v)) for v in value)
    return struct.pack(f"<IIQ{len(value)}i", _ARRAY, _INT32, len(value), *(int(v) for v in value))


def quantize_q8_0(array: np.ndarray) -> bytes:
    """Blocks of 32 weights along the rows: a scale as float16 (the largest magnitude / 127), then int8 weights."""
    if array.shape[-1] % Q8_0_BLOCK:
        raise ValueError(f"rows of {array.shape[-1]} weights are no multiple of {Q8_0_BLOCK}")
    blocks = array.astype(np.float32).reshape(-1, Q8_0_BLOCK)
    scale = np.abs(blocks).max(axis=1, keepdims=True) / np.float32(127)
    inverse = np.divide(np.float32(1), scale, out=np.zeros_like(scale), where=scale > 0)
    scaled = blocks * inverse
    weights = np.trunc(scaled + np.copysign(np.float32(0.5), scaled)).astype(np.int8)  # halves away from zero
    out = np.empty(len(blocks), np.dtype([("scale", "<f2"), ("weights", "i1", Q8_0_BLOCK)]))
    out["scale"], out["weights"] = scale[:, 0].astype(np.float16), weights
    return out.tobytes()


def encode_tensor(array: np.ndarray, kind: TensorType) -> bytes:
    """The tensor's bytes, row after row."""
    if kind == Q8_0:
        return quantize_q8_0(array)
    return np.ascontiguousarray(array, "<f2" if kind == F16 else "<f4").tobytes()


def write_gguf(
    path: Path, metadata: Mapping[str, Value], tensors: Sequence[tuple[str, np.ndarray, TensorType]]
) -> None:
    """Tensors are given as rows x columns, the way NumPy and PyTorch hold them; the file lists the columns first."""
    head = [struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(metadata))]
    head += [_string(key) + _value(value) for key, value in metadata.items()]
    body: list[bytes] = []
    offset = 0
    for name, array, kind in tensors:
        data = encode_tensor(array, kind)
        sizes = array.shape[::-1]
        head.append(_string(name) + struct.pack(f"<I{len(sizes)}QIQ", len(sizes), *sizes, kind.id, offset))
        data += bytes(-len(data) % ALIGNMENT)
        body.append(data)
        offset += len(data)
    start = b"".join(head)
    path.write_bytes(start + bytes(-len(start) % ALIGNMENT) + b"".join(body))
