#!/usr/bin/env python3
"""Trains one model from a configuration: train.py CONFIG.toml --data DATA --out FOLDER

Writes FOLDER/NAME.pt (sizes, and the weights of the best step) and FOLDER/NAME.json (losses by step) after each phase.
Every phase keeps its best weights, by the loss on what was held out, and stops early once that has risen for long; the
next phase starts from them. With --max-minutes the schedule is compressed, so that the learning rate still falls to its
end. --set train.dropout=0.2 changes one value of the configuration.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from packages import packages

with packages():
    import torch
    import torch.nn.functional as F
    from data import Batch, HeldOut, Sampler, Source
    from model import Model, ModelConfig
    from torch import Tensor

BALANCE = 0.01  # weight of the experts' balance loss
GRADIENT_NORM = 1.0
WARM_UP = 0.04  # share of the first phase
MANY_LAYERS = 12  # from here on a compilation that serves all layers is better than one of the whole model
PATIENCE = 6  # evaluations without a new best before a phase ends

Config = dict[str, Any]
LossOf = Callable[["Tensor", "Tensor", "Tensor", "Tensor | None"], "tuple[Tensor, Tensor]"]


def read_config(path: Path, changes: list[str]) -> Config:
    """The configuration with values replaced by `section.key=value`."""
    config: Config = tomllib.loads(path.read_text())
    for change in changes:
        key, _, value = change.partition("=")
        *sections, last = key.split(".")
        table: Any = config
        for section in sections:
            table = table[int(section)] if isinstance(table, list) else table[section]
        table[last] = tomllib.loads(f"v = {value}")["v"]
    return config


def make_optimizer(model: Model, weight_decay: float) -> torch.optim.AdamW:
    """Decay for the layers' matrices; none for norms and the embedding table."""
    decayed = [p for n, p in model.named_parameters() if p.ndim > 1 and "token_embd" not in n]
    rest = [p for n, p in model.named_parameters() if p.ndim <= 1 or "token_embd" in n]
    groups = [{"params": decayed, "weight_decay": weight_decay}, {"params": rest, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=0.0, betas=(0.9, 0.95), fused=next(model.parameters()).is_cuda)


def token_losses(logits: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten(), reduction="none").view(targets.shape)


def loss_function(model: Model, distill: float) -> LossOf:
    """(loss to minimise, cross-entropy) of inputs, targets, mask, and the teachers' probabilities if there are any."""

    def loss_of(inputs: Tensor, targets: Tensor, mask: Tensor, teacher: Tensor | None) -> tuple[Tensor, Tensor]:
        logits, balance = model(inputs)
        weight = mask / mask.sum().clamp(min=1)
        plain = (token_losses(logits, targets) * weight).sum()
        total = plain
        if teacher is not None:
            log_p = F.log_softmax(logits.float(), dim=-1)
            follow = -((teacher * log_p).sum(-1) * weight).sum()
            total = (1 - distill) * plain + distill * follow
        return total + BALANCE * balance, plain.detach()

    return loss_of


def teacher_function(teachers: list[Model]) -> Callable[[Tensor], Tensor | None]:
    """The mean of the teachers' probabilities for inputs, None without teachers."""

    @torch.no_grad()
    def teach(inputs: Tensor) -> Tensor | None:
        parts = [F.softmax(teacher(inputs)[0].float(), dim=-1) for teacher in teachers]
        return sum(parts[1:], parts[0]) / len(parts) if parts else None

    return teach


def compile_layers(model: Model) -> None:
    for block in model.blk:
        block.compile(dynamic=False)


class Trainer:
    """State of one training run."""

    def __init__(self, config: Config, options: argparse.Namespace) -> None:
        torch.manual_seed(options.seed)
        torch.set_float32_matmul_precision("high")
        self.device = device_of(options.device)
        self.config, self.settings = config, config["train"]
        vocab = json.loads((options.data / "meta.json").read_text())["vocab"]
        self.sizes = ModelConfig(vocab=int(vocab), **config["model"])
        self.model = Model(self.sizes, self.settings["dropout"]).to(self.device)
        self.optimizer = make_optimizer(self.model, self.settings["weight_decay"])
        names = sorted({name for phase in config["phase"] for name in phase["mix"]})
        sources = {name: Source(options.data, name, self.device) for name in names}
        self.sampler = Sampler(sources, self.settings["rows"], self.sizes.context, options.seed, self.device)
        self.held_out = HeldOut(options.data, min(512, self.sizes.context), self.device)
        self.held_out_bytes = self.held_out.story_bytes()
        teachers = [load_model(path, self.device) for path in options.teacher]
        self.teach = teacher_function(teachers)
        self.loss_of = loss_function(self.model, self.settings.get("distill", 0.5))
        if options.init:
            self.model.load_state_dict(torch.load(options.init, map_location=self.device, weights_only=True)["weights"])
        if options.compile:
            self.compile(teachers)
        self.log: dict[str, Any] = {
            "name": config["name"], "config": config, "parameters": self.model.n_parameters(), "seed": options.seed,
            "teachers": len(options.teacher), "held_out_bytes": self.held_out_bytes, "steps": [], "evaluations": [],
        }  # fmt: skip
        self.step = 0

    def compile(self, teachers: list[Model]) -> None:
        """What is trained in one piece, with its loss, unless it has many layers; a teacher of many layer by layer."""
        if len(self.model.blk) < MANY_LAYERS:
            self.loss_of = torch.compile(self.loss_of, dynamic=False)
        else:
            compile_layers(self.model)
        if all(len(teacher.blk) < MANY_LAYERS for teacher in teachers):
            self.teach = torch.compile(self.teach, dynamic=False)
        else:
            for teacher in teachers:
                compile_layers(teacher)

    def autocast(self) -> torch.autocast:
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda")

    def losses(self, batch: Batch) -> tuple[float, int]:
        """(sum of the scored tokens' losses, their number) without dropout."""
        self.model.eval()
        total = 0.0
        for i in range(0, len(batch.inputs), 32):
            part = slice(i, i + 32)
            with torch.no_grad(), self.autocast():
                logits, _ = self.model(batch.inputs[part])
            total += float((token_losses(logits, batch.targets[part]) * batch.mask[part]).sum())
        self.model.train()
        return total, int(batch.mask.sum())

    def evaluate(self, phase: int, seconds: float) -> dict[str, float]:
        nll, tokens = self.losses(self.held_out.story_batch())
        said, said_tokens = self.losses(self.held_out.dialogue_batch())
        result = {
            "phase": phase, "step": self.step, "seconds": round(seconds, 1), "loss": nll / tokens,
            "nll_per_byte": nll / self.held_out_bytes, "dialogue_loss": said / said_tokens,
        }  # fmt: skip
        self.log["evaluations"].append(result)
        print(
            f"{self.config['name']} phase {phase} step {self.step} {seconds:.0f} s: held out {result['loss']:.4f} per "
            f"token, {result['nll_per_byte']:.4f} per byte, dialogue {result['dialogue_loss']:.4f}",
            flush=True,
        )
        return result

    def one_step(self, shares: dict[str, float], lr: float) -> float:
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        batch = self.sampler.batch(shares)
        with self.autocast():
            teacher = self.teach(batch.inputs)
            loss, plain = self.loss_of(batch.inputs, batch.targets, batch.mask, teacher)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), GRADIENT_NORM)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.step += 1
        if self.step % 10 == 0 or self.step == 1:
            self.log["steps"].append({"step": self.step, "lr": lr, "loss": float(plain)})
        return lr

    def run_phase(self, number: int, limit: float) -> None:
        """One phase, at most `limit` seconds; leaves the best weights in the model."""
        phase = self.config["phase"][number]
        steps, (high, low), every = phase["steps"], phase["lr"], self.settings.get("eval_every", 100)
        key = "dialogue_loss" if "dialogue" in phase["mix"] else "loss"
        best, best_state, since_best = math.inf, copy.deepcopy(self.model.state_dict()), 0
        begin, done, progress = time.monotonic(), 0, 0.0
        while progress < 1 and since_best < PATIENCE:
            lr = low + (high - low) * 0.5 * (1 + math.cos(math.pi * progress))
            if number == 0:
                lr *= min(1.0, (progress + 1e-3) / WARM_UP)
            shares = {name: a + (b - a) * progress for name, (a, b) in phase["mix"].items()}
            self.one_step(shares, lr)
            done += 1
            if done == 1:
                begin = time.monotonic()  # the first step compiles
            progress = max(done / steps, (time.monotonic() - begin) / limit)
            if done % every == 0 or progress >= 1:
                result = self.evaluate(number, time.monotonic() - begin)
                since_best += 1
                if result[key] < best:
                    best, best_state, since_best = result[key], copy.deepcopy(self.model.state_dict()), 0
        self.model.load_state_dict(best_state)

    def run(self, minutes: float | None, folder: Path) -> None:
        begin = time.monotonic()
        total = sum(phase["steps"] for phase in self.config["phase"])
        for number, phase in enumerate(self.config["phase"]):
            share = phase["steps"] / total
            self.run_phase(number, math.inf if minutes is None else 60 * minutes * share)
            self.save(folder)
        self.log["seconds"] = round(time.monotonic() - begin, 1)
        self.log["final"] = self.evaluate(len(self.config["phase"]), self.log["seconds"])
        self.save(folder)

    def save(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        name = self.config["name"]
        about = {"name": name, "description": self.config["description"], "sizes": self.sizes.to_dict()}
        weights = {n: p.float().cpu() for n, p in self.model.state_dict().items()}
        torch.save({"about": about, "weights": weights}, folder / f"{name}.pt")
        (folder / f"{name}.json").write_text(json.dumps(self.log) + "\n")


def device_of(name: str | None) -> torch.device:
    """That of a name, without one the GPU where there is one."""
    return torch.device(name or ("cuda" if torch.cuda.is_available() else "cpu"))


def load_model(path: Path, device: torch.device) -> Model:
    """A trained model, to be used and not trained."""
    saved = torch.load(path, map_location=device, weights_only=True)
    model = Model(ModelConfig(**saved["about"]["sizes"])).to(device)
    model.load_state_dict(saved["weights"])
    return model.eval().requires_grad_(False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", type=Path, metavar="CONFIG.toml")
    parser.add_argument("--data", type=Path, required=True, help="folder that prepare.py wrote")
    parser.add_argument("--out", type=Path, required=True, help="folder for NAME.pt and NAME.json")
    parser.add_argument(
        "--teacher", type=Path, action="append", default=[], help="a trained .pt to learn from; repeatable"
    )
    parser.add_argument(
        "--init", type=Path, metavar="NAME.pt", help="weights to begin with, by transplant.py or train.py"
    )
    parser.add_argument("--max-minutes", type=float, help="time for the steps, compilation aside (default: no limit)")
    parser.add_argument("--compile", action="store_true", help="compile by torch.compile: faster after a minute")
    parser.add_argument("--device", help="(default: cuda where there is a GPU)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="replace a value; repeatable")
    options = parser.parse_args()
    trainer = Trainer(read_config(options.config, options.set), options)
    print(f"{trainer.config['name']}: {trainer.model.n_parameters():,} parameters on {trainer.device}", flush=True)
    trainer.run(options.max_minutes, options.out)


if __name__ == "__main__":
    main()
