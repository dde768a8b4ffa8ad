"""Common parts of all figures: axes, scales, a legend below the axes, words, and files.

PNG is for screens, PDF for papers and SVG for pages. Equal figures give equal files.
"""

from __future__ import annotations

import functools
import io
import re
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Literal

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.mathtext import MathTextParser
from matplotlib.ticker import LogLocator, NullFormatter, ScalarFormatter
from matplotlib.transforms import ScaledTranslation
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from fedbandit_jax.certificate import Certificate
from fedbandit_jax.core import validate
from fedbandit_jax.core.files import write_atomic
from fedbandit_jax.core.validate import BadValue
from fedbandit_jax.report.plotting.colours import checked_keys
from fedbandit_jax.report.result import Result
from fedbandit_jax.report.tables import bases

SIZE = (6.4, 4.8)  # inches of a new figure without its legend
BELOW = 0.55  # inches between axes and legend, for ticks and labels
INSIDE = (0.02, 0.98)  # ends of a horizontal line, as shares of the axes, with whole markers
WIDTH = 72  # characters in a line of a title or a legend
SPREAD = 8  # ratio of positive numbers from which their axis is logarithmic
_METADATA: dict[str, dict[str, Any]] = {  # without dates and versions
    "png": {"Software": "fedbandit_jax"},
    "pdf": {"Creator": "fedbandit_jax", "Producer": None, "CreationDate": None},
    "svg": {"Creator": "fedbandit_jax", "Date": None, "Format": None, "Type": None},
}
SYMBOLS = {"epsilon": "ε", "delta": "δ", "n_agents": "M", "n_arms": "K", "dim": "d", "horizon": "T"}
PIXELS = 180  # of an inch of a PNG
LONGEST = 500  # most characters of a text in a figure
_OTHERS = ("jpg", "jpeg", "gif", "tif", "tiff", "webp", "bmp", "eps", "ps")  # endings of unsupported formats
_STYLE: Any = {"pdf.fonttype": 42, "svg.fonttype": "path", "svg.hashsalt": "fedbandit_jax"}  # 42: TrueType, embedded


def checked(result: Any, ax: Any, names: Any = None) -> Axes:
    """Checks the arguments of a figure, and returns its axes."""
    validate.instance("result", result, Result, "an fb.Result")
    for name in checked_keys("names", names, result).values():
        validate.text("names", name)
    validate.instance("ax", ax, (Axes, type(None)), "matplotlib's Axes or None")
    return plt.subplots(figsize=SIZE, layout="constrained")[1] if ax is None else ax


def finish(result: Result, ax: Axes, title: str, *, ours: bool, below: float = 0.0, legend: bool = True) -> Figure:
    """Adds title and seeds, grid and, below the axes, a legend, which makes a figure of `ours` taller.

    The legend first names models that generated answers. `below` are additional inches for ticks.
    """
    n = result.status.shape[-1]
    if lines := [*filter(None, [title]), *[f"mean of {n} seeds ± 1 s.e."] * (n > 1)]:
        ax.set_title(wrapped("\n".join(lines)), fontsize="medium")
    ax.grid(alpha=0.3)
    for axis in (ax.xaxis, ax.yaxis):
        if type(axis.get_major_formatter()) is ScalarFormatter:
            axis.set_major_formatter("{x:,.10g}")
    handles, labels = ax.get_legend_handles_labels()
    figure = ax.get_figure(root=True)
    assert figure is not None
    if not legend:
        name_ends(ax)
        return once(figure) if ours else figure
    place = ax.transAxes + ScaledTranslation(0, -BELOW - below, figure.dpi_scale_trans)
    style: dict[str, Any] = dict(loc="upper left", bbox_to_anchor=(0, 0), bbox_transform=place, borderaxespad=0)
    if len(labels) > 8 and max(map(len, labels)) <= WIDTH // 2 - 4:
        style["ncols"] = 2
    names = [wrapped(label) for label in labels]
    if found := bases(result):
        style |= dict(title=wrapped("\n".join(found).replace("$", r"\$")), title_fontsize="small", alignment="left")
    box = ax.legend(handles, names, frameon=False, fontsize="small", **style)
    if ours:
        inches = box.get_window_extent().height / figure.dpi
        figure.set_size_inches(SIZE[0], SIZE[1] + inches + below)
    return once(figure) if ours else figure


