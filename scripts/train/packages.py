"""What is said where the packages that training needs are not installed."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def packages() -> Iterator[None]:
    """Around imports of packages that a machine may lack; the help is printed without them."""
    try:
        yield
    except ModuleNotFoundError as e:
        if {"-h", "--help"}.isdisjoint(sys.argv[1:]):
            sys.exit(f"{Path(sys.argv[0]).name}: {e}: training needs numpy, tokenizers and torch, plot.py matplotlib")
