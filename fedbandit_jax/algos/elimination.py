"""Batched successive elimination of arms: seven private variants and SE, which is not private.

Reference: Chowdhury & Zhou (2023); Sajed & Sheffet (2019).
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
from typing_extensions import override

from fedbandit_jax.algos import radius as radii
from fedbandit_jax.algos.loops.arms import BoundElimination, epsilon_of_each
from fedbandit_jax.core import validate
from fedbandit_jax.core.padding import padded, room
from fedbandit_jax.core.validate import BadArgument, BadValue
from fedbandit_jax.interfaces import Recipe, Spec
from fedbandit_jax.privacy import compatibility
from fedbandit_jax.privacy.compatibility import Tags, tagged
from fedbandit_jax.privacy.integers.mechanisms import AUTHORS, MECHANISMS, IntegerMechanism
from fedbandit_jax.privacy.integers.protocol import FINE, MAX_WIDTH, GridSum, SharedNoiseSum, SumProtocol, grid
from fedbandit_jax.privacy.integers.shares import rounded_up
from fedbandit_jax.privacy.tails import check_delta
from fedbandit_jax.privacy.users import Users

# Name of a variant -> (mechanism, trust), the arguments of `SuccessiveElimination` that select it.
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
RADII = ("theory", "exact")  # how confidence radii are computed
CALIBRATIONS = ("theorem", "authors")  # whose noise it is
GROWTH, SCALE, DELTA = 2, 10.0, 1e-6  # what None means for these parameters, where they have a meaning
SCALED = ("skellam", "discrete_gaussian")  # mechanisms whose grid is as fine as `scale` says


@dataclasses.dataclass(frozen=True, kw_only=True)
class SuccessiveElimination(Recipe):
    """Batched successive elimination: in batch b, each arm that may still be the best is pulled by growth^b new users.

    After a batch, an arm is dropped if its upper confidence bound is below the lower confidence bound of another arm.
    The server learns one sum of rewards in [0, 1] per active arm and batch, through a protocol that adds the noise:

    - trust "central": a trusted server adds noise to every sum;
    - "local": every user adds the whole noise to their own message, and nobody is trusted;
    - "secagg": every user adds a share of the noise, and the server, which is not trusted, sees only sums;
    - "shuffle": every user adds a share, and a trusted shuffler mixes the bits that all users send.

    The privacy unit is one user, who comes once, or as often as `unit` says. Adjacency is replacement of her rewards by
    any others in [0, 1], which moves every sum that she is in by at most 1 (the sensitivity).

    | name | mechanism, trust | guarantee |
    |---|---|---|
    | SE | none, none | none |
    | DP-SE | laplace, central | epsilon-DP; Laplace noise on a fine grid, the epochs of Sajed & Sheffet (2019) |
    | CDP-SE | discrete_laplace, central | epsilon-DP (Theorem 5) |
    | LDP-SE | discrete_laplace, local | epsilon-DP of every message (Theorem 6) |
    | Dist-DP-SE | discrete_laplace, secagg | epsilon-DP (Theorem 1) |
    | Dist-RDP-SE | skellam, secagg | Renyi DP, alpha epsilon^2 / 2 + O(1 / scale) (Theorem 2) |
    | Dist-CDP-SE | discrete_gaussian, secagg | zCDP, rho = epsilon^2 / 2 + O(xi) (Theorem 4) |
    | Shuffle-DP-SE | discrete_laplace, shuffle | epsilon-DP (Theorem 3) |

    Args:
        epsilon: privacy parameter in [1e-9, 500], with the meaning given in the table; None without privacy.
        mechanism, trust: the law of the noise and who adds it: a row of the table, or `fb.algos.ELIMINATION[name]`.
        radius: how confidence radii are computed: "theory", by Lemma 2; or "exact", from the law of the noise, which
            makes them narrower: all intervals together hold with probability 1 - 3 `failure`, as Lemma 2 states.
            DP-SE has radii of its own, and must be left at "theory".
        growth: integer factor between the sizes of successive batches, up to 1024; None: 2 (Algorithm 1). The authors'
            code uses 4. DP-SE has epochs with sizes of their own, and must be left at None.
        scale: s in [1, 2^24]: with a larger s, Skellam and discrete Gaussian mechanisms round rewards to a finer grid,
            which means less noise and more bits; None: 10. Other mechanisms must be left at None.
        failure: p in (0, 0.3], the failure probability of the confidence radii, and of sums that wrap around the ring
            of integers modulo m; 0.1 in the paper's figures, 1/T in its theorems.
        calibration: "theorem" is the noise of the theorems; "authors" that of the authors' code, for DP-SE, Dist-DP-SE
            and Dist-RDP-SE with "theory" radii. The certificate says what it gives, which is enough for the last only.
        delta: the delta in (0, 1) at which the certificate states (epsilon, delta), beside the guarantee of the table;
            None: 1e-6. Without privacy it must be left at None. Nothing is claimed if the far tails of the noise, which
            are never drawn, cost as much, as they do from epsilon = 45 on (at 1e-6; `Certificate.smallest_delta`).
        messages: whether every user draws a share of the noise, as audits need; by default, the noise of a sum is drawn
            at once from its law.
        unit: `fb.privacy.Users(visits=r, per_batch=1)`: `epsilon` is for all of one user's contributions together, r at
            most, to different batches; where users are told apart, as by `fb.envs.returning`, a contribution beyond
            these bounds is left out. Her device, which counts, then sends a reward of 0 with its share of the noise. An
            arm's mean is that of the rewards that entered, with a radius as much wider. None: each interaction is
            protected by itself.
        name: label in results; by default the name in the table. A name of another row is replaced by the right one.

    Raises:
        ValueError: when bound, also if there are fewer than two arms or fewer users than arms, or integers
            would not fit their machine words.

    Example:
        >>> import fedbandit_jax as fb
        >>> env = fb.envs.arms(n_arms=5, instance="easy")
        >>> algo = fb.algos.SuccessiveElimination(epsilon=0.5, mechanism="discrete_laplace", trust="secagg")
        >>> certificate = algo.certificate(env.spec, horizon=20_000)
        >>> algo.name, certificate.notion, round(certificate.epsilon_exact, 3)
        ('Dist-DP-SE', 'pure DP', 0.5)

    Reference: Chowdhury & Zhou (2023), Algorithms 1-7; Sajed & Sheffet (2019), Algorithm 2.
    """

    epsilon: float | None = None
    mechanism: str = "none"
    trust: str = "none"
    radius: str = "theory"
    growth: int | None = None
    scale: float | None = None
    failure: float = 0.1
    calibration: str = "theorem"
    delta: float | None = None
    messages: bool = False
    unit: Users | None = None
    name: str | None = None  # pyright: ignore[reportIncompatibleVariableOverride]

    def __post_init__(self):
        pair = validate.text("mechanism", self.mechanism), validate.text("trust", self.trust)
        if pair not in [("none", "none"), ("laplace", "central"), *MECHANISMS]:
            pairs = "; ".join(f"{label}: {', '.join(pair)}" for label, pair in ELIMINATION.items())
            raise BadValue(("mechanism", "trust"), f"must be one of fb.algos.ELIMINATION, {pairs}", pair)
        if self.mechanism != "none":
            validate.within("epsilon", validate.positive("epsilon", self.epsilon), 1e-9, 500)
        if self.unit is not None:
            validate.instance("unit", self.unit, Users, "an fb.privacy.Users")
        validate.one_of("radius", self.radius, RADII)
        if self.growth is not None:
            validate.within("growth", validate.integer("growth", self.growth, at_least=2), 2, 1024)
        if self.scale is not None:
            validate.within("scale", self.scale, 1, 2**24)
        validate.within("failure", validate.positive("failure", self.failure), 0, 0.3)
        validate.one_of("calibration", self.calibration, CALIBRATIONS)
        if self.delta is not None:
            validate.probability("delta", self.delta)
        validate.boolean("messages", self.messages)
        compatibility.check(self.tags)
        if self.name is None or validate.text("name", self.name) in ELIMINATION:
            label = next((label for label, row in ELIMINATION.items() if row == pair), " ".join(pair))
            object.__setattr__(self, "name", label)

    @property
    def tags(self) -> Tags:
        """What this algorithm is, for `privacy.compatibility`."""
        pair, unit = (self.mechanism, self.trust), self.unit
        law = {
            "arms without noise": self.mechanism == "none",
            "epochs of DP-SE": self.mechanism == "laplace",
            "noise on one grid": self.mechanism not in SCALED,
            "arms of no code": pair != ELIMINATION["DP-SE"] and pair not in AUTHORS,
            "noise of no user": self.mechanism in ("none", "laplace"),
            "sums of arms": True,
        }
        found = tagged("mechanism", self.mechanism, law)
        for name, tag, unless in (
            ("epsilon", "parameter of noise", None),
            ("delta", "parameter of noise", None),
            ("unit", "parameter of noise", None),
            ("growth", "growth that is given", None),
            ("scale", "scale that is given", None),
            ("radius", "exact radius", "theory"),
            ("calibration", "arms by the authors' code", "theorem"),
            ("messages", "shares of users", False),
        ):
            found |= tagged(name, getattr(self, name), {tag: getattr(self, name) != unless})
        often = unit is not None and (unit.most > 1 or unit.silos > 1)
        return found | tagged("unit", unit, {"several visits to a batch": often})

    @override
    def parameters(self) -> tuple[str, ...]:
        # A grid over epsilon or delta leaves SE as it is, and one over `growth` or `radius` DP-SE.
        pair = self.mechanism, self.trust
        idle = {"epsilon", "delta", "messages", "unit"} if self.epsilon is None else set()
        idle |= set() if self.mechanism in SCALED else {"scale"}
        idle |= {"growth", "radius"} if self.mechanism == "laplace" else set()
        idle |= {"radius"} if self.calibration == "authors" else set()
        idle |= {"calibration"} if pair not in [ELIMINATION["DP-SE"], *AUTHORS] else set()
        return tuple(name for name in super().parameters() if name not in idle)

    @override
    def bind(self, spec: Spec, horizon: int) -> BoundElimination:
        n_arms = spec.n_arms
        check_arms(str(self.name), n_arms, horizon)
        if self.unit is not None and self.epsilon is not None:
            own = epsilon_of_each(self.epsilon, self.unit.visits, self.mechanism not in SCALED)
            try:
                bound = dataclasses.replace(self, epsilon=own, unit=None).bind(spec, horizon)
            except BadArgument as error:
                why = str(error).removeprefix(f"{error.argument} ")
                shared = f"{self.unit.visits:,} visits, which share epsilon = {self.epsilon:g}"
                raise BadValue(error.argument, f"{why}, for each of {shared}", error.value, got="") from error
            return dataclasses.replace(bound, epsilon=self.epsilon, unit=self.unit)
        sizes = batches(GROWTH if self.growth is None else self.growth, horizon)
        users, radius = np.tile(sizes[:, None], n_arms + 1), None
        if self.mechanism == "laplace" and self.epsilon is not None:
            users, radius = radii.epochs(self.epsilon, self.failure, n_arms, horizon)
        # Batch b can only be asked if two arms were left in every batch up to it, whose users fit into the horizon, and
        # if the first batch, with all K arms, fits.
        fits = (2 * np.cumsum(users[:, 2]) <= horizon) & (n_arms * users[0, n_arms] <= horizon)
        users = np.minimum(users, min(horizon, 2**31 - 1)).astype(np.int32)
        mechanism = self.integers(n_arms * len(sizes), horizon)
        return BoundElimination(
            **self.sum_loop_fields(spec, mechanism, np.where(fits, users[:, n_arms], 0)),
            n_batches=len(users),
            users=padded(users),
            radius=padded((self.radii(mechanism, sizes, n_arms) if radius is None else radius).astype(np.float32)),
            round_robin=self.mechanism == "laplace",
        )

    def sum_loop_fields(self, spec: Spec, mechanism: IntegerMechanism | None, users: np.ndarray) -> dict[str, Any]:
        """The fields of a `SumLoop` whose batches ask so many `users` of an arm, (S,), 0 if a batch is never asked."""
        asked = np.pad(users.astype(np.int32), (0, room(len(users)) - len(users)))
        protocol, delta = self.protocol(mechanism, asked), DELTA if self.delta is None else self.delta
        if self.epsilon is not None:
            check_delta(delta, protocol.missing)
        epsilon = math.inf if self.epsilon is None else float(self.epsilon)
        return dict(protocol=protocol, epsilon=epsilon, delta=float(delta), spec=spec)

    def integers(self, n_sums: int, horizon: int) -> IntegerMechanism | None:
        """The mechanism for at most `n_sums` = K S sums, or None where no integers are sent (SE and DP-SE).

        DEVIATION chowdhury2023 Thms 1, 2, 4, 5, 6: the margin tau of the ring is computed for a probability of
        p / (100 K S) per sum, so that with probability 1 - p / 100 none of the K S sums wraps around. The p that is
        printed for every single sum breaks Lemma 2's union bound, and loses best arms whose mean is near 0 or 1.
        Theorem 3 (shuffling) has 1 / (2 T) per sum, as printed.
        """
        if (self.mechanism, self.trust) not in MECHANISMS or self.epsilon is None:
            return None
        made = MECHANISMS[self.mechanism, self.trust]
        scale = SCALE if self.scale is None else self.scale
        if self.calibration == "authors":
            return AUTHORS[self.mechanism, self.trust](self.epsilon, scale, self.failure, horizon)
        return made(self.epsilon, scale, self.failure / (100 * n_sums), horizon)

    def protocol(self, mechanism: IntegerMechanism | None, asked: np.ndarray) -> SumProtocol:
        """The protocol for batches of `asked` (S,) users per arm, 0 for batches that are never asked.

        DEVIATION sajed2019 Alg. 2: the Laplace noise is drawn on a grid, and rewards are rounded to it without bias.
        The low digits of real-valued noise in floating point would tell neighbours apart.
        """
        if mechanism is not None:
            return mechanism.sums(asked.tolist(), messages=self.messages)
        steps = FINE if self.epsilon is None else grid(self.epsilon)
        scale = np.float32(0) if self.epsilon is None else rounded_up(steps / self.epsilon)
        if scale > MAX_WIDTH:
            raise BadValue("epsilon", "must be at least 2^-25 for integer noise of 32 bits", self.epsilon)
        bits = np.full(len(asked), 32.0, np.float32)
        kind = SharedNoiseSum if self.calibration == "authors" else GridSum
        return kind(scale=float(scale), steps=float(steps), users=asked, bits=bits)

    def radii(self, mechanism: IntegerMechanism | None, sizes: np.ndarray, n_arms: int) -> np.ndarray:
        """The confidence radii (S, K + 1), by batch and by the number of active arms."""
        users, p = [int(n) for n in sizes], self.failure
        if self.radius == "theory":
            s, h = (0.0, 0.0) if mechanism is None else mechanism.tail_constants(sizes)
            return radii.theory(sizes, s, h, n_arms=n_arms, p=p)
        if mechanism is None:
            return radii.exact(sizes, [None] * len(sizes), 1, n_arms=n_arms, p=p)
        # A sum that wraps around or is lost counts as outside its interval, and so does the distance of the noise from
        # the law that radii are computed from: `failure` is lowered by as much.
        noise = mechanism.noise(users)
        wrong = n_arms * len(sizes) * (mechanism.wrapping + float(mechanism.aggregation.failure))
        p = (p - wrong / 3) * math.exp(-max(noise.distortion(k, n) for k, n in enumerate(users)))
        if p <= 0:
            raise BadValue("failure", "must be larger with radius='exact' and so few users", self.failure)
        laws, steps = [noise.law(k, n) for k, n in enumerate(users)], [mechanism.steps(n) for n in users]
        return radii.exact(sizes, laws, steps, n_arms=n_arms, p=p)


def batches(growth: int, horizon: int) -> np.ndarray:
    """Sizes l(b) = growth^b, at most T, of as many batches as one arm needs to reach T (Algorithm 1, l. 4)."""
    sizes = [growth]
    while sum(sizes) < horizon:
        sizes.append(sizes[-1] * growth)
    return np.minimum(np.array(sizes, float), horizon)


def check_arms(name: str, n_arms: int, horizon: int) -> None:
    """Raises a ValueError, naming the algorithm, unless there are two arms or more, and a user for each."""
    if n_arms < 2:
        raise BadValue("n_arms", f"must be at least 2 for {name}", n_arms)
    if horizon < n_arms:
        raise BadValue("horizon", f"must be at least the number of arms {n_arms}", horizon)
