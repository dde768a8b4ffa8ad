"""Commands that run algorithms: `fedbandit simulate` a packaged file, `fedbandit sweep` a file of yours."""

from __future__ import annotations

import contextlib
import dataclasses
import glob
import math
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import tyro
from typing_extensions import override

from fedbandit_jax.cli import _configuration
from fedbandit_jax.cli._command import Command, Files, Name, Option, Output, Set, quiet
from fedbandit_jax.cli.data import Log, Roles, Table, toml
from fedbandit_jax.core import validate
from fedbandit_jax.core.validate import BadArgument, BadValue
from fedbandit_jax.report.answer import answer, overview
from fedbandit_jax.report.tables import doubts

LINEAR = ("linear", "schedules")  # families that can play your own table
BESIDE = ("uniform play", "without privacy")  # ends of labels of references, which play every table
PRESETS = Path(__file__).parent / "presets"
LISTED = 20  # most configurations of a printed table of a sweep
CHANGES = dict(  # flag -> key of the file
    {name: name for name in ("horizon", "seeds", "dim", "delta")},
    agents="n_agents",
    arms="n_arms",
    algorithms="compare",
    epsilon="grid.epsilon",
)


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
    agents: Option[int] = None  # M, the number of agents (silos).
    arms: Option[int] = None  # K, the number of arms.
    dim: Option[int] = None  # d, the number of features.
    random_seed: int = 0  # seed of the random number generator.
    data: Table = None  # your table, .csv or .parquet, in place of the file's environments.
    columns: Log = dataclasses.field(default_factory=Roles)
    # change, PATH=VALUE in TOML; a string needs no quotes. PATH is a parameter of the environment, or of all algorithms
    # that have it. The end of a path is enough if only one path has it. It may also be a key of the file, such as
    # stride or algorithms.LinUCB.policy.failure. You may repeat the flag.
    set: Set = ()
    output: Files = dataclasses.field(default_factory=Output)

    @property
    def file(self) -> Path:
        """Returns the file of the family."""
        return PRESETS / f"{self.family}.toml"

    def asked(self) -> _configuration.SweepFile:
        """Returns the sweep to run. Flags are changes of the file, as by --set.

        Raises:
            ValueError: a flag is wrong.
        """
        file = tomllib.loads(self.file.read_text(encoding="utf-8"))
        self.applies_to("the families linear and schedules", self.family in LINEAR, "data")
        self.applies_to("the environments of the file, without --data", self.data is None, "env")
        self.applies_to("a family with several environments", "environments" in file, "env")
        source, changes = self.columns.of(self.data), [f"key={self.random_seed}"]
        if source:
            changes.append(f"environment={toml({'type': 'table', **source})}")
            if self.algorithms is None:  # small tables teach little: compare each recipe with its non-private self
                shown = [one for one in file["algorithms"] if one in file["compare"] or one.endswith(BESIDE)]
                changes.append(f"compare={shown}")
        for flag, key in CHANGES.items():
            if (value := getattr(self, flag)) is not None:
                changes.append(f"{key}={list(value) if isinstance(value, tuple) else value}")
        return _configuration.read(self.file, [*changes, *self.set], self.env or "")

    @override
    def run(self) -> int:
        asked = self.asked()
        what = self.env or (self.family if self.data is None else Path(self.data).stem)
        name = self.output.named(what, [asked.record["text"], self.env, asked.record["set"]])
        out = self.output.out
        checkpoint = out / f".{name}.checkpoint"
        import fedbandit_jax as fb

        result = asked.sweep(checkpoint=checkpoint)
        saved = kept(result, asked, out / name)
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
            fit = asked.arguments["env"].fit
            if self.horizon is None:
                once = max(1, fit.replayed_rows // fit.silos)
                print(f"As many visits as rows:   the same command with --horizon {once}")
            print(f"Which algorithm to use:   fedbandit plan --data {self.data}, with the same columns")
        elif self.family in LINEAR:
            print("Which algorithm to use:   fedbandit plan --trusted secagg")
        return 0

    @override
    def named(self, error: Exception) -> str:
        if isinstance(error, BadArgument) and error.argument == "grid":
            for flag, key in CHANGES.items():
                if key.removeprefix("grid.") == error.value and getattr(self, flag) is not None:
                    return f"--{flag} applies only to environments and algorithms that have {error.value}"
        return super().named(error)

    @override
    @classmethod
    def about(cls, words: Sequence[str]) -> str:
        file = PRESETS / f"{next((word for word in words if not word.startswith('-')), '')}.toml"
        return file.read_text(encoding="utf-8") if file.is_file() else super().about(words)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SweepCommand(Command):
    """Run the sweep of a TOML file: algorithms over a grid, here or on many machines.

    The file states the environment, the algorithms, the grid, the horizon and the seeds. docs/scaling.md explains it,
    and experiments/sweep.toml is an example. The sweep runs in pieces, which are kept in a folder, the store. After
    Ctrl-C, a crash or a change of the file the same command computes only missing pieces.

    For example:
      fedbandit sweep experiments/sweep.toml
      fedbandit sweep experiments/sweep.toml --set horizon=4000 --set "grid.epsilon=[0.2, 1, 5]"
      fedbandit sweep experiments/sweep.toml --executor processes:4
      fedbandit sweep experiments/sweep.toml --executor dask:tcp://localhost:8786
      fedbandit sweep experiments/sweep.toml --part $SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT
    """

    resumes: ClassVar = "; finished pieces are kept, and the same command computes the others"

    config: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="FILE")]  # the TOML file.
    # change of the file, PATH=VALUE in TOML, such as environment.type=gap; a string needs no quotes. A PATH that the
    # file lacks is a parameter of the environment, or of all algorithms that have it. You may repeat the flag.
    set: Set = ()
    # folder of the pieces, which all machines must see and sweeps may share (default: OUT/store).
    store: Annotated[str | None, quiet(metavar="FOLDER")] = None
    # processes:N of this machine; dask:ADDRESS of a scheduler; or slurm, with the file's table [slurm]. The last two
    # need the extra `cluster` (default: this process).
    executor: Annotated[str | None, quiet(metavar="WHERE")] = None
    # I/N with 0 <= I < N. Compute every N-th piece, beginning with number I. Afterwards the command without this flag
    # gathers the result.
    part: Annotated[str | None, quiet(metavar="I/N")] = None
    output: Files = dataclasses.field(default_factory=Output)

    @override
    def run(self) -> int:
        from fedbandit_jax.engine.executors import executor

        options: dict[str, Any] = {}
        if self.part is not None:
            match = re.fullmatch(r"(\d{1,9})/(\d{1,9})", self.part)
            if not match or int(match[1]) >= int(match[2]):
                raise BadValue("part", "must be I/N with integers 0 <= I < N", self.part, got=self.part)
            if self.output.name is not None:
                raise BadValue("name", "applies only to the whole sweep, without --part", self.output.name)
            options["part"] = int(match[1]), int(match[2])
        asked = _configuration.read(self.config, self.set)
        name = self.output.named(self.config.stem, [asked.record["text"], asked.record["set"]])
        options["store"] = self.output.out / "store" if self.store is None else validate.path("store", self.store)
        try:
            with contextlib.ExitStack() as stack:
                if self.executor is not None:
                    options["executor"] = stack.enter_context(executor(self.executor, asked.slurm))
                result = asked.sweep(**options)
        except RuntimeError as error:
            if self.executor is None:
                raise
            raise ChildProcessError(str(error)) from error  # of a worker, without its traceback
        if self.part is not None:
            print(f"part {self.part}: {result:,} runs computed, in {options['store']}")
            return 0
        saved = kept(result, asked, self.output.out / name, most=LISTED)
        its = result.provenance
        print(
            f"\n{result.status.size:,} runs, {len(result):,} configurations under {result.status.shape[-1]:,} seeds: "
            f"{its['pieces']:,} pieces, {its['computed']:,} of them computed now, in {its['seconds']:,.1f} seconds"
        )
        print(f"Saved {saved}\nWhat is proved, and how:  fedbandit show {saved} --certificates")
        return 0


def kept(result: Any, asked: _configuration.SweepFile, path: Path, most: float = math.inf) -> Path:
    """Saves a result with its configuration, and prints what was found, also if the disk is full.

    Of more than `most` configurations it prints only doubts.
    """
    result = dataclasses.replace(result, provenance={**result.provenance, "configuration": asked.record})
    try:
        return result.save(path)
    finally:  # save before a pipe may be closed
        print("", answer(result) if len(result) <= most else "\n".join(doubts(result)), sep="\n")
