"""A row of the benchmark: the results of one entry in every task, in a file, with its code."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedbandit_jax.benchmark.entry import TRACKS, digest_of
from fedbandit_jax.benchmark.task import SEEDS, SUITE
from fedbandit_jax.certificate import Certificate, of_fields
from fedbandit_jax.core import validate
from fedbandit_jax.core.files import read_archive, write_archive
from fedbandit_jax.core.validate import BadValue

FORMAT = 1
DRAWS, STREAM = 2000, 36  # resamples of an interval, and their seed
NORMAL = 1.96  # standard errors on either side of a 95 % interval
ARRAYS = ("regret", "uniform", "reference", "syncs", "bits")


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Cell:
    """Result of an entry in one task.

    Attributes:
        task: its name.
        digest: digest of the task.
        refused: why it counts as uniform play; "" if it counts.
        regret, uniform, reference: (n_seeds,) regret at T of the entry, of uniform play, and of the reference without
            privacy, for the same users. They are (0,) if the entry has no recipe for the task.
        syncs: (n_seeds,) rounds of communication.
        bits: (n_seeds,) bits that a silo sent and received, on average; over all agents that arrive one at a time.
        certificate: certificate of the run; None without a run.
        algorithm: account of the recipe.
        provenance: versions, device, date, seconds, the digest of the package's code, and the nonce of the seeds.
    """

    task: str
    digest: str
    refused: str = ""
    regret: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0))
    uniform: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0))
    reference: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0))
    syncs: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0))
    bits: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0))
    certificate: Certificate | None = None
    algorithm: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    provenance: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def check(self, name: str) -> None:
        """Raises a `ValueError` unless a run in the task of this name can have these numbers."""
        numbers = np.stack([getattr(self, part) for part in ARRAYS]).astype(float)
        possible = self.refused != ""  # without a recipe for the task
        if numbers.shape[1]:
            regret, uniform, reference, *_ = numbers.mean(1)
            compared = uniform > reference > 0 and (regret > 0 or self.refused != "")
            possible = compared and numbers.shape[1] == SEEDS and bool(((numbers >= 0) & (numbers < math.inf)).all())
        if self.task != name or not possible:
            raise ValueError(f"no run in {name} has the numbers of its cell")

    @property
    def unchecked(self) -> float:
        """S, at most 1, whether it counts or not; NaN without a run."""
        if not len(self.regret):
            return float("nan")
        with np.errstate(divide="ignore"):  # a regret of 0
            return min(1.0, float(score(self.regret.mean(), self.uniform.mean(), self.reference.mean())))

    @property
    def score(self) -> float:
        """S = ln(R_uniform / R) / ln(R_uniform / R_0) of mean regrets, at most 1; 0 if refused."""
        return 0.0 if self.refused else self.unchecked

    def draws(self) -> np.ndarray:
        """Returns (2000,) bootstrap values of S, counted or not, with the same resampled seeds for all regrets."""
        if not len(self.regret):
            return np.zeros(DRAWS)
        chosen = np.random.default_rng([STREAM, int(self.digest[:8], 16)]).integers(
            0, len(self.regret), (DRAWS, len(self.regret))
        )
        return score(*(getattr(self, name)[chosen].mean(1) for name in ("regret", "uniform", "reference")))

    @property
    def unchecked_error(self) -> float:
        """Standard error of S over seeds, whether it counts or not."""
        return float(self.draws().std())

    @property
    def error(self) -> float:
        """Standard error of `score` over seeds; 0 if refused."""
        return 0.0 if self.refused else self.unchecked_error

    def __repr__(self) -> str:
        return f"Cell({self.task!r}, {self})"

    def __str__(self) -> str:
        return (
            f"counts as uniform play: {self.refused}" if self.refused else f"S = {self.score:.3f} +- {self.error:.3f}"
        )


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Row:
    """Results of an entry in the tasks of the benchmark, made by `fb.benchmark.run`.

    Attributes:
        name: name of the entry.
        about: docstring of its file.
        function, source: name of its function, and text of its file.
        digest: digest of function and source, which determines the seeds.
        track: "one recipe" for all tasks, or "tuned" on development seeds.
        trials: declared number of results seen on development seeds.
        nonce: "" if the code alone determines the seeds; otherwise another input.
        cells: task -> `Cell`.
    """

    name: str
    about: str
    function: str
    source: str
    digest: str
    track: str
    trials: int
    nonce: str = ""
    cells: Mapping[str, Cell] = dataclasses.field(default_factory=dict)

    def __repr__(self) -> str:
        return f"Row({self.name!r}, {len(self.cells)} tasks" + (f", mean S {self.score:.3f})" if self.cells else ")")

    def check(self) -> None:
        """Checks the texts, and that the digest matches the code."""
        for part in ("name", "about", "function", "source", "digest", "nonce"):
            validate.instance(part, getattr(self, part), str, "a text")
        validate.one_of("track", self.track, TRACKS)
        validate.integer("trials", self.trials, at_least=0)
        if self.digest != digest_of(self.function, self.source):
            raise ValueError("its digest does not match its code")

    @property
    def score(self) -> float:
        """Mean of S over the requested tasks, 0 for those without a recipe."""
        return float(np.mean([cell.score for cell in self.cells.values()]))

    @property
    def interval(self) -> tuple[float, float]:
        """95 % interval for `score`: 1.96 standard errors to either side."""
        half = NORMAL * self.error
        return self.score - half, self.score + half

    @property
    def error(self) -> float:
        """Standard error of `score` over seeds, which are independent between tasks."""
        return math.sqrt(sum(cell.error**2 for cell in self.cells.values())) / len(self.cells)

    def save(self, path: str | Path) -> Path:
        """Writes an .npz file atomically, and returns its path."""
        path = validate.path("path", path)
        path.parent.mkdir(parents=True, exist_ok=True)
        about = {name: getattr(self, name) for name in _ABOUT} | {"format": FORMAT, "suite": SUITE}
        about["cells"] = {
            name: {
                **{part: getattr(cell, part) for part in _OF_CELL},
                "certificate": None if cell.certificate is None else dataclasses.asdict(cell.certificate),
            }
            for name, cell in self.cells.items()
        }
        arrays = {f"{name}_{part}": getattr(cell, part) for name, cell in self.cells.items() for part in ARRAYS}
        write_archive(path, "row", about, arrays)
        return path

    @classmethod
    def load(cls, path: str | Path) -> Row:
        """Loads a file written by `save`.

        Raises:
            ValueError: the file is missing or damaged, or of another suite.
        """
        path = validate.path("path", path)
        try:
            about, arrays = read_archive(path, "row")
            if (about.get("format"), about.get("suite")) != (FORMAT, SUITE):
                got = f"format {about.get('format')!r} and suite {about.get('suite')!r}"
                raise ValueError(f"it is of {got}, not {FORMAT} and {SUITE!r}")
            cells = {}
            for name, one in about["cells"].items():
                proved = one.pop("certificate")
                its: dict[str, Any] = {part: arrays[f"{name}_{part}"] for part in ARRAYS}
                proved = None if proved is None else of_fields(proved)
                cells[name] = Cell(**{part: one[part] for part in _OF_CELL}, **its, certificate=proved)
                cells[name].check(name)
            row = cls(**{name: about[name] for name in _ABOUT}, cells=cells)
            row.check()
            return row
        except OSError as error:
            got = f"{str(path)!r}: {error.strerror}"
            raise BadValue("path", "must be a row of the benchmark", path, got=got) from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise BadValue("path", "must be a row of the benchmark", path, got=f"{str(path)!r}: {error}") from error


_ABOUT = ("name", "about", "function", "source", "digest", "track", "trials", "nonce")
_OF_CELL = ("task", "digest", "refused", "algorithm", "provenance")


def score(regret: Any, uniform: Any, reference: Any) -> Any:
    """Computes S = ln(R_uniform / R) / ln(R_uniform / R_0): 1 if privacy is free, 0 for uniform play.

    >>> float(score(10.0, 1000.0, 10.0)), float(score(1000.0, 1000.0, 10.0)), float(score(100.0, 1000.0, 10.0))
    (1.0, 0.0, 0.5)
    """
    return np.log(uniform / regret) / np.log(uniform / reference)
