"""The baselines of the linear benchmark: three implementations of federated LinUCB as one would first write it.

They play `fb.envs.sphere` with Gaussian rewards under `fb.algos.fed_lin_ucb`: features are (u, 1) / sqrt 2 with u
uniform on a sphere; each agent plays the arm with the largest optimistic score, draws the reward, and makes a
Sherman-Morrison step; every B rounds one inverse is computed for all agents. Each function returns the group regret of
every round, so that laws can be compared as well as speeds.

Letters: M agents, K arms, d features, B rounds in a batch, T rounds, S seeds.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

import fedbandit_jax as fb


class Problem(NamedTuple):
    """Shapes and constants of one run."""

    n_agents: int  # M
    n_arms: int  # K
    dim: int  # d
    batch: int  # B
    fixed: bool  # whether all rounds have the same contexts
    noise_std: float  # standard deviation of the noise on a reward
    regularization: float  # lambda of the ridge regression
    beta: np.ndarray  # (T,) width of the confidence set, float32

    def env(self):
        """Returns the same environment from the library."""
        return fb.envs.sphere(
            self.n_agents,
            self.n_arms,
            self.dim,
            contexts="fixed" if self.fixed else "fresh",
            noise_std=self.noise_std,
        )

    def algo(self):
        """Returns the same algorithm from the library."""
        return fb.algos.fed_lin_ucb(schedule=self.batch)


def problem(
    *, n_agents: int, n_arms: int, dim: int, batch: int, fixed: bool, horizon: int, noise_std: float = 0.5
) -> Problem:
    """Returns a problem of `horizon` rounds whose regulariser and widths are those of the library."""
    unset = Problem(n_agents, n_arms, dim, batch, fixed, noise_std, 0.0, np.zeros(0))
    policy: Any = unset.algo().bind(unset.env().spec, horizon).policy
    beta = np.asarray(policy.width(jnp.arange(horizon)), np.float32)
    return unset._replace(regularization=float(policy.regularization), beta=beta)


def numpy_loop(p: Problem, seed: int) -> np.ndarray:
    """Plays by a Python loop over rounds and agents, in NumPy and float64; returns the regret per round, (T,)."""
    rng = np.random.default_rng(seed)
    theta_star = _features(rng, (), p.dim)
    fixed = _features(rng, (p.n_agents, p.n_arms), p.dim) if p.fixed else None

    def offered(i: int) -> np.ndarray:
        return _features(rng, (p.n_arms,), p.dim) if fixed is None else fixed[i]

    return loop(rng, offered, theta_star, p.beta, p.n_agents, p.batch, p.noise_std, p.regularization)


def loop(
    rng: np.random.Generator,
    offered: Callable[[int], np.ndarray],
    theta_star: np.ndarray,
    beta: np.ndarray,
    n_agents: int,
    batch: int,
    noise_std: float,
    regularization: float,
) -> np.ndarray:
    """Plays what is offered to agent i, (K, d), with the precision of theta*; returns the regret per round, (T,)."""
    dtype, d = theta_star.dtype, len(theta_star)
    gram, bias = dtype.type(regularization) * np.eye(d, dtype=dtype), np.zeros(d, dtype)
    inverses, biases = [np.linalg.inv(gram)] * n_agents, [bias] * n_agents
    regret = np.zeros(len(beta))
    for t, width in enumerate(beta):
        for i in range(n_agents):
            phi, inverse = offered(i), inverses[i]
            width_sq = np.einsum("kd,kd->k", phi @ inverse, phi)
            x = phi[np.argmax(phi @ (inverse @ biases[i]) + width * np.sqrt(width_sq))]
            mean = x @ theta_star
            regret[t] += (phi @ theta_star).max() - mean
            y = mean + dtype.type(noise_std) * rng.standard_normal(dtype=dtype)
            image = inverse @ x
            inverses[i] = inverse - np.outer(image, image) / (1 + x @ image)
            biases[i] = biases[i] + x * y
            gram += np.outer(x, x)
            bias = bias + x * y
        if (t + 1) % batch == 0:
            inverses, biases = [np.linalg.inv(gram)] * n_agents, [bias] * n_agents
    return regret


def _features(rng: np.random.Generator, shape: tuple[int, ...], dim: int) -> np.ndarray:
    u = rng.standard_normal((*shape, dim - 1))
    u /= np.linalg.norm(u, axis=-1, keepdims=True)
    return np.concatenate([u, np.ones((*shape, 1))], axis=-1) / np.sqrt(2)


def numpy_vectorised(p: Problem, seed: int) -> np.ndarray:
    """Plays in NumPy for all agents at once, in float32 with batched products; returns the regret per round, (T,).

    Fixed contexts are scored afresh every round, as the pseudo-code says.
    """
    rng = np.random.default_rng(seed)
    f = np.float32
    m, k, d = p.n_agents, p.n_arms, p.dim
    theta_star = _features(rng, (), d).astype(f)
    phi, u = np.full((m, k, d), np.sqrt(0.5), f), np.empty((m, k, d - 1), f)

    def draw() -> None:
        rng.standard_normal(out=u, dtype=f)
        scale = 1 / np.sqrt(2 * np.einsum("mkd,mkd->mk", u, u))
        np.multiply(u, scale[..., None], out=phi[..., :-1])

    draw()
    eye, agents = p.regularization * np.eye(d), np.arange(m)
    sums = np.zeros((d, d + 1))
    inverse = np.repeat(np.linalg.inv(eye)[None].astype(f), m, axis=0)
    bias = np.zeros((m, d), f)
    xs, ys = np.empty((p.batch, m, d), f), np.empty((p.batch, m), f)
    regret = np.zeros(len(p.beta))
    for t, beta in enumerate(p.beta):
        if not p.fixed:
            draw()
        theta = np.matvec(inverse, bias)
        width_sq = np.einsum("mkd,mkd->mk", phi @ inverse, phi)
        x = phi[agents, (np.matvec(phi, theta) + beta * np.sqrt(width_sq)).argmax(axis=1)]
        mean = x @ theta_star
        regret[t] = ((phi @ theta_star).max(axis=1) - mean).sum()
        y = mean + f(p.noise_std) * rng.standard_normal(m, dtype=f)
        image = np.matvec(inverse, x)
        scaled = image / (1 + np.vecdot(x, image))[:, None]
        inverse -= image[:, :, None] * scaled[:, None, :]
        bias += x * y[:, None]
        xs[t % p.batch], ys[t % p.batch] = x, y
        if (t + 1) % p.batch == 0:
            rows = xs.reshape(-1, d)
            sums += rows.T @ np.column_stack([rows, ys.reshape(-1)])
            inverse[:] = np.linalg.inv(eye + sums[:, :-1])
            bias[:] = sums[:, -1]
    return regret


def jax_straightforward(p: Problem, keys: Array) -> Array:
    """Plays by `vmap` over seeds and `scan` over rounds, with `einsum`; returns the regret per round, (S, T)."""
    return _compiled(*p[:-1])(jnp.asarray(p.beta), keys)


@functools.cache
def _compiled(m: int, k: int, d: int, batch: int, fixed: bool, noise_std: float, regularization: float):
    def features(key, shape):
        u = jax.random.normal(key, (*shape, d - 1))
        u = u / jnp.linalg.norm(u, axis=-1, keepdims=True)
        return jnp.concatenate([u, jnp.ones((*shape, 1))], axis=-1) / jnp.sqrt(2.0)

    def share(array):
        return jnp.broadcast_to(array, (m, *array.shape))

    def run(beta, key):
        key_theta, key_fixed, key_rounds = jax.random.split(key, 3)
        theta_star = features(key_theta, ())
        fixed_phi = features(key_fixed, (m, k)) if fixed else None
        eye = regularization * jnp.eye(d)

        def play(carry, round_):
            t, beta = round_
            gram, bias, inverse, biases = carry
            key_phi, key_y = jax.random.split(jax.random.fold_in(key_rounds, t))
            phi = features(key_phi, (m, k)) if fixed_phi is None else fixed_phi
            theta = jnp.einsum("mde,me->md", inverse, biases)
            width_sq = jnp.einsum("mkd,mde,mke->mk", phi, inverse, phi)
            arms = jnp.argmax(jnp.einsum("mkd,md->mk", phi, theta) + beta * jnp.sqrt(width_sq), axis=1)
            x = jnp.take_along_axis(phi, arms[:, None, None], axis=1)[:, 0]
            mean = x @ theta_star
            regret = ((phi @ theta_star).max(axis=1) - mean).sum()
            y = mean + noise_std * jax.random.normal(key_y, (m,))
            image = jnp.einsum("mde,me->md", inverse, x)
            step = image[:, :, None] * image[:, None, :] / (1 + (x * image).sum(axis=1))[:, None, None]
            gram, bias = gram + x.T @ x, bias + x.T @ y
            inverse, biases = lax.cond(
                (t + 1) % batch == 0,
                lambda: (share(jnp.linalg.inv(eye + gram)), share(bias)),
                lambda: (inverse - step, biases + x * y[:, None]),
            )
            return (gram, bias, inverse, biases), regret

        start = jnp.zeros((d, d)), jnp.zeros(d), share(jnp.linalg.inv(eye)), jnp.zeros((m, d))
        return lax.scan(play, start, (jnp.arange(len(beta)), beta))[1]

    return jax.jit(jax.vmap(run, (None, 0)))
