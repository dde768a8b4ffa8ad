"""The LinUCB policy: upper confidence bounds on released statistics, under every release and trust model."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Complex, Float, Int, Key
from typing_extensions import override

from fedbandit_jax.algos.policies import confidence
from fedbandit_jax.algos.policies.widths import Exploration, LogDetWidth, Width
from fedbandit_jax.core import lapack, ridge, struct, validate
from fedbandit_jax.core.ridge import Posterior
from fedbandit_jax.core.scoring import Scorer
from fedbandit_jax.interfaces import NoiseLaw, Policy, Released, Round
from fedbandit_jax.privacy import compatibility
from fedbandit_jax.privacy.compatibility import Tags, tagged


class Estimate(NamedTuple):
    """Belief of `UCB`: a ridge estimate from released statistics, and its confidence width."""

    posterior: Posterior  # theta and V^-1: A = 1, shared by all agents, or A = M
    gram: Float[Array, "d d"] | Float[Array, ""]  # the shared V; 0 in `LinUCB`
    log_det: Float[Array, " A"] | Float[Array, ""]  # log det V, likewise
    width: Width | LogDetWidth  # beta


class Prepared(NamedTuple):
    """Input for `indices` in a batch."""

    posterior: Posterior  # A = 1, or A = M if agents learn inside the batch
    table: Complex[Array, "K M"] | None  # mean + i width_sq of fixed contexts; None if contexts change
    width: Width | LogDetWidth  # beta


def score(posterior: Posterior, contexts: Float[Array, "M K d"]) -> tuple[Float[Array, "K M"], Float[Array, "K M"]]:
    """Returns the estimates <x, theta> and x' V^-1 x for contexts under a posterior of A = 1 or A = M models."""
    return ridge.inner(contexts, posterior.theta), ridge.width_sq(contexts, posterior.inverse)


@struct.sealed
@struct.pytree
class BoundUCB(Policy):
    """A bound `UCB`: plays argmax of <x, theta> + beta_t sqrt(x' V^-1 x), with random ties."""

    keeps_matrix = True

    first_regularization: struct.Number  # lambda before the first release
    regularization: struct.Number  # lambda after it
    width: Width | LogDetWidth  # beta
    rule: Any  # None, or a rule such as `KnownNoise` for lambda and width at every synchronisation
    project: bool = struct.static()  # whether the released Gram matrix is projected
    rho: tuple[float, float]  # (rho_min, rho_max), bounds on the spectrum of one agent's regulariser

    def start(self, dim: int) -> Estimate:
        """Returns the belief V = lambda I, theta = 0."""
        return self._solved(jnp.zeros((dim, dim)), jnp.zeros(dim), self.first_regularization, self.width)

    @override
    def update(self, k: Int[Array, ""], belief: Any, released: Released) -> Estimate:
        gram, regularization, width = released.gram, self.regularization, self.width
        if self.project or self.rule is not None:
            values, vectors = lapack.eigh(gram)
            if self.project:
                gram = ridge.with_spectrum(jnp.maximum(values, 0), vectors)
            if self.rule is not None:
                regularization, width = self.rule(released.std, values)
        return self._solved(gram, released.bias, regularization, width)

    @override
    def prepare(self, belief: Estimate, offered: Round, fixed_contexts: bool) -> Prepared:
        posterior, width = belief.posterior, belief.width
        if isinstance(width, LogDetWidth):
            width = width._replace(log_det=jnp.broadcast_to(belief.log_det, posterior.theta.shape[1:]))
        table = lax.complex(*score(posterior, offered.contexts)) if fixed_contexts else None
        return Prepared(posterior, table, width)

    @override
    def indices(
        self, key: Key[Array, ""], t: Int[Array, ""], prepared: Prepared, offered: Round
    ) -> Float[Array, "K M"]:
        if prepared.table is None:
            mean, width_sq = score(prepared.posterior, offered.contexts)
        else:
            mean, width_sq = prepared.table.real, prepared.table.imag
        return mean + prepared.width(t) * jnp.sqrt(jnp.maximum(width_sq, 0))

    @override
    def scorer(self, t: Int[Array, ""], prepared: Prepared) -> Scorer:
        return Scorer(prepared.posterior, prepared.width(t))

    @override
    def learn(self, prepared: Prepared, offered: Round, x: Float[Array, "d M"], y: Float[Array, " M"]) -> Prepared:
        gain = ridge.gain(prepared.posterior, x, y)
        table = prepared.table
        if table is not None:
            change = ridge.inner(offered.contexts, gain.image)  # x_a' V^-1 x for every arm a
            table = table + lax.complex(change * gain.residual, -change * change * gain.scale)
        width = prepared.width
        if isinstance(width, LogDetWidth):
            width = width._replace(log_det=width.log_det + jnp.log1p(gain.leverage))
        return Prepared(ridge.update(prepared.posterior, gain), table, width)

    def _solved(self, gram: Array, bias: Array, regularization: struct.Number, width: Width | LogDetWidth) -> Estimate:
        v = regularization * jnp.eye(len(gram)) + gram
        posterior, log_det, _ = ridge.solve(v[None], bias[None])
        return Estimate(posterior, v, log_det, type(width)(*(jnp.asarray(x, jnp.float32) for x in width)))


