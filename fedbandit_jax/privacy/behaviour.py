"""A check that runs a bound mechanism on users of zeros, and measures its noise.

A certificate is computed from the numbers that a mechanism holds. Here the mechanism itself runs. Row k of the noise of
S prefixes is L_k w, with the release's lower triangular factor L. The rows of w (S, D) are independent fresh noises of
the synchronisations. Solving for w leaves numbers that must have mean 0, variance 1, and no correlation between
releases, entries and draws. The same holds for the messages of single silos, if they are drawn.

A mechanism is refused if one of these means is off by more than `ERRORS` standard errors, for each of two keys. With D
= 65 entries an honest one fails with a probability below 1e-6. Keys are fixed, and the same mechanism always or never
fails. With `DRAWS` draws a standard deviation 10 % off shows at eight standard errors or more.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
from jax import Array, lax

from fedbandit_jax.core import wide
from fedbandit_jax.privacy.byzantine import RobustMechanism
from fedbandit_jax.privacy.integers.noise import ShuffledNoise
from fedbandit_jax.privacy.integers.ring import RingSum
from fedbandit_jax.privacy.noisy_sums import NoisyMechanism
from fedbandit_jax.privacy.packing import matrix_weights, packed_size
from fedbandit_jax.privacy.trust.model import Trust

ERRORS = 5  # standard errors at which a mechanism is refused
DRAWS = 2**11  # most runs of a mechanism
NUMBERS = 2**22  # about the most entries of noise that are drawn for one check
SYNCS = 64  # releases that are looked at, the first of S
KNOWN = 64  # last measurements that a process keeps


def fault(mechanism: NoisyMechanism | RingSum) -> str:
    """Returns the deviation of a bound mechanism's noise from its `stds` and its release, or "".

    Args:
        mechanism: a release through a trust model, or a protocol for sums of rewards. Of a release the first `SYNCS`
            synchronisations are drawn. Of a protocol all batches are drawn, for users with reward 0.

    Example:
        >>> import fedbandit_jax as fb
        >>> env = fb.envs.sphere(n_agents=3, n_arms=4, dim=2, rewards="bernoulli")
        >>> algo = fb.algos.Federated(policy=fb.algos.Thompson(), schedule=5, privacy=fb.privacy.Budget(1.0, 0.1))
        >>> fault(algo.bind(env.spec, horizon=40).mechanism)
        ''
    """
    leaves, treedef = jax.tree.flatten(mechanism)
    return _fault(treedef, tuple((x.shape, x.dtype, x.tobytes()) for x in map(np.asarray, leaves)))


@functools.lru_cache(KNOWN)
def _fault(treedef: Any, numbers: tuple[tuple[tuple[int, ...], Any, bytes], ...]) -> str:
    mechanism = treedef.unflatten([np.ndarray(*one) for one in numbers])
    measure: Any = _of_sums if isinstance(mechanism, RingSum) else _of_releases
    first = measure(mechanism, jax.random.key(0))
    return first and measure(mechanism, jax.random.key(1))


def _of_sums(protocol: RingSum, key: Array) -> str:
    stds, ring = protocol.stds(), len(protocol.users)
    # The noise is measured, and not how often a small ring or a shuffler fails.
    protocol = dataclasses.replace(protocol, modulus=wide.of([2**40] * ring), largest=wide.of([2**39] * ring))
    if isinstance(noise := protocol.noise, ShuffledNoise):
        protocol = dataclasses.replace(protocol, noise=dataclasses.replace(noise, bits_failure=0.0))
    most = int(np.max(protocol.users)) if protocol.messages else 2
    for k in np.flatnonzero(stds):
        z = np.asarray(_sums(protocol, most, k, jax.random.fold_in(key, k)), float) / stds[k]
        alike = {"alone": z**2 - 1, "of two arms": z[:, 0] * z[:, 1], "of two draws": z[1:] * z[:-1]}
        for what, products in alike.items():
            if not abs(products.mean()) * math.sqrt(products.size) <= ERRORS * max(products.std(), 1e-9):
                return f"the noise of batch {k + 1}, {what}, does not have the variance that is stated"
    return ""


@functools.partial(jax.jit, static_argnums=1)
def _sums(protocol: RingSum, most: int, k: Array, key: Array) -> Array:
    """Returns noisy sums (N, 2) of users of two arms, with reward 0, at most `most` in a batch."""
    half = (most + 1) // 2
    inside = (jnp.arange(2 * half) < jnp.asarray(protocol.users)[k]).reshape(2, half)
    nothing = jnp.zeros(half)
    halves = (nothing, nothing), (inside[0], inside[1])

    def sums(key: Array) -> Array:
        own, noise = jax.random.split(key)

        def collect(key: Array) -> wide.Wide:
            coins, shares = jax.random.split(key)
            return protocol.collect(coins, shares, k, *halves)

        arms = jax.vmap(collect)(jax.random.split(own))
        return protocol.decode(noise, k, arms).sums

    return lax.map(sums, jax.random.split(key, 2 * DRAWS), batch_size=256)


def _of_releases(mechanism: NoisyMechanism, key: Array) -> str:
    mechanism = mechanism.plain() if isinstance(mechanism, RobustMechanism) else mechanism
    release, trust, dim = mechanism.release, mechanism.trust, mechanism.statistic.dim
    if not mechanism.stds().any():
        return ""  # it says that there is none
    size, n = packed_size(dim), min(int(release.n_syncs), SYNCS)
    weights = matrix_weights(size) / math.sqrt(2) if trust.joint_matrix else np.ones(size)
    by_silo = mechanism.shows_silos and type(trust).silo_stds is not Trust.silo_stds
    each, most = mechanism.n_agents if by_silo else 1, NUMBERS
    if mechanism.shows_silos and trust.needs_users:  # bits of all users so far, at every synchronisation
        each, most = release.n_syncs * (mechanism.batch or 1) * mechanism.n_agents * trust.width, 64 * NUMBERS
    draws = int(np.clip(most // (n * size * each), 64, DRAWS))
    drawn = _drawn(mechanism, n, by_silo, max(1, NUMBERS // (size * each)), jax.random.split(key, draws))
    released, shown = jax.tree.map(lambda x: np.asarray(x, float), drawn)
    factor = _factor(release, n) * trust.message_stds(n)
    with np.errstate(all="ignore"):
        noise = released / weights / (mechanism.stds() * mechanism.statistic.bounds.gram_scale)[:n, None]
        spread = np.sqrt((noise**2).mean((0, 2)))
        # on a grid `stds` also bounds the rounding of data, of which zeros have none
        wanted = np.linalg.norm(factor, axis=1) / trust.sum_std() / np.sqrt(release.prefix_variance()[:n])
        right = abs(spread / wanted - 1) <= ERRORS / math.sqrt(2 * draws * size)
        if not (right & (wanted <= 1 + 1e-4)).all():
            k = int(np.argmin(right & (wanted <= 1 + 1e-4)))
            return f"the noise of release {k + 1} has {spread[k]:.3g} times the standard deviation that is stated"
        fresh = scipy.linalg.solve_triangular(factor, np.moveaxis(released / weights, 1, 0).reshape(n, -1), lower=True)
        wrong = next(_unlike(fresh.reshape(n, draws, size), "entries"), "")
        if wrong or not by_silo:
            return wrong
        stds = trust.silo_stds()
        silos = np.moveaxis(shown.reshape(draws, n, len(stds), -1), 1, 0) / np.asarray(stds, float)[:, None]
        if mechanism.per_silo:
            silos = scipy.linalg.solve_triangular(_factor(release, n), silos.reshape(n, -1), lower=True)
            silos = silos.reshape(n, draws, len(stds), -1) / weights
        else:
            silos = silos / weights
        silos = np.moveaxis(silos, 2, 3)  # (S, draws, D, M)
        return next(_unlike(silos.reshape(n, -1, len(stds)), "silos"), "")


def _unlike(noise: np.ndarray, columns: str) -> Iterator[str]:
    """Yields the deviations of noise (S, N, D), with D `columns`, from independent noise of variance 1."""
    n, draws, size = noise.shape
    for axis, over in ((0, "releases"), (2, columns)):
        count = noise.size // noise.shape[axis]
        spread = (noise**2).mean(tuple({0, 1, 2} - {axis}))
        if (abs(spread - 1) > ERRORS * math.sqrt(2 / count)).any() or not np.isfinite(spread).all():
            yield f"the variance of fresh noise is {spread.min():.3g} to {spread.max():.3g} times the stated, by {over}"
    alike = np.tensordot(noise, noise, ((1, 2), (1, 2))) / (draws * size) - np.eye(n)
    if (abs(np.tril(alike, -1)) > ERRORS / math.sqrt(draws * size)).any():
        yield "the noises of two releases are correlated as their matrix does not say"
    together = (noise.sum(2) ** 2).mean() / size - 1
    beside = (noise[..., 1:] * noise[..., :-1]).mean((0, 1))
    if together > ERRORS * math.sqrt(2 / (n * draws)) or (abs(beside) > ERRORS / math.sqrt(n * draws)).any():
        yield f"the noises of two {columns} are correlated"
    if (draws * noise.mean(1) ** 2).mean() - 1 > ERRORS * math.sqrt(2 / (n * size)):
        yield "the noise is not drawn anew with every key"


def _factor(release: Any, n: int) -> np.ndarray:
    """Returns the first n rows and columns of R: the noise of each prefix, from noise 1 at each synchronisation."""

    def step(state: Any, given: tuple[Array, Array]) -> tuple[Any, Array]:
        prefix, new = release.decode(state, *given)
        return jax.tree.map(lambda old, new: jnp.asarray(new, old.dtype), state, new), prefix

    with jax.enable_x64(True):
        units = np.arange(1, n + 1, dtype=np.int32), np.eye(n)
        return np.asarray(jax.jit(lambda units: lax.scan(step, release.init((n,)), units)[1])(units))


def zero_batch(mechanism: NoisyMechanism) -> tuple[Array, Array, Array]:
    """Returns the sums of a batch of users with x = 0 and y = 0, and these users if `mechanism.needs_users`."""
    dim, m = mechanism.statistic.dim, mechanism.n_agents
    users = mechanism.batch or 0 if mechanism.needs_users else 0
    total = jnp.zeros((dim, dim + 1, m) if mechanism.per_silo else (dim, dim + 1))
    return total, jnp.zeros((users, dim, m)), jnp.zeros((users, m))


@functools.partial(jax.jit, static_argnums=(1, 2, 3))
def _drawn(mechanism: NoisyMechanism, n: int, by_silo: bool, at_once: int, keys: Array) -> tuple[Array, Array | None]:
    """Returns packed releases of n synchronisations on zero data, and the silos' messages: (draws, n, ...)."""
    nothing = zero_batch(mechanism)

    def run(key: Array) -> tuple[Array, Array | None]:
        def step(state: Any, k: Array) -> tuple[Any, tuple[Array, Array | None]]:
            statistics, state = mechanism.step(jax.random.fold_in(key, k), k, state, *nothing)
            return state, (mechanism.statistic.pack(statistics), state.view if by_silo else None)

        return lax.scan(step, mechanism.init(mechanism.statistic.dim), jnp.arange(1, n + 1))[1]

    return lax.map(run, keys, batch_size=min(at_once, 256))
