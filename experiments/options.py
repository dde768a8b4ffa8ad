"""The options of every figure script: its size, where it writes, and whether it only draws again.

Letters: T rounds.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, TypeVar

import jax
import tyro
from curves import Curve, along

import fedbandit_jax as fb

HERE = Path(__file__).resolve().parent
FIGURES = HERE / "figures"
T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Size:
    """Draw a figure, at one of three sizes.

    Args:
        smoke: run a few rounds only, to see that everything works.
        full: run at the paper's size instead of the default, smaller one.
        redraw: run nothing, and draw from the numbers (CSV) beside the picture, or else in experiments/figures.
        seed: seed of the random number generator.
        out: folder for the picture, by default results, or with --commit experiments/figures. Long figures keep what
            is computed in its subfolder store (of results with --commit), and the same command continues from there.
        commit: replace the committed picture and its numbers in experiments/figures, which nothing else does.
    """

    SEEDS: ClassVar[Sequence[int]] = (2, 8, 25)  # for smoke, default and full
    STRIDE: ClassVar[Sequence[Any]] = (1, 25, 25)  # rounds between records

    smoke: bool = False
    full: bool = False
    redraw: bool = False
    seed: int = 0
    out: tyro.conf.DisallowNone[Path | None] = None
    commit: bool = False

    def __post_init__(self):
        if self.smoke and self.full:
            raise SystemExit("--smoke and --full exclude each other")
        if self.commit and (self.smoke or self.out):
            raise SystemExit("--commit excludes --smoke and --out")
        if self.folder.resolve() == FIGURES and not self.commit:
            raise SystemExit(f"--out {self.out} has the committed pictures: --commit replaces them")

    @property
    def variant(self) -> str:
        """Returns what distinguishes the names of the files of one script."""
        return ""

    @property
    def rewards(self) -> str:
        """Returns the law of rewards of `sphere`."""
        return "bernoulli"

    @property
    def words(self) -> str:
        """Returns a sentence about these options, for the setting of a picture."""
        return ""

    @property
    def folder(self) -> Path:
        """Returns the folder that the picture is written to."""
        return FIGURES if self.commit else self.out or Path("results")

    @property
    def store(self) -> Path | None:
        """Returns the store of a long figure, from which a stopped command continues; none with --smoke."""
        return None if self.smoke else (self.out or Path("results")) / "store"

    def pick(self, smoke: T, default: T, full: T) -> T:
        """Returns the value for the size that was asked for."""
        return smoke if self.smoke else full if self.full else default

    def shape(self, n_agents: int, n_arms: int, dim: int) -> tuple[int, int, int]:
        """Returns these numbers, or with --smoke few, the same for all scripts, which then share compiled programs."""
        return self.pick((4, 4, 3), (n_agents, n_arms, dim), (n_agents, n_arms, dim))

    def sphere(self, n_agents: int = 100, n_arms: int = 100, dim: int = 10) -> fb.Environment:
        """Returns the synthetic instance, by default of the size of Zhou & Chowdhury (2024), or with --smoke small."""
        return fb.envs.sphere(*self.shape(n_agents, n_arms, dim), rewards=self.rewards)

    def sweep(self, *what: Any, title: str = "", **run: Any) -> fb.Result:
        """Runs algorithms in an environment by `fb.sweep`, prints a summary, and returns the result."""
        result = fb.sweep(*what, **run)
        print(f"\n{title}\n{result.summary()}", flush=True)
        return result

    def finals(
        self,
        env: Any,
        algos: Mapping[str, Mapping[Any, Any]],
        panel: str = "",
        looks: Mapping[str, str] = MappingProxyType({}),
        noted: bool = False,
        **run: Any,
    ) -> list[Curve]:
        """Returns final regret against x, given algorithms by label and x, of one sweep; with claims if `noted`."""
        flat = {f"{label} {x}": algo for label, of in algos.items() for x, algo in of.items()}
        result, curves = self.sweep(env, flat, title=panel, **run), []
        for label, of in algos.items():
            one = along(panel, label, [*of], [result[f"{label} {x}"] for x in of], looks.get(label, ""))
            curves.append(one if noted else one.but(note=""))
        return curves

    def run(self, *horizons: int, seeds: Sequence[int] = (), fresh: int = 0, **more: Any) -> dict[str, Any]:
        """Returns arguments of `fb.sweep`.

        Args:
            horizons: T for smoke, default and full.
            seeds: numbers of seeds for these.
            fresh: added to the seed, for seeds on which nothing was chosen.
            more: other arguments.
        """
        run: dict[str, Any] = dict(horizon=self.pick(*horizons), seeds=self.pick(*seeds or self.SEEDS), progress=True)
        key, stride = jax.random.key(self.seed + fresh), self.pick(*self.STRIDE)
        return {**run, "throw": False, "key": key, "stride": stride, **more}

    def ends(self, *horizons: int, **more: Any) -> dict[str, Any]:
        """Returns arguments of `fb.sweep` as `run` does, which record nothing but the last round, and are stored."""
        return {**self.run(*horizons, **more), "stride": self.pick(*horizons), "store": self.store}


@dataclasses.dataclass(frozen=True)
class DubeyOptions(Size):
    """Draw a figure of Dubey & Pentland (2020), who have 100 seeds."""

    SEEDS = (2, 8, 100)
    STRIDE = ("log", "log", "log")