@dataclasses.dataclass(frozen=True, kw_only=True)
class UCB(Exploration, Policy):
    """Linear upper confidence bounds: plays argmax <x, theta> + beta_t ||x||_{V^-1}, V = lambda I + W, theta = V^-1 U.

    The released sums are W = sum x x' and U = sum x y, with the transpose x' of x. The width beta_t is from the module
    `confidence`. Without noise the width of "theory" is

        beta_t = R sqrt(2 ln(1/failure) + d ln(1 + M t / (d lambda))) + S sqrt(lambda)

    in round t = 0, 1, ..., times `exploration_scale`. It is proved for ||x|| <= 1 (not checked without privacy),
    ||theta*|| <= S = `theta_norm`, and R-sub-Gaussian reward noise, R = `subgaussian`.

    Args:
        confidence: "theory" is the paper's width, from bounds before the first round. "known_noise" is from the
            distribution of the noise and the spectrum of the release. It is valid with the same probability, and many
            times narrower.
        regularizer: "shift", a lambda that keeps V positive definite (the paper), or "project", which projects the
            noisy Gram matrix on the positive semidefinite cone. That is post-processing, and a smaller lambda is
            enough.
        regularization: lambda without noise, >= 1e-5; None: 1.

    Reference: Abbasi-Yadkori, Pal & Szepesvari (2011), Theorem 2; Zhou & Chowdhury (2024), Lemma C.4.
    """

    said = ("policy without rho_max",)
    keeps_matrix = True

    confidence: str = "theory"
    regularizer: str = "shift"

    def __post_init__(self):
        super().__post_init__()
        validate.one_of("confidence", self.confidence, confidence.CONFIDENCE)
        validate.one_of("regularizer", self.regularizer, confidence.REGULARIZERS)
        compatibility.check(self.tags)

    @property
    @override
    def tags(self) -> Tags:
        known = self.confidence == "known_noise"
        widths = {"width of known noise": known, "width that is not theory's": known}
        return (
            super().tags
            | tagged("confidence", self.confidence, widths)
            | tagged("theta_norm", self.theta_norm, {"theta_norm = 0": self.theta_norm == 0})
        )

    @override
    def bind(self, law: NoiseLaw) -> BoundUCB:
        rule = None
        if self.confidence == "theory":
            lam, width = confidence.theory(self, self.regularizer, law)
        else:
            lam, width, rule = confidence.known_noise(self, self.regularizer, law)
        return BoundUCB(
            first_regularization=np.float32(lam),
            regularization=np.float32(lam),
            width=width,
            rule=rule if len(law.stds) else None,
            project=self.regularizer == "project",
            rho=(lam / law.n_agents, lam / law.n_agents),
        )
