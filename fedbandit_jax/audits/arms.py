"""Cases of multi-armed algorithms: between neighbours one user's reward differs.

`arms` runs two batches and a third that the horizon cuts short. The user is in the first or the second. So an audit
notices repeated releases, and noise of another batch. Cases of single messages run only the first batch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from fedbandit_jax.algos import (
    CDPSE,
    DPSE,
    LDPSE,
    RRSE,
    SE,
    AdaCUCB,
    DistCDPSE,
    DistDPSE,
    DistRDPSE,
    PhasedKLUCB,
    PhasedThompson,
    SequentialHalving,
    ShuffleDPSE,
    ThompsonArms,
    TopTwo,
    TruncatedSE,
)
from fedbandit_jax.algos.arms.adac_ucb import AdaCState
from fedbandit_jax.algos.arms.thompson import phases
from fedbandit_jax.audits.case import Case
from fedbandit_jax.audits.messages import by_message
from fedbandit_jax.core import struct, validate, wide
from fedbandit_jax.core.validate import BadValue
from fedbandit_jax.engine.runners import BatchedArms
from fedbandit_jax.interfaces import ArmAlgorithm, Spec, certify
from fedbandit_jax.privacy.integers.noise import ShuffledNoise, SkellamNoise
from fedbandit_jax.privacy.integers.ring import RingSum
from fedbandit_jax.privacy.samplers import discrete_laplace

N_ARMS = 2  # K
EPSILON, DELTA = 1.0, 1e-2  # budget of shipped cases
VARIANTS = DPSE, CDPSE, LDPSE, DistDPSE, DistRDPSE, DistCDPSE, ShuffleDPSE


@struct.pytree
class ScriptedUsers:
    """Users with scripted rewards, equal in every block. No audit reads the means, which are 0."""

    rewards: Any  # (K, n), n even: the reward of user i of arm k in a block of n users
    spec: Spec = struct.static()

    def init(self, key: Array) -> tuple[()]:
        return ()

    def means(self, world: Any) -> Array:
        return jnp.zeros(self.spec.n_arms)

    def answers(self, key: Array, world: Any, arm: Array, size: int) -> tuple[Array, Array]:
        first, second = jnp.split(jnp.asarray(self.rewards)[arm], [size // 2])
        return first, second


@struct.pytree
class SumsOfUsers:
    """A mechanism for `audit`: (key, rewards (S, K, n)) -> the view of a run of a bound multi-armed algorithm.

    For each of S batches the view holds noisy sums (S, K) and arms (S, K) bool. Arms are the active ones, or the
    pulled one. In batch k the users of arm i have the rewards `rewards[k, i]`, in blocks of n.
    """

    algo: ArmAlgorithm
    horizon: int = struct.static()  # T
    n_batches: int = struct.static()  # most batches of a run, which the algorithm holds as data

    @classmethod
    def of(cls, algo: Any, horizon: int) -> SumsOfUsers:
        """Makes the mechanism of an algorithm bound to this horizon T."""
        return cls(algo=algo, horizon=horizon, n_batches=int(algo.n_batches))

    def __call__(self, key: Array, rewards: Array) -> Any:
        env = ScriptedUsers(rewards=rewards[0], spec=_spec(rewards.shape[1]))
        process = BatchedArms(env=env, algo=self.algo, horizon=self.horizon, block=rewards.shape[2])  # pyright: ignore

        def body(carry, k):
            world = dataclasses.replace(env, rewards=rewards[jnp.minimum(k, len(rewards) - 1)])
            now = dataclasses.replace(process, env=world)
            _, state, metrics = now.step(key, carry[0], carry[1], k)
            shown, active = self.algo.view(state[1])
            asked = metrics.report.rounds > 0
            return (carry[0], state), (jnp.where(asked, shown, 0), jnp.where(asked, active, False))

        world, state = process.init(key)
        if isinstance(learner := state[1], AdaCState):  # arms in order, since the lot depends on no data
            lot = jnp.arange(len(learner.lot), dtype=learner.lot.dtype)
            state = (state[0], learner._replace(lot=lot), *state[2:])
        return lax.scan(body, (world, state), jnp.arange(self.n_batches))[1]


@struct.pytree
class MessagesOfUsers:
    """A mechanism for `audit`: (key, rewards (S, K, n)) -> messages of the first users of arm 0, (n,)."""

    protocol: RingSum

    def __call__(self, key: Array, rewards: Array) -> Array:
        rounding, own = jax.random.split(key)
        return _read(self.protocol, self.protocol.randomize(rounding, own, jnp.int32(0), rewards[0, 0]))


def bits_of_users(protocol: RingSum) -> Callable[[Array, Array], Any]:
    """Makes a mechanism for `audit`, (key, rewards (S, K, n)) -> the number R of ones that a shuffler shows.

    R counts the first users of arm 0. It is shown as R modulo m, the noisy sum, and R // m, in units of the scale of Z.
    A user with y, an encoded reward with its noise, sends y + m Z ones with Z discrete Laplace. With probability omega
    the user sends random bits instead, with any y and Z equally likely.

    Reference: Chowdhury & Zhou (2023), Appendix C.2; see `privacy.accounting.shuffling`.
    """
    if not isinstance(protocol.noise, ShuffledNoise):
        raise BadValue("protocol", "must have a shuffler", protocol.noise)
    relaxed = protocol.noise.relaxed(int(protocol.users[0]), int(wide.to_int(protocol.modulus)[0]))

    def mechanism(key: Array, rewards: Array) -> Any:
        rounding, own, spread, coins, high, low, anywhere = jax.random.split(key, 7)
        held = protocol.randomize(rounding, own, jnp.int32(0), rewards[0, 0])
        shape, modulus, c = held.low.shape, wide.Wide(*(word[0] for word in protocol.modulus)), relaxed.half_width
        z = jnp.clip(discrete_laplace(spread, relaxed.scale, shape), -c, c)  # P(|z| > c) < 1e-12
        lost = jax.random.bernoulli(coins, relaxed.omega, shape)
        anything = wide.Wide(jax.random.bits(high, shape) >> 1, jax.random.bits(low, shape))
        sent = wide.where(lost, wide.mod(anything, modulus), held)
        z = jnp.where(lost, jax.random.randint(anywhere, shape, -c, c + 1), z)
        total = wide.add_up(sent)
        rest = wide.mod(total, modulus)
        carry = jnp.round(wide.to_float(wide.sub(total, rest)) / wide.to_float(modulus))
        return _read(protocol, rest), (carry + z.sum()) / relaxed.scale

    return mechanism


def arms(
    algo: SE | DPSE | AdaCUCB | PhasedKLUCB | PhasedThompson | ThompsonArms | TopTwo | SequentialHalving | TruncatedSE,
    *,
    messages: bool = False,
    name: str | None = None,
) -> Case:
    """Builds a case of a private multi-armed algorithm.

    One user's reward is replaced (adjacency "replace"). Under equal randomness the sums of one batch, or one message,
    must move by at most 1. Confidence radii of the last batch are so small that noise decides which arm is dropped.
    Without noise, one user would. Algorithms of one arm at a time run three batches. These are two users of either arm,
    and the next batch of the better one. Noise decides which it is. `ThompsonArms` shows all its samples, and all
    other users have a reward of 0. `TopTwo` has first batches of four users or more. `SequentialHalving` runs one batch
    of `budget` users, and noise decides which arm stays. `TruncatedSE` has sums of rewards that are mapped to [0, 1].

    Args:
        algo: the algorithm.
        messages: whether every user draws a share of the noise, see `by_message`.
        name: name of the case; None: that of the algorithm.

    Raises:
        TypeError: `algo` is another algorithm.
        ValueError: the algorithm is not private, or its first batch is odd, for an elimination or halving.
    """
    one_arm = AdaCUCB, PhasedKLUCB, PhasedThompson, TopTwo
    kinds = "a private variant of an fb.algos.SE, or another private algorithm of arms"
    validate.instance("algo", algo, (SE, DPSE, *one_arm, ThompsonArms, SequentialHalving, TruncatedSE), kinds)
    if isinstance(algo, ThompsonArms):
        return _samples(algo, name)
    sums = algo.sums if isinstance(algo, (*one_arm, SequentialHalving, TruncatedSE)) else algo
    if not hasattr(sums, "epsilon"):
        raise BadValue("algo", "must be private", algo.name, got=f"{algo.name}")
    spec = _spec(N_ARMS)
    if isinstance(algo, one_arm):
        first, second = algo.bind(spec, 2**20).users[:2].tolist()
        algo = algo.replace(first=first) if isinstance(algo, PhasedThompson) else algo  # the default depends on T
        horizon = N_ARMS * first + second  # three batches, since the last one's rewards would come again
        bound = algo.bind(spec, horizon)
        return _case(algo, bound, SumsOfUsers.of(bound, horizon), [first, first, second], name)
    if isinstance(algo, SequentialHalving):
        horizon = 8 if algo.budget is None else algo.budget
        bound = algo.bind(spec, horizon)
        if (users := int(bound.users[0, N_ARMS])) % 2:
            raise BadValue("algo", "must have an even number of users per arm, half its budget", users)
        return _case(algo, bound, SumsOfUsers.of(bound, horizon), [users], name)
    first = sums.growth if isinstance(sums, SE) else int(algo.bind(spec, 10**6).users[0, N_ARMS])
    if first % 2:
        raise BadValue("algo", "must have an even growth, its first batch", first)
    single = validate.boolean("messages", messages) or isinstance(algo, DPSE)
    sizes = [first] if single else [first, first**2]
    horizon = N_ARMS * first if single else N_ARMS * sum(sizes) + first
    bound = algo.bind(spec, horizon)
    bound = by_message(bound) if messages else bound
    radius = np.array(bound.radius)
    radius[len(sizes) - 1 :] = 1 / (4 * sizes[-1])  # one user decides which arm is dropped
    mechanism = SumsOfUsers.of(dataclasses.replace(bound, radius=radius), horizon)
    return _case(algo, bound, mechanism, sizes, f"{algo.name}{' messages' * messages}" if name is None else name)


def _samples(algo: ThompsonArms, name: str | None) -> Case:
    """Builds a case of two first phases and four later ones at most, all of them one block of users."""
    horizon = N_ARMS * algo.first + 4 * int(phases(algo.first, algo.growth, 17 * algo.first)[1])
    bound = algo.bind(_spec(N_ARMS), horizon)
    largest = int(bound.sizes[np.cumsum(bound.sizes) <= horizon].max())
    certificate = certify(bound)
    return Case.of(
        _neighbours([1] * (int(bound.n_batches) - 1), largest + largest % 2),  # the horizon cuts the last batch
        name=algo.name if name is None else name,
        mechanism=SumsOfUsers.of(bound, horizon),
        epsilon=certificate.epsilon_exact or 0.0,
        delta=certificate.delta or 0.0,
    )


def _case(algo: Any, bound: Any, mechanism: Any, sizes: Sequence[int], name: str | None) -> Case:
    certificate, protocol = certify(bound), bound.protocol
    claimed = certificate.epsilon_exact or 0.0
    bits = protocol.messages and not protocol.noise.per_user
    if protocol.messages and not bits:
        mechanism = MessagesOfUsers(protocol=protocol)
    elif isinstance(protocol.noise, ShuffledNoise):
        if protocol.messages:
            mechanism = bits_of_users(protocol)
        else:
            claimed -= float(protocol.noise.bits_epsilon)  # spent by the bits, which the sum hides
    return Case.of(
        _neighbours(sizes),
        name=algo.name if name is None else name,
        mechanism=mechanism,
        epsilon=claimed,
        delta=certificate.delta or 0.0,
        sensitivity=1.0,
        measure=_moved,
        slow=10 if bits else 4 if isinstance(protocol.noise, SkellamNoise) else 1,
    )


def _neighbours(sizes: Sequence[int], n: int | None = None) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Makes pairs of rewards (S, K, n) that differ in one user. Batch k has `sizes[k]` users or more of every arm."""
    shape = len(sizes), N_ARMS, max(sizes) if n is None else n

    def pair(k: int, arm: int, i: int, one: float, other: float, rest: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
        both = np.full((2, *shape), rest, np.float32)
        both[:, k, arm, i] = one, other
        return both[0], both[1]

    last = len(sizes) - 1
    return {
        "last user": pair(last, 0, sizes[last] - 1, 0, 1),
        "first user": pair(0, 0, 0, 0, 1),
        "middle user": pair(0, 0, sizes[0] // 2, 0, 1),
        "other arm": pair(last, N_ARMS - 1, 0, 0, 1),
        "fractions": pair(0, 0, 0, 0.13, 0.95, 0.5),
        "out of range": pair(0, 0, 0, -20, 30),
    }


def shipped_arms() -> list[Case]:
    """Makes cases of every mechanism and trust model, by sums and by messages, and of algorithms of one arm."""

    def case(kind: Any, messages: bool = False) -> Case:
        growth: Any = {} if kind is DPSE else {"growth": 16 if messages and kind is ShuffleDPSE else 4}
        return arms(kind(EPSILON, delta=DELTA, **growth), messages=messages)

    shares = LDPSE, DistDPSE, DistRDPSE, DistCDPSE, ShuffleDPSE
    adac = [
        arms(AdaCUCB(kind(EPSILON, delta=DELTA, radius="exact")), name=f"AdaC-UCB {trust}")
        for kind, trust in ((CDPSE, "central"), (DistRDPSE, "secagg"))
    ]
    phased = arms(PhasedKLUCB(CDPSE(EPSILON, delta=DELTA), growth=3), name="Phased KL-UCB central")
    sampled = arms(PhasedThompson(CDPSE(EPSILON, delta=DELTA), first=2), name="Phased Thompson central")
    thompson = arms(ThompsonArms(EPSILON, delta=DELTA, first=2, growth=1), name="ThompsonArms central")
    central = CDPSE(EPSILON, delta=DELTA)
    searches = TopTwo(central, growth=2), SequentialHalving(central)
    best = [arms(one, name=f"{one.name} central") for one in searches]
    heavy = arms(TruncatedSE(CDPSE(EPSILON, delta=DELTA, growth=16)), name="Truncated SE central")
    return [
        *map(case, VARIANTS),
        *(case(kind, messages=True) for kind in (*shares, RRSE)),
        *adac,
        phased,
        sampled,
        thompson,
        *best,
        heavy,
    ]


def _spec(n_arms: int) -> Spec:
    return Spec(n_agents=1, n_arms=n_arms, dim=n_arms, max_norm=1.0, rewards_in_unit=True)


def _read(protocol: RingSum, residues: wide.Wide) -> Array:
    """Converts residues of the first batch to numbers around 0, in units of a reward."""
    largest, modulus = (wide.Wide(*(word[0] for word in x)) for x in (protocol.largest, protocol.modulus))
    negative = wide.less(largest, residues)
    return wide.to_float(wide.where(negative, wide.sub(residues, modulus), residues)) / protocol.steps[0]


def _moved(view: Any, other: Any) -> float:
    one, two = (np.asarray(jax.tree.leaves(x)[0], float) for x in (view, other))
    return float(np.linalg.norm(one - two))
