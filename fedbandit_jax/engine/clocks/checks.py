"""Checks of all that passes between environment and algorithm: shapes before compiling, numbers in every round."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from fedbandit_jax.interfaces import Environment, Feedback, Round, Spec

SLACK = 1e-5  # by how much a norm may exceed its bound, since float32 rounds


def need(method: str, condition: bool, what: str, got: Any) -> None:
    """Raises TypeError, saying what the method must return and what it returned, unless the condition holds."""
    if not condition:
        raise TypeError(f"{method} must return {what}, got {got!r}")


def same(method: str, what: str, before: Any, after: Any) -> None:
    """Raises TypeError unless both trees have the same structure, and leaves of the same shapes and dtypes."""
    shapes = [jax.tree.map(lambda x: (x.shape, str(x.dtype)), tree) for tree in (before, after)]
    if shapes[0] != shapes[1]:
        raise TypeError(f"{method} must return {what} of unchanged structure {shapes[0]}, got {shapes[1]}")


def is_array(value: Any, shape: tuple[int, ...], kind: Any) -> bool:
    """Whether the value is an array of this shape whose dtype is of this kind."""
    return getattr(value, "shape", None) == shape and jnp.issubdtype(value.dtype, kind)


def check_environment(env: Environment) -> tuple[Any, Round]:
    """Traces the methods of an environment once, compiling nothing, and checks the shapes of what they return.

    Returns:
        The shapes of the environment's world, and of the `Round` that it offers.

    Raises:
        TypeError: a method returns something else than it must; the message names all three.
    """
    m, k, d = env.spec.n_agents, env.spec.n_arms, env.spec.dim
    key, t = jax.random.key(0), jnp.int32(0)
    world = jax.eval_shape(env.init, key)
    offer = jax.eval_shape(env.observe, key, world, t)
    need("env.observe", isinstance(offer, tuple) and len(offer) == 2 and isinstance(offer[0], Round),
         "(fb.Round, world)", offer)  # fmt: skip
    offered, after = offer
    need("env.observe", is_array(offered.contexts, (m, k, d), jnp.floating),
         f"float contexts of shape {(m, k, d)}, as env.spec says", offered.contexts)  # fmt: skip
    need("env.observe", offered.mask is None or is_array(offered.mask, (m, k), jnp.bool_),
         f"a boolean mask of shape {(m, k)} or None", offered.mask)  # fmt: skip
    same("env.observe", "a world", world, after)
    feedback = jax.eval_shape(env.pull, key, world, offered, jax.ShapeDtypeStruct((m,), jnp.int32))
    need("env.pull", isinstance(feedback, Feedback), "fb.Feedback(reward, gap)", feedback)
    for name, value in zip(feedback._fields, feedback):
        need("env.pull", is_array(value, (m,), jnp.floating), f"a float {name} of shape {(m,)}", value)
    return world, offered


def admit(spec: Spec, contexts: Array, rewards: Array) -> tuple[Array, Array, Array]:
    """Makes features and rewards obey the spec, which privacy relies on.

    A vector that is longer than the spec declares is scaled to that length, and a reward is clipped if the spec
    declares rewards in [0, 1]. What is not finite counts as 0.

    Args:
        spec: the environment's own.
        contexts: feature vectors, (..., d).
        rewards: (...).

    Returns:
        Features (..., d) and rewards (...) that the spec allows, and whether something else was given, (...) bool.
    """
    contexts, rewards = contexts.astype(jnp.float32), rewards.astype(jnp.float32)
    square = (contexts * contexts).sum(-1)
    long, finite = square > (spec.max_norm + SLACK) ** 2, jnp.isfinite(square)
    scale = jnp.where(long & finite, spec.max_norm / jnp.sqrt(square), 1)
    known = jnp.where(jnp.isfinite(rewards), rewards, 0)
    given = jnp.clip(known, 0, 1) if spec.rewards_in_unit else known
    outside = long | ~finite | ~jnp.isfinite(rewards) | (given != known)
    return jnp.where(finite[..., None], contexts * scale[..., None], 0), given, outside
