"""Sums of rewards whose noise is wrong or missing, and decisions that do not follow from what was released."""

from dataclasses import replace

import jax
import jax.numpy as jnp
from _damage import changed, damaged_sum, turned

import fedbandit_jax as fb
from fedbandit_jax.algos.loops.arms import BoundElimination
from fedbandit_jax.audits import arms
from fedbandit_jax.core import wide
from fedbandit_jax.privacy.integers.ring import RingSum
from fedbandit_jax.privacy.integers.shares import LocalNoise, PolyaNoise, SkellamNoise
from fedbandit_jax.privacy.samplers import polya


@fb.pytree
class Shares(PolyaNoise):
    """Shares of another scale, or for another number of users than come."""

    inverted: bool = False  # gamma with (1 - beta) / beta for its scale, as in released code
    missing: int = 1  # times as many users

    def share(self, key, k, n, shape):
        scale = jnp.asarray(self.scale)[k]
        wrong = -1 / jnp.log(-jnp.expm1(-1 / scale))  # the scale whose beta is 1 - beta
        scale = jnp.where(self.inverted, wrong, scale)
        plus, minus = (polya(half, 1 / (n * self.missing), scale, shape) for half in jax.random.split(key))
        return plus - minus


@fb.pytree
class Small(SkellamNoise):
    """The square root of the variance in its place."""

    def total(self, key, k, n, shape):
        return SkellamNoise(variance=jnp.sqrt(jnp.asarray(self.variance))).total(key, k, n, shape)


