#!/usr/bin/env python3
"""Teaches a model to prefer its better answers: prefer.py NAME.pt --pairs PAIRS.npz --data DATA --out FOLDER

PAIRS are what choose.py made of the model's own answers. Direct preference optimisation: the odds of the better answer
against the worse one are to rise over what they were; a part of the loss is that of the better answer itself. It ends
when the pairs are used up, or goes back to the last weights at which what was held out was predicted well enough.
Writes FOLDER/NAME.pt and FOLDER/NAME-prefer.json.
"""

from __future__ import annotations

import argparse
import copy
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from packages import packages

with packages():
    import numpy as np
    import torch
    import torch.nn.functional as F
    from data import HeldOut
    from model import Model, ModelConfig
    from torch import Tensor
    from train import GRADIENT_NORM, device_of, make_optimizer, token_losses

EVERY = 10  # steps between two looks at what was held out
WARM_UP = 0.1  # share of the steps
TESTED = 0.05  # share of the pairs that are only looked at


class Pairs:
    """Rows 2i and 2i + 1 are a better and a worse answer."""

    def __init__(self, path: Path, device: torch.device) -> None:
        arrays = np.load(path)
        self.ids = torch.from_numpy(arrays["ids"].astype(np.int64)).to(device)
        at = torch.arange(1, self.ids.shape[1], device=device)[None]
        begin, end = (torch.from_numpy(arrays[n].astype(np.int64)).to(device)[:, None] for n in ("begin", "end"))
        self.mask = ((at >= begin) & (at < end)).float()
        self.count = len(self.ids) // 2
        self.tested = max(1, int(TESTED * self.count))  # the first ones

    def rows(self, pairs: Tensor) -> Tensor:
        return torch.stack((2 * pairs, 2 * pairs + 1), 1).flatten()

    def batches(self, size: int, epochs: int, rng: torch.Generator) -> Iterator[Tensor]:
        learned = torch.arange(self.tested, self.count)
        for _ in range(epochs):
            order = learned[torch.randperm(len(learned), generator=rng)]
            yield from (part for part in order.split(size) if len(part) == min(size, len(learned)))


