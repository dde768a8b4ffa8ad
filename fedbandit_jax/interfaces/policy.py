"""Policies, which act on released statistics and on nothing else, so that whatever they do is post-processing."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int, Key

from fedbandit_jax.core import struct, validate
from fedbandit_jax.core.programs import call
from fedbandit_jax.core.scoring import Scorer
from fedbandit_jax.core.validate import BadType
from fedbandit_jax.interfaces.environment import Round
from fedbandit_jax.privacy.compatibility import Tags, tagged


class Released(NamedTuple):
    """Released statistics, the input of a policy; anybody may see them, so using them is post-processing.

    Users whose contributions are left out, as they came too often, are not in `count`. Those whose sums a silo has not
    sent, whose rewards have not arrived, are.
    """

    gram: Float[Array, "d d"]  # sum of x x' over all users of all agents so far, plus noise
    bias: Float[Array, " d"]  # sum of x y over the same users, plus noise
    count: Float[Array, ""]  # how many users are in these sums  # pyright: ignore[reportIncompatibleMethodOverride]
    # standard deviation of the noise on the diagonal of `gram`; that on `bias` has no larger one. It is a bound where
    # silos drop out: the noise of those that are away is not there
    std: Float[Array, ""]

    @property
    def dim(self) -> int:
        """The number d of features."""
        return self.bias.shape[-1]


class NoiseLaw(NamedTuple):
    """The law of the noise in released statistics; it is known on the host before the first round."""

    n_agents: int  # M
    dim: int  # d
    stds: Float[np.ndarray, " S"]  # `Released.std` of every release to come
    mechanism: Any = None  # the bound mechanism, all of whose numbers are public


class Policy:
    """A rule for acting on released statistics. Subclass it, decorate with `@fb.pytree`, define `update` and `index`.

    A policy is given what was released and what the present user is offered, and nothing else: by post-processing it is
    as private as the mechanism, whatever it does. `fb.algos.Federated` runs it under any schedule, release and trust
    model; `fb.algos.Thompson` is an example. A policy refuses wrong parameters when it is made or bound, by an error
    that names them.
    """

    calls_host: ClassVar[bool] = False
    """Whether `start`, `update` or `index` may call the host. Nothing is claimed then; if False they are traced, and
    refused if they do more than compute their results. `jax.debug.print` is no call."""

    needs_all_users: ClassVar[bool] = False
    """Whether a release must be of all users together, after each of their phases, not of silos, agents or users."""

    keeps_matrix: bool = False
    """Whether a belief has `gram`, `posterior` and `log_det`, and the bound policy `rho`, as adaptive schedules and
    learning inside a batch need."""

    said: ClassVar[tuple[str, ...]] = ()
    """Further tags of the class."""

    @property
    def tags(self) -> Tags:
        """What this policy is, for `privacy.compatibility`."""
        said = {"policy of all users": self.needs_all_users, "policy that calls the host": self.calls_host}
        return tagged("policy", self, said | dict.fromkeys(self.said, True))

    def bind(self, law: NoiseLaw) -> Policy:
        """The policy that runs, set up on the host once the law of the noise is known."""
        return self

    def start(self, dim: int) -> Any:
        """The belief before the first synchronisation.

        By default it is what `update` makes of no data, with None in place of the belief before: a policy whose
        `update` reads that one must define `start`, too.
        """
        nothing = Released(jnp.zeros((dim, dim)), jnp.zeros(dim), jnp.float32(0), jnp.float32(0))
        return self.update(jnp.int32(0), None, nothing)

    def update(self, k: Int[Array, ""], belief: Any, released: Released) -> Any:
        """The belief after synchronisation k = 0, 1, ..., a pytree whose shapes never change.

        `belief` is what was believed until now, which follows from earlier releases alone. A policy that keeps the last
        release in it knows what the batch added: the difference of two prefix sums. If any number of what is returned
        is not finite, the agents keep their last belief and the seed gets a status bit.
        """
        raise NotImplementedError(f"{type(self).__name__}.update")

    def index(
        self, key: Key[Array, ""], t: Int[Array, ""], belief: Any, contexts: Float[Array, "K d"]
    ) -> Float[Array, " K"]:
        """The worth of every arm to the user who came, from the arms' features; one of the best is played."""
        raise NotImplementedError(f"{type(self).__name__}.index")

    def prepare(self, belief: Any, offered: Round, fixed_contexts: bool) -> Any:
        """The input of `indices` in the batch that begins; contexts that are fixed can be scored here, once.

        Where agents `learn` inside the batch, the belief has a `posterior` for each of them.
        """
        return belief

    def indices(self, key: Key[Array, ""], t: Int[Array, ""], prepared: Any, offered: Round) -> Float[Array, "K M"]:
        """The `index` of all agents; raises a TypeError if `index` does not return (K,)."""
        keys = jax.random.split(key, len(offered.contexts))
        values = jax.vmap(lambda key, contexts: call(self, "index", key, t, prepared, contexts))(keys, offered.contexts)
        shape = getattr(values, "shape", None)
        if shape != offered.contexts.shape[:2]:
            name, k = type(self).__name__, offered.contexts.shape[1]
            got = f"shape {shape[1:]}" if shape else validate.shown(values)
            raise BadType(f"{name}.index", f"must return the worth of every arm, {(k,)}", got, got=got)
        return values.T

    @property
    def scores_alone(self) -> bool:
        """Whether `scorer` may be asked instead of `indices`: it is defined, and this policy is sealed."""
        return struct.is_sealed(self) and type(self).scorer is not Policy.scorer

    def scorer(self, t: Int[Array, ""], prepared: Any) -> Scorer:
        """Scores of arms by their features alone, as in `indices`."""
        raise NotImplementedError(f"{type(self).__name__}.scorer")

    def learn(self, prepared: Any, offered: Round, x: Float[Array, "d M"], y: Float[Array, " M"]) -> Any:
        """The input of `indices` after the users' features x and rewards y, if `learns_in_batch`."""
        raise NotImplementedError(f"{type(self).__name__} acts on released statistics: learns_in_batch must be False")
