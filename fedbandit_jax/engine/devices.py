"""Agents who are spread over several devices: what belongs to an agent lies where it is played.

XLA divides a program between devices as the arrays in it are divided. Contexts, choices and rewards of agents need
nothing of other agents, so that devices have to talk only where agents do: what they send is added up once at a
synchronisation. All is as on one device, but for the order in which numbers are added up.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

AXIS = "agents"


@functools.cache
def mesh() -> Mesh:
    """Returns all devices of this process in a row."""
    devices = np.array(jax.local_devices())
    return Mesh(devices, (AXIS,), axis_types=(AxisType.Auto,))


def everywhere(over: Mesh) -> NamedSharding:
    """Returns the place of what all devices hold."""
    return NamedSharding(over, PartitionSpec())


def spread(tree: Any, n_agents: int, over: Mesh | None) -> Any:
    """Divides every array that has an axis of `n_agents` along the last such axis; without devices it changes nothing.

    An axis of that length by accident is divided, too, which changes no number.
    """
    if over is None:
        return tree

    def one(x: Array) -> Array:
        axes = [axis for axis, length in enumerate(x.shape) if length == n_agents]
        if not axes or jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
            return x
        where = PartitionSpec(*[None] * axes[-1], AXIS)
        return jax.lax.with_sharding_constraint(x, NamedSharding(over, where))

    return jax.tree.map(one, tree)