class Preference:
    """State of one run."""

    def __init__(self, options: argparse.Namespace) -> None:
        torch.manual_seed(options.seed)
        self.options, self.device = options, device_of(options.device)
        saved = torch.load(options.checkpoint, map_location=self.device, weights_only=True)
        self.about = saved["about"]
        self.model = Model(ModelConfig(**self.about["sizes"])).to(self.device)
        self.model.load_state_dict(saved["weights"])
        self.optimizer = make_optimizer(self.model, 0.0)
        self.pairs = Pairs(options.pairs, self.device)
        self.held_out = HeldOut(options.data, min(512, self.model.c.context), self.device)
        self.held_out_bytes = self.held_out.story_bytes()
        self.log: list[dict[str, Any]] = []

    def autocast(self) -> torch.autocast:
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda")

    def log_probabilities(self, rows: Tensor) -> Tensor:
        """Of the answers in these rows, as wholes."""
        ids, mask = self.pairs.ids[rows], self.pairs.mask[rows]
        with self.autocast():
            logits, _ = self.model(ids[:, :-1])
        return -(token_losses(logits, ids[:, 1:]) * mask).sum(1)

    def reference(self) -> Tensor:
        """What the model said of all rows before it learned anything."""
        rows = torch.arange(2 * self.pairs.count, device=self.device)
        with torch.no_grad():
            return torch.cat([self.log_probabilities(part) for part in rows.split(64)])

    def margins(self, pairs: Tensor, reference: Tensor) -> tuple[Tensor, Tensor]:
        """How much more the odds of the better answers rose, and the loss per token of these."""
        rows = self.pairs.rows(pairs).to(self.device)
        now = self.log_probabilities(rows)
        gain = (now - reference[rows]).view(-1, 2)
        better = rows[0::2]
        plain = -now[0::2].sum() / self.pairs.mask[better].sum()
        return gain[:, 0] - gain[:, 1], plain

    def evaluate(self, step: int, reference: Tensor) -> float:
        """Loss per byte of the held out stories; logs it and how the tested pairs fare."""
        batch, total = self.held_out.story_batch(), 0.0
        for i in range(0, len(batch.inputs), 32):
            with torch.no_grad(), self.autocast():
                logits, _ = self.model(batch.inputs[i : i + 32])
            total += float((token_losses(logits, batch.targets[i : i + 32]) * batch.mask[i : i + 32]).sum())
        tested = torch.arange(self.pairs.tested).split(self.options.rows)
        with torch.no_grad():
            margin = torch.cat([self.margins(part, reference)[0] for part in tested])
        result = {
            "step": step, "nll_per_byte": total / self.held_out_bytes, "margin": float(margin.mean()),
            "preferred": float((margin > 0).float().mean()),
        }  # fmt: skip
        self.log.append(result)
        print(f"{self.about['name']} " + ", ".join(f"{k} {v:.4g}" for k, v in result.items()), flush=True)
        return result["nll_per_byte"]

    def run(self) -> None:
        o, began = self.options, time.monotonic()
        reference = self.reference()
        batches = list(self.pairs.batches(o.rows, o.epochs, torch.Generator().manual_seed(o.seed)))
        limit = self.evaluate(0, reference) * (1 + o.rise)
        good = copy.deepcopy(self.model.state_dict())
        for step, pairs in enumerate(batches, 1):
            progress = step / len(batches)
            for group in self.optimizer.param_groups:
                group["lr"] = o.lr * min(1.0, progress / WARM_UP, 1.1 - progress)
            margin, plain = self.margins(pairs, reference)
            loss = -F.logsigmoid(o.beta * margin).mean() + o.plain * plain
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), GRADIENT_NORM)
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
            if step % EVERY == 0 or step == len(batches):
                if self.evaluate(step, reference) > limit:
                    break
                good = copy.deepcopy(self.model.state_dict())
                if time.monotonic() - began > o.max_seconds:
                    break
        self.save(good)

    def save(self, weights: dict[str, Tensor]) -> None:
        self.options.out.mkdir(parents=True, exist_ok=True)
        name = self.about["name"]
        saved = {"about": self.about, "weights": {n: p.float().cpu() for n, p in weights.items()}}
        torch.save(saved, self.options.out / f"{name}.pt")
        settings = {k: v for k, v in vars(self.options).items() if isinstance(v, (int, float))}
        log = {"settings": settings, "pairs": self.pairs.count, "evaluations": self.log}
        (self.options.out / f"{name}-prefer.json").write_text(json.dumps(log) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=Path, metavar="NAME.pt")
    parser.add_argument("--pairs", type=Path, required=True, metavar="PAIRS.npz")
    parser.add_argument("--data", type=Path, required=True, metavar="DATA", help="folder that prepare.py wrote")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--lr", type=float, default=1e-4, help="highest learning rate (default 1e-4)")
    parser.add_argument(
        "--beta", type=float, default=0.1, help="how firmly the first weights are held to (default 0.1)"
    )
    parser.add_argument("--plain", type=float, default=0.5, help="weight of the better answer's own loss (default 0.5)")
    parser.add_argument("--rise", type=float, default=0.015, help="how far the held out loss may rise (default 0.015)")
    parser.add_argument("--rows", type=int, default=32, help="pairs of a step (default 32)")
    parser.add_argument("--epochs", type=int, default=1, help="times that a pair is seen (default 1)")
    parser.add_argument("--max-seconds", type=float, default=600, help="ends earlier if it takes longer (default 600)")
    parser.add_argument("--device", help="(default: cuda where there is a GPU)")
    parser.add_argument("--seed", type=int, default=1)
    Preference(parser.parse_args()).run()


if __name__ == "__main__":
    main()
