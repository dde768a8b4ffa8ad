"""Sums of rewards whose noise is wrong or missing, and decisions that do not follow from what was released."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
from _damage import changed, damaged_sum, honest_sum, override, protocolled, resized, turned

import fedbandit_jax as fb
from fedbandit_jax.audits import arms
from fedbandit_jax.core import wide
from fedbandit_jax.privacy.integers.noise import PolyaNoise

WAYS = {  # name of a control -> noise of a whole sum from an honest draw, its scale, the batch k and a key
    "noise shared across arms": lambda z, scale, k, key: jnp.broadcast_to(z[0], z.shape),
    "noise of sums never added": lambda z, scale, k, key: jnp.zeros_like(z),
    "noise of sums left out in 10 %": lambda z, scale, k, key: jnp.where(jax.random.bernoulli(key, 0.1), 0, z),
    "bounded noise of sums": lambda z, scale, k, key: jnp.clip(z, -(3 * scale).astype(int), (3 * scale).astype(int)),
    "one-sided noise of sums": lambda z, scale, k, key: jnp.abs(z),
    "noise on the first arm only": lambda z, scale, k, key: z * (jnp.arange(len(z)) == 0),
    "first batch without noise": lambda z, scale, k, key: jnp.where(k == 0, 0, z),
    "noise in multiples of seven": lambda z, scale, k, key: 7 * (z // 7),
}


@fb.pytree
class Flawed(PolyaNoise):
    """The noise of whole sums, changed in one way; which one is a number, so that all share a program."""

    way: int

    def total(self, key, k, n, shape):
        drawn = ((key, k), (key, jnp.int32(0)), (jax.random.key(0), k))  # honest, of the first batch's scale, known
        honest, first, known = (PolyaNoise.total(self, *by, n, shape).low.astype(jnp.int32) for by in drawn)
        scale, other = jnp.asarray(self.size)[k], jax.random.fold_in(key, 1)
        ways = [way(honest, scale, k, other) for way in WAYS.values()]
        return wide.from_int32(jnp.stack([*ways, first, known])[self.way])


def own(**methods):
    return lambda noise: override(noise, **methods)


MESSAGES, LOCAL = dict(messages=True), dict(kind=fb.algos.LDPSE)
NOISES = {  # change of the noise, and options
    "inverted Polya scale": (  # gamma with (1 - beta) / beta for its scale, as in released code: the scale of 1 - beta
        lambda noise: replace(noise, size=np.float32(-1 / np.log(-np.expm1(-1 / noise.size)))), MESSAGES,
    ),
    "half the users missing": (
        own(share=lambda honest, self, key, k, n, shape: honest(key, k, 2 * n, shape)), MESSAGES,
    ),
    "half the local noise": (
        own(share=lambda honest, self, *given: honest(*given) // 2), LOCAL | MESSAGES,
    ),
    "one bit in four is never flipped": (
        own(share=lambda honest, self, key, k, n, shape: honest(key, k, n, shape)
            * jax.random.bernoulli(jax.random.fold_in(key, 1), 0.75, shape)),
        MESSAGES | dict(kind=fb.algos.RRSE),
    ),
    "local noise in messages only": (  # and none in the sum of all, which is simulated in their place
        own(total=lambda honest, self, *given: jax.tree.map(jnp.zeros_like, honest(*given))), LOCAL,
    ),
    "Skellam variance g / eps^2": (
        lambda noise: replace(noise, size=jnp.sqrt(jnp.asarray(noise.size))), dict(kind=fb.algos.DistRDPSE),
    ),
}  # fmt: skip


def broken_sums():
    """Noise of sums at the server or by shares, without its size, its law, or its place."""
    flaws = [*WAYS, "first batch's noise scale", "noise from a constant key"]
    return [
        *(damaged_sum(name, lambda noise, i=i: turned(Flawed, noise, way=i)) for i, name in enumerate(flaws)),
        *(damaged_sum(name, change, **options) for name, (change, options) in NOISES.items()),
    ]


def decides_by_exact_sums(honest, self, key, k, state, sums):
    """One user decides which arm is dropped; the sums that are shown have their noise."""
    noisy, report = honest(key, k, state, sums)
    means = wide.to_float(sums) / jnp.asarray(self.protocol.steps)[k] / jnp.asarray(self.users)[k, 2]
    radius = jnp.asarray(self.radius)[k, 2]
    active = state.active & (means + radius >= jnp.where(state.active, means - radius, -jnp.inf).max())
    return noisy._replace(active=active), report


def unclipped(honest, self, rounding, own, k, rewards, inside):
    """Rewards that nobody bounds."""
    total = sum(jnp.where(there, x, 0).sum() for x, there in zip(rewards, inside))
    return wide.from_int32(jnp.round(total * jnp.asarray(self.steps)[k]).astype(jnp.int32))


def noise_of_the_first_level(bound):
    """The truncation level grows, and the noise is that of the first one: rewards have more steps."""
    growth = np.resize(bound.level / bound.level[0], len(bound.protocol.steps))
    return replace(bound, protocol=replace(bound.protocol, steps=bound.protocol.steps * growth))


def broken_truncation():
    """A sum of rewards, of which one moves it by more than its noise is made for."""
    case = arms(fb.algos.TruncatedSE(fb.algos.CDPSE(1.0, delta=1e-2, growth=16)))
    return changed(case, "noise that does not grow with the truncation level", noise_of_the_first_level)


def broken_elimination():
    """Decisions by exact sums, rewards without bounds, and a third of real Laplace noise, all at the server."""
    central = honest_sum(kind=fb.algos.CDPSE)
    return [
        changed(central, "elimination by exact sums", lambda bound: override(bound, conclude=decides_by_exact_sums)),
        protocolled(central, "unclipped rewards of arms", lambda one: override(one, collect=unclipped)),
        damaged_sum("a third of the Laplace noise", lambda noise: resized(noise, size=1 / 3), kind=fb.algos.DPSE),
    ]


def reuses(honest, self, key, k, state, sums):
    """The noise of the first sample in all later ones."""
    after, report = honest(key, k, state, sums)
    before, now = (wide.to_float(one.sums) / self.steps for one in (state, after))
    return after._replace(drawn=jnp.where((state.asked > 0).all(), state.drawn - before + now, after.drawn)), report


def follows_exact_sums(honest, self, state, k):
    """Samples are shown, and the arm of the largest exact mean is played."""
    return honest(state._replace(drawn=wide.to_float(state.sums) / self.steps), k)


def broken_samples():
    """Samples of half the variance, with noise that is used again, or that decide nothing."""
    case = arms(fb.algos.ThompsonArms(1.0, delta=1e-2, first=2, growth=1))
    return [
        changed(case, "half the variance of samples", lambda bound: resized(bound, std=0.5**0.5)),
        changed(case, "noise of samples used again", lambda bound: override(bound, conclude=reuses)),
        changed(case, "Thompson sampling by exact sums", lambda bound: override(bound, pulls=follows_exact_sums)),
    ]
