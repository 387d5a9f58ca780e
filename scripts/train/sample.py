#!/usr/bin/env python3
"""Prints what a trained model says: sample.py NAME.pt --tokenizer DATA/tokenizer.json [--prompts FILE]

For each prompt one greedy answer and one at temperature 0.8. A prompt that ends in three dots is continued as plain
text, any other is what a user says.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from packages import packages
from prepare import ASSISTANT, BOS, END, USER, special_ids
from prompts import BEGINNINGS, WISHES

with packages():
    import torch
    from tokenizers import Tokenizer
    from torch import Tensor
    from train import device_of, load_model

PROMPTS = (*(f"{text}..." for text in BEGINNINGS), *WISHES)


def complete(model: torch.nn.Module, ids: list[int], stops: set[int], temperature: float, most: int) -> list[int]:
    """Up to `most` tokens after `ids`; temperature 0 takes the most probable one. The whole text is read again for each
    token: slow, and without a cache that could be wrong."""
    device = next(model.parameters()).device
    rng = torch.Generator(device).manual_seed(1)
    out: list[int] = []
    while len(out) < most:
        context = torch.tensor([ids + out], device=device)
        with torch.no_grad(), torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            logits: Tensor = model(context)[0][0, -1].float()
        if temperature == 0:
            token = int(logits.argmax())
        else:
            token = int(torch.multinomial((logits / temperature).softmax(-1), 1, generator=rng))
        if token in stops:
            break
        out.append(token)
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=Path, metavar="NAME.pt")
    parser.add_argument("--tokenizer", type=Path, required=True, metavar="tokenizer.json")
    parser.add_argument("--prompts", type=Path, help="one prompt per line (default: those of prompts.py)")
    parser.add_argument("--most", type=int, default=300, help="tokens of an answer (default 300)")
    parser.add_argument("--device", help="(default: cuda where there is a GPU)")
    options = parser.parse_args()
    tokenizer = Tokenizer.from_file(str(options.tokenizer))
    model = load_model(options.checkpoint, device_of(options.device))
    bos, _, _, end = special_ids(tokenizer)
    prompts = options.prompts.read_text().splitlines() if options.prompts else list(PROMPTS)
    for prompt in prompts:
        plain = prompt.endswith("...")
        text = prompt[:-3] if plain else f"{USER}{prompt}{END}{ASSISTANT}"
        ids = tokenizer.encode(BOS + text, add_special_tokens=False).ids
        most = min(options.most, model.c.context - len(ids))
        for temperature in (0.0, 0.8):
            answer = tokenizer.decode(complete(model, ids, {bos, end}, temperature, most))
            print(f"### {prompt} (temperature {temperature:g})\n{prompt[:-3] if plain else ''}{answer}\n", flush=True)


if __name__ == "__main__":
    main()
