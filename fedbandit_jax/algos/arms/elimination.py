"""Batched successive elimination of arms: SE, and eight private variants.

Reference: Chowdhury & Zhou (2023), Algorithms 1-7; Sajed & Sheffet (2019), Algorithm 2.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, ClassVar

import numpy as np
from typing_extensions import override

from fedbandit_jax.algos.arms import radius as radii
from fedbandit_jax.algos.arms.loop import BoundElimination
from fedbandit_jax.core import validate
from fedbandit_jax.core.padding import padded, room
from fedbandit_jax.core.validate import BadValue
from fedbandit_jax.interfaces import Recipe, Spec
from fedbandit_jax.privacy import compatibility
from fedbandit_jax.privacy.compatibility import Tags, tagged
from fedbandit_jax.privacy.integers import noise
from fedbandit_jax.privacy.integers.bits import FlippedBits, FlippedSum, stretch
from fedbandit_jax.privacy.integers.noise import Asked, Noise
from fedbandit_jax.privacy.integers.proof import epsilon_of_each
from fedbandit_jax.privacy.integers.ring import FINE, MAX_WIDTH, RingSum, on_grid
from fedbandit_jax.privacy.tails import check_delta
from fedbandit_jax.privacy.users import Users

DELTA = 1e-6  # default delta of certificates
RADII = ("theory", "exact")  # how confidence radii are computed
STAGES = ("rewards", "messages")  # what corrupted users replace
WIDTH = 2.0**12  # width of the noise of `DPSE` in steps, if 1 to 2^24 steps per unit allow it


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Elimination(Recipe):
    """Base class: pulls active arms in batches, and drops arms with confidence intervals below another one.

    Args:
        failure: p in (0, 0.3], the failure probability of the confidence radii, and of sums that wrap around the ring
            of integers modulo m. The paper takes 0.1 in its figures, and 1/T in its theorems.
        name: label in results; None: the name of the paper.
    """

    failure: float = 0.1
    name: str | None = None  # pyright: ignore[reportIncompatibleVariableOverride]

    def __post_init__(self):
        validate.within("failure", validate.positive("failure", self.failure), 0, 0.3)
        object.__setattr__(self, "name", validate.text("name", self.title if self.name is None else self.name))

    def promised(self, protocol: RingSum) -> dict[str, Any]:
        """Returns the fields of a `SumLoop` about privacy."""
        return dict(epsilon=math.inf, delta=DELTA)

    def bound(
        self, spec: Spec, protocol: RingSum, users: np.ndarray, radius: np.ndarray, **more: Any
    ) -> dict[str, Any]:
        """Returns the fields of a `BoundElimination` with tables (S, K + 1) of users and radii."""
        fields = dict(n_batches=len(users), users=padded(users), radius=padded(radius.astype(np.float32)))
        return self.promised(protocol) | fields | dict(protocol=protocol, spec=spec, round_robin=False) | more


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Private(_Elimination):
    """Base class of private variants.

    The privacy unit is one user, with one contribution, or as many as `unit` allows. Adjacency is replacement of the
    user's rewards by any others in [0, 1]. It moves every sum with the user in it by at most 1 (the sensitivity).

    Args:
        epsilon: privacy parameter in [1e-9, 500].
        delta: the delta in (0, 1) at which the certificate states (epsilon, delta), besides the guarantee of the paper.
            The far tails of the noise are never drawn, and count against delta. At 1e-6 nothing is claimed from epsilon
            = 47 on, or from 8 on without pure DP; see `Certificate.smallest_delta`.
        unit: `fb.privacy.Users(visits=r, per_batch=1)`: `epsilon` is for all contributions of one user, at most r, to
            different batches. Every sum has the noise of its share of epsilon. If the environment identifies users, as
            `fb.envs.returning` does, further contributions are left out. Then the user's device sends a reward of 0
            with its share of the noise. Means and radii count the rewards that entered. None: each interaction is
            protected by itself.
    """

    pure: ClassVar[bool] = True  # whether the guarantee of one sum is pure DP

    epsilon: float = dataclasses.field(kw_only=False)
    delta: float = DELTA
    unit: Users | None = None

    def __post_init__(self):
        super().__post_init__()
        validate.within("epsilon", validate.positive("epsilon", self.epsilon), 1e-9, 500)
        validate.probability("delta", self.delta)
        if self.unit is not None:
            validate.instance("unit", self.unit, Users, "an fb.privacy.Users")
            compatibility.check(self.tags)
            validate.within("epsilon", self.of_sum, 1e-9, 500)

    @property
    def tags(self) -> Tags:
        """Returns its tags for `privacy.compatibility`."""
        several = self.unit is not None and (self.unit.most > 1 or self.unit.counts > 1)
        return tagged("unit", self.unit, {"several visits to a batch": several}) | tagged(
            "algorithm", self.title, {"sums of arms": True}
        )

    @property
    def of_sum(self) -> float:
        """Returns the epsilon of one of the sums that a user is in."""
        return self.epsilon if self.unit is None else epsilon_of_each(self.epsilon, self.unit.visits, self.pure)

    @override
    def promised(self, protocol: RingSum) -> dict[str, Any]:
        check_delta(self.delta, protocol.missing)
        return dict(epsilon=float(self.epsilon), delta=float(self.delta), unit=self.unit)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SE(_Elimination):
    """Successive elimination without privacy: batch b pulls each active arm by growth^b new users.

    After a batch, an arm is dropped if its upper confidence bound is below another arm's lower confidence bound. The
    server learns one sum of rewards in [0, 1] per active arm and batch. The private variants below add noise to it.

    Args:
        radius: how confidence radii are computed: "theory", by Lemma 2, or "exact", from the distribution of the noise.
            Exact radii are narrower: all intervals together hold with probability 1 - 3 `failure`, as Lemma 2 states.
        growth: integer factor in [2, 1024] between the sizes of successive batches. The authors' code uses 4.

    Raises:
        ValueError: when bound, also if there are fewer than two arms or fewer users than arms, or integers would not
            fit their machine words.

    Example:
        >>> import fedbandit_jax as fb
        >>> env = fb.envs.arms(n_arms=5, instance="easy")
        >>> algo = fb.algos.DistDPSE(0.5)
        >>> certificate = algo.certificate(env.spec, horizon=20_000)
        >>> algo.name, certificate.notion, round(certificate.epsilon_exact, 3)
        ('Dist-DP-SE', 'pure DP', 0.5)
    """

    title: ClassVar[str] = "SE"
    law: ClassVar[type[Noise] | None] = None  # the integer noise; None without privacy

    radius: str = "theory"
    growth: int = 2

    def __post_init__(self):
        super().__post_init__()
        validate.one_of("radius", self.radius, RADII)
        validate.within("growth", validate.integer("growth", self.growth, at_least=2), 2, 1024)

    def asked(self, n_sums: int, horizon: int) -> Asked:
        """Returns what the noise of at most `n_sums` = K S sums is made for."""
        # DEVIATION chowdhury2023 Thms 1, 2, 4, 5, 6: the margin tau of the ring is computed for a probability of
        # p / (100 K S) per sum, so that with probability 1 - p / 100 none of the K S sums wraps around. The p that is
        # printed for every single sum breaks Lemma 2's union bound, and loses best arms whose mean is near 0 or 1.
        # Theorem 3 (shuffling) has 1 / (2 T) per sum, as printed.
        epsilon = self.of_sum if isinstance(self, _Private) else math.inf
        return Asked(epsilon, getattr(self, "scale", 1.0), self.failure / (100 * n_sums), horizon)

    def protocol(self, asked: Asked, users: np.ndarray) -> RingSum:
        """Returns the protocol for batches of `users` (S,) per arm; 0 means that a batch is never asked."""
        return on_grid(users, FINE, scale=0.0) if self.law is None else RingSum.of(self.law, asked, users.tolist())

    def scales(self, asked: Asked, sizes: np.ndarray) -> tuple[Any, Any]:
        """Returns s and h of Lemma 2 for every batch, in units of reward."""
        if self.law is None:
            return 0.0, 0.0
        rows = [self.law.parameters(asked, int(n)) for n in sizes]
        return np.array([row.s for row in rows]), np.array([row.h for row in rows])

    def radii(self, asked: Asked, sizes: np.ndarray, n_arms: int) -> np.ndarray:
        """Returns the confidence radii (S, K + 1), by batch and by the number of active arms."""
        law, users, p = self.law, [int(n) for n in sizes], self.failure
        if self.radius == "theory":
            return radii.theory(sizes, *self.scales(asked, sizes), n_arms=n_arms, p=p)
        if law is None:
            return radii.exact(sizes, [None] * len(sizes), 1, n_arms=n_arms, p=p)
        rows = [law.parameters(asked, n) for n in users]
        # A sum that wraps around or is lost counts as outside its interval, and so does the distance of the noise from
        # the law that radii are computed from: `failure` is lowered by as much.
        made = law.made(asked, users)
        wrong = n_arms * len(sizes) * (rows[0].wrapping + float(made.bits_failure))
        p = (p - wrong / 3) * math.exp(-max(made.distortion(k, n) for k, n in enumerate(users)))
        if p <= 0:
            raise BadValue("failure", "must be larger with radius='exact' and so few users", self.failure)
        laws, steps = [made.law(k, n) for k, n in enumerate(users)], [row.steps for row in rows]
        return radii.exact(sizes, laws, steps, n_arms=n_arms, p=p)

    @override
    def bind(self, spec: Spec, horizon: int) -> BoundElimination:
        check_arms(str(self.name), spec.n_arms, horizon)
        sizes = batches(self.growth, horizon)
        users, asked = fitting(np.tile(sizes[:, None], spec.n_arms + 1), horizon)
        made_for = self.asked(spec.n_arms * len(sizes), horizon)
        protocol, radius = self.protocol(made_for, asked), self.radii(made_for, sizes, spec.n_arms)
        return BoundElimination(**self.bound(spec, protocol, users, radius))


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Integers(SE, _Private):
    """Base class of variants that add integer noise to integer rewards, modulo m."""


class CDPSE(_Integers):
    """CDP-SE: a trusted server adds discrete Laplace noise to every sum; epsilon-DP (Theorem 5)."""

    title, law = "CDP-SE", noise.ServerNoise


class LDPSE(_Integers):
    """LDP-SE: every user adds all of the noise to their own message; epsilon-DP of every message (Theorem 6)."""

    title, law = "LDP-SE", noise.LocalNoise


@dataclasses.dataclass(frozen=True, kw_only=True)
class RRSE(_Integers):
    """RR-SE: every user rounds their reward to one bit, and flips it by chance; epsilon-DP of every message.

    This is randomised response (Warner 1965) in the elimination of Chowdhury & Zhou (2023), and ours. Trust model:
    local. Adjacency is replacement of one user's reward by any other finite number. A bit is flipped with probability q
    = 1 / (1 + e^epsilon), and radii are Hoeffding's for bits, over 1 - 2 q. A message is bounded: a corrupted user
    moves a mean over n users by at most (e^epsilon + 1) / (e^epsilon - 1) / n.

    Args:
        corrupted: what corrupted users replace, who have infinite rewards (`fb.envs.contaminate`): their "rewards",
            before their bit is flipped, or their "messages". Then their bit is not flipped, and they are not protected.
    """

    title, law = "RR-SE", FlippedBits

    corrupted: str = "rewards"

    def __post_init__(self):
        super().__post_init__()
        validate.one_of("corrupted", self.corrupted, STAGES)

    @property
    def stretch(self) -> float:
        """Returns 1 / (1 - 2 q), the largest move of a sum by one message."""
        return stretch(FlippedBits.parameters(self.asked(1, 1), 1).size)

    @override
    def protocol(self, asked: Asked, users: np.ndarray) -> RingSum:
        made = FlippedSum.of(FlippedBits, asked, users.tolist())
        return dataclasses.replace(made, cheats=self.corrupted == "messages")

    @override
    def radii(self, asked: Asked, sizes: np.ndarray, n_arms: int) -> np.ndarray:
        return self.stretch * SE(radius=self.radius, failure=self.failure).radii(asked, sizes, n_arms)  # of bits


class DistDPSE(_Integers):
    """Dist-DP-SE: users add shares of discrete Laplace noise under secure aggregation; epsilon-DP (Theorem 1)."""

    title, law = "Dist-DP-SE", noise.PolyaNoise


class ShuffleDPSE(_Integers):
    """Shuffle-DP-SE: users add shares of discrete Laplace noise, and a trusted shuffler mixes their bits.

    The guarantee is epsilon-DP (Theorem 3).
    """

    title, law = "Shuffle-DP-SE", noise.ShuffledNoise


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Scaled(_Integers):
    """Base class of variants with noise on a grid of adjustable steps.

    Args:
        scale: s in [1, 2^24]: a larger s rounds rewards to a finer grid, with less noise and more bits.
    """

    pure: ClassVar[bool] = False

    scale: float = 10.0

    def __post_init__(self):
        super().__post_init__()
        validate.within("scale", self.scale, 1, 2**24)


class DistRDPSE(_Scaled):
    """Dist-RDP-SE: users add shares of Skellam noise under secure aggregation.

    The guarantee is Renyi DP, alpha epsilon^2 / 2 + O(1 / scale) (Theorem 2).
    """

    title, law = "Dist-RDP-SE", noise.SkellamNoise


class DistCDPSE(_Scaled):
    """Dist-CDP-SE: users add shares of discrete Gaussian noise under secure aggregation.

    The guarantee is zCDP, rho = epsilon^2 / 2 + O(xi) (Theorem 4).
    """

    title, law = "Dist-CDP-SE", noise.GaussianNoise


class DPSE(_Private):
    """DP-SE: a trusted server adds Laplace noise to every sum, in the epochs of Sajed & Sheffet (2019).

    The guarantee is epsilon-DP. Batch sizes and confidence radii are those of Algorithm 2 there. DEVIATION sajed2019
    Alg. 2: noise is drawn on a grid. Rewards are rounded to it without bias. The low digits of real-valued noise in
    floating point would tell neighbours apart.
    """

    title = "DP-SE"

    def protocol(self, asked: np.ndarray) -> RingSum:
        """Returns the protocol for batches of `asked` (S,) users per arm; 0 means that a batch is never asked."""
        steps = 2 ** min(max(math.floor(math.log2(WIDTH * self.of_sum)), 0), 24)
        scale = float(noise.rounded_up(steps / self.of_sum))
        if scale > MAX_WIDTH:
            raise BadValue("epsilon", "must be at least 2^-25 for integer noise of 32 bits", self.of_sum)
        return on_grid(asked, steps, scale)

    @override
    def bind(self, spec: Spec, horizon: int) -> BoundElimination:
        check_arms(str(self.name), spec.n_arms, horizon)
        sizes, radius = radii.epochs(self.of_sum, self.failure, spec.n_arms, horizon)
        users, asked = fitting(sizes, horizon)
        return BoundElimination(**self.bound(spec, self.protocol(asked), users, radius, round_robin=True))


@dataclasses.dataclass(frozen=True, kw_only=True)
class OfSums(Recipe):
    """Base class of recipes that take their noise and trust model from a successive elimination.

    Args:
        sums: a variant of successive elimination, except `DPSE`. The default has no privacy.
        name: label in results.
    """

    sums: SE = dataclasses.field(default=SE(), kw_only=False)

    def __post_init__(self):
        validate.instance("sums", self.sums, SE, "an fb.algos.SE, or a private variant other than DPSE")
        compatibility.check(self.tags)
        validate.text("name", self.name)

    @property
    def tags(self) -> Tags:
        """Returns its tags for `privacy.compatibility`."""
        unit = getattr(self.sums, "unit", None)
        return tagged("unit", unit, {"unit of returning users": unit is not None})


def batches(growth: int, horizon: int) -> np.ndarray:
    """Returns sizes l(b) = growth^b, at most T, of the batches that one arm needs to reach T (Algorithm 1, l. 4)."""
    sizes = [growth]
    while sum(sizes) < horizon:
        sizes.append(sizes[-1] * growth)
    return np.minimum(np.array(sizes, float), horizon)


def slots(users: np.ndarray) -> np.ndarray:
    """Returns numbers of users (S,) as int32, with zeros for padding."""
    return np.pad(users.astype(np.int32), (0, room(len(users)) - len(users)))


def fitting(sizes: np.ndarray, horizon: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the users of an arm (S, K + 1), and the most per batch, 0 if a batch is never asked."""
    n_arms = sizes.shape[1] - 1
    # Batch b is possible if two arms of every batch up to it fit into the horizon, and all K arms of the first batch.
    fits = (2 * np.cumsum(sizes[:, 2]) <= horizon) & (n_arms * sizes[0, n_arms] <= horizon)
    users = np.minimum(sizes, horizon).astype(np.int32)
    return users, slots(np.where(fits, users[:, n_arms], 0))


def check_arms(name: str, n_arms: int, horizon: int) -> None:
    """Checks that there are two arms or more, and a user for each."""
    if n_arms < 2:
        raise BadValue("n_arms", f"must be at least 2 for {name}", n_arms)
    if horizon < n_arms:
        raise BadValue("horizon", f"must be at least the number of arms {n_arms}", horizon)
