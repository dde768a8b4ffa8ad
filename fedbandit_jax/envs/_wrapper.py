"""The base class of environments around another one."""

from typing import Any

from jax import Array
from jaxtyping import Int, Key

from fedbandit_jax.core import struct, validate
from fedbandit_jax.core.validate import BadValue
from fedbandit_jax.interfaces import Feedback, Round, Spec


@struct.pytree
class Wrapper:
    """An environment that changes another one."""

    env: Any  # the wrapped environment
    spec: Spec = struct.static()

    def init(self, key: Key[Array, ""]) -> Any:
        """Draws the world of the wrapped environment."""
        return self.env.init(key)

    def observe(self, key: Key[Array, ""], world: Any, t: Int[Array, ""]) -> tuple[Round, Any]:
        """Returns the offer of the wrapped environment."""
        return self.env.observe(key, world, t)

    def pull(self, key: Key[Array, ""], world: Any, offered: Round, arms: Int[Array, " M"]) -> Feedback:
        """Returns the rewards and gaps of the wrapped environment."""
        return self.env.pull(key, world, offered, arms)


def wrapped_spec(env: Any, *, silos: bool = False, clusters: bool = True) -> Spec:
    """Checks that an environment can be wrapped, and returns its spec.

    Args:
        env: the environment to wrap.
        silos: whether its silos must synchronise, so users do not arrive one by one.
        clusters: whether it may have clusters of users.
    """
    spec = validate.instance("env", getattr(env, "spec", None), Spec, "an environment, which has an fb.Spec `spec`")
    if callable(getattr(env, "accepts", None)):
        raise BadValue("env", "must answer every arm", env, got=type(env).__name__)
    alike = callable(getattr(env, "clusters", None))
    if silos and (alike or callable(getattr(env, "answers", None))):
        raise BadValue("env", "must have silos that synchronise", env, got=type(env).__name__)
    if alike and not clusters:
        raise BadValue("env", "must not have clusters of users", None, got="a clustered environment")
    return spec
