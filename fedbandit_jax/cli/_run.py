"""What the commands share: flags that apply, errors that name them, and a run that can be resumed and is named."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple, Self

import tyro

from fedbandit_jax.core import validate
from fedbandit_jax.core.files import check_writable

if TYPE_CHECKING:
    from fedbandit_jax.interfaces import Algorithm, Environment
    from fedbandit_jax.report.results import Result

Adjacency = Literal["replace", "add_remove"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Command:
    """A command: its fields are its flags."""

    resumes: ClassVar[str] = ""
    """What to say when it was stopped."""
    flag_of: ClassVar[dict[str, str]] = {}
    """Arguments of the API whose flags have other names."""

    given: Annotated[frozenset[str], tyro.conf.Suppress] = dataclasses.field(default=frozenset(), repr=False)

    def run(self) -> int:
        """Do it; returns the exit code."""
        raise NotImplementedError

    def knowing(self, args: Sequence[str]) -> Self:
        """The same, knowing which flags were typed."""
        words = (word[2:].partition("=")[0].replace("-", "_") for word in args if word.startswith("--"))
        return dataclasses.replace(self, given=frozenset(words))

    def applies_to(self, what: str, here: bool, *flags: str) -> None:
        """Refuses flags that were typed though they would change nothing."""
        for flag in flags:
            if flag in self.given and not here:
                raise ValueError(f"{flag} applies only to {what}, got {_shown(getattr(self, flag))}")

    def digest(self, name: str) -> str:
        """A name that stands for this request and no other, wherever its files go."""
        request = repr([(key, value) for key, value in vars(self).items() if key not in ("given", "out", "output")])
        return f"{name}-{hashlib.sha256(request.encode()).hexdigest()[:8]}"

    def named(self, error: str) -> str:
        """The error, which begins with the name of an argument, with that of the flag."""
        argument, space, rest = error.partition(" ")
        flag = self.flag_of.get(argument, argument.removeprefix("n_"))
        if rest.startswith(("must ", "applies ")) and flag in _flags(type(self)):
            return f"--{flag.replace('_', '-')}{space}{rest}"
        return error


@dataclasses.dataclass(frozen=True, kw_only=True)
class Output:
    """Where results go.

    Args:
        out: folder for the results.
        name: of the files, over those of that name; default: the family or the environment, and 8 digits that stand for
            all options, so that different runs have different files.
    """

    out: Path = Path("results")
    name: str | None = None


Files = Annotated[Output, tyro.conf.arg(name="")]  # flags without a prefix


class Comparison(NamedTuple):
    """What a simulation compares."""

    world: Environment
    algos: Sequence[Algorithm]
    name: str  # files begin with it
    title: str
    epsilon: tuple[float, ...]  # of all private algorithms; none where nothing is private
    delta: float | None = None  # where it belongs in the title
    notes: str = ""
    stride: Literal["log"] | None = None
    gauge: str = ""  # drawn in a picture of its own


class Simulation(Command):
    """A simulation: the flags of a family make a `Comparison`."""

    resumes = "; the same command continues where it was"
    epsilon: tuple[float, ...]
    horizon: int
    seeds: int
    random_seed: int
    output: Output

    def comparison(self) -> Comparison:
        """What is compared. Everything that can be wrong is found here."""
        raise NotImplementedError

    def run(self) -> int:
        """Sweep, print, write NAME.npz, .json and .png, and a picture of a gauge. Interrupted, it can be continued."""
        out = self.output.out
        check_writable("out", out)
        validate.integer("horizon", self.horizon, at_least=1)
        validate.within("random_seed", self.random_seed, 0, 2**32 - 1)
        check_values("epsilon", self.epsilon)
        comparison = self.comparison()
        name = self.output.name
        if name is None:
            name = self.digest(comparison.name)
        elif name != Path(name).name or name.startswith("."):
            raise ValueError(f"name must be a name for files in the folder --out, got {name!r}")
        checkpoint = out / f".{name}.checkpoint"
        with _alone(out / f".{name}.lock"):
            import jax

            import fedbandit_jax as fb

            result = fb.sweep(
                comparison.world,
                comparison.algos,
                grid={"epsilon": comparison.epsilon} if comparison.epsilon else {},
                horizon=self.horizon,
                key=jax.random.key(self.random_seed),
                n_seeds=self.seeds,
                stride=comparison.stride,
                progress=True,
                checkpoint=checkpoint,
                throw=False,
            )
            report(result)
            title = comparison.title + budgets(comparison.epsilon, comparison.delta)
            saved = result.save(out / name)
            pictures = {".png": fb.plotting.regret(result, title=title)}
            if comparison.gauge:
                pictures[f"_{comparison.gauge.lower().replace(' ', '_')}.png"] = fb.plotting.gauge(
                    result, comparison.gauge, title=title
                )
            drawn = [fb.plotting.save_png(figure, out / (name + end)) for end, figure in pictures.items()]
            for part in out.glob(f"{checkpoint.name}.*"):
                part.unlink()
        notes = f"\n{comparison.notes}\n" if comparison.notes else ""
        print(f"{notes}\nwrote {saved}, {name}.json and {' and '.join(path.name for path in drawn)}")
        return 0


def check_values(name: str, values: Sequence[Any]) -> None:
    """At least one, each once."""
    if not values or len(set(values)) < len(values):
        raise ValueError(f"{name} must name at least one, each once, got {_shown(tuple(values)) or 'none'}")


def budgets(epsilon: Sequence[float], delta: float | None) -> str:
    """For a title.

    >>> budgets((1.0, 5.0), 0.1), budgets((), None)
    ('; ε = 1, 5; δ = 0.1', '')
    """
    if not epsilon:
        return ""
    listed = ", ".join(f"{value:g}" for value in epsilon)
    return f"; ε = {listed}" if delta is None else f"; ε = {listed}; δ = {delta:g}"


def report(result: Result) -> None:
    """Summary, and the certificates of what is meant to be private."""
    print("\n" + result.summary())
    for label in result.labels:
        if result[label].certificate.epsilon is not None or result[label].certificate.claim == "certified":
            print(f"\nCertificate of {label}\n{result[label].certificate}")


@contextlib.contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """No other process runs the same request in the same folder."""
    try:
        with open(lock, "x") as file:
            file.write(f"{os.getpid()}\n")
    except FileExistsError:
        raise ValueError(
            f"process {lock.read_text().strip()} is running this into the same files, or was killed: "
            f"wait, or see that it is gone and delete {lock}"
        ) from None
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)


def _flags(command: type[Command]) -> set[str]:
    names = {field.name for field in dataclasses.fields(command)}
    return names | {field.name for field in dataclasses.fields(Output) if "output" in names}


def _shown(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)
