"""How much noise a budget needs, and what a given noise really proves. Host-side, never optimistic."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

from fedbandit_jax.core import validate
from fedbandit_jax.privacy import releases
from fedbandit_jax.privacy.accounting import gaussian_epsilon
from fedbandit_jax.privacy.accounting.events import ApproximateDP, Event, Gaussian
from fedbandit_jax.privacy.budget import Budget
from fedbandit_jax.privacy.trust import _calibrators
from fedbandit_jax.privacy.trust._calibrators import LEMMA, Answer, Ask
from fedbandit_jax.privacy.trust.protocols import Central, Local, Protocol, SiloLocal, SiloLocalMatrix

METHODS = ("tight", "theorem", "released")


class Trust(NamedTuple):
    """A trust model: who adds the noise, and what it works with. Entered in `TRUST`, one of your own works like ours:
    its calibrator turns an `Ask` (what is wanted, checked) into an `Answer` (sigma, true epsilon, protocol).
    """

    sentence: str
    calibrator: Callable[[Ask], Answer]
    releases: tuple[str, ...] | None  # names; None: all
    methods: tuple[str, ...]
    needs: tuple[str, ...]  # arguments of `calibrate`
    whose: str  # noise sigma is
    assumes: tuple[str, ...] = ()  # what is not covered beside what no trust model covers
    why: str = ""  # other releases are refused
    any_schedule: bool = False  # does the proof hold for batches of any length that end whenever a schedule says?


_SHUFFLE = "a shuffler amplifies plain sums over disjoint batches of all silos: a tree's nodes, sent as they are"
TRUST = {
    "silo_local": Trust(
        "silo-local: each silo adds its own noise, server and other silos are not trusted",
        _calibrators.silo_local,
        None,
        METHODS,
        (),
        "of a silo's message",
        any_schedule=True,
    ),
    "silo_local_matrix": Trust(
        "silo-local: each silo adds its own noise to the joint matrix of features and rewards, server and other silos "
        "are not trusted",
        _calibrators.silo_local_matrix,
        None,
        ("tight", "theorem"),
        (),
        "of a silo's message, sqrt 2 of it on the diagonal",
        any_schedule=True,
    ),
    "shuffle_amplified": Trust(
        "shuffle: each silo adds its own noise, a trusted shuffler hides whose message is whose, the server is not "
        "trusted",
        _calibrators.shuffle_amplified,
        ("tree",),
        METHODS,
        ("n_agents", "batch"),
        "of a silo's message",
        ("silos that show the server their own messages, or send none",),
        _SHUFFLE,
    ),
    "shuffle_vector_sum": Trust(
        "shuffle: each silo keeps its users' statistics and sends noisy bits for every one of them, in every tree node "
        "she is in; a trusted shuffler mixes the bits of all silos, the server is not trusted",
        _calibrators.shuffle_vector_sum,
        ("tree",),
        METHODS,
        ("n_agents", "batch", "dim"),
        "of the sum over silos",
        ("silos that show the server their own bits, or send none: the noise is that of all users together",),
        _SHUFFLE,
    ),
    "secagg": Trust(
        "secure aggregation: each silo adds 1/M of the noise's variance, the server sees sums over all silos only and "
        "is not trusted",
        _calibrators.secagg,
        None,
        ("tight",),
        ("n_agents", "batch", "dim"),
        "of the sum over silos",
        (
            "silos that drop out, collude with the server, or subtract their own share of the noise from what it sends "
            "back (one of M leaves (M - 1) / M of the variance)",
        ),
    ),
    "central": Trust(
        "central: the server is trusted with every silo's sums and adds the noise",
        _calibrators.central,
        None,
        ("tight",),
        (),
        "of the sum over silos",
        any_schedule=True,
    ),
    "local": Trust(
        "local: each user chooses her arm herself, from what the server publishes, and adds noise to her own "
        "statistics; nobody is trusted",
        _calibrators.local,
        ("input_perturbation",),
        ("tight",),
        ("n_agents", "batch"),
        "of a user's report",
        (),
        "a user reports once, so that there is nothing for a tree to save",
    ),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Calibration:
    """Noise of one continual release, and what it proves.

    Attributes:
        budget: the privacy asked for.
        trust: who adds the noise, a key of `TRUST`.
        method: how sigma was found.
        release: name of the continual-release mechanism.
        n_syncs: S, the number of releases.
        visits: how often a user may come to her silo.
        releases_per_user: squared sensitivity of the release, kappa for trees.
        sigma: standard deviation of every entry of the noise on one message (bias and diagonal of the covariance; off
            the diagonal 1/sqrt 2 of it; on the joint matrix sqrt 2 of it on the diagonal): of a silo's, a user's or the
            sum over silos, see `TRUST[trust].whose`.
        epsilon_exact: the smallest epsilon that this sigma is proved to give at budget.delta.
        accountant: by what proof.
        pure: epsilon of the schedule, part of epsilon_exact.
        protocol: draws the noise.
    """

    budget: Budget
    trust: str
    method: str
    release: str
    n_syncs: int
    visits: int
    releases_per_user: float
    sigma: float
    epsilon_exact: float
    accountant: str
    pure: float = 0.0
    protocol: Protocol = dataclasses.field(repr=False, compare=False)

    @property
    def sound(self) -> bool:
        """Does this noise really give the budget?"""
        return self.epsilon_exact <= self.budget.epsilon

    @property
    def assuming(self) -> bool:
        """Does the proof need what the trust model assumes of other silos?"""
        return self.trust != "shuffle_amplified" or self.accountant == LEMMA

    @property
    def sensitivity(self) -> float:
        """How far one user moves all messages together, in joint l2 norm where every entry's noise is sigma."""
        matrix = isinstance(self.protocol, SiloLocalMatrix)
        one = self.budget.matrix_sensitivity_sq if matrix else self.budget.joint_sensitivity_sq
        return self.visits * (self.releases_per_user * one) ** 0.5

    @property
    def event(self) -> Event:
        """What one user's silo releases, for `fb.privacy.compose` with other mechanisms that see the same user."""
        if isinstance(self.protocol, (SiloLocal, Central, Local)) and self.pure == 0:
            mu = self.sensitivity / self.sigma
            if gaussian_epsilon(mu, self.budget.delta) <= self.epsilon_exact * (1 + 1e-6):  # not amplified
                return Gaussian(mu)
        return ApproximateDP(self.epsilon_exact, self.budget.delta)


