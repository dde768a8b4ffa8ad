"""What the commands share: flags that must apply, errors that name the flag, and simulations that can be continued."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple, Self

import tyro

from fedbandit_jax.core import validate
from fedbandit_jax.core.files.atomic import check_writable
from fedbandit_jax.core.files.lock import locked

if TYPE_CHECKING:
    from fedbandit_jax.interfaces import Algorithm, Environment
    from fedbandit_jax.report.result import Result

Adjacency = Literal["replace", "add_remove"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Command:
    """Base class of the commands, whose fields are the flags and whose docstring is the text of --help."""

    resumes: ClassVar[str] = ""
    """What the message after an interruption adds."""
    flag_of: ClassVar[dict[str, str]] = {}
    """Maps an argument of the public API to its flag, where the two have different names."""

    # names of the flags that were typed, with underscores
    given: Annotated[frozenset[str], tyro.conf.Suppress] = dataclasses.field(default=frozenset(), repr=False)

    def run(self) -> int:
        """Runs the command, and returns the exit code of the process."""
        raise NotImplementedError

    def knowing(self, args: Sequence[str]) -> Self:
        """Returns a copy that knows which flags were typed, from the words of the command line."""
        words = (word[2:].partition("=")[0].replace("-", "_") for word in args if word.startswith("--"))
        return dataclasses.replace(self, given=frozenset(words))

    def applies_to(self, what: str, here: bool, *flags: str) -> None:
        """Refuses flags that were typed although they would change nothing.

        Args:
            what: what the flags apply to, in words for the error message.
            here: whether this command is such a case.
            flags: names of the fields.

        Raises:
            ValueError: a flag was typed and `here` is false.
        """
        for flag in flags:
            if flag in self.given and not here:
                raise ValueError(f"{flag} applies only to {what}, got {_shown(getattr(self, flag))}")

    def digest(self, name: str) -> str:
        """Returns `name` with 8 hexadecimal digits that stand for all options, except where the files go."""
        from fedbandit_jax.engine import identity

        options = {key: value for key, value in vars(self).items() if key not in ("given", "out", "output")}
        return f"{name}-{identity.digest(options).hex()[:8]}"

    def named(self, error: str) -> str:
        """Returns an error message whose first word, an argument of the public API, is replaced by the flag."""
        argument, space, rest = error.partition(" ")
        flag = self.flag_of.get(argument, argument.removeprefix("n_"))
        if rest.startswith(("must ", "applies ")) and flag in _flags(type(self)):
            return f"--{flag.replace('_', '-')}{space}{rest}"
        return error


@dataclasses.dataclass(frozen=True, kw_only=True)
class Output:
    """Where results are written.

    Args:
        out: folder for the results, which is made if it is missing.
        name: name of the files, without an ending; files of that name are overwritten. By default it is the family, the
            environment or the configuration, followed by 8 digits that stand for all options, so that different runs
            have different files.
    """

    out: Path = Path("results")
    name: str | None = None


Files = Annotated[Output, tyro.conf.arg(name="")]  # flags without a prefix


class Comparison(NamedTuple):
    """What a simulation compares, and how that is named in files and figures."""

    world: Environment
    algos: Sequence[Algorithm]
    name: str  # what the default name of the files begins with
    title: str  # title of the figures, to which the budgets are appended
    epsilon: tuple[float, ...]  # budgets of the private algorithms; empty if no algorithm is private
    delta: float | None = None  # delta of the budgets; None if the title does not state it
    notes: str = ""  # printed below the results
    stride: Literal["log"] | None = None  # which rounds are recorded, as in `fb.sweep`
    gauge: str = ""  # name of a gauge that a second picture shows; empty for none


class Simulation(Command):
    """Base class of the families: their flags make a `Comparison`, which is run, printed, drawn and saved."""

    resumes = "; the same command continues where it was"
    epsilon: tuple[float, ...]
    horizon: int
    seeds: int
    random_seed: int
    output: Output

    def comparison(self) -> Comparison:
        """Returns what is compared; whatever is wrong with the flags raises an error here, before anything runs."""
        raise NotImplementedError

    def run(self) -> int:
        """Runs and prints the comparison, writes NAME.npz, and NAME.png and .pdf, also of a gauge; returns 0.

        An interrupted run leaves a checkpoint in the folder, from which the same command continues.
        """
        out = self.output.out
        check_writable("out", out)
        validate.integer("horizon", self.horizon, at_least=1)
        validate.within("random_seed", self.random_seed, 0, 2**32 - 1)
        check_values("epsilon", self.epsilon)
        comparison = self.comparison()
        name = self.output.name
        if name is None:
            name = self.digest(comparison.name)
        elif not name or name != Path(name).name or name.startswith("."):
            raise ValueError(f"name must be a name for files in the folder --out, got {name!r}")
        checkpoint = out / f".{name}.checkpoint"
        once = f"name must be that of one run at a time, got {name!r}"
        with locked(out / f".{name}.lock", once, otherwise="give another name"):
            import jax
            import matplotlib

            import fedbandit_jax as fb

            matplotlib.use("Agg")  # pictures go to files, no window opens
            result = fb.sweep(
                comparison.world,
                comparison.algos,
                grid={"epsilon": comparison.epsilon} if comparison.epsilon else {},
                horizon=self.horizon,
                key=jax.random.key(self.random_seed),
                seeds=self.seeds,
                stride=comparison.stride,
                checkpoint=checkpoint,
                throw=False,
            )
            try:
                saved = result.save(out / name)
            finally:  # a full disk must not swallow what was found, nor a closed pipe what was to be saved
                report(result)
            title = comparison.title + budgets(comparison.epsilon, comparison.delta)
            pictures = {"": fb.plotting.regret(result, title=title)}
            if comparison.gauge:
                pictures[f"_{comparison.gauge.lower().replace(' ', '_')}"] = fb.plotting.gauge(
                    result, comparison.gauge, title=title
                )
            drawn = [path for end, figure in pictures.items() for path in fb.plotting.save(figure, out / (name + end))]
            for part in out.glob(f"{checkpoint.name}.*"):
                part.unlink()
        notes = f"\n{comparison.notes}\n" if comparison.notes else ""
        print(f"{notes}\nwrote {' and '.join([str(saved), *(path.name for path in drawn)])}")
        return 0


def check_values(name: str, values: Sequence[Any]) -> None:
    """Raises a `ValueError` unless there is at least one value, and none occurs twice."""
    if not values or len(set(values)) < len(values):
        raise ValueError(f"{name} must have at least one value, each only once, got {_shown(tuple(values)) or 'none'}")


def budgets(epsilon: Sequence[float], delta: float | None) -> str:
    """Returns the part of a title that states the budgets; it is empty if no algorithm is private.

    >>> budgets((1.0, 5.0), 0.1), budgets((), None)
    ('; ε = 1, 5; δ = 0.1', '')
    """
    if not epsilon:
        return ""
    listed = ", ".join(f"{value:g}" for value in epsilon)
    return f"; ε = {listed}" if delta is None else f"; ε = {listed}; δ = {delta:g}"


def report(result: Result) -> None:
    """Prints the summary, and the certificates of all algorithms that have a budget or are certified."""
    print("\n" + result.summary())
    for label in result.labels:
        if result[label].certificate.epsilon is not None or result[label].certificate.claim == "certified":
            print(f"\nCertificate of {label}\n{result[label].certificate}")


def _flags(command: type[Command]) -> set[str]:
    names = {field.name for field in dataclasses.fields(command)}
    return names | {field.name for field in dataclasses.fields(Output) if "output" in names}


def _shown(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)
