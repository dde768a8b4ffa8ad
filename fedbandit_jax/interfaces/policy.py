"""Policies act on released statistics only. All their results are post-processing."""

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
    """Released statistics, the input of a policy; they are public, so using them is post-processing.

    Attributes:
        gram: sum of x x' over all users of all agents so far, plus noise.
        bias: sum of x y over the same users, plus noise.
        count: number of users in these sums. It excludes dropped contributions of returning users. It includes unsent
            sums of silos, and pending rewards.
        std: standard deviation of the noise on the diagonal of `gram`. On `bias` it is at most `NoiseLaw.bias_scale`
            times that. With drop-outs both are bounds, since absent silos add no noise.
    """

    gram: Float[Array, "d d"]
    bias: Float[Array, " d"]
    count: Float[Array, ""]  # pyright: ignore[reportIncompatibleMethodOverride]
    std: Float[Array, ""]

    @property
    def dim(self) -> int:
        """Returns the number d of features."""
        return self.bias.shape[-1]


class NoiseLaw(NamedTuple):
    """Distribution of the noise in released statistics, known on the host before the first round.

    Attributes:
        n_agents: number M of silos.
        dim: length d of a feature vector.
        stds: `Released.std` of every release to come.
        mechanism: the bound mechanism, with public numbers.
    """

    n_agents: int
    dim: int
    stds: Float[np.ndarray, " S"]
    mechanism: Any = None

    @property
    def bias_scale(self) -> float:
        """A bound on the noise on `bias`, in units of `stds`: the statistic's `gram_scale`, or 1 if that is less."""
        statistic = getattr(self.mechanism, "statistic", None)
        return 1.0 if statistic is None else max(1.0, statistic.bounds.gram_scale)


class Policy:
    """A rule for acting on released statistics. Subclass it, decorate with `@fb.pytree`, define `update` and `index`.

    A policy gets releases and the present user's arms, and nothing else. By post-processing it is as private as the
    mechanism. `fb.algos.Federated` runs it under any schedule, release and trust model. `fb.algos.Thompson` is an
    example. `start`, `update` and `index` are traced, and refused if they do more than compute their results.
    `jax.debug.print` is allowed. Refuse wrong parameters in `bind`, by an error that names them.
    """

    needs_all_users: ClassVar[bool] = False
    """Whether a release must be of all users together, after each of their phases, not of silos, agents or users."""

    keeps_matrix: bool = False
    """Whether its beliefs have `gram`, `posterior` and `log_det`, and the bound policy `rho`, as adaptive schedules and
    learning inside a batch need."""

    said: ClassVar[tuple[str, ...]] = ()
    """Further tags of the class."""

    @property
    def tags(self) -> Tags:
        """Returns its tags for `privacy.compatibility`."""
        said = {"policy of all users": self.needs_all_users, "policy without a matrix": not self.keeps_matrix}
        return tagged("policy", self, said | dict.fromkeys(self.said, True))

    def bind(self, law: NoiseLaw) -> Policy:
        """Returns the policy that runs, set up on the host for the distribution of the noise."""
        return self

    def start(self, dim: int) -> Any:
        """Returns the belief before the first synchronisation.

        By default it is `update` without data, and with None as the belief before. A policy with an `update` that reads
        this belief must define `start`, too.
        """
        nothing = Released(jnp.zeros((dim, dim)), jnp.zeros(dim), jnp.float32(0), jnp.float32(0))
        return self.update(jnp.int32(0), None, nothing)

    def update(self, k: Int[Array, ""], belief: Any, released: Released) -> Any:
        """Returns the belief after synchronisation k = 0, 1, ..., a pytree with constant shapes.

        `belief` is the previous belief, which follows from earlier releases. If a policy stores the last release in it,
        the difference of two prefix sums is the batch's sum. If any number of the result is not finite, the agents keep
        their last belief. The seed then gets a status bit.
        """
        raise NotImplementedError(f"{type(self).__name__}.update")

    def index(
        self, key: Key[Array, ""], t: Int[Array, ""], belief: Any, contexts: Float[Array, "K d"]
    ) -> Float[Array, " K"]:
        """Returns the worth of every arm to the present user, from the arms' features; one of the best is played."""
        raise NotImplementedError(f"{type(self).__name__}.index")

    def prepare(self, belief: Any, offered: Round, fixed_contexts: bool) -> Any:
        """Returns the input of `indices` in the next batch; fixed contexts can be scored here, once.

        If agents `learn` inside the batch, the belief has a `posterior` for each of them.
        """
        return belief

    def indices(self, key: Key[Array, ""], t: Int[Array, ""], prepared: Any, offered: Round) -> Float[Array, "K M"]:
        """Returns the `index` of all agents; raises a TypeError if `index` does not return (K,)."""
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
        """Whether `scorer` may replace `indices`: it is defined, and this policy is sealed."""
        return struct.is_sealed(self) and type(self).scorer is not Policy.scorer

    def scorer(self, t: Int[Array, ""], prepared: Any) -> Scorer:
        """Returns scores of arms by their features alone, as in `indices`."""
        raise NotImplementedError(f"{type(self).__name__}.scorer")

    def learn(self, prepared: Any, offered: Round, x: Float[Array, "d M"], y: Float[Array, " M"]) -> Any:
        """Returns the input of `indices` after the users' features x and rewards y, if `learns_in_batch`."""
        raise NotImplementedError(f"{type(self).__name__} acts on released statistics: learns_in_batch must be False")
