#!/usr/bin/env python3
"""Draws training and held out losses of one or more logs: plot.py NAME.json... --out curves.png (needs matplotlib)"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402


def smoothed(values: list[float], weight: float = 0.9) -> list[float]:
    """Exponential mean: single batches differ more than steps do."""
    out: list[float] = []
    mean = values[0] if values else 0.0
    for value in values:
        mean = weight * mean + (1 - weight) * value
        out.append(mean)
    return out


def draw(axes: Any, log: dict[str, Any]) -> None:
    steps = [s["step"] for s in log["steps"]]
    axes.plot(steps, smoothed([s["loss"] for s in log["steps"]]), color="0.6", label="training batches")
    evaluations = log["evaluations"]
    at = [e["step"] for e in evaluations]
    axes.plot(at, [e["loss"] for e in evaluations], "o-", markersize=3, label="held out stories")
    axes.plot(at, [e["dialogue_loss"] for e in evaluations], "s-", markersize=3, label="held out answers")
    first_of_second = next((e["step"] for e in evaluations if e["phase"] == 1), None)
    if first_of_second:
        axes.axvline(max(s for s in [0, *[e["step"] for e in evaluations if e["phase"] == 0]]), color="0.8", zorder=0)
    axes.set_title(f"{log['name']}, {log['parameters'] / 1e6:.1f} million weights")
    axes.set_xlabel("step")
    axes.set_ylabel("nats per token")
    losses = [e["loss"] for e in evaluations]
    axes.set_ylim(0.8 * min(losses), min(5.0, 1.1 * max(losses)))
    axes.legend()
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
