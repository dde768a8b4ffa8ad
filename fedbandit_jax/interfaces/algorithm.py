"""The interface of algorithms."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

from jax import Array
from jaxtyping import Float, Int, Key, Num
from typing_extensions import override

from fedbandit_jax.certificate import Certificate, no_privacy
from fedbandit_jax.core import backend, struct, validate
from fedbandit_jax.core.scoring import Scorer
from fedbandit_jax.core.validate import BadType
from fedbandit_jax.interfaces.environment import Round, Spec


class Report(NamedTuple):
    """Communication cost of a synchronisation, and status bits of the learner after it.

    Attributes:
        rounds: rounds of communication.
        floats: numbers that all agents send and receive, together or as a pair.
        float_bits: bits of each of these numbers, shaped like `floats`.
        status: `Status` bits of the seed.
        counts: further counters by name, for `Result.counts`.
    """

    rounds: Int[Array, ""] | int = 0
    floats: Num[Array, ""] | Num[Array, " 2"] | int = 0
    float_bits: Num[Array, ""] | Num[Array, " 2"] | int = 32
    status: Int[Array, ""] | int = 0
    counts: Mapping[str, Num[Array, ""] | int] = {}


class Metrics(NamedTuple):
    """Metrics of one step of a runner: gaps, report and gauges."""

    gap: Float[Array, " P"]  # sum over agents of the gaps: of P rounds each, or of any one round in each of P stretches
    report: Report
    rounds: Int[Array, " P"] | None = None  # how many rounds each stretch has; None if `gap` is of single rounds
    gauges: Mapping[str, Num[Array, ""]] = {}  # values after the step by name, for `Result.gauges`


class Algorithm:
    """A federated bandit algorithm. Subclass it, decorate with `@fb.pytree`, and define `init`, `act` and `learn`.

    A run is a sequence of batches of B = `batch` rounds. In each batch the agents start from `download`, `act` and
    `learn` locally, and `sync` ends it with all exchanges of the server and the agents. The defaults suit an algorithm
    that never communicates. Numbers are pytree leaves, so changing them does not compile again.

    Your algorithm gets raw rewards, so nothing is claimed about its privacy. For a certificate, write a `Policy`, which
    gets released statistics only, and run it with `fb.algos.Federated`.
    """

    name: str = "algorithm"
    batch: int = 1
    supports_dropouts: bool = False  # whether it supports silos that miss synchronisations
    supports_delay: bool = False  # whether it supports delayed rewards
    stops_by_itself: bool = False  # whether `sync` masks rounds past the horizon, in an incomplete last batch

    def parameters(self) -> tuple[str, ...]:
        """Returns the paths of all parameters, also of nested parts, such as "policy.theta_norm"."""
        return struct.paths(self)

    def takes(self, name: str) -> bool:
        """Returns whether `replace` takes this parameter; raises a TypeError if several paths end in it."""
        return self._path(name, self.parameters()) is not None

    def replace(self, **changes: Any) -> Any:
        """Returns the algorithm with other parameters, of itself or its parts; a recipe checks them.

        Args:
            changes: parameter -> value. A parameter is a path, as in `replace(**{"policy.theta_norm": 0.7})`, or the
                end of one if no other path ends in it, as in `replace(theta_norm=0.7)`.

        Raises:
            TypeError: no path ends in that, or several do; the message lists the paths there are.
        """
        every = struct.paths(self)
        found: dict[str, str] = {}
        for name in changes:
            path = self._path(name, every)
            if path is None:
                near = validate.suggestion(name, (path.rpartition(".")[2] for path in every))
                hint = near or f"; it has {', '.join(every)}"
                raise BadType(name, f"is no parameter of {self.name}{hint}", changes[name], got="")
            if path in found:
                both = (found[path], name)
                raise BadType(both, f"are one parameter of {self.name}: give only one of them", changes[name], got="")
            found[path] = name
        changed: Any = self
        for path in sorted(found, key=lambda path: path.count(".")):  # replaces a part before its own parameters
            changed = struct.replace(changed, path, changes[found[path]])
        return changed

    def _path(self, name: str, among: tuple[str, ...]) -> str | None:
        found = [path for path in among if f".{path}".endswith(f".{name}")]
        if len(found) > 1 and struct.is_sealed(self) and not isinstance(self, Recipe):
            why = f"is fixed in a bound {type(self).__name__}: give it to the recipe, and bind that"
            raise BadType(name, why, None, got="")
        if len(found) > 1 and name not in found:
            why = f"is a parameter of several parts of {self.name}: give {' or '.join(found)}"
            raise BadType(name, why, None, got="")
        return name if name in found else next(iter(found), None)

    def bind(self, spec: Spec, horizon: int) -> Algorithm:
        """Returns the algorithm for this environment and horizon T, with calibrated noise, on the host."""
        return self

    def certificate(self, spec: Spec, horizon: int) -> Certificate:
        """Returns the guarantee of a run, read from the bound algorithm, which runs."""
        from fedbandit_jax.privacy.certification import certificate_of  # which knows every mechanism

        horizon = _rounds(spec, horizon)
        return certificate_of(self.bind(spec, horizon), spec, horizon)

    def init(self, key: Key[Array, ""], spec: Spec) -> Any:
        """Returns the state before round 0."""
        raise NotImplementedError(f"{type(self).__name__}.init")

    def download(self, state: Any, offered: Round) -> Any:
        """Returns the local state of all agents at the start of a batch with the first round `offered`."""
        return state

    def act(self, key: Key[Array, ""], t: Int[Array, ""], local: Any, offered: Round) -> Int[Array, " M"]:
        """Returns the arms to play in round t, int32."""
        raise NotImplementedError(f"{type(self).__name__}.act")

    @property
    def scores_alone(self) -> bool:
        """Whether `scorer` may replace `act`, with `learn` for the chosen arms only.

        A run then draws fresh contexts only while it scores them, see `core.choose`.
        """
        return False

    def scorer(self, t: Int[Array, ""], local: Any) -> Scorer:
        """Returns the index of an arm as a function of its features alone, as in `act`."""
        raise NotImplementedError(f"{type(self).__name__}.scorer")

    def learn(
        self, t: Int[Array, ""], local: Any, offered: Round, arms: Int[Array, " M"], rewards: Float[Array, " M"]
    ) -> tuple[Any, Any]:
        """Returns the new local state and a record of the round, from int32 arms and float32 rewards."""
        raise NotImplementedError(f"{type(self).__name__}.learn")

    @property
    def adds(self) -> bool:
        """Whether `sync` needs only sums, over groups of agents and over rounds, of the results of `gather`.

        On a CPU groups of agents then play one after the other, between two synchronisations, and `sync` gets None for
        the local state. Elsewhere `gather` gets every round by itself, with B = 1.
        """
        return False

    def gather(self, records: Any) -> Any:
        """Returns the summary for `sync` of the records of a batch, stacked along a new leading axis B."""
        return records

    def sync(self, key: Key[Array, ""], k: Int[Array, ""], state: Any, local: Any, records: Any) -> tuple[Any, Report]:
        """Returns the state that the next batch downloads after batch k, and its cost, from the result of `gather`."""
        return local, Report()

    @property
    def source(self) -> Any:
        """The mechanism with `rows` of noise for all synchronisations; None: `sync` draws the noise.

        Row k ends batch k. The engine draws the rows before the loop, and runs the algorithm that is `given` them.
        Algorithms that then differ in numbers only share a compiled program.
        """
        return None

    def given(self, rows: Any) -> Algorithm:
        """Returns the algorithm with rows of its `source` in its place; None: rows follow later."""
        raise NotImplementedError(f"{type(self).__name__}.given")

    def view(self, state: Any) -> Any:
        """Returns the transcript of the last synchronisation for audits: the view of untrusted parties."""
        raise NotImplementedError(f"{type(self).__name__}.view")

    def guarantee(self) -> Certificate:
        """Returns the guarantee of this bound algorithm, from its own parts; `certify` asks sealed classes only."""
        return no_privacy("the algorithm adds no noise")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recipe(Algorithm):
    """An unbound algorithm: a frozen dataclass of parameters, which it validates itself.

    Parts may be recipes too, and `replace` reaches into them by dotted paths. A subclass validates in `__post_init__`
    and defines `bind`, which returns a bound algorithm, a pytree. `bind` gets checked arguments, and `horizon` as an
    int. Privacy is not computed here: `certificate` reads it from the result of `bind`.

    Raises:
        ValueError, TypeError: an argument is out of range or of the wrong type; the message names it and its value.
            When bound, also if this process does not compute float32 by the rules of IEEE 754.
    """

    title: ClassVar[str] = ""
    """The label in results without a `name`, if it is the same for all parameters."""

    @property
    def label(self) -> str:
        """The label in results without a `name`, for these parameters."""
        return self.title

    @property
    def private(self) -> bool:
        """Whether there is a budget, which a name may state."""
        return False

    @override
    def replace(self, **changes: Any) -> Any:
        """Returns the recipe with other parameters; a stale name becomes the new label."""
        changed = super().replace(**changes)
        stale = self.name == self.label or self.private != changed.private
        return dataclasses.replace(changed, name=changed.label) if stale and "name" not in changes else changed

    def __init_subclass__(cls, **options: Any):
        super().__init_subclass__(**options)
        if bind := vars(cls).get("bind"):

            @functools.wraps(bind)
            def checked(self: Recipe, spec: Spec, horizon: int) -> Algorithm:
                backend.check()
                return bind(self, spec, _rounds(spec, horizon))

            cls.bind = checked


def _rounds(spec: Spec, horizon: int) -> int:
    validate.instance("spec", spec, Spec, "an fb.Spec, as env.spec is")
    return validate.integer("horizon", horizon, at_least=1)