def calibrate(
    budget: Budget,
    *,
    n_syncs: int,
    release: str = "tree",
    method: str = "tight",
    trust: str = "silo_local",
    visits: int = 1,
    n_agents: int | None = None,
    batch: int | None = None,
    dim: int | None = None,
    pure: float = 0.0,
) -> Calibration:
    """Noise for a continual release of (bias, covariance) sums.

    A user with ||x|| <= 1 and y in [0, 1] moves one batch's (sum x y, sum x x') by Delta_J in joint l2 norm,
    Delta_J^2 = 4.5 under "replace" and 2 under "add_remove", and all messages together by sqrt(kappa) times that, where
    kappa is the squared sensitivity of the release (for trees the number of nodes a user is in).

    Args:
        budget: epsilon, delta and adjacency.
        n_syncs: S = floor(T / B), the number of synchronisations.
        release: a key of `fb.privacy.RELEASES`; "blt" has the least noise for its memory.
        method: "tight" (default): exact, for Gaussian noise sigma^2 = kappa Delta_J^2 / mu*^2 with delta(epsilon; mu*)
            = delta; "theorem": as printed, for silo_local sigma^2 = 8 kappa (ln(2/delta) + epsilon) / epsilon^2 on each
            of the two streams (Theorem 5.1), for shuffle_amplified Lemma F.2 or an error that names the condition it
            misses, for shuffle_vector_sum Theorem 5.5; "released": what the authors' code does, which is unsound.
        trust: a key of `fb.privacy.TRUST`: who adds the noise and who is trusted.
        visits: r, how often one user may come to her silo: group privacy, r times the sensitivity.
        n_agents, batch, dim: M, B and d, where the trust model depends on them.
        pure: epsilon that a private schedule spends of the budget, in [0, epsilon) (see `fb.schedules`); a user who
            comes r times spends it r times.

    Returns:
        A `Calibration`; its `epsilon_exact` says what the noise really gives.

    Raises:
        ValueError, TypeError: naming the argument and its value, or the condition that does not hold.

    Example:
        >>> c = calibrate(Budget(1.0, 0.1), n_syncs=400)
        >>> round(c.sigma ** 2, 1), c.releases_per_user, c.sound
        (47.8, 9.0, True)
        >>> round(calibrate(Budget(1.0, 0.1), n_syncs=400, release="blt").sigma ** 2, 1)
        15.8
        >>> c = calibrate(Budget(5.0, 0.1), n_syncs=400, method="released")
        >>> round(c.epsilon_exact, 1), c.sound
        (11.9, False)

    Reference: Zhou & Chowdhury (2024), Theorems 5.1, 5.3, 5.5; Dong, Roth & Su (2022), Corollary 3.3; McMahan, Xu &
    Zhang (2024) for "blt".
    """
    if not isinstance(budget, Budget):
        raise TypeError(f"budget must be a fb.privacy.Budget, got {budget!r}")
    n_syncs = validate.integer("n_syncs", n_syncs, at_least=1)
    visits = validate.integer("visits", visits, at_least=1)
    check(trust=trust, release=release, method=method)
    model = TRUST[trust]
    sizes: dict[str, Any] = dict(n_agents=n_agents, batch=batch, dim=dim)
    for name, value in sizes.items():
        if value is not None:
            validate.integer(name, value, at_least=1)
        elif name in model.needs:
            raise TypeError(f"{name} must be an integer >= 1 with trust={trust!r}, got None")
    if not 0 <= visits * pure < budget.epsilon:
        raise ValueError(f"pure must leave some of epsilon = {budget.epsilon:g} for the releases, got {visits * pure}")
    if pure:
        check_schedule(trust)
    mechanism = releases.make(release, n_syncs)
    if not releases.is_built_in(mechanism):
        mechanism.check()
    ask = Ask(
        budget=budget,
        method=method,
        release=mechanism,
        visits=visits,
        pure=visits * pure,
        **{name: value or 1 for name, value in sizes.items()},
    )
    answer = model.calibrator(ask)
    return Calibration(
        budget=budget,
        trust=trust,
        method=method,
        release=release,
        n_syncs=n_syncs,
        visits=visits,
        releases_per_user=mechanism.sensitivity_sq(),
        sigma=answer.sigma,
        epsilon_exact=answer.epsilon,
        accountant=answer.accountant,
        pure=visits * pure,
        protocol=answer.protocol,
    )