def name_ends(ax: Axes) -> None:
    """Writes the name of every curve at its right end, and apart from its neighbours."""
    figure = ax.get_figure(root=True)
    assert figure is not None
    handles, labels = ax.get_legend_handles_labels()
    lines: list[Any] = [handle[0] if isinstance(handle, tuple) else handle for handle in handles]
    figure.draw_without_rendering()
    points, place = 72 / figure.dpi, ax.get_yaxis_transform()
    heights = [place.transform((1, line.get_ydata()[-1]))[1] for line in lines]
    apart = 1.2 * mpl.rcParams["font.size"] / points
    at = sorted(range(len(lines)), key=lambda i: heights[i])
    spread = np.array([heights[i] for i in at])
    for _ in range(200):  # neighbours push each other, until none is too near
        gaps = apart - np.diff(spread)
        if not gaps.size or gaps.max() < 0.1:
            break
        push = np.maximum(gaps, 0) / 2
        spread[:-1] -= push
        spread[1:] += push
    for i, height in zip(at, spread):
        there = (1.0, float(lines[i].get_ydata()[-1]))
        offset = (10.0, float(height - heights[i]) * points)
        moved = dict(arrowstyle="-", color=lines[i].get_color(), linewidth=0.6, shrinkA=0, shrinkB=0)
        ax.annotate(
            drawable(labels[i]), there, offset, xycoords=place, textcoords="offset points",
            color=lines[i].get_color(), va="center", arrowprops=moved, annotation_clip=False,
        )  # fmt: skip


def once(figure: Figure) -> Figure:
    """Closes a figure in pyplot if a notebook would draw it twice, and returns it."""
    if mpl.get_backend() in ("inline", "module://matplotlib_inline.backend_inline"):
        plt.close(figure)
    return figure


def scale(ax: Axes, which: Literal["x", "y"], values: np.ndarray) -> None:
    """Makes an axis logarithmic if its values are positive and differ by much. Other vertical axes start at 0."""
    values = values[np.isfinite(values)]
    if values.size and values.min() > 0 and values.max() > SPREAD * values.min():
        ax.set(**{f"{which}scale": "log"})
        if values.max() < 100 * values.min():  # too few powers of ten
            axis = ax.xaxis if which == "x" else ax.yaxis
            axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axis.set_major_formatter(lambda x, _: tick(x))
            axis.set_minor_formatter(NullFormatter())
    elif which == "y":
        ax.set_ylim(bottom=min(0.0, *values) if values.size else 0)


def in_words(label: str) -> str:
    """Formats a label of a sweep for human readers.

    >>> in_words("FedLinUCB(epsilon=1.0, n_agents=8, schedule=Every(batch=25))")
    'FedLinUCB, ε = 1, M = 8, schedule = Every(batch=25)'
    >>> in_words("mine (v=2)")
    'mine (v=2)'
    >>> in_words("mine (new)(epsilon=1.0)")
    'mine (new), ε = 1'
    """
    start = _last_bracket(label)
    name, inside = label[:start], label[start + 1 : -1]
    if name.endswith(" ") or not label.endswith(")") or not re.match(r"[\w.]+=", inside):
        return label
    return ", ".join([name, *(equation(*part.split("=", 1)) for part in re.split(r", (?![^(]*\))", inside))])


def _last_bracket(label: str) -> int:
    """Returns the index of the bracket that matches the last one of a label, or 0."""
    depth = 0
    for i in range(len(label) - 1, 0, -1):
        depth += {")": 1, "(": -1}.get(label[i], 0)
        if not depth:
            return i if label[i] == "(" else 0
    return 0


def equation(name: str, value: str) -> str:
    """Formats a coordinate of a sweep: `epsilon=1.0` as ε = 1, and `delta=1e-06` as δ = $10^{-6}$."""
    if re.fullmatch(r"[\d.]+e[-+]\d+", value):
        value = tick(float(value))
    return f"{SYMBOLS.get(name, name)} = {value.removesuffix('.0')}"


def tick(number: float) -> str:
    """Formats a number at a tick, with powers of ten.

    >>> tick(0.5), tick(2e4), tick(1e7), tick(2e-5)
    ('0.5', '20,000', '$10^{7}$', '$2 \\\\times 10^{-5}$')
    """
    digits, e, power = f"{number:,g}".partition("e")
    factor = "" if digits == "1" else rf"{digits} \times "
    return f"${factor}10^{{{int(power)}}}$" if e else digits


