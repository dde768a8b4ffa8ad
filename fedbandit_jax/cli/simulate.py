"""The command `fedbandit simulate FAMILY`: runs, prints, draws and saves the comparison of a packaged file."""

from __future__ import annotations

import dataclasses
import glob
import inspect
import re
import textwrap
import tomllib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import tyro
from typing_extensions import override

from fedbandit_jax.cli import _configuration
from fedbandit_jax.cli._answer import answer, details, overview
from fedbandit_jax.cli._command import Command, Files, Output, check_values, progress
from fedbandit_jax.cli._log import Log, Roles
from fedbandit_jax.cli._options import Flag, Name, Option, Set, Table
from fedbandit_jax.core import validate
from fedbandit_jax.core.files import LOCK, check_free, is_ours, locked
from fedbandit_jax.core.validate import BadValue

LINEAR = ("linear", "schedules")  # families that can play your own table
BESIDE = ("uniform play", "without privacy")  # ends of labels of references, which play every table
PRESETS = Path(__file__).parent / "presets"
PARAMETERS = "Parameters, for --set PATH=VALUE; the end of a path is enough if only one path has it:"
SIZES = {"agents": "n_agents", "arms": "n_arms"}  # flag -> parameter
SECTION = re.compile(r"^(?:Args|Attributes):\n((?:(?: .*)?\n)*)", re.M)  # of a docstring
ENTRY = re.compile(r"^ {4}(\w+): ((?:.+\n?)(?: {5,}.+\n?)*)", re.M)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SimulateCommand(Command):
    """Compare the algorithms of one family, which a TOML file describes.

    The command prints regrets and what is proved about privacy. It writes OUT/NAME.npz, .png and .pdf. If Ctrl-C or
    SIGTERM stops it, the same command continues.

    Args:
        env: environment of the file (default: its first).
        algorithms: labels of the algorithms to compare.
        epsilon: epsilons of the budgets, each > 0. Every private algorithm runs with each of them.
        delta: delta of all budgets, in (0, 1). Choose it far below one over the number of users.
        horizon: T, the number of rounds.
        seeds: number of independent repetitions, which run together.
        stride: record every so many rounds; log: a few hundred rounds, evenly spaced on a logarithmic axis.
        agents: M, the number of agents (silos).
        arms: K, the number of arms.
        dim: d, the number of features.
        random_seed: seed of the random number generator.
        data: your table, .csv or .parquet, in place of the file's environments.
        set: change, PATH=VALUE in TOML; a string needs no quotes. PATH is a parameter of the environment or of all
            algorithms that have it, see the list above. It may also be a key of the file, such as
            algorithms.LinUCB.policy.failure. You may repeat the flag.
        certificates: print certificates, paired differences and communication, too.
    """

    resumes: ClassVar = "; the same command continues where it was"
    flag_of: ClassVar = {"key": "random_seed", "compare": "algorithms", "source": "data"}

    family: tyro.conf.Suppress[str] = "linear"
    env: Name = None
    algorithms: Annotated[tuple[str, ...] | None, tyro.conf.arg(metavar="LABEL ...", help_behavior_hint="")] = None
    epsilon: Annotated[tuple[float, ...] | None, tyro.conf.arg(metavar="FLOAT ...", help_behavior_hint="")] = None
    delta: Option[float] = None
    horizon: Option[int] = None
    seeds: Option[int] = None
    stride: Option[int | Literal["log"]] = None
    agents: Option[int] = None
    arms: Option[int] = None
    dim: Option[int] = None
    random_seed: int = 0
    data: Table = None
    columns: Log = dataclasses.field(default_factory=Roles)
    set: Set = ()
    certificates: Flag = False
    output: Files = dataclasses.field(default_factory=Output)

    @property
    def file(self) -> Path:
        """Returns the file of the family."""
        return PRESETS / f"{self.family}.toml"

    def changes(self) -> list[str]:
        """Returns the changes to the file that the flags ask for, as in `fedbandit sweep --set`."""
        validate.integer("random_seed", self.random_seed, at_least=0, at_most=2**32 - 1)
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
            values = getattr(self, name)
            if values is not None:
                check_values(name, values)
                found.append(f"{key}={list(values)}")
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
        try:
            return _configuration.read(self.file, self.changes(), self.env or "")
        except _configuration.ConfigurationError as error:
            for flag in ("agents", "arms", "dim", "delta", "epsilon"):
                if error.key == (parameter := SIZES.get(flag, flag)):
                    self.applies_to(f"environments and algorithms that have {parameter}", False, flag)
            if self.named(error.problem, error.key) == error.problem:
                raise ValueError(f"{self.file.name}, {error.place}: {error.problem}") from error
            raise ValueError(self.named(error.problem, error.key)) from error

    def contents(self) -> dict[str, Any]:
        """Returns the tables of the file."""
        return tomllib.loads(self.file.read_text(encoding="utf-8"))

    @override
    def run(self) -> int:
        out, changes = self.output.out, self.changes()
        name = self.output.named(self.title_of, [self.file.read_text(), self.env, changes])
        checkpoint = out / f".{name}.checkpoint"
        once = f"name must be that of one run at a time, got {name!r}"
        asked = self.asked()
        check_free("name", *(out / f"{name}.{ending}" for ending in ("npz", "png", "pdf")))
        with locked(out / f".{name}{LOCK}", once, otherwise="give another name"):
            import matplotlib

            import fedbandit_jax as fb

            matplotlib.use("Agg")  # pictures go to files, no window opens
            result = fb.sweep(**asked.arguments, checkpoint=checkpoint, progress=progress(), throw=False)
            made = {**result.provenance, "configuration": asked.record}
            result = dataclasses.replace(result, provenance=made)
            saved = None
            try:
                saved = result.save(out / name)
            finally:  # print also if the disk is full; save before a pipe may be closed
                print(f"\n{answer(result)}")
                if self.certificates:
                    print(f"\n{details(result)}")
            title = self.title(result)
            pictures = {"": overview(result, title)}
            for gauge in list(result.gauges)[:1]:
                end = f"_{gauge.lower().replace(' ', '_')}"
                pictures[end] = fb.plotting.gauge(result, gauge, title=title)
            drawn = [path for end, figure in pictures.items() for path in fb.plotting.save(figure, out / (name + end))]
            for part in out.glob(f"{glob.escape(checkpoint.name)}.*"):
                if is_ours(part):
                    part.unlink()
        its = result.provenance
        names = [path.suffix if path.name == name + path.suffix else path.name for path in drawn]
        print(f"\nSaved {', '.join([str(saved), *names])}")
        print(f"{its['seconds']:.0f} s, of which {its.get('compiling', 0):.0f} s waiting for the compiler\n")
        print(f"What is proved, and how:  fedbandit show {saved} --certificates")
        if self.epsilon is None:
            print("Regret against epsilon:   the same command with --epsilon 0.2 1 5")
        if self.family in LINEAR:
            print("Which algorithm to use:   fedbandit plan --trusted secagg")
        return 0

    @property
    def title_of(self) -> str:
        """Returns the name of the simulation."""
        return self.env or (self.family if self.data is None else Path(self.data).stem)

    def title(self, result: Any) -> str:
        """Returns the title of the figures: environment, sizes, T and budgets."""
        from fedbandit_jax.report.plotting.figure import budgets, sizes, tick

        first = next(iter(self.contents().get("environments", ())), self.family)
        name = first if self.env is None and self.data is None else self.title_of
        worlds = result.config["environments"].values()
        where = "; ".join(dict.fromkeys(sizes(world["spec"]) for world in worlds))
        return f"{name}: {where}, T = {tick(float(result.rounds[-1]))}{budgets(result)}"

    @override
    def named(self, error: str, key: str = "") -> str:
        word = key or error.partition(" ")[0]
        for change in reversed(self.set):
            path = change.partition("=")[0].strip()
            if key == path or word in path.split("."):
                return f"--set {path}: {error}"
        return super().named(error)

    def about(self, parameters: bool = False) -> str:
        """Returns the text of --help: comment, defaults and labels of the file, and optionally parameters."""
        head = re.match(r"(#.*\n)*", self.file.read_text(encoding="utf-8"))
        assert head is not None
        does = (inspect.getdoc(SimulateCommand) or "").partition("\n\n")[2].partition("\n\nArgs:")[0]
        what, example, examples = re.sub(r"^# ?", "", head[0], flags=re.M).partition("For example:")
        has = self.contents()
        numbers = [f"{name} = {has[name]:,}" for name in ("horizon", "seeds")]
        numbers += [f"{name} = {' '.join(map(str, values))}" for name, values in has["grid"].items()]
        parts = [what.strip(), does, f"{example}{examples.rstrip()}", f"Defaults: {', '.join(numbers)}"]
        for kind, flag in (("environments", "--env"), ("algorithms", "--algorithms")):
            if kind in has:
                parts.append("\n".join([f"{kind.capitalize()}, for {flag}:", *(f"  {name}" for name in has[kind])]))
        return "\n\n".join([*parts, *(["\n".join([PARAMETERS, *self.parameters()])] if parameters else [])])

    def parameters(self) -> Iterator[str]:
        """Yields lines about parameters of the environment and the default algorithms, from their code."""
        asked = self.asked()
        make = asked.world
        assert make is not None  # each family has one environment
        meant = inspect.signature(make).parameters
        given = {name: one.default for name, one in meant.items() if one.default is not one.empty}
        docs = _documented(make.func)
        values = {name: ({_short(value)}, docs.get(name, "")) for name, value in given.items()}
        yield from _listed("of the environment", values)
        found: dict[str, tuple[dict[str, None], str]] = {}
        for algo in asked.arguments["algos"].values():
            for path, value, doc in _parameters(algo):
                found.setdefault(path, ({}, doc))[0][_short(value)] = None
        parts = {path.rpartition(".")[0] for path in found}
        yield from _listed("of the algorithms", {path: one for path, one in found.items() if path not in parts})


