"""A task of the benchmark: a frozen environment, a privacy budget, trusted parties, and limits on communication."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np

from fedbandit_jax.algos import Uniform, UniformArms
from fedbandit_jax.certificate import Certificate
from fedbandit_jax.core import validate
from fedbandit_jax.core.validate import BadValue
from fedbandit_jax.engine.identity import digest
from fedbandit_jax.interfaces import Algorithm, Environment, Spec
from fedbandit_jax.planning.demands import fixed_arms, quietest, silos_away
from fedbandit_jax.privacy import RELEASES, Budget, Mechanism, Users
from fedbandit_jax.privacy.trust import TRUST, find

SUITE = "v1"
SEEDS = 16  # of a row in every task
MANY = 100  # synchronisations in batches of one length, of which more would gain little and take long
ROUNDED = 1e-5  # by which a certificate's epsilon may be larger, as it is computed in floating point
NAMES = {"nobody": "local", "silo": "silo_local", "shuffler": "shuffle_vector_sum", "secagg": "secagg"}


def _hidden(*_: Any) -> Any:
    raise BadValue("env", "must not be read by an entry, which is given a spec and arms", None, got="")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task:
    """A task of the benchmark; `fb.benchmark.TASKS` has them by name.

    Attributes:
        name: such as "sphere-silo".
        about: a sentence that says what is hard.
        family: "linear", M silos that serve one user each in a round; "arms", users who are alike and asked in batches;
            or "clusters", users who return one at a time.
        sizes: M, K and d of the environment, which is made when it is first asked for.
        horizon: T, the number of rounds.
        epsilon, delta: the budget. A delta of 0 is pure differential privacy.
        unit: None where every user comes once; "visit", or `fb.privacy.Users`, all visits of one user, where they
            return.
        trusted: whom users may trust, of "nobody", "silo", "shuffler", "secagg" and "server"; who is named last has the
            least noise.
        max_syncs: the most rounds of communication in T rounds, or uploads of all where users come one at a time; None:
            any number.
        graph: who may talk to whom, where there is no server.
    """

    name: str
    about: str
    family: str
    sizes: tuple[int, int, int]
    make: Callable[[], Environment] = dataclasses.field(repr=False)
    horizon: int
    epsilon: float
    delta: float
    unit: str | Users | None = None
    trusted: tuple[str, ...]
    max_syncs: int | None = None
    graph: nx.Graph | None = None
    reference: Callable[[Task], Algorithm] = dataclasses.field(repr=False)

    @functools.cached_property
    def env(self) -> Environment:
        """The environment, made when it is first asked for."""
        return self.make()

    @functools.cached_property
    def _known(self) -> tuple[Spec, np.ndarray | None, int]:
        """All that an entry may know of the environment: its spec, fixed arms, and silos that are away."""
        return self.env.spec, fixed_arms(self.env), silos_away(self.env)

    @property
    def spec(self) -> Spec:
        """The description of the environment."""
        return self._known[0]

    @property
    def arms(self) -> np.ndarray | None:
        """The arms (K, d) that every round offers to every user, if these are always the same; else None."""
        return self._known[1]

    @functools.cached_property
    def shown(self) -> Task:
        """This task as an entry sees it: without the environment that it will be played in."""
        spec, arms, away = self._known
        graph, arms = (None if one is None else one.copy() for one in (self.graph, arms))  # not what the judge looks at
        copy = dataclasses.replace(self, make=_hidden, reference=_hidden, graph=graph)
        vars(copy)["_known"] = spec, arms, away
        return copy

    @property
    def budget(self) -> Budget:
        """The budget, under adjacency "replace"; not for pure differential privacy."""
        return Budget(self.epsilon, self.delta)

    @property
    def trust(self) -> str:
        """The trust model of `fb.privacy.Mechanism` that has the least noise of those allowed."""
        return NAMES[self.trusted[-1]]

    @property
    def batch(self) -> int:
        """B, the shortest batches of one length whose synchronisations are allowed, and no more than a hundred."""
        return self.horizon // (min(self.max_syncs or MANY, MANY) + 1) + 1

    def mechanism(self, release: Any = "blt", **options: Any) -> Mechanism:
        """A mechanism with the budget, the unit and the trust model of this task.

        Args:
            release: as in `fb.privacy.Mechanism`. Where silos drop out, and where nobody is trusted, it is
                "input_perturbation" whatever is asked for, and with a shuffler "tree": others are not possible there.
            options: of `fb.privacy.Mechanism`, in place of what is said here. By default the statistic is that with the
                least noise: half of x x', and x (y - 1/2) where features have a constant entry, but as printed where
                single users add noise.
        """
        if isinstance(release, str):
            validate.one_of("release", release, RELEASES)
        trust = find(options.get("trust", self.trust))
        if trust is TRUST["local"] or self.spec.drops:
            release = "input_perturbation"
        elif trust.for_trees:
            release = "tree"
        away = self._known[2] if trust is TRUST["secagg"] else 0
        default = {"trust": self.trust, "unit": self.unit, "statistic": quietest(self.spec, trust), "dropouts": away}
        return Mechanism(self.budget, release, **{**default, **options})

    @property
    def grows(self) -> bool:
        """Whether batches may grow, as they may where silos or secure aggregation are trusted."""
        return self.trusted[-1] in ("silo", "secagg", "server")

    @property
    def uniform(self) -> Algorithm:
        """Uniform play, the score 0."""
        return UniformArms() if self.family == "arms" else Uniform()

    @functools.cached_property
    def digest(self) -> str:
        """The digest of all that a row depends on but its entry: environment, budget, limits, reference."""
        asked = [
            getattr(self, name) for name in ("name", "horizon", "epsilon", "delta", "unit", "trusted", "max_syncs")
        ]
        return digest(SUITE, SEEDS, *asked, self.graph, self.env, self.reference(self)).hex()

    def key(self, entry: str, nonce: str = "") -> Any:
        """The key of the test seeds of an entry, given by its digest; with a nonce, seeds that nobody could choose."""
        words = hashlib.sha256("|".join((SUITE, self.digest, entry, nonce)).encode()).digest()[:8]
        return jax.random.wrap_key_data(jnp.asarray(np.frombuffer(words, ">u4").astype(np.uint32)), impl="threefry2x32")

    def refusal(self, certificate: Certificate, syncs: float, status: int) -> str:
        """The reason why a run does not count, and is scored as uniform play; "" if it does.

        Args:
            certificate: of the run.
            syncs: the most rounds of communication under any seed.
            status: bits of `fb.Status` of all seeds.
        """
        one, epsilon, delta = certificate, certificate.epsilon_exact, certificate.delta
        if one.claim != "certified":
            return f"claim {one.claim}: {one.reason}"
        if epsilon is None or delta is None or epsilon > self.epsilon * (1 + ROUNDED) or delta > self.delta:
            got = f"epsilon = {epsilon or math.inf:.6g} at delta = {delta or 0:g}"
            return f"the noise gives {got}, the task asks for {self.epsilon:g} at {self.delta:g}"
        if one.trusted not in self.trusted:
            whom = "whom a trust model of the entry's own names" if one.trusted == "own" else one.trusted
            return f"users must trust {whom}, the task allows {' or '.join(self.trusted)}"
        if self.graph is not None and one.server:
            return "it has a server, the task has none: use fb.algos.Gossip(graph=task.graph, ...)"
        if one.neighbours != "replace":
            return f"adjacency is {one.adjacency!r}, the task has 'replace'"
        if isinstance(self.unit, Users) and not one.whole_user:
            return f"protected is {one.unit!r}, the task asks for one user with all visits"
        if self.max_syncs is not None and syncs > self.max_syncs:
            return f"it communicates {syncs:,.0f} times, the task allows {self.max_syncs:,}"
        return f"status bits {status} are set" if status else ""
