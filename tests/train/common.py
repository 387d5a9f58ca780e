"""What the tests of the training scripts share: the programs, and a forward pass of a llama in NumPy, written from the
definition and in double precision, that knows nothing of PyTorch or of the runtime."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts" / "train"
sys.path.insert(0, str(SCRIPTS))
sys.dont_write_bytecode = True

try:
    import numpy as np
except ImportError:
    print("SKIPPED: no NumPy")
    sys.exit(0)


def bin_folder() -> Path:
    """The folder of the built programs, from the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", type=Path, required=True)
    return Path(parser.parse_args().bin)


def run(*command: str | Path, stdin: bytes | None = None) -> bytes:
    """Standard output of a command that has to succeed."""
    done = subprocess.run([str(c) for c in command], input=stdin, capture_output=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\nexit code {done.returncode}\n{done.stderr.decode(errors='replace')}")
    return done.stdout


def check(condition: bool, what: str) -> None:
    print(("ok      " if condition else "FAILED  ") + what, flush=True)
    if not condition:
        sys.exit(1)


def program_logits(programs: Path, model: Path, windows: np.ndarray, folder: Path, *options: str) -> np.ndarray:
    """Logits that llm-perplexity saves: for each window the positions of its second half."""
    (folder / "ids.json").write_text(json.dumps([int(t) for t in windows.flatten()]))
    run(programs / "llm-perplexity", "-m", model, "--tokens", folder / "ids.json", "-c", str(windows.shape[1]),
        "--save-logits", folder / "logits.npy", "-q", *options)  # fmt: skip
    return np.load(folder / "logits.npy")


def scored(logits: np.ndarray) -> np.ndarray:
    """Of logits [windows, positions, vocab] the rows that llm-perplexity saves."""
    length = logits.shape[1]
    return logits[:, length // 2 : length - 1].reshape(-1, logits.shape[2])


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def silu(x: np.ndarray) -> np.ndarray:
    return x / (1 + np.exp(-x))


def forward(sizes: Mapping[str, Any], weights: Mapping[str, np.ndarray], ids: np.ndarray) -> np.ndarray:
    """Logits [positions, vocab] of one sequence, one head and one expert at a time."""
    w = {name: array.astype(np.float64) for name, array in weights.items()}
    heads, kv_heads = sizes["n_heads"], sizes["n_kv_heads"]
    dim = sizes["n_embd"] // heads
    positions = np.arange(len(ids))

    def norm(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + sizes["norm_eps"]) * weight

    def rotated(x: np.ndarray) -> np.ndarray:
        """Neighbouring pairs as complex numbers, turned by position * base^(-2i/dim)."""
        pairs = x[:, 0::2] + 1j * x[:, 1::2]
        angle = positions[:, None] * sizes["rope_base"] ** (-np.arange(0, dim, 2) / dim)
        turned = pairs * np.exp(1j * angle)
        return np.stack((turned.real, turned.imag), -1).reshape(x.shape)

    def attention(x: np.ndarray, layer: str) -> np.ndarray:
        q, k, v = (x @ w[f"{layer}.attn_{n}.weight"].T for n in "qkv")
        out = []
        for h in range(heads):
            g = h // (heads // kv_heads)
            query = rotated(q[:, h * dim : (h + 1) * dim])
            key = rotated(k[:, g * dim : (g + 1) * dim])
            score = query @ key.T / np.sqrt(dim)
            score[positions[:, None] < positions[None, :]] = -np.inf
            out.append(softmax(score) @ v[:, g * dim : (g + 1) * dim])
        return np.concatenate(out, 1) @ w[f"{layer}.attn_output.weight"].T

    def swiglu(x: np.ndarray, gate: np.ndarray, up: np.ndarray, down: np.ndarray) -> np.ndarray:
        return (silu(x @ gate.T) * (x @ up.T)) @ down.T

    def experts(x: np.ndarray, layer: str) -> np.ndarray:
        probabilities = softmax(x @ w[f"{layer}.ffn_gate_inp.weight"].T)
        out = np.zeros_like(x)
        for t, p in enumerate(probabilities):
            used = np.argsort(-p)[: sizes["experts_used"]]
            for e in used:
                parts = (w[f"{layer}.ffn_{n}_exps.weight"][e] for n in ("gate", "up", "down"))
                out[t] += p[e] / p[used].sum() * swiglu(x[t], *parts)
        return out

    x = w["token_embd.weight"][ids]
    for i in range(sizes["n_layers"]):
        layer = f"blk.{i}"
        x = x + attention(norm(x, w[f"{layer}.attn_norm.weight"]), layer)
        h = norm(x, w[f"{layer}.ffn_norm.weight"])
        if sizes["experts"]:
            x = x + experts(h, layer)
        else:
            x = x + swiglu(h, *(w[f"{layer}.ffn_{n}.weight"] for n in ("gate", "up", "down")))
    return norm(x, w["output_norm.weight"]) @ w["token_embd.weight"].T


def relative_error(got: np.ndarray, wanted: np.ndarray) -> float:
    if got.shape != wanted.shape:
        sys.exit(f"shapes {got.shape} and {wanted.shape}")
    return float(np.linalg.norm(got - wanted) / np.linalg.norm(wanted))
