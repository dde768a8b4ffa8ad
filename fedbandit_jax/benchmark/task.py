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
from fedbandit_jax.planning.demands import PARTIES, fixed_arms, quietest, silos_away
from fedbandit_jax.privacy import RELEASES, Budget, Mechanism, Users
from fedbandit_jax.privacy.trust import TRUST, find

SUITE = "v1"
SEEDS = 16  # of a row in every task
MANY = 100  # most synchronisations in fixed batches; more would gain little and take long
ROUNDED = 1e-5  # relative rounding error of a certificate's epsilon


def _hidden(*_: Any) -> Any:
    raise BadValue("env", "must not be read by an entry, which is given a spec and arms", None, got="")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task:
    """A task of the benchmark; `fb.benchmark.TASKS` has them by name.

    Attributes:
        name: such as "sphere-silo".
        about: a sentence on its difficulty.
        family: "linear" (M silos serve one user each in a round), "arms" (exchangeable users in batches) or "clusters"
            (returning users one at a time).
        sizes: M, K and d of the environment.
        horizon: number of rounds T.
        epsilon, delta: the budget. A delta of 0 is pure differential privacy.
        unit: None if every user comes once; for returning users "visit", or `fb.privacy.Users`, all visits of a user.
        trusted: parties that users may trust, of "nobody", "silo", "shuffler", "secagg" and "server"; the last one has
            the least noise.
        max_syncs: most rounds of communication in T rounds, or uploads of all agents that arrive one at a time; None:
            any number.
        graph: links between silos without a server.
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
        """The environment, made on first use."""
        return self.make()

    @functools.cached_property
    def _known(self) -> tuple[Spec, np.ndarray | None, int]:
        """All that an entry may know of the environment: its spec, fixed arms, and absent silos."""
        return self.env.spec, fixed_arms(self.env), silos_away(self.env)

    @property
    def spec(self) -> Spec:
        """Spec of the environment."""
        return self._known[0]

    @property
    def arms(self) -> np.ndarray | None:
        """Arms (K, d) offered to every user in every round, if fixed; otherwise None."""
        return self._known[1]

    @functools.cached_property
    def shown(self) -> Task:
        """This task without its environment, as an entry sees it."""
        made = dataclasses.replace(self, make=_hidden, reference=_hidden)
        vars(made)["_known"] = self._known
        return made

    @property
    def budget(self) -> Budget:
        """The budget, under adjacency "replace"; not for pure differential privacy."""
        return Budget(self.epsilon, self.delta)

    @property
    def trust(self) -> str:
        """Allowed trust model of `fb.privacy.Mechanism` with the least noise."""
        last = self.trusted[-1]
        return "local" if last == "nobody" else PARTIES[last].trust

    @property
    def batch(self) -> int:
        """Shortest fixed batches B with an allowed number of synchronisations, at most a hundred."""
        return self.horizon // (min(self.max_syncs or MANY, MANY) + 1) + 1

    def mechanism(self, release: Any = "blt", **options: Any) -> Mechanism:
        """Makes a mechanism with the budget, the unit and the trust model of this task.

        Args:
            release: as in `fb.privacy.Mechanism`. With drop-outs, or if nobody is trusted, it is always
                "input_perturbation", and with a shuffler "tree", since others are impossible.
            options: options of `fb.privacy.Mechanism` that replace these defaults. The default statistic has the least
                noise: half of x x', and x (y - 1/2) if features have a constant entry, but as printed if single users
                add noise.
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
        """Whether batches may grow, which needs trusted silos or secure aggregation."""
        last = self.trusted[-1]
        return last != "nobody" and PARTIES[last].grows

    @property
    def uniform(self) -> Algorithm:
        """Uniform play, with score 0."""
        return UniformArms() if self.family == "arms" else Uniform()

    @functools.cached_property
    def digest(self) -> str:
        """Digest of everything that a row depends on except its entry: environment, budget, limits, reference."""
        asked = [
            getattr(self, name) for name in ("name", "horizon", "epsilon", "delta", "unit", "trusted", "max_syncs")
        ]
        return digest(SUITE, SEEDS, *asked, self.graph, self.env, self.reference(self)).hex()

    def key(self, entry: str, nonce: str = "") -> Any:
        """Returns the key of an entry's test seeds, from its digest; a nonce gives seeds that nobody could choose."""
        words = hashlib.sha256("|".join((SUITE, self.digest, entry, nonce)).encode()).digest()[:8]
        return jax.random.wrap_key_data(jnp.asarray(np.frombuffer(words, ">u4").astype(np.uint32)), impl="threefry2x32")

    def overspent(self, certificate: Certificate) -> str:
        """Returns why a certificate does not keep the budget; "" if it does."""
        epsilon, delta = certificate.epsilon_exact, certificate.delta
        if certificate.claim != "certified":
            return f"claim {certificate.claim}: {certificate.reason}"
        if epsilon is None or delta is None or epsilon > self.epsilon * (1 + ROUNDED) or delta > self.delta:
            got = f"epsilon = {epsilon or math.inf:.6g} at delta = {delta or 0:g}"
            return f"the noise gives {got}, the task asks for {self.epsilon:g} at {self.delta:g}"
        return ""

    def refusal(self, certificate: Certificate, syncs: float, status: int) -> str:
        """Returns why a run counts as uniform play; "" if it counts.

        Args:
            certificate: certificate of the run.
            syncs: most rounds of communication over seeds.
            status: bits of `fb.Status` of all seeds.
        """
        if spent := self.overspent(one := certificate):
            return spent
        if one.trusted not in self.trusted:
            whom = "the party of a user-defined trust model" if one.trusted == "own" else one.trusted
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
