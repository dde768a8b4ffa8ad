"""The command `fedbandit simulate FAMILY`: runs, prints, draws and saves the comparison of a packaged file."""

from __future__ import annotations

import dataclasses
import glob
import inspect
import operator
import re
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import tyro
from typing_extensions import override

from fedbandit_jax.cli import _configuration
from fedbandit_jax.cli._answer import kept, overview
from fedbandit_jax.cli._command import Command, Files, Flag, Name, Option, Output, Set, progress, quiet
from fedbandit_jax.cli._log import Log, Roles, Table
from fedbandit_jax.core import validate
from fedbandit_jax.core.files import LOCK, check_free, is_ours, locked
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
      fedbandit simulate schedules --help   explain a family and its parameters

    Args:
        family: family of algorithms.
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
    flag_of: ClassVar = dict(key="random_seed", compare="algorithms", source="data") | {"grid['epsilon']": "epsilon"}

    family: tyro.conf.Positional[Literal["linear", "schedules", "arms", "clusters"]] = "linear"
    env: Name = None
    algorithms: Annotated[tuple[str, ...] | None, quiet(metavar="LABEL ...")] = None
    epsilon: Annotated[tuple[float, ...] | None, quiet(metavar="FLOAT ...")] = None
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
        what = self.env or (self.family if self.data is None else Path(self.data).stem)
        name = self.output.named(what, [self.file.read_text(), self.env, changes])
        checkpoint = out / f".{name}.checkpoint"
        once = f"name must be that of one run at a time, got {name!r}"
        asked = self.asked()
        check_free("name", *(out / f"{name}.{ending}" for ending in ("npz", "png", "pdf")))
        with locked(out / f".{name}{LOCK}", once, otherwise="give another name"):
            import fedbandit_jax as fb

            result = fb.sweep(**asked.arguments, checkpoint=checkpoint, progress=progress(), throw=False)
            saved = kept(result, asked.record, out / name, certificates=self.certificates)
            pictures = {"": overview(result)}
            for gauge in list(result.gauges)[:1]:
                pictures[f"_{gauge.lower().replace(' ', '_')}"] = fb.plotting.gauge(result, gauge)
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

    @override
    def named(self, error: str, key: str = "") -> str:
        word = key or error.partition(" ")[0]
        for change in reversed(self.set):
            path = change.partition("=")[0].strip()
            if key == path or word in path.split("."):
                return f"--set {path}: {error}"
        return super().named(error)

    @override
    @classmethod
    def about(cls, words: Sequence[str]) -> str:
        family = next((word for word in words if not word.startswith("-")), "")
        if not (PRESETS / f"{family}.toml").is_file():
            return super().about(words)
        return "\n\n".join(cls(family=family).explained())  # pyright: ignore[reportArgumentType]

    def explained(self) -> Iterator[str]:
        """Yields the comment, defaults, labels and parameters of the file."""
        head = re.match(r"(#.*\n)*", self.file.read_text(encoding="utf-8"))
        assert head is not None
        has = self.contents()
        numbers = [f"{name} = {has[name]:,}" for name in ("horizon", "seeds")]
        numbers += [f"{name} = {' '.join(map(str, values))}" for name, values in has["grid"].items()]
        yield re.sub(r"^# ?", "", head[0], flags=re.M).strip()
        yield f"Defaults: {', '.join(numbers)}"
        for kind, flag in (("environments", "--env"), ("algorithms", "--algorithms")):
            if kind in has:
                yield "\n".join([f"{kind.capitalize()}, for {flag}:", *(f"  {name}" for name in has[kind])])
        asked = self.asked()
        assert asked.world is not None  # each family has one environment
        needed = inspect.signature(asked.world).parameters.values()
        world = {one.name: [one.default] for one in needed if one.default is not one.empty}
        algos = asked.arguments["algos"].values()
        paths = {
            path: [algo for algo in algos if path in algo.parameters()] for one in algos for path in one.parameters()
        }
        leaves = [path for path in paths if path != "name" and not any(one.startswith(f"{path}.") for one in paths)]
        found = {path: [operator.attrgetter(path)(algo) for algo in paths[path]] for path in leaves}
        for whose, values in (("environment", world), ("algorithms", found)):
            lines = (f"  {path} = {', '.join(dict.fromkeys(map(_short, some)))}" for path, some in values.items())
            yield "\n".join([f"Parameters of the {whose} with their values, for --set PATH=VALUE:", *lines])
        yield "The end of a path is enough if only one path has it. The reference of fb.algos and fb.envs has meanings."


def _short(value: Any) -> str:
    return value if isinstance(value, str) else validate.shown(value)
