"""What a process checks of all that passes between its parts: shapes before it is compiled, numbers as it runs."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from fedbandit_jax.interfaces import Environment, Feedback, Round, Spec

SLACK = 1e-5  # of a norm: float32 rounds


def need(method: str, condition: bool, what: str, got: Any) -> None:
    """Raises TypeError unless the condition holds."""
    if not condition:
        raise TypeError(f"{method} must return {what}, got {got!r}")


def same(method: str, what: str, before: Any, after: Any) -> None:
    """Raises TypeError unless both trees have the same leaves."""
    shapes = [jax.tree.map(lambda x: (x.shape, str(x.dtype)), tree) for tree in (before, after)]
    if shapes[0] != shapes[1]:
        raise TypeError(f"{method} must return {what} of unchanged structure {shapes[0]}, got {shapes[1]}")


def is_array(value: Any, shape: tuple[int, ...], kind: Any) -> bool:
    """Of this shape and kind of numbers?"""
    return getattr(value, "shape", None) == shape and jnp.issubdtype(value.dtype, kind)


def check_environment(env: Environment) -> tuple[Any, Round]:
    """Traces its methods once, compiles nothing; returns shapes of its world and of what it offers.

    Raises:
        TypeError: naming the method, what it must return and what it returned.
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
    """Features (..., d) and rewards (...) that the spec allows, and where something else was given (...).

    A vector that is longer than the spec declares is scaled to that length, a reward clipped if rewards are in [0, 1].
    What is not finite counts as 0.
    """
    square = (contexts * contexts).sum(-1)
    long, finite = square > (spec.max_norm + SLACK) ** 2, jnp.isfinite(square)
    scale = jnp.where(long & finite, spec.max_norm / jnp.sqrt(square), 1)
    known = jnp.where(jnp.isfinite(rewards), rewards, 0)
    given = jnp.clip(known, 0, 1) if spec.rewards_in_unit else known
    outside = long | ~finite | ~jnp.isfinite(rewards) | (given != known)
    return jnp.where(finite[..., None], contexts * scale[..., None], 0), given, outside
