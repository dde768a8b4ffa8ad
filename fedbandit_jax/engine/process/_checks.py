"""What a process checks before anything is compiled: the shapes of all that passes between its parts."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from fedbandit_jax.interfaces import Environment, Feedback, Round


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
    need("env.pull", isinstance(feedback, Feedback), "fb.Feedback(reward, regret)", feedback)
    for name, value in zip(feedback._fields, feedback):
        need("env.pull", is_array(value, (m,), jnp.floating), f"a float {name} of shape {(m,)}", value)
    return world, offered
