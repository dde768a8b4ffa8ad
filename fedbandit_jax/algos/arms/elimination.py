"""Batched successive elimination of arms, private in eight ways (Chowdhury & Zhou 2023; Sajed & Sheffet 2019)."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from fedbandit_jax.algos.arms import radius as radii
from fedbandit_jax.algos.arms.loop import BoundElimination
from fedbandit_jax.core import validate
from fedbandit_jax.interfaces import Recipe, Spec
from fedbandit_jax.privacy.integers.mechanisms import MECHANISMS, IntegerMechanism
from fedbandit_jax.privacy.integers.noise import rounded_up
from fedbandit_jax.privacy.integers.ring import RealSum, SumProtocol

ELIMINATION = {
    "SE": ("none", "none"),
    "DP-SE": ("laplace", "central"),
    "CDP-SE": ("discrete_laplace", "central"),
    "LDP-SE": ("discrete_laplace", "local"),
    "Dist-DP-SE": ("discrete_laplace", "secagg"),
    "Dist-RDP-SE": ("skellam", "secagg"),
    "Dist-CDP-SE": ("discrete_gaussian", "secagg"),
    "Shuffle-DP-SE": ("discrete_laplace", "shuffle"),
}
RADII = ("theory", "exact")


@dataclasses.dataclass(frozen=True, kw_only=True)
class SuccessiveElimination(Recipe):
    """Batched successive elimination: batch b asks growth^b new users of every arm that may still be the best.

    An arm is dropped when its upper confidence bound is below another's lower one. The server learns sums of rewards in
    [0, 1] through a protocol; replacing one user moves one of them by at most 1.

    | name | mechanism, trust | guarantee |
    |---|---|---|
    | SE | none, none | none |
    | DP-SE | laplace, central | epsilon-DP; real-valued noise and epochs of Sajed & Sheffet (2019) |
    | CDP-SE | discrete_laplace, central | epsilon-DP (Theorem 5) |
    | LDP-SE | discrete_laplace, local | epsilon-DP of every message (Theorem 6) |
    | Dist-DP-SE | discrete_laplace, secagg | epsilon-DP (Theorem 1) |
    | Dist-RDP-SE | skellam, secagg | Renyi DP, alpha epsilon^2 / 2 + O(1 / scale) (Theorem 2) |
    | Dist-CDP-SE | discrete_gaussian, secagg | zCDP, rho = epsilon^2 / 2 + O(xi) (Theorem 4) |
    | Shuffle-DP-SE | discrete_laplace, shuffle | epsilon-DP (Theorem 3) |

    Args:
        epsilon: see the table; at most 500; None without privacy.
        mechanism, trust: a row of the table; the pairs are in `fb.algos.ELIMINATION`.
        radius: of the confidence intervals: "theory" (Lemma 2) or "exact", from the law of the noise: narrower, and all
            intervals together hold with probability 1 - 3 `failure`, as Lemma 2 states.
        growth: factor between batch sizes, 2 (Algorithm 1) or more; the authors' code has 4. DP-SE has its own.
        scale: s >= 1, steps per unit in Skellam and discrete Gaussian: less noise for more bits.
        failure: p, of the radii and of the ring; 0.1 in the paper's figures, 1/T in its theorems.
        delta: at which the certificate also states (epsilon, delta).
        messages: False, all users' noise is drawn at once in its law; True, every user draws a share: for audits.
        name: label; default: that of the table, whose names always go with their rows.

    Raises:
        ValueError, TypeError: naming the argument and its value; when bound to an environment, also if integers
            would not fit.

    Example:
        >>> import jax, fedbandit_jax as fb
        >>> env = fb.envs.arms(n_arms=5, instance="easy")
        >>> algo = fb.algos.SuccessiveElimination(epsilon=0.5, mechanism="discrete_laplace", trust="secagg")
        >>> result = fb.simulate(env, algo, horizon=20_000, key=jax.random.key(0), n_seeds=2, stride=1000)
        >>> algo.name, result.certificate.notion, round(result.certificate.epsilon_exact, 3)
        ('Dist-DP-SE', 'pure DP', 0.5)

    Reference: Chowdhury & Zhou (2023), Algorithms 1-7; Sajed & Sheffet (2019), Algorithm 2.
    """

    epsilon: float | None = None
    mechanism: str = "none"
    trust: str = "none"
    radius: str = "theory"
    growth: int = 2
    scale: float = 10.0
    failure: float = 0.1
    delta: float = 1e-6
    messages: bool = False
    name: str | None = None  # pyright: ignore[reportIncompatibleVariableOverride]

    def __post_init__(self):
        pair = self.mechanism, self.trust
        if pair not in [("none", "none"), ("laplace", "central"), *MECHANISMS]:
            pairs = "; ".join(f"{label}: {', '.join(pair)}" for label, pair in ELIMINATION.items())
            raise ValueError(f"mechanism and trust must be one of fb.algos.ELIMINATION, {pairs}; got {pair!r}")
        if self.mechanism == "none":
            if self.epsilon is not None:
                raise ValueError(f"epsilon must be None with mechanism='none', got {self.epsilon!r}")
        else:
            validate.within("epsilon", validate.positive("epsilon", self.epsilon), 1e-9, 500)
        validate.one_of("radius", self.radius, RADII)
        if self.mechanism == "laplace" and self.radius != "theory":
            raise ValueError(f"radius must be 'theory' for DP-SE, which has its own, got {self.radius!r}")
        validate.within("growth", validate.integer("growth", self.growth, at_least=2), 2, 1024)
        validate.within("scale", self.scale, 1, 2**24)
        validate.within("failure", validate.positive("failure", self.failure), 0, 0.3)
        validate.probability("delta", self.delta)
        if validate.boolean("messages", self.messages) and self.mechanism in ("none", "laplace"):
            raise ValueError(f"messages must be False where users add nothing to their rewards, got {self.messages}")
        if self.name is None or self.name in ELIMINATION:
            label = next((label for label, row in ELIMINATION.items() if row == pair), " ".join(pair))
            object.__setattr__(self, "name", label)

    def parameters(self) -> tuple[str, ...]:
        """Without noise, none that shape it: a grid over epsilon leaves SE as it is."""
        shaping = ("epsilon", "scale", "delta", "messages") if self.epsilon is None else ()
        return tuple(name for name in super().parameters() if name not in shaping)

    def bind(self, spec: Spec, horizon: int) -> BoundElimination:
        """Batch sizes, protocol and radii, checked to fit their machine words."""
        n_arms = spec.n_arms
        if n_arms < 2:
            raise ValueError(f"{self.name} needs at least two arms, the environment has {n_arms}")
        if horizon < n_arms:
            raise ValueError(f"horizon must be at least the number of arms {n_arms}, got {horizon}")
        sizes = _batches(self.growth, horizon)
        users, radius = np.tile(sizes[:, None], n_arms + 1), None
        if self.mechanism == "laplace" and self.epsilon is not None:
            users, radius = radii.epochs(self.epsilon, self.failure, n_arms, horizon)
        # A batch may be asked if two arms are left and their users fit, and if anything was asked before.
        fits = (2 * np.cumsum(users[:, 2]) <= horizon) & (n_arms * users[0, n_arms] <= horizon)
        users = np.minimum(users, min(horizon, 2**31 - 1)).astype(np.int32)
        mechanism = self._mechanism(n_arms * len(sizes), horizon)
        protocol = self._protocol(mechanism, np.where(fits, users[:, n_arms], 0))
        return BoundElimination(
            users=users,
            radius=(self._radii(mechanism, sizes, n_arms) if radius is None else radius).astype(np.float32),
            protocol=protocol,
            epsilon=math.inf if self.epsilon is None else float(self.epsilon),
            delta=float(self.delta),
            users_return=spec.n_users > 0,
            round_robin=self.mechanism == "laplace",
        )

    def _mechanism(self, n_sums: int, horizon: int) -> IntegerMechanism | None:
        """None where no integers are sent.

        DEVIATION chowdhury2023 Thms 1-6: tau is for p / 100 K S, so that with probability 1 - p / 100 none of K S sums
        wraps. The printed p for every sum breaks Lemma 2's union bound, and loses best arms of mean near 0 or 1.
        """
        if (self.mechanism, self.trust) not in MECHANISMS or self.epsilon is None:
            return None
        made = MECHANISMS[self.mechanism, self.trust]
        return made(self.epsilon, self.scale, self.failure / (100 * n_sums), horizon)

    def _protocol(self, mechanism: IntegerMechanism | None, asked: np.ndarray) -> SumProtocol:
        """For batches of so many users, (S,)."""
        if mechanism is not None:
            return mechanism.sums(asked.tolist(), messages=self.messages)
        scale = 0.0 if self.epsilon is None else float(rounded_up(1 / self.epsilon))
        return RealSum(scale=scale, users=asked, bits=np.full(len(asked), 32.0, np.float32))

    def _radii(self, mechanism: IntegerMechanism | None, sizes: np.ndarray, n_arms: int) -> np.ndarray:
        """Of the confidence intervals (S, K + 1)."""
        users, p = [int(n) for n in sizes], self.failure
        if self.radius == "theory":
            s, h = (0.0, 0.0) if mechanism is None else mechanism.tail_constants(sizes)
            return radii.theory(sizes, s, h, n_arms=n_arms, p=p)
        if mechanism is None:
            return radii.exact(sizes, [None] * len(sizes), 1, n_arms=n_arms, p=p)
        noise = mechanism.noise(users)  # what wraps, is lost or is not quite of its law counts as outside
        wrong = n_arms * len(sizes) * (mechanism.wrapping + float(mechanism.aggregation.failure))
        p = (p - wrong / 3) * math.exp(-max(noise.distortion(k, n) for k, n in enumerate(users)))
        if p <= 0:
            raise ValueError(f"failure must be larger with radius='exact' and so few users, got {self.failure}")
        laws, steps = [noise.law(k, n) for k, n in enumerate(users)], [mechanism.steps(n) for n in users]
        return radii.exact(sizes, laws, steps, n_arms=n_arms, p=p)


def _batches(growth: int, horizon: int) -> np.ndarray:
    """l(b) = growth^b, but no more than T, so many that they reach the horizon with one arm (line 4)."""
    sizes = [growth]
    while sum(sizes) < horizon:
        sizes.append(sizes[-1] * growth)
    return np.minimum(np.array(sizes, float), horizon)
