#!/usr/bin/env python3
"""Gives a trained model our vocabulary: transplant.py MODEL.gguf --tokenizer DATA/tokenizer.json --out WRITER.pt

The layers stay as they are. A token's row of the embedding table is the model's own row for the same text or, where its
vocabulary lacks that, the mean of the rows of the pieces that it makes of it. Most of our tokens are words that the
model knows, so what it can do survives; training on the stories mends the rest. MODEL is of the llama family with tied
embeddings and a byte-level vocabulary; `scripts/fetch-model smollm2` gets one.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from packages import packages

with packages():
    import numpy as np
    import torch
    from gguf_reader import Gguf, read_gguf
    from tokenizers import Tokenizer, models

# What our special tokens begin as: how the model itself marks an end and a speaker's turn.
SPECIALS = {
    "<|endoftext|>": ["<|endoftext|>"],
    "<|user|>": ["<|im_start|>", "Ġuser"],
    "<|assistant|>": ["<|im_start|>", "Ġassistant"],
    "<|end|>": ["<|im_end|>"],
}


def sizes_of(model: Gguf, vocab: int, context: int) -> dict[str, int | float]:
    """Sizes as train.py saves them."""

    def key(name: str) -> int | float:
        return model.metadata[f"llama.{name}"]

    if model.metadata["general.architecture"] != "llama" or "output.weight" in model.tensors:
        raise SystemExit("only models of the llama family with tied embeddings can be transplanted")
    return {
        "vocab": vocab, "n_embd": key("embedding_length"), "n_layers": key("block_count"),
        "n_heads": key("attention.head_count"), "n_kv_heads": key("attention.head_count_kv"),
        "d_ff": key("feed_forward_length"), "context": context, "experts": 0, "experts_used": 0,
        "rope_base": key("rope.freq_base"), "norm_eps": round(key("attention.layer_norm_rms_epsilon"), 9),
    }  # fmt: skip


def embedding(model: Gguf, ours: dict[str, int]) -> tuple[np.ndarray, int]:
    """The table for our tokens, and how many of them the model has as they are."""
    table, names = model.tensors["token_embd.weight"], model.metadata["tokenizer.ggml.tokens"]
    theirs = {text: i for i, text in enumerate(names)}
    merges = [tuple(m.split(" ")) for m in model.metadata["tokenizer.ggml.merges"]]
    pieces = Tokenizer(models.BPE(vocab=theirs, merges=merges))
    out = np.empty((len(ours), table.shape[1]), np.float32)
    shared = 0
    for text, row in ours.items():
        if text in SPECIALS:
            ids = [theirs[part] for part in SPECIALS[text]]
        elif text in theirs:
            ids = [theirs[text]]
            shared += 1
        else:
            ids = pieces.encode(text).ids
        out[row] = table[ids].mean(axis=0) if ids else np.nan
    lacking = np.isnan(out[:, 0])  # bytes that it has no token for
    out[lacking] = out[~lacking].mean(axis=0)
    return out, shared


def transplant(model: Gguf, tokenizer: Path, context: int) -> tuple[dict[str, object], int]:
    """A checkpoint as train.py writes it, and how many tokens are shared."""
    loaded = json.loads(tokenizer.read_text())
    ours = loaded["model"]["vocab"] | {t["content"]: t["id"] for t in loaded["added_tokens"]}
    table, shared = embedding(model, ours)
    weights = {n: torch.from_numpy(w.copy()) for n, w in model.tensors.items()} | {
        "token_embd.weight": torch.from_numpy(table)
    }
    about = {
        "name": "fable-writer",
        "description": f"{model.metadata.get('general.name', 'A model')} with the vocabulary of the fable models",
        "sizes": sizes_of(model, len(ours), context),
    }
    return {"about": about, "weights": weights}, shared


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, metavar="MODEL.gguf")
    parser.add_argument("--tokenizer", type=Path, required=True, metavar="tokenizer.json")
    parser.add_argument("--context", type=int, default=1024, help="tokens of the new model's context (default 1024)")
    parser.add_argument("--out", type=Path, required=True, metavar="WRITER.pt")
    options = parser.parse_args()
    saved, shared = transplant(read_gguf(options.model), options.tokenizer, options.context)
    torch.save(saved, options.out)
    print(f"{options.out}: {shared} tokens are shared")


if __name__ == "__main__":
    main()
