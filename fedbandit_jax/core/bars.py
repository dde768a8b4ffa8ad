"""Progress bars in terminals and notebooks."""

import sys
from typing import Any

from tqdm import tqdm


def bar(progress: bool | None, iterable: Any = None, **options: Any) -> tqdm:
    """Makes a progress bar; None shows it only in a terminal or a notebook."""
    shown = (sys.stderr.isatty() or "ipykernel" in sys.modules) if progress is None else progress
    return tqdm(iterable, disable=not shown, **options)
