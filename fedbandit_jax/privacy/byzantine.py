"""Byzantine silos: attacks sent to the server in place of messages, and mechanisms with a server that bears them.

The server is shown every silo's private prefix sums, and adds them up by a robust rule. Prefix sums are post-processing
of messages. With them a silo that lies always does no more harm than one that lies once.

A rule takes M times a robust centre of M vectors. `AGGREGATES` maps every name to its centre. A centre breaks down if
lies can move it without bound. The mean ("sum") tolerates no lies, "median" and "geometric_median" fewer than half, and
"trimmed_mean" a quarter. A release has sqrt(M) times the noise of one prefix sum, times the `cost` of the rule.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Key
from typing_extensions import override

from fedbandit_jax.certificate import Certificate, no_privacy
from fedbandit_jax.core import struct, validate
from fedbandit_jax.core.validate import BadValue
from fedbandit_jax.privacy.bound import BoundMechanism, Exact, MechanismState, NoRelease, Stepped, Timing
from fedbandit_jax.privacy.compatibility import Tags, tagged
from fedbandit_jax.privacy.noisy_sums import Aggregated, NoisyMechanism
from fedbandit_jax.privacy.packing import pack, packed_size, unpack

LARGE = 1000.0  # factor of the attack "large"
TRIM = 0.25  # share of messages that "trimmed_mean" leaves out at each end
STEPS = 64  # of Weiszfeld's algorithm
NUMBERS = 2**21  # drawn at most, about, to compute a `cost`
FEWEST = 512  # least number of coordinates in that average

Lie = Callable[[Key[Array, ""], Float[Array, "M D"], Float[Array, "M d d+1"]], Float[Array, "M D"]]


def _random(key: Array, sent: Array, sums: Array) -> Array:
    drawn = jax.random.normal(key, sent.shape)
    return drawn * jnp.linalg.norm(sent, axis=1, keepdims=True) / jnp.linalg.norm(drawn, axis=1, keepdims=True)


ATTACKS: dict[str, Lie] = {
    "random": _random,
    "sign_flip": lambda key, sent, sums: -sent,
    "large": lambda key, sent, sums: -LARGE * sent,
    "collude": lambda key, sent, sums: sent.at[:, -sums.shape[1] :].set(sums[:, :, 0]),
}


@dataclasses.dataclass(frozen=True)
class Liars:
    """Silos that send an attack instead of their private sums [W | U], at every synchronisation.

    They serve their users like all others, by the server's beliefs. They count in the regret. Neither the bounds that
    honest silos enforce nor the noise applies to a liar's message.

    Args:
        silos: the share of silos that lie, in [0, 1), or their numbers. A share is the first silos, the nearest number
            to share times M.
        attack: what liars send. With "sign_flip" it is minus the true message, and with "large" minus a thousand times
            it. With "random" it has the same norm in a random direction, fresh every time. With "collude" it is the
            true W with U = W e_1. The reward of every arm then seems to be its first feature. All liars then pull theta
            towards the first axis, within usual bounds.

    Raises:
        ValueError, TypeError: if an argument is out of range or of the wrong type.

    Example:
        >>> Liars(0.2, "collude").among(10), Liars([1, 4]).among(5)
        ((0, 1), (1, 4))
    """

    silos: float | Sequence[int] = 0.2
    attack: str = "sign_flip"

    def __post_init__(self):
        if isinstance(self.silos, (list, tuple)):
            numbers = tuple(validate.integer("silos", one, at_least=0) for one in self.silos)
            if len(set(numbers)) < len(numbers):
                raise BadValue("silos", "must name every silo once", list(numbers))
            object.__setattr__(self, "silos", numbers)
        elif validate.within("silos", self.silos, 0, 1) == 1:
            raise BadValue("silos", "must be a share below 1, or a list of silos", self.silos)
        validate.one_of("attack", self.attack, ATTACKS)

    def among(self, n_agents: int) -> tuple[int, ...]:
        """Returns the numbers of the silos that lie, out of M.

        Raises:
            ValueError: if there is no silo of such a number, all silos lie, or a share above 0 is none of them.
        """
        share: Any = self.silos
        found = share if isinstance(share, tuple) else tuple(range(round(share * n_agents)))
        if any(one >= n_agents for one in found):
            raise BadValue("silos", f"must be below the {n_agents} of the environment", list(found))
        if not found and share not in (0, ()):
            raise BadValue("silos", f"must be 0, or a share that is at least one of {n_agents} silos", share)
        if len(found) == n_agents:
            raise BadValue("silos", f"must leave one of {n_agents} that is honest", share)
        return found

    def mask(self, n_agents: int) -> Float[np.ndarray, " M"]:
        """Returns the mask of the M silos that lie, 1 for liars."""
        found = np.zeros(n_agents, np.float32)
        found[list(self.among(n_agents))] = 1
        return found


def median(sent: Float[Array, "M D"]) -> Float[Array, " D"]:
    """Returns the coordinatewise median. For an even number of messages it is the mean of the two in the middle."""
    return jnp.median(sent, axis=0)


def trimmed_mean(sent: Float[Array, "M D"]) -> Float[Array, " D"]:
    """Returns the mean of every coordinate after leaving out floor(M / 4) values at each end.

    Reference: Yin, Chen, Ramchandran & Bartlett (2018), Definition 2.
    """
    out = int(TRIM * len(sent))
    return jnp.sort(sent, axis=0)[out : len(sent) - out].mean(0)


def geometric_median(sent: Float[Array, "M D"]) -> Float[Array, " D"]:
    """Returns the point with the least sum of distances to all messages, by 64 steps of Weiszfeld's algorithm.

    It starts at the coordinatewise median. A message at the current point counts as if it were 10^-6 of a median
    distance off.
    """

    def distances(centre: Array) -> Array:
        return jnp.sqrt(((sent - centre) ** 2).sum(1))

    start = median(sent)
    least = 1e-6 * jnp.median(distances(start)) + jnp.finfo(jnp.float32).tiny

    def step(_: Array, centre: Array) -> Array:
        weights = least / jnp.maximum(distances(centre), least)
        return (weights[:, None] * sent).sum(0) / weights.sum()

    return jax.lax.fori_loop(0, STEPS, step, start)


def mean(sent: Float[Array, "M D"]) -> Float[Array, " D"]:
    """Returns the mean; M times the mean is the plain sum."""
    return sent.mean(0)


AGGREGATES: dict[str, Callable[[Array], Array]] = {
    "sum": mean,
    "median": median,
    "geometric_median": geometric_median,
    "trimmed_mean": trimmed_mean,
}


@functools.cache
def cost(aggregate: str, n_agents: int, size: int) -> float:
    """Returns the standard deviation of an aggregate of M iid Gaussian messages, in units of their sum's.

    It tends to sqrt(pi / 2) for the median as M grows. An aggregate minus the mean does not depend on the centre of the
    Gaussians. So it is independent of the mean (Basu's theorem), and their variances add up. The variance of the
    difference is an average over draws from a fixed seed. It is right to 0.2 % for M = 100 and D = 65.

    Args:
        aggregate: a key of `AGGREGATES`.
        n_agents: M.
        size: D, which only the geometric median depends on.

    Example:
        >>> round(cost("median", 1001, 65), 1), cost("sum", 1001, 65), cost("median", 2, 65)
        (1.3, 1.0, 1.0)
    """
    if aggregate == "sum" or n_agents <= 2:  # all are the mean of two
        return 1.0
    columns = max(FEWEST, NUMBERS // n_agents)
    runs = -(-columns // size) if aggregate == "geometric_median" else 1
    drawn = np.random.default_rng(0).standard_normal((runs, n_agents, -(-columns // runs)), np.float32)
    if runs > 1:
        drawn = drawn[..., :size]
    centres = np.asarray(jax.jit(jax.vmap(AGGREGATES[aggregate]))(drawn))
    return math.sqrt(1 + n_agents * float(((centres - drawn.mean(1)) ** 2).mean()))


@struct.sealed
@struct.pytree
class Server:
    """A server that is shown M messages, some of them lies, and adds them up by a rule."""

    lying: Any  # (M,) 1 for silos that lie
    attack: struct.Number  # which of `ATTACKS` it is
    aggregate: str = struct.static()  # a key of `AGGREGATES`

    def shown(self, key: Array, sent: Array, sums: Array) -> Array:
        """Returns the silos' messages with lies, (M, D), from the true ones, packed and as [W | U], (M, d, d + 1)."""
        lies = jnp.stack([attack(key, sent, sums) for attack in ATTACKS.values()])
        return jnp.where(jnp.asarray(self.lying)[:, None] > 0, lies[self.attack], sent)

    def total(self, shown: Array) -> Array:
        """Returns the estimate of the sum over all M silos, (D,)."""
        return len(shown) * AGGREGATES[self.aggregate](shown)


@struct.sealed
@struct.pytree
class ExactRobust(Exact):
    """A mechanism without privacy; the server is shown every silo's exact sums."""

    per_silo = True

    server: Server

    @override
    def init(self, dim: int) -> MechanismState:
        return super().init(dim)._replace(view=jnp.zeros((self.n_agents, packed_size(dim))))

    @override
    def step(self, key: Array, k: Array, state: Any, total: Any, x: Array, v: Array, sends: Any = None) -> Stepped:
        state = self.absorb(state, total)
        each = state.sums.high
        shown = self.server.shown(key, pack(each), each)
        return unpack(self.server.total(shown), each.shape[1]), state._replace(view=shown)


@struct.sealed
@struct.pytree
class RobustMechanism(NoisyMechanism):
    """A silo-local mechanism; the server is shown every silo's private prefix sum.

    So users have the guarantee of `SiloLocal`, however other silos and the server behave.
    """

    per_silo = shows_silos = True

    server: Server

    @property
    @override
    def tags(self) -> Tags:
        return super().tags | tagged("aggregate", self.server.aggregate, {"server shown silos": True})

    @override
    def stds(self) -> np.ndarray:
        size = packed_size(self.statistic.dim)
        return super().stds() * cost(self.server.aggregate, self.n_agents, size)

    @override
    def init(self, dim: int) -> MechanismState:
        shape = self.n_agents, packed_size(dim)
        return super().init(dim)._replace(release=self.release.init(shape), view=jnp.zeros(shape))

    @override
    def step(self, key: Array, k: Array, state: Any, total: Any, x: Array, v: Array, sends: Any = None) -> Stepped:
        noises, lies = jax.random.split(key)
        state, m = self.absorb(state, total), self.n_agents
        nothing = jnp.zeros((m, packed_size(self.statistic.dim)))
        fresh = jax.vmap(self.trust.randomize, (0, 0, None, 0))(jax.random.split(noises, m), jnp.arange(m), k, nothing)
        noise, release = self.release.decode(state.release, k, fresh)
        each = state.sums.noisy(self.statistic.unpack(noise))
        shown = self.server.shown(lies, self.statistic.pack(each), each)
        statistics = self._released(k, self.statistic.unpack(self.server.total(shown)))
        view = jnp.where(k <= self.release.n_syncs, shown, state.view)
        return statistics, state._replace(release=release, view=view)

    @override
    def guarantee(self, timing: Timing, batch: int | None) -> Certificate:
        if not struct.is_sealed(self.server):
            return no_privacy(f"nothing is proved of {type(self.server).__name__}, a user-defined server")
        found = super().guarantee(timing, batch)
        if found.claim == "none":
            return found
        rule = f"the server's rule {self.server.aggregate!r} is post-processing of noised messages"
        lies = ["users of silos that lie"] * bool(np.any(self.server.lying))
        return dataclasses.replace(found, reason=f"{found.reason}; {rule}", not_covered=(*found.not_covered, *lies))

    def plain(self) -> RobustMechanism:
        """Returns the same mechanism with the plain sum of honest silos, so all noise is Gaussian."""
        server = dataclasses.replace(self.server, lying=0 * self.server.lying, aggregate="sum")
        return dataclasses.replace(self, server=server)


def with_robust_server(mechanism: BoundMechanism, aggregate: str, liars: Liars | None) -> BoundMechanism:
    """Returns the same mechanism with a server that sees every silo's sums and adds them up by a rule.

    Args:
        mechanism: `Aggregated` noise of silos, `Exact`, or `NoRelease`, which is returned.
        aggregate: a key of `AGGREGATES`.
        liars: silos that lie to the server, if any.

    Raises:
        ValueError: if `liars` names a silo that does not exist.
    """
    if isinstance(mechanism, NoRelease):
        return mechanism
    liars = liars or Liars(0.0)
    attack = np.int32(list(ATTACKS).index(liars.attack))
    server = Server(lying=liars.mask(mechanism.n_agents), attack=attack, aggregate=aggregate)
    assert type(mechanism) in (Exact, Aggregated)
    kind: Any = ExactRobust if type(mechanism) is Exact else RobustMechanism
    return kind(**{one.name: getattr(mechanism, one.name) for one in dataclasses.fields(mechanism)}, server=server)
