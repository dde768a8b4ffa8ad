"""Writes figures: PNG for screens, PDF for papers, SVG for pages; equal figures become equal files."""

from __future__ import annotations

import functools
import io
from pathlib import Path
from typing import IO, Any

import matplotlib as mpl
import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from fedbandit_jax.core import validate
from fedbandit_jax.core.files.atomic import write_atomic

_METADATA: dict[str, dict[str, Any]] = {  # without dates and versions
    "png": {"Software": None},
    "pdf": {"Creator": None, "Producer": None, "CreationDate": None},
    "svg": {"Creator": None, "Date": None, "Format": None, "Type": None},
}
_OTHERS = ("jpg", "jpeg", "gif", "tif", "tiff", "webp", "bmp", "eps", "ps")  # endings that ask for what is not written
_STYLE: Any = {"pdf.fonttype": 42, "svg.fonttype": "path", "svg.hashsalt": "fedbandit_jax"}  # 42: TrueType, embedded


def save(figure: Figure, path: str | Path) -> tuple[Path, ...]:
    """Writes a figure, complete or not at all, closes it, and returns the paths of the files.

    The ending says the format: .png, .pdf with embedded TrueType fonts, or .svg. Without one of these a PNG and a PDF
    are written. Equal figures become equal files.

    Args:
        figure: the figure.
        path: of the file, or of both files without their endings; missing folders are made.

    Raises:
        ValueError, TypeError: an argument is not one of these, or the ending is that of another format.
        OSError: a file cannot be written; one that was there before stays.

    Example:
        >>> import tempfile
        >>> figure = plt.figure()
        >>> [path.name for path in save(figure, tempfile.mkdtemp() + "/run")]
        ['run.png', 'run.pdf']
    """
    validate.instance("figure", figure, Figure, "a matplotlib Figure")
    path = validate.path("path", path)
    if not path.name:
        raise ValueError(f"path must name a file, got {str(path)!r}")
    kind = path.suffix.removeprefix(".").lower()
    if kind in _OTHERS:
        raise ValueError(f"path must end in .png, .pdf or .svg, or say no format, got {str(path)!r}")
    paths = (path,) if kind in _METADATA else (path.with_name(f"{path.name}.png"), path.with_name(f"{path.name}.pdf"))
    path.parent.mkdir(parents=True, exist_ok=True)
    for one in paths:
        write_atomic(one, functools.partial(_write, figure, one.suffix[1:].lower()))
    plt.close(figure)
    return paths


def svg(figure: Figure) -> str:
    """Returns a figure as the text of an SVG file, and closes it."""
    file = io.BytesIO()
    _write(figure, "svg", file)
    plt.close(figure)
    return file.getvalue().decode()


def _write(figure: Figure, kind: str, file: IO[bytes]) -> None:
    with mpl.rc_context(_STYLE):
        figure.savefig(file, format=kind, dpi=150, bbox_inches="tight", metadata=_METADATA[kind])
