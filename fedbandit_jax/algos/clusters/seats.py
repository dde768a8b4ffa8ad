"""Common parts of algorithms for returning users: seats of users, their estimates, and distances between these.

n users sit on L servers. Every server has P = ceil(n / L) places. User u has place u // L of server u mod L. The N = L
P places of all servers, server by server, are called seats. Arrays of all seats have a leading axis N. Some seats may
be empty. Users who do not exist have a seat out of range. So nothing is written for them (see `core.tables`). In
formulas theta is a ridge estimate of a preference vector, and T its number of rounds.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from typing_extensions import override

from fedbandit_jax.algos.policies.widths import LEAST_RIDGE, Exploration, UserWidth, check_width
from fedbandit_jax.core import control, graph, ridge, struct, tables, validate
from fedbandit_jax.interfaces import ArrivalAlgorithm, Recipe, Spec

RESOLVE = 100  # rounds of a user or agent between two solves; see `own_rows.REFRESH`


class Seats(NamedTuple):
    """The map between users, servers, places and seats; hashable."""

    n_users: int  # n, users
    n_servers: int  # L, servers

    @property
    def per_server(self) -> int:
        """Returns the number P of places on every server."""
        return -(-self.n_users // self.n_servers)

    @property
    def n_seats(self) -> int:
        """The number N = L P of seats on all servers."""
        return self.n_servers * self.per_server

    def find(self, user: Any) -> tuple[Any, Any]:
        """Returns a user's server and place, or L and 0 if the user does not exist."""
        exists = (user >= 0) & (user < self.n_users)
        return jnp.where(exists, user % self.n_servers, self.n_servers), jnp.where(exists, user // self.n_servers, 0)

    def seat(self, user: Any) -> Any:
        """Returns a user's seat, or N if the user does not exist."""
        server, place = self.find(user)
        return server * self.per_server + place

    @property
    def users(self) -> np.ndarray:
        """Returns the seats of all users, (n,) int32."""
        user = np.arange(self.n_users)
        return (user % self.n_servers * self.per_server + user // self.n_servers).astype(np.int32)

    @property
    def taken(self) -> np.ndarray:
        """Returns the mask of places with a user, (L, P) bool."""
        taken = np.zeros(self.n_seats, bool)
        taken[self.users] = True
        return taken.reshape(self.n_servers, self.per_server)

    def heads(self, label: Array) -> Array:
        """Returns which seats (N,) are the smallest of a cluster with users, from labels by seat (N,), each a seat."""
        return (label == jnp.arange(self.n_seats)) & jnp.asarray(self.taken).reshape(-1)

    def of_users(self, label: Array) -> Array:
        """Converts labels by seat (N,), each a user's seat, to labels by user (n,), each a user."""
        server, place = jnp.divmod(label[self.users], self.per_server)
        return place * self.n_servers + server

    def everywhere(self, place: Array) -> Array:
        """Converts labels by server (L, P), each a place on that server, to labels by seat (N,), each a seat."""
        return (place + jnp.arange(self.n_servers, dtype=place.dtype)[:, None] * self.per_server).reshape(-1)

    def at(self, users: UserSums, server: Array) -> UserSums:
        """Returns the sums of the users of one server, with a leading axis P in place of N."""
        return UserSums(*(x.reshape(self.n_servers, self.per_server, *x.shape[1:])[server] for x in users))


class UserSums(NamedTuple):
    """Statistics of every seat's user, from the user's own rounds."""

    sums: Array  # (N, d, d + 1), sum of [x x' | x y]
    counts: Array  # (N,) int32, rounds
    inverse: Array  # (N, d, d), inverse of lambda I + sum x x'
    theta: Array  # (N, d), ridge estimate


@struct.pytree
class SeatedAlgorithm(ArrivalAlgorithm):
    """Base class of algorithms for users on seats, with upper confidence bounds by ridge estimates."""

    width: UserWidth
    regularization: struct.Number  # lambda
    seats: Seats = struct.static()

    def nothing(self, dim: int) -> UserSums:
        """Returns the statistics before the first round."""
        n = self.seats.n_seats
        inverse = jnp.broadcast_to(jnp.eye(dim) / self.regularization, (n, dim, dim))
        return UserSums(jnp.zeros((n, dim, dim + 1)), jnp.zeros(n, jnp.int32), inverse, jnp.zeros((n, dim)))

    def learned(self, users: UserSums, user: Array, x: Array, y: Array) -> UserSums:
        """Returns the statistics after one more round (x (d,), y) of a user, by a rank-one update.

        Every `RESOLVE` rounds of a user the estimate is recomputed from the sums.
        """
        seat = self.seats.seat(user)
        sums, count, inverse, theta = tables.take(users, seat)
        sums, count = sums + row(x, y), count + 1
        inverse, theta = control.cond_any(
            count % RESOLVE == 0, lambda _: estimate(sums, self.regularization)[:2], rank_one(inverse, theta, x, y)
        )
        return tables.put(users, seat, UserSums(sums, count, inverse, theta))

    def at_servers(self, label: Array) -> Array:
        """Returns the clusters (n,) of users, from the clusters (L, P) on each server, as places; none is shared."""
        return self.seats.of_users(self.seats.everywhere(label))

    def bounds(self, contexts: Array, inverse: Array, theta: Array, count: Array) -> Array:
        """Returns the upper confidence bounds (K,) by an estimate from `count` rounds, without noise."""
        return upper_bounds(contexts, inverse, theta, self.width(count, self.regularization, self.regularization))


def together(users: UserSums, members: Array, regularization: Array) -> tuple[ridge.Solution, Array]:
    """Returns the estimate from the sums of the users `members` (P,) bool, and their rounds as float32."""
    sums = jnp.einsum("p,pij->ij", members.astype(users.sums.dtype), users.sums, precision="highest")
    return estimate(sums, regularization), jnp.where(members, users.counts, 0).sum().astype(jnp.float32)


def complete(seats: Seats) -> Array:
    """Returns complete graphs of all servers, (L, P, W) as in `core.graph`."""
    taken = jnp.asarray(seats.taken)
    return jnp.where(taken[:, :, None], graph.pack(taken)[:, None], jnp.uint32(0))


def rank_one(inverse: Array, theta: Array, x: Array, y: Array) -> tuple[Array, Array]:
    """Returns the inverse (d, d) and the estimate (d,) after one more round (x (d,), y)."""
    image = jnp.matmul(inverse, x, precision="highest")
    scale = 1 / (1 + jnp.matmul(image, x, precision="highest"))
    residual = y - jnp.matmul(theta, x, precision="highest")
    return inverse - scale * image[:, None] * image[None], theta + image * (scale * residual)


def estimate(sums: Array, regularization: Array | float) -> ridge.Solution:
    """Returns the ridge estimate from sums (d, d + 1) = [sum x x' | sum x y], with `regularization` times I added."""
    return ridge.solve_one(sums[:, :-1] + regularization * jnp.eye(len(sums)), sums[:, -1])


def row(x: Array, y: Array) -> Array:
    """Returns the summand of one round, [x x' | x y], (d, d + 1)."""
    return x[:, None] * jnp.append(x, y)[None]


def upper_bounds(contexts: Array, inverse: Array, theta: Array, beta: Array) -> Array:
    """Returns the upper confidence bounds <x, theta> + beta sqrt(x' inverse x) of contexts (K, d), (K,)."""
    image = jnp.matmul(contexts, inverse, precision="highest")
    return jnp.matmul(contexts, theta, precision="highest") + beta * jnp.sqrt(jnp.maximum((image * contexts).sum(1), 0))


def differ(theta: Array, f: Array, place: Array, factor: Array) -> Array:
    """Returns the users i with ||theta_i - theta_j|| > factor (f_i + f_j), f = F(T), for user j, (P,) bool."""
    return distance(theta[place], theta) > factor * (f + f[place])


def phase(t: Array) -> Array:
    """Returns the phase s = 1, 2, ... of round t = 0, 1, ... Phase s has 2^s rounds, from round 2^s - 2 on."""
    return 31 - lax.clz(t + 2)


def begins_phase(t: Array) -> Array:
    """Returns whether a phase begins just before round t, as for t = 0, 2, 6, 14, ..."""
    return (t + 2) & (t + 1) == 0


def spread(count: Array) -> Array:
    """Returns F(T) = sqrt((1 + ln(1 + T)) / (1 + T)), the scale of the error of an estimate from T rounds."""
    return jnp.sqrt((1 + jnp.log1p(count)) / (1 + count))


def distance(theta: Array, others: Array) -> Array:
    """Returns the Euclidean distances (...) between theta (d,) and others (..., d)."""
    return jnp.sqrt(((theta - others) ** 2).sum(-1))


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClusteringRecipe(Exploration, Recipe):
    """Base class of recipes for clustering algorithms, with their common parameters.

    Args:
        regularization: lambda >= 1e-5, added to the diagonal of every matrix before a solve.
        failure: failure probability of the bounds behind confidence widths, in [1e-30, 1). They hold if every cluster
            consists of equal users (Lemma 1 of Liu et al. 2022). Before that nothing is proved.
        subgaussian, theta_norm, exploration_scale: as in `UCB`.
        name: label in results; by default the name of the algorithm.

    Raises:
        ValueError: when bound, also if the environment's users are not identified.
    """

    factors: ClassVar[tuple[str, ...]] = ()  # parameters that are factors of a distance: > 0, may be infinite
    bound: ClassVar[Any]  # the class of the bound algorithm, with these factors as fields

    regularization: float = 1.0
    name: str | None = None  # pyright: ignore[reportIncompatibleVariableOverride]

    def __post_init__(self):
        super().__post_init__()
        validate.within("regularization", self.regularization, LEAST_RIDGE, validate.LARGEST_FLOAT)
        for name in self.factors:
            factor = getattr(self, name)
            if not (isinstance(factor, (float, np.floating)) and factor == math.inf):
                validate.single(name, validate.positive(name, factor))
        object.__setattr__(self, "name", validate.text("name", self.label if self.name is None else self.name))

    @override
    def bind(self, spec: Spec, horizon: int) -> Any:
        factors = {name: np.float32(getattr(self, name)) for name in self.factors}
        return self.bound(**factors, **common(spec, self, str(self.name)))


def common(spec: Spec, exploration: Exploration, name: str) -> dict[str, Any]:
    """Returns the fields `regularization`, `width` and `seats` of a bound algorithm for the users of an environment."""
    spec.need_users(name)
    log_term = 2 * math.log(spec.n_users / exploration.failure)
    noise, bias = exploration.subgaussian * math.sqrt(log_term), exploration.theta_norm * math.sqrt(exploration.least)
    check_width(exploration.exploration_scale * (noise + bias))
    fields = exploration.exploration_scale, exploration.subgaussian, log_term, exploration.theta_norm, spec.dim
    return dict(
        regularization=np.float32(exploration.least),
        width=UserWidth(*map(np.float32, fields)),
        seats=Seats(spec.n_users, spec.n_servers),
    )