def _listed(whose: str, found: Mapping[str, tuple[Collection[str], str]]) -> Iterator[str]:
    yield f"  {whose}:"
    for path, (values, doc) in found.items():
        yield f"    {path} = {', '.join(values)}{' (by algorithm)' * (len(values) > 1)}"
        yield from textwrap.wrap(doc, 108, initial_indent=" " * 8, subsequent_indent=" " * 8)


def _parameters(value: Any, prefix: str = "") -> Iterator[tuple[str, Any, str]]:
    """Yields path, value and explanation of every parameter of nested dataclasses."""
    docs = _documented(type(value))
    for field in dataclasses.fields(value):
        part, path = getattr(value, field.name), prefix + field.name
        if dataclasses.is_dataclass(part) and not isinstance(part, type):
            yield from _parameters(part, f"{path}.")
        elif field.name != "name":
            yield path, part, docs.get(field.name, "")


def _documented(made_by: Any) -> dict[str, str]:
    """Returns the first sentences about parameters, from the docstring of a function or class."""
    sections = SECTION.findall((inspect.getdoc(made_by) or "") + "\n")
    entries = [ENTRY.findall(section) for section in sections]
    return {name: re.split(r"(?<=[^.]{3}\.) |; ", " ".join(text.split()))[0] for one in entries for name, text in one}


def _short(value: Any) -> str:
    return value if isinstance(value, str) else validate.shown(value)
