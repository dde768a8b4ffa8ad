"""Cases of the multi-armed family: one user of one arm changes from reward 0 to 1.

`arms` runs two batches and a third that the horizon cuts, the user being in the second: what is released too much, or
noised as for another batch, is seen. With single messages it runs the first batch only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from fedbandit_jax.algos import ELIMINATION, SuccessiveElimination
from fedbandit_jax.algos.arms.loop import BoundElimination
from fedbandit_jax.audits._case import Case
from fedbandit_jax.core import struct, wide
from fedbandit_jax.engine.process import UserProcess
from fedbandit_jax.interfaces import Spec, certify
from fedbandit_jax.privacy.integers.mechanisms import MECHANISMS
from fedbandit_jax.privacy.integers.ring import RingSum
from fedbandit_jax.privacy.noise import discrete_laplace

N_ARMS = 2
EPSILON, DELTA = 1.0, 1e-2


@struct.pytree
class ScriptedUsers:
    """Users whose rewards are written down, (K, n), n even: those of every block of every batch."""

    rewards: Any
    spec: Spec = struct.static()

    def init(self, key: Array) -> tuple[()]:
        """Nothing is random."""
        del key
        return ()

    def means(self, world: Any) -> Array:
        """Nobody looks at regret."""
        del world
        return jnp.zeros(self.spec.n_arms)

    def answers(self, key: Array, world: Any, arm: Array, size: int) -> tuple[Array, Array]:
        """The rewards of an arm."""
        del key, world
        first, second = jnp.split(jnp.asarray(self.rewards)[arm], [size // 2])
        return first, second


def sums_of_users(algo: BoundElimination, horizon: int) -> Callable[[Array, Array], Any]:
    """(key, rewards (K, n)) -> all that a run of a bound algorithm shows: noisy sums, and the arms still active."""

    def mechanism(key: Array, rewards: Array) -> Any:
        env = ScriptedUsers(rewards=rewards, spec=_spec(len(rewards)))
        process = UserProcess(env=env, algo=algo, horizon=horizon, block=rewards.shape[1])  # pyright: ignore

        def body(carry, k):
            world, state, metrics = process.step(key, carry[0], carry[1], k)
            shown, active = algo.view(state[1])
            asked = metrics.report.rounds > 0
            return (world, state), (jnp.where(asked, shown, 0), jnp.where(asked, active, False))

        return lax.scan(body, process.init(key), jnp.arange(process.n_steps))[1]

    return mechanism


def messages_of_users(protocol: RingSum) -> Callable[[Array, Array], Array]:
    """(key, rewards (K, n)) -> the messages of the first arm's users, where each is private on its own."""

    def mechanism(key: Array, rewards: Array) -> Array:
        rounding, own = jax.random.split(key)
        return _read(protocol, protocol.randomize(rounding, own, jnp.int32(0), rewards[0]))

    return mechanism


def bits_of_users(protocol: RingSum) -> Callable[[Array, Array], Any]:
    """(key, rewards (K, n)) -> how many ones a shuffler shows of the first arm's users: R modulo m, and R // m.

    A user who holds y sends y + m Z ones, or with probability omega random bits: any y and Z alike.
    """
    relaxed = protocol.aggregation.relaxed(int(protocol.users[0]), int(wide.to_int(protocol.modulus)[0]))
    if relaxed is None:
        raise ValueError("protocol must have a shuffler for its bits to be audited")

    def mechanism(key: Array, rewards: Array) -> Any:
        rounding, own, spread, coins, high, low, anywhere = jax.random.split(key, 7)
        held = protocol.randomize(rounding, own, jnp.int32(0), rewards[0])
        shape, modulus, c = held.low.shape, wide.Wide(*(word[0] for word in protocol.modulus)), relaxed.half_width
        z = jnp.clip(discrete_laplace(spread, relaxed.scale, shape), -c, c)  # tails beyond c have less than 1e-12
        lost = jax.random.bernoulli(coins, relaxed.omega, shape)
        anything = wide.Wide(jax.random.bits(high, shape) >> 1, jax.random.bits(low, shape))
        sent = wide.where(lost, wide.mod(anything, modulus), held)
        z = jnp.where(lost, jax.random.randint(anywhere, shape, -c, c + 1), z)
        total = wide.add_up(sent)
        rest = wide.mod(total, modulus)
        carry = jnp.round(wide.to_float(wide.sub(total, rest)) / wide.to_float(modulus))
        return _read(protocol, rest), (carry + z.sum()) / relaxed.scale

    return mechanism


