"""The command `fedbandit simulate FAMILY`: runs, prints, draws and saves the comparison of a packaged file."""

from __future__ import annotations

import dataclasses
import glob
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import tyro
from typing_extensions import override

from fedbandit_jax.cli import _configuration
from fedbandit_jax.cli._answer import kept, overview
from fedbandit_jax.cli._command import Command, Files, Flag, Name, Option, Output, Set, progress, quiet
from fedbandit_jax.cli._log import Log, Roles, Table
from fedbandit_jax.core.validate import BadValue

LINEAR = ("linear", "schedules")  # families that can play your own table
BESIDE = ("uniform play", "without privacy")  # ends of labels of references, which play every table
PRESETS = Path(__file__).parent / "presets"
SIZES = {"agents": "n_agents", "arms": "n_arms"}  # flag -> parameter


@dataclasses.dataclass(frozen=True, kw_only=True)
class SimulateCommand(Command):
    """Compare algorithms of one family, which a TOML file describes, on the same users.

    The command prints regrets and what is proved about privacy. It writes OUT/NAME.npz, .png and .pdf. If Ctrl-C or
    SIGTERM stops it, the same command continues.

    For example:
      fedbandit simulate                    compare private and non-private federated linear bandits
      fedbandit simulate --env digits
      fedbandit simulate arms --epsilon 0.1 0.5 1
      fedbandit simulate schedules --help   print the file of a family
    """

    resumes: ClassVar = "; all but the last seconds is kept, and the same command continues from there"
    flag_of: ClassVar = dict(key="random_seed", compare="algorithms", source="data") | {"grid['epsilon']": "epsilon"}

    family: tyro.conf.Positional[Literal["linear", "schedules", "arms", "clusters"]] = "linear"  # family of algorithms.
    env: Name = None  # environment of the file (default: its first).
    # labels of the algorithms to compare.
    algorithms: Annotated[tuple[str, ...] | None, quiet(metavar="LABEL ...")] = None
    # epsilons of the budgets, each > 0. Every private algorithm runs with each of them.
    epsilon: Annotated[tuple[float, ...] | None, quiet(metavar="FLOAT ...")] = None
    delta: Option[float] = None  # delta of all budgets, in (0, 1). Choose it far below one over the number of users.
    horizon: Option[int] = None  # T, the number of rounds.
    seeds: Option[int] = None  # number of independent repetitions, which run together.
    # rounds between records; log: a few hundred records, evenly spaced on a logarithmic axis.
    stride: Option[int | Literal["log"]] = None
    agents: Option[int] = None  # M, the number of agents (silos).
    arms: Option[int] = None  # K, the number of arms.
    dim: Option[int] = None  # d, the number of features.
    random_seed: int = 0  # seed of the random number generator.
    data: Table = None  # your table, .csv or .parquet, in place of the file's environments.
    columns: Log = dataclasses.field(default_factory=Roles)
    # change, PATH=VALUE in TOML; a string needs no quotes. PATH is a parameter of the environment, or of all algorithms
    # that have it. The end of a path is enough if only one path has it. It may also be a key of the file, such as
    # algorithms.LinUCB.policy.failure. You may repeat the flag.
    set: Set = ()
    certificates: Flag = False  # print certificates, paired differences and communication, too.
    output: Files = dataclasses.field(default_factory=Output)

    @property
    def file(self) -> Path:
        """Returns the file of the family."""
        return PRESETS / f"{self.family}.toml"

    def changes(self) -> list[str]:
        """Returns the changes to the file that the flags ask for, as in `fedbandit sweep --set`."""
        self.columns.check(self.data)
        found = [f"key={self.random_seed}"]
        if self.data is not None:
            found.append(f"environment={self.columns.toml(self.data)}")
            if self.algorithms is None:  # small tables teach little: compare each recipe with its non-private self
                file = self.contents()
                shown = [one for one in file["algorithms"] if one in file["compare"] or one.endswith(BESIDE)]
                found.append(f"compare={shown}")
        for name in ("horizon", "seeds", "stride", "agents", "arms", "dim", "delta"):
            if getattr(self, name) is not None:
                found.append(f"{SIZES.get(name, name)}={getattr(self, name)}")
        for name, key in (("algorithms", "compare"), ("epsilon", "grid.epsilon")):
            if getattr(self, name) is not None:
                found.append(f"{key}={list(getattr(self, name))}")
        return [*found, *self.set]

    def asked(self) -> _configuration.SweepFile:
        """Returns the sweep to run.

        Raises:
            ValueError: a flag is wrong.
        """
        self.applies_to("the families linear and schedules", self.family in LINEAR, "data")
        self.applies_to("the environments of the file, without --data", self.data is None, "env")
        if self.env is not None and "environments" not in self.contents():
            raise BadValue("env", "applies only to a family with several environments", self.env)
        return _configuration.read(self.file, self.changes(), self.env or "")

    def contents(self) -> dict[str, Any]:
        """Returns the tables of the file."""
        return tomllib.loads(self.file.read_text(encoding="utf-8"))

    @override
    def run(self) -> int:
        out, changes = self.output.out, self.changes()
        what = self.env or (self.family if self.data is None else Path(self.data).stem)
        name = self.output.named(what, [self.file.read_text(), self.env, changes])
        checkpoint = out / f".{name}.checkpoint"
        asked = self.asked()
        import fedbandit_jax as fb

        result = fb.sweep(**asked.arguments, checkpoint=checkpoint, progress=progress(), throw=False)
        saved = kept(result, asked.record, out / name, certificates=self.certificates)
        drawn = list(fb.plotting.save(overview(result), out / name))
        for gauge in list(result.gauges)[:1]:
            end = gauge.lower().replace(" ", "_")
            drawn += fb.plotting.save(fb.plotting.gauge(result, gauge), out / f"{name}_{end}")
        for part in out.glob(f"{glob.escape(checkpoint.name)}.[0-9]*"):
            part.unlink()
        its = result.provenance
        print(f"\nSaved {', '.join(map(str, [saved, *drawn]))}")
        print(f"{its['seconds']:.0f} s, of which {its.get('compiling', 0):.0f} s waiting for the compiler\n")
        print(f"What is proved, and how:  fedbandit show {saved} --certificates")
        if self.epsilon is None:
            print("Regret against epsilon:   the same command with --epsilon 0.2 1 5")
        if self.data is not None:
            if self.horizon is None:
                fit = asked.arguments["env"].fit
                once = max(1, fit.replayed_rows // fit.silos)
                print(f"As many visits as rows:   the same command with --horizon {once}")
            print(f"Which algorithm to use:   fedbandit plan --data {self.data}, with the same columns")
        elif self.family in LINEAR:
            print("Which algorithm to use:   fedbandit plan --trusted secagg")
        return 0

    @override
    def named(self, error: str) -> str:
        bare = re.sub(r"^\w+\.toml(, \[.*?\])?: ", "", error)  # a flag needs no place in the file
        unknown = re.match(r"grid must name .*got '(\w+)'", bare)
        for flag in self.given:
            if unknown and SIZES.get(flag, flag) == unknown[1]:
                return f"--{flag} applies only to environments and algorithms that have {unknown[1]}"
        found = super().named(bare)
        return error if found == bare else found

    @override
    @classmethod
    def about(cls, words: Sequence[str]) -> str:
        file = PRESETS / f"{next((word for word in words if not word.startswith('-')), '')}.toml"
        return file.read_text(encoding="utf-8") if file.is_file() else super().about(words)
