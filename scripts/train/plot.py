#!/usr/bin/env python3
"""Draws training and held out losses of one or more logs: plot.py NAME.json... --out curves.png (needs matplotlib)"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from packages import packages

with packages():
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt


def smoothed(values: list[float], weight: float = 0.9) -> list[float]:
    """Exponential mean: single batches differ more than steps do."""
    out: list[float] = []
    mean = values[0] if values else 0.0
    for value in values:
        mean = weight * mean + (1 - weight) * value
        out.append(mean)
    return out


def kept(log: dict[str, Any], phase: int) -> dict[str, Any]:
    """The evaluation whose weights a phase kept: train.py judges by the answers where conversations are in the mix."""
    key = "dialogue_loss" if "dialogue" in log["config"]["phase"][phase]["mix"] else "loss"
    return min((e for e in log["evaluations"] if e["phase"] == phase), key=lambda e: e[key])


def draw(axes: Any, log: dict[str, Any]) -> None:
    phases = range(len(log["config"]["phase"]))
    training = smoothed([s["loss"] for s in log["steps"]])
    axes.plot([s["step"] for s in log["steps"]], training, color="0.6", label="training batches, smoothed")
    # After the last phase the weights that it kept are evaluated once more, at a step that they are not from.
    evaluations = [e for e in log["evaluations"] if e["phase"] in phases]
    at = [e["step"] for e in evaluations]
    axes.plot(at, [e["loss"] for e in evaluations], "o-", markersize=3, label="held out stories")
    axes.plot(at, [e["dialogue_loss"] for e in evaluations], "s-", markersize=3, label="held out answers")
    best = [kept(log, phase) for phase in phases]
    marks = [(e["step"], e[key]) for e in best for key in ("loss", "dialogue_loss")]
    axes.plot(*zip(*marks), "o", markersize=9, markerfacecolor="none", color="black", label="kept by its phase")
    for phase in phases[:-1]:
        axes.axvline(max(e["step"] for e in evaluations if e["phase"] == phase), color="0.7", ls="--", zorder=0)
    axes.set_title(f"{log['name']}, {log['parameters'] / 1e6:.1f} million weights")
    axes.set_xlabel("step")
    axes.set_ylabel("nats per token")
    losses = [e[key] for e in evaluations for key in ("loss", "dialogue_loss")]
    axes.set_ylim(0.9 * min(losses + training), min(5.0, 1.1 * max(losses)))
    axes.legend(loc="upper right")
    axes.grid(alpha=0.3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("logs", type=Path, nargs="+", metavar="NAME.json")
    parser.add_argument("--out", type=Path, required=True, metavar="curves.png")
    options = parser.parse_args()
    logs = [json.loads(path.read_text()) for path in options.logs]
    figure, panels = plt.subplots(1, len(logs), figsize=(6 * len(logs), 4), squeeze=False)
    for axes, log in zip(panels[0], logs):
        draw(axes, log)
    figure.tight_layout()
    figure.savefig(options.out, dpi=110)


if __name__ == "__main__":
    main()
