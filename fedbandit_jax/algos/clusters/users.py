"""What algorithms for users who come again share: where users sit, how close estimates are, how wide confidence is.

Users sit at servers, and state is laid out that way: user u has seat u // L of server u mod L, and arrays of all seats
have a leading axis N = L P, server by server, P = ceil(n / L). Seats that nobody has stay empty; a user who does not
exist has a seat out of range, see `rows`.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from fedbandit_jax.core import control, rows, struct, validate
from fedbandit_jax.interfaces import Recipe, Spec

REFRESH = 100  # rounds of one user between Cholesky refreshes of her inverse


class Seats(NamedTuple):
    """Who sits where. Hashable."""

    n_users: int  # n
    n_servers: int  # L

    @property
    def per_server(self) -> int:
        """P."""
        return -(-self.n_users // self.n_servers)

    @property
    def n_seats(self) -> int:
        """N."""
        return self.n_servers * self.per_server

    def find(self, user: Any) -> tuple[Any, Any]:
        """Server of a user, and her place there; L and 0 if she does not exist."""
        exists = (user >= 0) & (user < self.n_users)
        return jnp.where(exists, user % self.n_servers, self.n_servers), jnp.where(exists, user // self.n_servers, 0)

    def seat(self, user: Any) -> Any:
        """Seat of a user; N if she does not exist."""
        server, place = self.find(user)
        return server * self.per_server + place

    @property
    def users(self) -> np.ndarray:
        """Seats of all users, (n,)."""
        user = np.arange(self.n_users)
        return (user % self.n_servers * self.per_server + user // self.n_servers).astype(np.int32)

    @property
    def taken(self) -> np.ndarray:
        """Which seats are, (L, P) bool."""
        taken = np.zeros(self.n_seats, bool)
        taken[self.users] = True
        return taken.reshape(self.n_servers, self.per_server)

    def of_users(self, label: Array) -> Array:
        """Labels of seats (N,), each the seat of a user, as labels of users (n,)."""
        server, place = jnp.divmod(label[self.users], self.per_server)
        return place * self.n_servers + server

    def everywhere(self, place: Array) -> Array:
        """Places on every server (L, P) as seats (N,)."""
        return (place + jnp.arange(self.n_servers, dtype=place.dtype)[:, None] * self.per_server).reshape(-1)

    def at(self, users: UserSums, server: Array) -> UserSums:
        """Of the users of one server, (P, ...)."""
        return UserSums(*(x.reshape(self.n_servers, self.per_server, *x.shape[1:])[server] for x in users))


class UserWidth(NamedTuple):
    """beta of an estimate from T rounds: R sqrt(2 ln(n/alpha) + d ln(high/low + T / (d low))) + S sqrt(high) + kappa,

    where the matrix added to sum x x' has eigenvalues in [low, high] and the noise added to sum x y norm kappa in it.

    DEVIATION liu2022 Lemma 1: m L / alpha, for as many local clusters, is n / alpha: algorithms do not know m.
    """

    scale: struct.Number
    slope: struct.Number  # R
    log_term: struct.Number  # 2 ln(n / alpha)
    theta_norm: struct.Number  # S
    dim: struct.Number

    def __call__(self, count: Array, low: Array, high: Array, kappa: Array | float = 0.0) -> Array:
        """beta."""
        inside = self.log_term + self.dim * jnp.log(high / low + count / (self.dim * low))
        return self.scale * (self.slope * jnp.sqrt(inside) + self.theta_norm * jnp.sqrt(high) + kappa)


class UserSums(NamedTuple):
    """What is known of the user at every seat."""

    sums: Array  # (N, d, d + 1) sum of [x x' | x y]
    counts: Array  # (N,) int32 rounds
    inverse: Array  # (N, d, d) of the regularised matrix
    theta: Array  # (N, d)


class UserEstimate(NamedTuple):
    """Ridge estimate from sums of x x' and x y."""

    inverse: Array  # (d, d)
    theta: Array  # (d,)
    log_det: Array
    ok: Array  # does it exist?


def nothing(n_seats: int, dim: int, ridge: Array | float) -> UserSums:
    """Before the first round."""
    inverse = jnp.broadcast_to(jnp.eye(dim) / ridge, (n_seats, dim, dim))
    counts = jnp.zeros(n_seats, jnp.int32)
    return UserSums(jnp.zeros((n_seats, dim, dim + 1)), counts, inverse, jnp.zeros((n_seats, dim)))


def learn(users: UserSums, seat: Array, x: Array, y: Array, ridge: Array | float) -> UserSums:
    """One round of one user: a rank-one update, and every `REFRESH` of them the inverse from the sums."""
    sums, count, inverse, theta = rows.take(users, seat)
    sums, count = sums + row(x, y), count + 1
    image = jnp.matmul(inverse, x, precision="highest")
    scale = 1 / (1 + jnp.matmul(image, x, precision="highest"))
    residual = y - jnp.matmul(theta, x, precision="highest")
    updated = inverse - scale * image[:, None] * image[None], theta + image * (scale * residual)
    inverse, theta = lax.cond(
        control.in_any_lane(count % REFRESH == 0), lambda _: estimate(sums, ridge)[:2], lambda updated: updated, updated
    )
    return rows.put(users, seat, UserSums(sums, count, inverse, theta))


