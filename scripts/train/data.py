"""Windows of tokens drawn from the prepared arrays, and the held out text as llm-perplexity cuts it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

# How many of a source's windows begin where a document does. Chapters are longer than a window, stories are not.
ALIGNED = {"stories": 0.7, "synthetic": 0.7, "dialogue": 0.9, "wishes": 0.9, "books": 0.1}
BOS = 0


@dataclass(frozen=True)
class Batch:
    """Inputs and what follows them [rows, length]; `mask` is 0 where the following token is not to be learned."""

    inputs: Tensor
    targets: Tensor
    mask: Tensor


class Source:
    """One array of token ids on the device."""

    def __init__(self, folder: Path, name: str, device: torch.device) -> None:
        ids = np.load(folder / f"{name}.npy")
        mask_file = folder / f"{name}_mask.npy"
        mask = np.load(mask_file) if mask_file.exists() else np.ones(ids.shape, np.uint8)
        self.ids = torch.from_numpy(ids.astype(np.int32)).to(device)
        self.mask = torch.from_numpy(mask).to(device)
        self.starts = torch.from_numpy(np.flatnonzero(ids == BOS)).to(device)
        self.aligned = ALIGNED.get(name, 0.5)

    def windows(self, rows: int, length: int, rng: torch.Generator) -> tuple[Tensor, Tensor]:
        """Ids and masks [rows, length + 1]. The first token of each is BOS, as at the start of any run."""
        device, last = self.ids.device, self.ids.numel() - length - 1
        if last < 1:
            raise SystemExit(f"a source has {self.ids.numel()} tokens, fewer than a window of {length}")
        anywhere = torch.randint(last, (rows,), generator=rng, device=device)
        which = torch.randint(self.starts.numel(), (rows,), generator=rng, device=device)
        at_start = torch.rand(rows, generator=rng, device=device) < self.aligned
        first = torch.where(at_start, self.starts[which].clamp(max=last), anywhere)
        index = first[:, None] + torch.arange(length + 1, device=device)
        ids, mask = self.ids[index].long(), self.mask[index]
        ids[:, 0] = BOS
        return ids, mask


class Sampler:
    """Batches whose rows come from several sources in given shares."""

    def __init__(self, sources: Mapping[str, Source], rows: int, length: int, seed: int, device: torch.device) -> None:
        self.sources, self.rows, self.length = sources, rows, length
        self.draw = np.random.default_rng(seed)
        self.rng = torch.Generator(device).manual_seed(seed)

    def batch(self, shares: Mapping[str, float]) -> Batch:
        names = list(shares)
        p = np.array([shares[n] for n in names], np.float64)
        counts = self.draw.multinomial(self.rows, p / p.sum())
        parts = [self.sources[n].windows(int(k), self.length, self.rng) for n, k in zip(names, counts) if k]
        ids, mask = (torch.cat([part[i] for part in parts]) for i in range(2))
        return Batch(ids[:, :-1].contiguous(), ids[:, 1:].contiguous(), mask[:, 1:].float())


class HeldOut:
    """The held out stories in windows that do not overlap, each beginning with BOS, the second half scored: the
    definition of llm-perplexity, so that the two agree. And the held out conversations, the assistant's tokens
    scored."""

    def __init__(self, folder: Path, window: int, device: torch.device) -> None:
        self.ids = self._cut(folder / "held_out.npy", window, device)
        self.dialogue = self._cut(folder / "held_out_dialogue.npy", window, device)
        self.dialogue_mask = self._cut(folder / "held_out_dialogue_mask.npy", window, device).float()
        self.window = window
        self.token_bytes = torch.tensor(token_lengths(folder / "tokenizer.json"), device=device)

    @staticmethod
    def _cut(path: Path, window: int, device: torch.device) -> Tensor:
        array = np.load(path)
        count = len(array) // window
        return torch.from_numpy(array[: count * window].astype(np.int64)).view(count, window).to(device)

    def story_batch(self) -> Batch:
        inputs = self.ids[:, :-1].clone()
        inputs[:, 0] = BOS
        mask = torch.zeros_like(inputs, dtype=torch.float32)
        mask[:, self.window // 2 :] = 1
        return Batch(inputs, self.ids[:, 1:], mask)

    def story_bytes(self) -> int:
        batch = self.story_batch()
        return int(self.token_bytes[batch.targets][batch.mask > 0].sum())

    def dialogue_batch(self) -> Batch:
        return Batch(self.dialogue[:, :-1], self.dialogue[:, 1:], self.dialogue_mask[:, 1:])


def token_lengths(tokenizer: Path) -> list[int]:
    """Bytes of each token: a byte-level vocabulary writes a byte as one character. 0 for special tokens."""
    model = json.loads(tokenizer.read_text())
    lengths = {i: len(text) for text, i in model["model"]["vocab"].items()}
    lengths.update({t["id"]: 0 for t in model["added_tokens"]})
    return [lengths[i] for i in range(len(lengths))]