def tick_words(ax: Axes, words: Sequence[str]) -> float:
    """Writes words at 0, 1, ... on the horizontal axis. Returns the additional inches that they need."""
    words = list(map(drawable, words))
    lines = [textwrap.wrap(word, max(8, 60 // len(words)), break_long_words=False) or [""] for word in words]
    ax.margins(x=0.1)
    if len(words) * max(len(line) for one in lines for line in one) <= 66:  # they fit side by side
        ax.set_xticks(range(len(words)), ["\n".join(one) for one in lines], fontsize="small")
        return 0.15 * (max(map(len, lines)) - 1)
    ax.set_xticks(range(len(words)), words, fontsize="small", rotation=90)
    return 0.065 * max(map(len, words))


def wrapped(text: str) -> str:
    r"""Wraps a text to the width of a figure. A formula between $ stays on one line.

    >>> len(wrapped(f"{64 * 'x'} at $7 \\times 10^{{-5}}$").splitlines())
    2
    """
    whole = re.sub(r"(?<!\\)\$.*?\$", lambda formula: formula[0].replace(" ", "~"), drawable(text))
    lines = "\n".join(textwrap.fill(line, WIDTH, subsequent_indent="  ") for line in whole.splitlines())
    return re.sub(r"(?<!\\)\$.*?\$", lambda formula: formula[0].replace("~", " "), lines)


def drawable(text: str) -> str:
    """Shortens a text to `LONGEST` characters, and escapes the dollars of lines without valid formulas."""
    if len(text) > LONGEST:
        text = f"{text[:LONGEST]}..."
    return "\n".join(map(_escaped, text.split("\n")))


def _escaped(line: str) -> str:
    try:
        if "$" in line:
            MathTextParser("path").parse(line)
    except ValueError:
        return re.sub(r"(?<!\\)\$", r"\$", line)
    return line


def whose(result: Result) -> str:
    """Returns the name of the regret: of a group, or of one agent."""
    worlds = result.config["environments"].values()
    return "group regret" if any(world["spec"]["n_agents"] > 1 for world in worlds) else "regret"


def places(result: Result) -> str:
    """Formats the environments and their sizes, for titles."""
    found = list(dict.fromkeys(map(_place, result.config["environments"].values())))
    return "; ".join(found[:3]) + (f"; and {len(found) - 3} more" if len(found) > 3 else "")


def budgets(result: Result) -> str:
    """Formats the requested budgets for a title: every ε, and δ if all ask for (ε, δ)-DP at the same one."""
    asked = [one for one in result.certificates.values() if one.epsilon and not one.per_silo]
    epsilons = sorted({one.epsilon for one in asked if one.epsilon})
    if not epsilons:
        return ""
    few = ", ".join(f"{one:g}" for one in epsilons)
    words = f"; ε = {few if len(epsilons) < 6 else f'{epsilons[0]:g} to {epsilons[-1]:g}'}"
    ((notion, delta), *others) = {(one.notion, one.delta) for one in asked}
    return f"{words}, δ = {tick(delta)}" if delta and notion == Certificate.notion and not others else words


def _place(world: Mapping[str, Any]) -> str:
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", world.get("type", "environment")).lower()  # RandomArms: random arms
    return f"{name}: {sizes(world['spec'])}"


def sizes(spec: Mapping[str, Any]) -> str:
    """Formats the sizes of a `Spec` by their letters: only K for arms without features."""
    letters = {"M": "n_agents"} if spec["n_agents"] > 1 else {}
    if spec.get("n_users"):
        letters = {"n": "n_users", **(letters or {"L": "n_servers"})}
    alone = spec["n_agents"] == 1 and spec.get("fixed_contexts") and spec["dim"] == spec["n_arms"]
    letters |= {"K": "n_arms"} if alone else {"K": "n_arms", "d": "dim"}
    return ", ".join(f"{letter} = {spec[name]:,}" for letter, name in letters.items() if name in spec)


def save(figure: Figure, path: str | Path) -> tuple[Path, ...]:
    """Writes a figure atomically, closes it, and returns the paths of the files.

    The ending sets the format: .png, .pdf with embedded TrueType fonts, or .svg. Without one of these it writes a PNG
    and a PDF. Equal figures give equal files.

    Args:
        figure: the figure.
        path: path of the file, or of both without their endings; missing folders are created.

    Raises:
        OSError: a file is not writable; an old one is kept.

    Example:
        >>> import tempfile
        >>> figure = plt.figure()
        >>> [path.name for path in save(figure, tempfile.mkdtemp() + "/run")]
        ['run.png', 'run.pdf']
    """
    validate.instance("figure", figure, Figure, "a matplotlib Figure")
    path = validate.path("path", path)
    if not path.name:
        raise BadValue("path", "must name a file", str(path))
    kind = path.suffix.removeprefix(".").lower()
    if kind in _OTHERS:
        raise BadValue("path", "must end in .png, .pdf or .svg, or without a format", str(path))
    paths = (path,) if kind in _METADATA else (path.with_name(f"{path.name}.png"), path.with_name(f"{path.name}.pdf"))
    path.parent.mkdir(parents=True, exist_ok=True)
    for one in paths:
        write_atomic(one, functools.partial(_write, figure, one.suffix[1:].lower()))
    plt.close(figure)
    return paths


def _write(figure: Figure, kind: str, file: IO[bytes]) -> None:
    with mpl.rc_context(_STYLE):
        drawn = file if kind != "png" else io.BytesIO()
        figure.savefig(drawn, format=kind, dpi=PIXELS, bbox_inches="tight", metadata=_METADATA[kind])
    if kind == "png":
        _in_palette(drawn, file)


def _in_palette(drawn: IO[bytes], file: IO[bytes]) -> None:
    """Writes an opaque PNG with a palette of 256 colours, which is a third as large."""
    image = Image.open(drawn)
    words = PngInfo()
    for name, text in _METADATA["png"].items():
        words.add_text(name, text)
    if image.getchannel("A").getextrema() == (255, 255):
        image = image.convert("RGB").quantize(256, dither=Image.Dither.NONE)
    image.save(file, "png", optimize=True, pnginfo=words, dpi=(PIXELS, PIXELS))