def estimate(sums: Array, ridge: Array | float) -> UserEstimate:
    """From sums (d, d + 1) = [sum x x' | sum x y] and a multiple of the identity."""
    gram, bias = sums[:, :-1] + ridge * jnp.eye(len(sums)), sums[:, -1]
    factor = jnp.linalg.cholesky(gram)
    half = lax.linalg.triangular_solve(factor, jnp.eye(len(sums)), left_side=True, lower=True)
    inverse = jnp.matmul(half.T, half, precision="highest")
    theta = jnp.matmul(inverse, bias, precision="highest")
    ok = jnp.isfinite(inverse).all() & jnp.isfinite(theta).all()
    return UserEstimate(inverse, theta, 2 * jnp.log(jnp.diagonal(factor)).sum(), ok)


def row(x: Array, y: Array) -> Array:
    """What one round adds to the sums, (d, d + 1): [x x' | x y]."""
    return x[:, None] * jnp.append(x, y)[None]


def index(contexts: Array, inverse: Array, theta: Array, beta: Array) -> Array:
    """<x, theta> + beta ||x||_inverse of contexts (K, d)."""
    image = jnp.matmul(contexts, inverse, precision="highest")
    return jnp.matmul(contexts, theta, precision="highest") + beta * jnp.sqrt(jnp.maximum((image * contexts).sum(1), 0))


def together(users: UserSums, members: Array, ridge: Array | float) -> tuple[UserEstimate, Array]:
    """Estimate from the sums of some users, members (P,) bool, and how many rounds they had."""
    sums = jnp.einsum("p,pij->ij", members.astype(users.sums.dtype), users.sums, precision="highest")
    return estimate(sums, ridge), jnp.where(members, users.counts, 0).sum().astype(jnp.float32)


def differ(users: UserSums, place: Array, factor: Array) -> Array:
    """Whose estimates are too far from those of one of them, (P,) bool: ||theta_i - theta_j|| > factor (F_i + F_j)."""
    f = spread(users.counts.astype(jnp.float32))
    return distance(users.theta[place], users.theta) > factor * (f + f[place])


def phase(t: Array) -> Array:
    """The phase s = 1, 2, ... that round t = 0, 1, ... is in; it has 2^s rounds, from round 2^s - 2 on."""
    return 31 - lax.clz(t + 2)


def begins_phase(t: Array) -> Array:
    """Does a phase begin before round t? At 0, 2, 6, 14, ..."""
    return (t + 2) & (t + 1) == 0


def spread(count: Array) -> Array:
    """F(T) = sqrt((1 + ln(1 + T)) / (1 + T)): how far an estimate from T rounds may be from the truth."""
    return jnp.sqrt((1 + jnp.log1p(count)) / (1 + count))


def distance(theta: Array, others: Array) -> Array:
    """Euclidean distances of theta (d,) and others (..., d)."""
    return jnp.sqrt(((theta - others) ** 2).sum(-1))


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClusteringRecipe(Recipe):
    """What every algorithm of the family can be told.

    Args:
        regularization: lambda of every estimate.
        alpha: probability that a confidence set fails, in (0, 1).
        subgaussian: R, sub-Gaussian constant of the reward noise (1/2 for rewards in [0, 1]).
        theta_norm: S, bound on ||theta*||.
        exploration_scale: factor on the confidence width; 1 is the theory, 0 is greedy.
        name: label in results; each algorithm has its own.
    """

    factors: ClassVar[tuple[str, ...]] = ()  # parameters that are factors of a distance, > 0 or infinite

    regularization: float = 1.0
    alpha: float = 0.01
    subgaussian: float = 0.5
    theta_norm: float = 1.0
    exploration_scale: float = 1.0
    name: str | None = None  # pyright: ignore[reportIncompatibleVariableOverride]

    def __post_init__(self):
        validate.positive("regularization", self.regularization)
        validate.probability("alpha", self.alpha)
        for name in ("subgaussian", "theta_norm", "exploration_scale"):
            validate.non_negative(name, getattr(self, name))
        for name in self.factors:
            if getattr(self, name) != math.inf:
                validate.positive(name, getattr(self, name))
        if self.name is None:
            object.__setattr__(self, "name", self.label)

    @property
    def label(self) -> str:
        """The name that it has unless it is given one."""
        return type(self).__name__

    def common(self, spec: Spec) -> dict[str, Any]:
        """Regulariser, width and seats for an environment."""
        if spec.n_users < 1:
            raise ValueError(
                f"{self.name} is for users who are told apart, and the environment has none: fb.envs.clustered(...) has"
            )
        widths = self.alpha, self.subgaussian, self.theta_norm, self.exploration_scale
        return common(spec, self.regularization, *widths)


def common(
    spec: Spec, regularization: float, alpha: float, subgaussian: float, theta_norm: float, exploration_scale: float
) -> dict[str, Any]:
    """Regulariser, width and seats for the users of an environment."""
    fields = exploration_scale, subgaussian, 2 * math.log(spec.n_users / alpha), theta_norm, spec.dim
    return dict(
        regularization=np.float32(regularization),
        width=UserWidth(*map(np.float32, fields)),
        seats=Seats(spec.n_users, spec.n_servers),
    )
