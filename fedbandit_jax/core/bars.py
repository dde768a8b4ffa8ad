"""Bars of progress, in terminals and in notebooks."""

import sys
from typing import Any

from tqdm import tqdm


def bar(progress: bool | None, iterable: Any = None, **options: Any) -> tqdm:
    """A bar; by default (None) it is shown where a person looks on: in a terminal or a notebook."""
    shown = (sys.stderr.isatty() or "ipykernel" in sys.modules) if progress is None else progress
    return tqdm(iterable, disable=not shown, **options)
