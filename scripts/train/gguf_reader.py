"""Reads GGUF files: metadata, and tensors as float32. The storage types are those that training begins from."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9


def _q4_1(data: np.ndarray) -> np.ndarray:
    """32 weights: scale, minimum, then 16 bytes; the low nibbles are the first half."""
    blocks = data.view(np.dtype([("scale", "<f2"), ("least", "<f2"), ("codes", "u1", 16)]))
    codes = np.concatenate((blocks["codes"] & 15, blocks["codes"] >> 4), axis=1).astype(np.float32)
    return codes * blocks["scale"][:, None].astype(np.float32) + blocks["least"][:, None].astype(np.float32)


def _q8_0(data: np.ndarray) -> np.ndarray:
    """32 weights: scale, then 32 signed bytes."""
    blocks = data.view(np.dtype([("scale", "<f2"), ("codes", "i1", 32)]))
    return blocks["codes"].astype(np.float32) * blocks["scale"][:, None].astype(np.float32)


# By the format's id: bytes and weights of a block, and its decoder.
_TYPES: dict[int, tuple[int, int, Callable[[np.ndarray], np.ndarray]]] = {
    0: (4, 1, lambda data: data.view("<f4")),
    1: (2, 1, lambda data: data.view("<f2").astype(np.float32)),
    3: (20, 32, _q4_1),
    8: (34, 32, _q8_0),
}


@dataclass(frozen=True)
class Gguf:
    """Metadata by key, and tensors by name as rows x columns."""

    metadata: dict[str, Any]
    tensors: dict[str, np.ndarray]


class _Cursor:
    def __init__(self, data: memoryview) -> None:
        self.data, self.at = data, 0

    def scalar(self, kind: str) -> Any:
        (value,) = struct.unpack_from("<" + kind, self.data, self.at)
        self.at += struct.calcsize("<" + kind)
        return value

    def string(self) -> str:
        length = self.scalar("Q")
        self.at += length
        return bytes(self.data[self.at - length : self.at]).decode("utf-8", errors="replace")

    def value(self, kind: int) -> Any:
        if kind == _STRING:
            return self.string()
        if kind == _ARRAY:
            element, count = self.scalar("I"), self.scalar("Q")
            return [self.value(element) for _ in range(count)]
        return self.scalar(_SCALARS[kind])


def read_gguf(path: Path) -> Gguf:
    """The whole file; refuses storage types that it cannot decode."""
    data = memoryview(path.read_bytes())
    cursor = _Cursor(data)
    if cursor.scalar("4s") != b"GGUF" or cursor.scalar("I") != 3:
        raise SystemExit(f"{path}: not a GGUF file of version 3")
    tensor_count, key_count = cursor.scalar("Q"), cursor.scalar("Q")
    metadata = {}
    for _ in range(key_count):
        key = cursor.string()
        metadata[key] = cursor.value(cursor.scalar("I"))
    listed = []
    for _ in range(tensor_count):
        name = cursor.string()
        sizes = [cursor.scalar("Q") for _ in range(cursor.scalar("I"))]
        listed.append((name, sizes, cursor.scalar("I"), cursor.scalar("Q")))
    alignment = metadata.get("general.alignment", 32)
    start = -(-cursor.at // alignment) * alignment
    tensors = {}
    for name, sizes, kind, offset in listed:
        if kind not in _TYPES:
            raise SystemExit(f"{path}: {name} has storage type {kind}, which is not read here")
        block_bytes, block, decode = _TYPES[kind]
        length = int(np.prod(sizes)) // block * block_bytes
        raw = np.frombuffer(data, np.uint8, length, start + offset)
        tensors[name] = decode(raw).reshape(sizes[::-1])
    return Gguf(metadata, tensors)