@fb.pytree
class Flawed(PolyaNoise):
    """The noise of whole sums, changed in one of the `WAYS`; which one is a number, so that all share a program."""

    way: int

    def total(self, key, k, n, shape):
        honest = PolyaNoise.total(self, key, k, n, shape).low.astype(jnp.int32)
        lucky = jax.random.bernoulli(jax.random.fold_in(key, 1), 0.1)
        scale = jnp.asarray(self.scale)[k]
        most = (3 * scale).astype(jnp.int32)
        ways = {
            "shared by arms": jnp.broadcast_to(honest[0], shape),
            "nothing": jnp.zeros_like(honest),
            "sometimes nothing": jnp.where(lucky, 0, honest),
            "bounded": jnp.clip(honest, -most, most),
            "one-sided": jnp.abs(honest),
            "first arm only": honest * (jnp.arange(len(honest)) == 0),
            "not in the first batch": jnp.where(k == 0, 0, honest),
            "multiples of seven": 7 * (honest // 7),
            "scale of the first batch": PolyaNoise.total(self, key, jnp.int32(0), n, shape).low.astype(jnp.int32),
            "known": PolyaNoise.total(self, jax.random.key(0), k, n, shape).low.astype(jnp.int32),
        }
        assert list(ways) == WAYS
        return wide.from_int32(jnp.stack(list(ways.values()))[self.way])


WAYS = [
    "shared by arms",
    "nothing",
    "sometimes nothing",
    "bounded",
    "one-sided",
    "first arm only",
    "not in the first batch",
    "multiples of seven",
    "scale of the first batch",
    "known",
]


@fb.pytree
class HalfLocal(LocalNoise):
    """Half of the noise in every message, and all of it in the sum."""

    def share(self, key, k, n, shape):
        return LocalNoise.share(self, key, k, n, shape) // 2


@fb.pytree
class MessagesOnly(LocalNoise):
    """The noise of every message, and none in a sum that is simulated as one."""

    def total(self, key, k, n, shape):
        zero = jnp.zeros(shape, jnp.uint32)
        return wide.Wide(zero, zero)


def flawed(name, way):
    """Noise of sums that is changed in one of the `WAYS`."""
    return damaged_sum(name, Flawed, way=WAYS.index(way))


def broken_inverted_polya():
    """Hardly any noise."""
    return damaged_sum("inverted Polya scale", Shares, messages=True, inverted=True)


def broken_half_the_users():
    """Half of the noise."""
    return damaged_sum("half the users missing", Shares, messages=True, missing=2)


def broken_skellam_variance():
    """g / epsilon^2 in place of g^2 / epsilon^2."""
    return damaged_sum("Skellam variance g / eps^2", Small, mechanism="skellam")


def broken_shared_noise():
    """The difference of two arms has no noise."""
    return flawed("noise shared across arms", "shared by arms")


def broken_no_noise_in_sums():
    """No noise at all."""
    return flawed("noise of sums never added", "nothing")


def broken_sometimes():
    """An atom, in few runs."""
    return flawed("noise of sums left out in 10 %", "sometimes nothing")


def broken_bounds():
    """A sum that is far out tells for certain."""
    return flawed("bounded noise of sums", "bounded")


def broken_sign():
    """Sums are never below what they are."""
    return flawed("one-sided noise of sums", "one-sided")


def broken_other_arm():
    """Users of all other arms are not protected."""
    return flawed("noise on the first arm only", "first arm only")


def broken_first_batch():
    """Users of the first batch are not protected."""
    return flawed("first batch without noise", "not in the first batch")


def broken_steps():
    """Remainders show through."""
    return flawed("noise in multiples of seven", "multiples of seven")


def broken_noise_of_the_first_batch():
    """The scale of another batch."""
    return flawed("first batch's noise scale", "scale of the first batch")


def broken_constant_key():
    """Noise that is known."""
    return flawed("noise from a constant key", "known")


def broken_local():
    """Single messages have half of what they need."""
    case = honest(trust="local", messages=True, growth=16)
    protocol = case.mechanism.protocol
    protocol = replace(protocol, noise=turned(HalfLocal, protocol.noise))
    return replace(case, name="half the local noise", mechanism=replace(case.mechanism, protocol=protocol))


def broken_local_sums():
    """Messages have what they need, and the sum of all that is simulated in their place has nothing."""
    return damaged_sum("local noise in messages only", MessagesOnly, trust="local")


@fb.pytree
class RawElimination(BoundElimination):
    """Shows noisy sums and drops arms by the exact ones."""

    def conclude(self, key, k, state, sums):
        noisy, report = BoundElimination.conclude(self, key, k, state, sums)
        steps = jnp.asarray(self.protocol.steps)[k]
        means = wide.to_float(sums) / steps / jnp.asarray(self.users)[k, 2]
        radius = jnp.asarray(self.radius)[k, 2]
        active = state.active & (means + radius >= jnp.where(state.active, means - radius, -jnp.inf).max())
        return noisy._replace(active=active), report


def honest(**options):
    """The case of discrete Laplace noise at the server."""
    options = dict(mechanism="discrete_laplace", trust="central", growth=4, delta=1e-2) | options
    return arms(fb.algos.SuccessiveElimination(epsilon=1.0, **options))


def broken_elimination():
    """One user decides which arm is dropped."""
    return changed(honest(), "elimination by exact sums", lambda bound: turned(RawElimination, bound))


@fb.pytree
class Unclipped(RingSum):
    """Rewards as they come."""

    def collect(self, rounding, own, k, rewards, inside):
        steps = jnp.asarray(self.steps)[k]
        total = sum(jnp.where(there, x, 0).sum() for x, there in zip(rewards, inside))
        return wide.from_int32(jnp.round(total * steps).astype(jnp.int32))


def broken_clipping():
    """Rewards that nobody bounds."""
    change = lambda bound: replace(bound, protocol=turned(Unclipped, bound.protocol))  # noqa: E731
    return changed(honest(), "unclipped rewards of arms", change)


def broken_real_noise():
    """Laplace noise of a third of the scale."""
    case = honest(mechanism="laplace", growth=None)
    change = lambda bound: replace(bound, protocol=replace(bound.protocol, scale=bound.protocol.scale / 3))  # noqa: E731
    return changed(case, "a third of the Laplace noise", change)
