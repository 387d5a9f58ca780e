"""Random weights, exported: the programs compute the logits that a forward pass in NumPy gives, and split text into the
tokens that the merges say."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from common import bin_folder, check, forward, np, program_logits, relative_error, run, scored
from export import export
from gguf_writer import F16, Q8_0, quantize_q8_0

SPECIALS = ["<|endoftext|>", "<|user|>", "<|assistant|>", "<|end|>"]
MERGES = ["t h", "th e", "Ġ the", "c a", "ca t", "Ġ cat"]


def small_tokenizer() -> dict[str, Any]:
    """256 bytes as characters, 4 special tokens, 6 merges."""
    printable = [b for b in range(256) if 0x21 <= b <= 0x7E or 0xA1 <= b <= 0xAC or 0xAE <= b]
    others = [b for b in range(256) if b not in printable]
    characters = [chr(b) for b in printable] + [chr(0x100 + i) for i in range(len(others))]
    texts = SPECIALS + characters + [m.replace(" ", "") for m in MERGES]
    added = [{"id": i, "content": text, "special": True} for i, text in enumerate(SPECIALS)]
    return {"model": {"vocab": {t: i for i, t in enumerate(texts)}, "merges": MERGES}, "added_tokens": added}


def random_weights(sizes: dict[str, Any], rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Large enough that attention and routes are far from uniform."""

    def matrix(*shape: int) -> np.ndarray:
        return (rng.standard_normal(shape) * 1.5 / np.sqrt(shape[-1])).astype(np.float32)

    d, f, e = sizes["n_embd"], sizes["d_ff"], sizes["experts"]
    kv = d // sizes["n_heads"] * sizes["n_kv_heads"]
    w = {"token_embd.weight": matrix(sizes["vocab"], d)}
    for i in range(sizes["n_layers"]):
        shapes = {"attn_q": (d, d), "attn_k": (kv, d), "attn_v": (kv, d), "attn_output": (d, d)}
        if e:
            shapes |= {"ffn_gate_inp": (e, d)}
            shapes |= {"ffn_gate_exps": (e, f, d), "ffn_up_exps": (e, f, d), "ffn_down_exps": (e, d, f)}
        else:
            shapes |= {"ffn_gate": (f, d), "ffn_up": (f, d), "ffn_down": (d, f)}
        for name, shape in shapes.items():
            w[f"blk.{i}.{name}.weight"] = matrix(*shape)
        for name in ("attn_norm", "ffn_norm"):
            w[f"blk.{i}.{name}.weight"] = rng.uniform(0.5, 1.5, d).astype(np.float32)
    w["output_norm.weight"] = rng.uniform(0.5, 1.5, d).astype(np.float32)
    return w


def stored(name: str, array: np.ndarray, kind: str) -> np.ndarray:
    """What a reader gets back."""
    if array.ndim == 1 or "ffn_gate_inp" in name:
        return array
    if kind == "F16":
        return array.astype(np.float16)
    blocks = np.frombuffer(quantize_q8_0(array), np.dtype([("d", "<f2"), ("q", "i1", 32)]))
    return (blocks["d"].astype(np.float64)[:, None] * blocks["q"]).reshape(array.shape)


def test_quantize() -> None:
    """The format's definition on a row whose scale is exact: 127 steps of 1/64."""
    row = np.array([[127, -127, 0.5, -0.5, 1.49, *[0] * 27]], np.float32) / 64
    block = np.frombuffer(quantize_q8_0(row), np.dtype([("d", "<f2"), ("q", "i1", 32)]))[0]
    check(block["d"] == 1 / 64 and list(block["q"][:5]) == [127, -127, 1, -1, 1], "Q8_0: scale and rounding of a block")
    check(quantize_q8_0(np.zeros((1, 32), np.float32)) == bytes(34), "Q8_0: a block of zeros")


def main() -> None:
    programs = bin_folder()
    test_quantize()
    rng = np.random.default_rng(7)
    tokenizer = small_tokenizer()
    vocab = len(tokenizer["model"]["vocab"])
    common: dict[str, Any] = {
        "vocab": vocab, "n_embd": 256, "n_layers": 2, "n_heads": 8, "n_kv_heads": 2, "d_ff": 256, "context": 64,
        "rope_base": 10000.0, "norm_eps": 1e-5,
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for label, extra in (("dense", {"experts": 0, "experts_used": 0}), ("moe", {"experts": 8, "experts_used": 2})):
            sizes = common | extra
            weights = random_weights(sizes, rng)
            about = {"name": f"random-{label}", "description": "random weights", "sizes": sizes}
            windows = rng.integers(4, vocab, (2, 32))
            windows[:, 0] = 0  # BOS, which llm-perplexity puts there
            # The cache holds keys and values as F16: errors of 2^-11, ten times that after the softmax and the layers.
            for kind, bound in ((F16, 3e-3), (Q8_0, 3e-3)):
                model = folder / f"{label}-{kind.name}.gguf"
                export(model, weights, about, tokenizer, kind)
                read = {n: stored(n, a, kind.name) for n, a in weights.items()}
                wanted = scored(np.stack([forward(sizes, read, ids) for ids in windows]))
                got = program_logits(programs, model, windows, folder, "--backend", "reference")
                error = relative_error(got, wanted)
                check(
                    error < bound, f"{label} {kind.name}: logits of the reference backend, relative error {error:.1e}"
                )
                if kind == Q8_0 and sizes["experts"]:
                    continue  # the cpu backend rounds activations too, and a random router's choices turn on that
                error = relative_error(program_logits(programs, model, windows, folder), wanted)
                check(error < 0.1, f"{label} {kind.name}: logits of the cpu backend, relative error {error:.1e}")
        out = run(programs / "llm-inspect", "tokenize", model, "--text", "the cat<|end|>hat", "--ids")
        ids = tokenizer["model"]["vocab"]
        wanted_ids = [0, ids["the"], ids["Ġcat"], 3, ids["h"], ids["a"], ids["t"]]
        check(json.loads(out) == wanted_ids, f"tokens of a text: {wanted_ids}")


if __name__ == "__main__":
    main()