def arms(algo: SuccessiveElimination, *, name: str | None = None) -> Case:
    """A case of successive elimination with an even growth. Equal randomness must show that one sum moves by 1."""
    if algo.epsilon is None:
        raise ValueError(f"algo must claim privacy for its claim to be audited, got {algo.name}")
    spec, first = _spec(N_ARMS), algo.growth
    if algo.mechanism == "laplace":
        first = int(algo.bind(spec, 10**6).users[0, N_ARMS])
    if first % 2:
        raise ValueError(f"algo must have an even growth, which is its first batch, got {first}")
    single = algo.messages or algo.mechanism == "laplace"
    n, horizon = (first, N_ARMS * first) if single else (first**2, N_ARMS * (first + first**2) + first)
    bound = algo.bind(spec, horizon)
    certificate, protocol = certify(bound), bound.protocol
    mechanism, claimed = sums_of_users(bound, horizon), certificate.epsilon_exact or 0.0
    if isinstance(protocol, RingSum) and protocol.messages and protocol.noise.per_user:
        mechanism = messages_of_users(protocol)
    elif isinstance(protocol, RingSum) and protocol.aggregation.epsilon > 0:
        if protocol.messages:
            mechanism = bits_of_users(protocol)
        else:
            claimed -= protocol.aggregation.epsilon  # the bits', which the sum does not show
    rewards = np.zeros((N_ARMS, n), np.float32)
    other = rewards.copy()
    other[0, -1] = 1  # in no smaller batch
    return Case(
        name=name or " ".join((str(algo.name), *(("messages",) if algo.messages else ()))),
        mechanism=mechanism,
        data=rewards,
        neighbour=other,
        epsilon=claimed,
        delta=certificate.delta or 0.0,
        sensitivity=1.0,
        measure=_moved,
    )


def shipped_arms() -> list[Case]:
    """Every mechanism and trust model, and every user's share of the noise."""

    def case(label: str, **options: Any) -> Case:
        mechanism, trust = ELIMINATION[label]
        common: dict[str, Any] = dict(epsilon=EPSILON, delta=DELTA, growth=16 if options else 4)
        return arms(SuccessiveElimination(mechanism=mechanism, trust=trust, **common, **options))

    alone = [case(label) for label in ELIMINATION if label not in ("SE", "LDP-SE")]
    shares = ("LDP-SE", "Dist-DP-SE", "Dist-RDP-SE", "Dist-CDP-SE", "Shuffle-DP-SE")
    return alone + [case(label, messages=True) for label in shares]


class LogRatio(NamedTuple):
    """Exact largest log ratio of the probabilities that neighbours give to a sum modulo m."""

    name: str
    users: int  # n of an arm
    steps: int  # g
    modulus: int  # m
    claimed: float
    exact: float


def log_ratios(epsilon: float = EPSILON, horizon: int = 10**6, failure: float = 0.1) -> list[LogRatio]:
    """Of every mechanism with pure DP and every batch of 2, 4, ..., T/2 users: nothing is sampled."""
    names = {pair: label for label, pair in ELIMINATION.items()}
    rows = []
    for pair, kind in MECHANISMS.items():
        sizes = [2**b for b in range(1, horizon.bit_length()) if 2 * 2**b <= horizon]
        sums = kind(epsilon, 1.0, failure, horizon).sums(sizes)
        if sums.noise.notion == "pure DP":
            table = zip(sizes, sums.steps.astype(int).tolist(), wide.to_int(sums.modulus).tolist())
            rows += [LogRatio(names[pair], *row, epsilon, sums.proof(k).pure) for k, row in enumerate(table)]
    return rows


def _spec(n_arms: int) -> Spec:
    return Spec(n_agents=1, n_arms=n_arms, dim=n_arms, max_norm=1.0, rewards_in_unit=True)


def _read(protocol: RingSum, residues: wide.Wide) -> Array:
    """Of the first batch, as numbers around 0, in units of a reward."""
    largest, modulus = (wide.Wide(*(word[0] for word in x)) for x in (protocol.largest, protocol.modulus))
    negative = wide.less(largest, residues)
    return wide.to_float(wide.where(negative, wide.sub(residues, modulus), residues)) / protocol.steps[0]


def _moved(view: Any, other: Any) -> float:
    """Euclidean distance of the sums, or of the messages."""
    one, two = (np.asarray(jax.tree.leaves(x)[0], float) for x in (view, other))
    return float(np.linalg.norm(one - two))
