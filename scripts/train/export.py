#!/usr/bin/env python3
"""Writes a trained model as GGUF: export.py NAME.pt --tokenizer DATA/tokenizer.json --type Q8_0 --out NAME.gguf

Matrices get the type that is asked for; norms and the experts' router stay F32. Nothing is permuted: model.py has the
weights in the file's order.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gguf_writer import F32, TYPES, U32, TensorType, Value, write_gguf
from packages import packages

with packages():
    import numpy as np

LICENSE = "cdla-sharing-1.0"  # that of the stories; the books and plays are in the public domain
NORMAL, CONTROL = 1, 3  # values of tokenizer.ggml.token_type
BOS, USER, ASSISTANT, END = "<|endoftext|>", "<|user|>", "<|assistant|>", "<|end|>"

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['role'] not in ['user', 'assistant'] %}"
    "{{ raise_exception('this model knows the roles user and assistant only') }}"
    "{% endif %}"
    "{{ '<|' + message['role'] + '|>' + message['content'] | trim + '<|end|>' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


def model_metadata(sizes: Mapping[str, Any], kind: TensorType, name: str, description: str) -> dict[str, Value]:
    """What the loader needs to know of a model whose sizes are those of model.ModelConfig."""
    head_dim = sizes["n_embd"] // sizes["n_heads"]
    metadata: dict[str, Value] = {
        "general.architecture": "llama",
        "general.type": "model",
        "general.name": name,
        "general.description": description,
        "general.license": LICENSE,
        "general.languages": ["en"],
        "general.file_type": U32(kind.file_type),
        "general.quantization_version": U32(2),
        "llama.block_count": U32(sizes["n_layers"]),
        "llama.context_length": U32(sizes["context"]),
        "llama.embedding_length": U32(sizes["n_embd"]),
        "llama.feed_forward_length": U32(sizes["d_ff"]),
        "llama.attention.head_count": U32(sizes["n_heads"]),
        "llama.attention.head_count_kv": U32(sizes["n_kv_heads"]),
        "llama.attention.layer_norm_rms_epsilon": float(sizes["norm_eps"]),
        "llama.rope.dimension_count": U32(head_dim),
        "llama.rope.freq_base": float(sizes["rope_base"]),
        "llama.vocab_size": U32(sizes["vocab"]),
    }
    if sizes["experts"]:
        metadata["llama.expert_count"] = U32(sizes["experts"])
        metadata["llama.expert_used_count"] = U32(sizes["experts_used"])
        metadata["llama.expert_feed_forward_length"] = U32(sizes["d_ff"])
    return metadata


def tokenizer_metadata(tokenizer: Mapping[str, Any]) -> dict[str, Value]:
    """The vocabulary of a tokenizer.json: a byte-level BPE whose special tokens are the four above."""
    specials = {t["content"]: t["id"] for t in tokenizer["added_tokens"]}
    ids: dict[str, int] = tokenizer["model"]["vocab"] | specials
    tokens = sorted(ids, key=lambda text: ids[text])
    if [ids[t] for t in tokens] != list(range(len(tokens))):
        raise SystemExit("the vocabulary's ids are not 0, 1, 2, ...")
    merges = [m if isinstance(m, str) else " ".join(m) for m in tokenizer["model"]["merges"]]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "qwen2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [CONTROL if t in specials else NORMAL for t in tokens],
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.bos_token_id": U32(ids[BOS]),
        "tokenizer.ggml.eos_token_id": U32(ids[BOS]),
        "tokenizer.ggml.eot_token_id": U32(ids[END]),
        "tokenizer.ggml.padding_token_id": U32(ids[BOS]),
        "tokenizer.ggml.add_bos_token": True,
        "tokenizer.ggml.add_eos_token": False,
        "tokenizer.chat_template": CHAT_TEMPLATE,
    }


def export(
    path: Path,
    weights: Mapping[str, np.ndarray],
    about: Mapping[str, Any],
    tokenizer: Mapping[str, Any],
    kind: TensorType,
) -> None:
    """`about` is what train.py saves beside the weights: name, description, sizes."""
    metadata = model_metadata(about["sizes"], kind, about["name"], about["description"]) | tokenizer_metadata(tokenizer)
    tensors = []
    for name, array in weights.items():
        plain = array.ndim == 1 or "ffn_gate_inp" in name
        tensors.append((name, array, F32 if plain else kind))
    write_gguf(path, metadata, tensors)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=Path, metavar="NAME.pt")
    parser.add_argument("--tokenizer", type=Path, required=True, metavar="tokenizer.json")
    parser.add_argument("--type", choices=sorted(TYPES), default="Q8_0")
    parser.add_argument("--out", type=Path, required=True, metavar="NAME.gguf")
    options = parser.parse_args()

    with packages():
        import torch  # only to read the checkpoint

    saved = torch.load(options.checkpoint, map_location="cpu", weights_only=True)
    weights = {name: tensor.numpy() for name, tensor in saved["weights"].items()}
    export(options.out, weights, saved["about"], json.loads(options.tokenizer.read_text()), TYPES[options.type])
    print(f"{options.out}: {options.out.stat().st_size:,} bytes, {options.type}")


if __name__ == "__main__":
    main()
