"""Checks of the return values of environments and algorithms, by tracing and without compilation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import Tracer

from fedbandit_jax.core.programs import is_array, need, need_same, numeric
from fedbandit_jax.core.validate import BadType
from fedbandit_jax.engine.identity import array_of, describe, without_addresses
from fedbandit_jax.interfaces import Environment, Feedback, Report, Round


def shapes(method: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """Returns the shapes of a method's return value, without compilation.

    Raises:
        TypeError: it returns no numbers. Or two traces differ, for instance through NumPy's random numbers or a clock.
            Such numbers would be drawn once for all rounds and seeds.
    """
    traces = [jax.make_jaxpr(numeric(method, function), return_shape=True)(*arguments) for _ in range(2)]
    texts = [(without_addresses(str(closed)), [_described(x) for x in closed.consts]) for closed, _ in traces]
    if texts[0] != texts[1]:
        got = "numbers that change, as from np.random: use jax.random with the given key"
        raise BadType(method, "must trace to the same program every time", None, got=got)
    return traces[0][1]


def _described(x: Any) -> Any:
    """Describes a constant; a tracer, from `rollout`, has no value and is compared by identity."""
    return id(x) if isinstance(x, Tracer) else describe(array_of(x))


def need_step(method: str, state: Any, got: Any) -> None:
    """Raises `TypeError` unless a method returned (state, fb.Report) with an equal state structure."""
    fine = type(got) is tuple and len(got) == 2 and isinstance(got[1], Report)
    need(method, fine, "(state, fb.Report)", got)
    need_same(method, "a state", state, got[0])


def are_arrays(tree: Any, *wanted: tuple[tuple[int, ...], Any]) -> bool:
    """Returns whether the leaves are arrays of these shapes and kinds."""
    leaves = jax.tree.leaves(tree)
    return len(leaves) == len(wanted) and all(is_array(leaf, *one) for leaf, one in zip(leaves, wanted))


def check_environment(env: Environment) -> Round:
    """Checks what an environment's methods return, without compilation; returns the `Round` that it offers.

    Raises:
        TypeError: a return value is invalid; the message names the method, expected and actual return value.
    """
    m, k, d = env.spec.n_agents, env.spec.n_arms, env.spec.dim
    key, t = jax.random.key(0), jnp.int32(0)
    world = shapes("env.init", env.init, key)
    offer = shapes("env.observe", env.observe, key, world, t)
    need("env.observe", isinstance(offer, tuple) and len(offer) == 2 and isinstance(offer[0], Round),
         "(fb.Round, world)", offer)  # fmt: skip
    offered, after = offer
    need("env.observe", is_array(offered.contexts, (m, k, d), jnp.floating),
         f"float contexts of shape {(m, k, d)}, as env.spec says", offered.contexts)  # fmt: skip
    need("env.observe", offered.mask is None or is_array(offered.mask, (m, k), jnp.bool_),
         f"a boolean mask of shape {(m, k)} or None", offered.mask)  # fmt: skip
    for name, asked, kind, what in (
        ("user", env.spec.n_users, jnp.integer, "users, integers"),
        ("arrives", env.spec.late, jnp.integer, "slots of delivered rewards, integers"),
        ("away", env.spec.drops, jnp.bool_, "silos that are away, booleans"),
    ):
        value = getattr(offered, name)
        if asked:
            need("env.observe", is_array(value, (m,), kind), f"{what} of shape {(m,)}", value)
        else:
            need("env.observe", value is None, f"no {name}, as env.spec declares none", value)
    need_same("env.observe", "a world", world, after)
    if callable(accepts := getattr(env, "accepts", None)):
        accepted, left = shapes("env.accepts", accepts, key, world, jax.ShapeDtypeStruct((m,), jnp.int32))
        need("env.accepts", is_array(accepted, (m,), jnp.bool_), f"booleans of shape {(m,)}", accepted)
        need_same("env.accepts", "a world", world, left)
    feedback = shapes("env.pull", env.pull, key, world, offered, jax.ShapeDtypeStruct((m,), jnp.int32))
    need("env.pull", isinstance(feedback, Feedback), "fb.Feedback(reward, gap)", feedback)
    for name, value in zip(feedback._fields, feedback):
        need("env.pull", is_array(value, (m,), jnp.floating), f"a float {name} of shape {(m,)}", value)
    return offered
