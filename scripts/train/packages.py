"""What is said where the packages that training needs are not installed."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import peer  # noqa: E402


def packages() -> AbstractContextManager[None]:
    """Around imports of packages that a machine may lack; the help is printed without them."""
    return peer.packages("training needs numpy, tokenizers and torch, plot.py matplotlib")