def check_schedule(trust: str) -> None:
    """May batches end whenever a schedule says?

    >>> check_schedule("secagg")
    Traceback (most recent call last):
    ValueError: trust must be 'silo_local' or 'silo_local_matrix' or 'central' with a schedule, got 'secagg'
    """
    if not TRUST[validate.one_of("trust", trust, TRUST)].any_schedule:
        able = " or ".join(repr(name) for name, model in TRUST.items() if model.any_schedule)
        raise ValueError(f"trust must be {able} with a schedule, got {trust!r}")


def check(*, trust: str, release: str, method: str, argument: str = "method") -> None:
    """Do these names go together? `argument` is what the caller calls `method`.

    >>> check(trust="secagg", release="prefix_tree", method="tight")
    Traceback (most recent call last):
    ValueError: release 'prefix_tree' has silos send private prefix sums: trust must be 'silo_local', got 'secagg'
    """
    model = TRUST[validate.one_of("trust", trust, TRUST)]
    validate.one_of("release", release, releases.RELEASES)
    validate.one_of(argument, method, METHODS)
    if releases.make(release, 1).prefix_at_silo and trust not in ("silo_local", "silo_local_matrix"):
        raise ValueError(
            f"release {release!r} has silos send private prefix sums: trust must be 'silo_local', got {trust!r}"
        )
    if model.releases is not None and release not in model.releases:
        choices = " or ".join(map(repr, model.releases))
        raise ValueError(f"release must be {choices} with trust={trust!r} ({model.why}), got {release!r}")
    if method not in model.methods:
        raise ValueError(
            f"{argument} must be {' or '.join(map(repr, model.methods))} with trust={trust!r}, got {method!r}"
        )
    if method != "tight" and release not in ("tree", "prefix_tree"):
        raise ValueError(
            f"release must be 'tree' or 'prefix_tree' with {argument}={method!r} (the paper's), got {release!r}"
        )


def epsilon_of(
    sigma: float, *, delta: float, n_syncs: int, release: str = "tree", adjacency: str = "replace", visits: int = 1
) -> float:
    """The smallest epsilon that Gaussian noise of standard deviation `sigma` on every message gives at `delta`.

    The inverse of `calibrate` for silo-local, central and local trust.

    >>> round(epsilon_of(29.72 ** 0.5, delta=0.1, n_syncs=400), 2)
    1.52
    """
    budget = Budget(1.0, delta, adjacency)
    sigma = validate.positive("sigma", sigma)
    visits = validate.integer("visits", visits, at_least=1)
    kappa = releases.make(release, validate.integer("n_syncs", n_syncs, at_least=1)).sensitivity_sq()
    mu = visits * (kappa * budget.joint_sensitivity_sq) ** 0.5 / sigma
    if not mu <= 1e4:
        raise ValueError(f"sigma must be at least {mu / 1e4 * sigma:.3g} for epsilon to be computed, got {sigma:g}")
    return gaussian_epsilon(mu, delta)
