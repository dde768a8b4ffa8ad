"""Batched successive elimination of arms, private in eight ways (Chowdhury & Zhou 2023; Sajed & Sheffet 2019)."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from fedbandit_jax.algos.arms import _radius
from fedbandit_jax.algos.arms._certify_sums import certify, certify_laplace, nothing_asked
from fedbandit_jax.algos.arms._elimination import BoundElimination
from fedbandit_jax.certificate import Certificate, no_privacy
from fedbandit_jax.core import validate
from fedbandit_jax.interfaces import Algorithm, Spec
from fedbandit_jax.privacy.integers.mechanisms import MAX_SCALE, MECHANISMS, Mechanism
from fedbandit_jax.privacy.integers.ring import MAX_MESSAGE, MAX_MODULUS, MAX_STEPS, RealSum

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
class SuccessiveElimination(Algorithm):
    """See `successive_elimination`."""

    name: str
    epsilon: float | None
    mechanism: str
    trust: str
    radius: str
    growth: int
    scale: float
    failure: float
    delta: float
    messages: bool

    def parameters(self) -> tuple[str, ...]:
        """All but what names the algorithm; without privacy, what has nothing to do with it."""
        private = ("epsilon", "scale", "delta", "messages") if self.epsilon is None else ()
        return tuple(name for name in super().parameters() if name not in ("mechanism", "trust", *private))

    def replace(self, **changes) -> SuccessiveElimination:
        """Checked copy."""
        unknown = set(changes) - set(self.parameters())
        if unknown:
            raise TypeError(f"{self.name} has no parameter {', '.join(sorted(unknown))}")
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return successive_elimination(**{**fields, **changes})

    def bind(self, spec: Spec, horizon: int) -> BoundElimination:
        """Batch sizes, radii and rings, checked to fit their machine words."""
        users, mechanism = self._users(spec, horizon), self._mechanism(spec, horizon)
        asked = self._asked(users, horizon)
        sizes = [int(n) for n in np.minimum(users[:, 2], max(asked, default=2))]  # longer batches are never asked
        if mechanism is None:
            scale = 0.0 if self.epsilon is None else 1 / self.epsilon
            protocol = RealSum(scale=scale, bits=np.full(len(users), 32.0, np.float32))
        else:
            _check_ring(self, mechanism, asked)
            protocol = mechanism.sums(sizes, messages=self.messages)
        return BoundElimination(
            users=np.minimum(users, min(horizon, 2**31 - 1)).astype(np.int32),
            radius=self._radii(mechanism, spec, horizon).astype(np.float32),
            protocol=protocol,
            round_robin=self.mechanism == "laplace",
            n_batches=len(users),
        )

    def certificate(self, spec: Spec, horizon: int) -> Certificate:
        """Over all batches that can end before the horizon with two arms left."""
        users, mechanism = self._users(spec, horizon), self._mechanism(spec, horizon)
        asked = self._asked(users, horizon)
        if self.epsilon is None:
            return no_privacy("the algorithm adds no noise")
        if spec.n_arms * users[0, spec.n_arms] > horizon:
            return nothing_asked(horizon, spec.n_arms)
        if mechanism is None:
            return certify_laplace(self.epsilon, asked, self.delta)
        _check_ring(self, mechanism, asked)
        return certify(mechanism, tuple(asked), self.delta)

    def _users(self, spec: Spec, horizon: int) -> np.ndarray:
        """Users of an arm (S, K + 1), by batch and number of arms left."""
        if spec.n_arms < 2:
            raise ValueError(f"{self.name} needs at least two arms, the environment has {spec.n_arms}")
        if horizon < spec.n_arms:
            raise ValueError(f"horizon must be at least the number of arms {spec.n_arms}, got {horizon}")
        if self.mechanism == "laplace" and self.epsilon is not None:
            return _epochs(self.epsilon, self.failure, spec.n_arms, horizon)[0]
        return np.tile(_batches(self.growth, horizon)[:, None], spec.n_arms + 1)

    def _asked(self, users: np.ndarray, horizon: int) -> list[int]:
        """Users per arm of the batches that may be asked: two arms are left, and their users fit."""
        ends = 2 * np.cumsum(users[:, 2])
        return [int(n) for n in users[ends <= horizon, 2]]

    def _mechanism(self, spec: Spec, horizon: int) -> Mechanism | None:
        """None where no integers are sent.

        DEVIATION chowdhury2023 Thms 1-6: tau is for p / 100 K S, so that with probability 1 - p / 100 none of K S sums
        wraps. The printed p for every sum breaks Lemma 2's union bound, and loses best arms of mean near 0 or 1.
        """
        if self.mechanism in ("none", "laplace") or self.epsilon is None:
            return None
        if (self.mechanism, self.trust) not in MECHANISMS:
            raise ValueError(
                f"mechanism and trust must be in fb.privacy.MECHANISMS, got {self.mechanism}, {self.trust}"
            )
        made = MECHANISMS[self.mechanism, self.trust]
        sums = spec.n_arms * len(_batches(self.growth, horizon))
        return made(self.epsilon, self.scale, self.failure / (100 * sums), horizon)

    def _radii(self, mechanism: Mechanism | None, spec: Spec, horizon: int) -> np.ndarray:
        """Of the confidence intervals (S, K + 1)."""
        if self.mechanism == "laplace" and self.epsilon is not None:
            return _epochs(self.epsilon, self.failure, spec.n_arms, horizon)[1]
        sizes, n_arms = _batches(self.growth, horizon), spec.n_arms
        if self.radius == "theory":
            s, h = (0.0, 0.0) if mechanism is None else mechanism.tail_constants(sizes)
            return _radius.theory(sizes, s, h, n_arms=n_arms, p=self.failure)
        laws = [None if mechanism is None else mechanism.law(int(n)) for n in sizes]
        steps = [1 if mechanism is None else mechanism.steps(int(n)) for n in sizes]
        p = self.failure
        if mechanism is not None:  # what wraps, is lost or is not quite of this law counts as outside
            wrong = mechanism.wrapping + max(mechanism.lost(int(n)) for n in sizes)
            p = (p - n_arms * len(sizes) * wrong / 3) * math.exp(-max(mechanism.distortion(int(n)) for n in sizes))
        if p <= 0:
            raise ValueError(f"failure must be larger with radius='exact' and so few users, got {self.failure}")
        return _radius.exact(sizes, laws, steps, n_arms=n_arms, p=p)


def _batches(growth: int, horizon: int) -> np.ndarray:
    """l(b) = growth^b, but no more than T, so many that they reach the horizon with one arm (line 4)."""
    sizes = [growth]
    while sum(sizes) < horizon:
        sizes.append(sizes[-1] * growth)
    return np.minimum(np.array(sizes, float), horizon)


def _epochs(epsilon: float, p: float, n_arms: int, horizon: int) -> tuple[np.ndarray, np.ndarray]:
    """Sizes and radii (S, K + 1) of Sajed & Sheffet (2019), Algorithm 2, by epoch and number of arms left.

    As many epochs as without noise reach the horizon with one arm, so that all epsilon have tables of one shape.
    """
    arms = np.maximum(np.arange(n_arms + 1), 1)
    sizes, radii, reached = [], [], 0.0
    while reached < horizon:
        epoch = len(sizes) + 1
        gap, sampling, noise = 2.0**-epoch, np.log(8 * arms * epoch**2 / p), np.log(4 * arms * epoch**2 / p)
        without_noise = 32 * sampling / gap**2
        size = np.floor(np.maximum(without_noise, 8 * noise / (epsilon * gap))) + 1
        reached += without_noise[1]
        sizes.append(size)
        radii.append(np.sqrt(sampling / (2 * size)) + noise / (epsilon * size))
    return np.array(sizes), np.array(radii)


def _check_ring(algo: SuccessiveElimination, mechanism: Mechanism, sizes: list[int]) -> None:
    """Do all numbers fit?"""
    n = max(sizes, default=1)
    got = f"got epsilon = {algo.epsilon:g}, scale = {algo.scale:g} and batches of up to {n:,} users"
    steps, modulus = mechanism.steps(n), mechanism.modulus(n)
    spread = max(mechanism.steps(size) for size in (min(sizes, default=1), n)) / mechanism.noise_epsilon
    if steps > MAX_STEPS:
        raise ValueError(f"epsilon, scale or horizon must be smaller: {steps:,} steps a reward, at most 2^24; {got}")
    if modulus > (most := MAX_MESSAGE if algo.messages else MAX_MODULUS):
        raise ValueError(f"scale or horizon must be smaller: a ring of {modulus:,} integers, at most {most:,}; {got}")
    if algo.messages and n > mechanism.max_shares:
        most = f"{mechanism.max_shares:,.0f} users share noise at most"
        raise ValueError(f"horizon must be shorter with messages=True: {most}; {got}")
    if spread > MAX_SCALE:
        raise ValueError(f"epsilon must be larger: noise of scale {spread:,.0f} steps, at most 2^25; {got}")


def _name(mechanism: str, trust: str) -> str | None:
    """That of the table."""
    return next((label for label, pair in ELIMINATION.items() if pair == (mechanism, trust)), None)


def successive_elimination(
    *,
    epsilon: float | None = None,
    mechanism: str = "none",
    trust: str = "none",
    radius: str = "theory",
    growth: int = 2,
    scale: float = 10.0,
    failure: float = 0.1,
    delta: float = 1e-6,
    messages: bool = False,
    name: str | None = None,
) -> SuccessiveElimination:
    """Batched successive elimination: batch b asks growth^b new users of every arm that may still be the best.

    An arm is dropped when its upper confidence bound is below another's lower one. The server learns sums of rewards in
    [0, 1] through a protocol; replacing one user moves one of them by at most 1. Users do not return.

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
        name: label; default: that of the table.

    Raises:
        ValueError, TypeError: naming the argument and its value; when bound to an environment, also if integers
            would not fit.

    Example:
        >>> import jax, fedbandit_jax as fb
        >>> env = fb.envs.arms(n_arms=5, instance="easy")
        >>> algo = fb.algos.successive_elimination(epsilon=0.5, mechanism="discrete_laplace", trust="secagg")
        >>> result = fb.simulate(env, algo, horizon=20_000, key=jax.random.key(0), n_seeds=2, stride=1000)
        >>> algo.name, result.certificate.notion, round(result.certificate.epsilon_exact, 3)
        ('Dist-DP-SE', 'pure DP', 0.5)

    Reference: Chowdhury & Zhou (2023), Algorithms 1-7; Sajed & Sheffet (2019), Algorithm 2.
    """
    if name is None:
        name = _name(mechanism, trust)
    if name is None:
        pairs = "; ".join(f"{label}: {', '.join(pair)}" for label, pair in ELIMINATION.items())
        raise ValueError(
            f"mechanism and trust must be one of fb.algos.ELIMINATION, {pairs}; got {mechanism!r}, {trust!r}"
        )
    if mechanism == "none":
        if epsilon is not None:
            raise ValueError(f"epsilon must be None with mechanism='none', got {epsilon!r}")
    else:
        epsilon = validate.within("epsilon", validate.positive("epsilon", epsilon), 1e-9, 500)
    validate.one_of("radius", radius, RADII)
    if mechanism == "laplace" and radius != "theory":
        raise ValueError(f"radius must be 'theory' for DP-SE, which has its own, got {radius!r}")
    validate.within("growth", validate.integer("growth", growth, at_least=2), 2, 1024)
    validate.within("scale", scale, 1, 2**24)
    validate.within("failure", validate.positive("failure", failure), 0, 0.3)
    validate.probability("delta", delta)
    if validate.boolean("messages", messages) and mechanism in ("none", "laplace"):
        raise ValueError(f"messages must be False where users add nothing to their rewards, got {messages}")
    return SuccessiveElimination(
        name=name,
        epsilon=epsilon,
        mechanism=mechanism,
        trust=trust,
        radius=radius,
        growth=growth,
        scale=scale,
        failure=failure,
        delta=delta,
        messages=messages,
    )
