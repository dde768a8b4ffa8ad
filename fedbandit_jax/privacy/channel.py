"""The bound mechanism: the sums of all batches through a release and a trust model, and the certificate of just that.

One interface: `Exact` (no privacy); `Closed` (nothing is ever released); `Aggregated` (the exact sums plus the noise of
the trust model, drawn at once); `Rounded` (the same on a grid: the sum over silos is encoded, rounded, and integer
noise added); `Messages` (every message of every silo: randomised, sent through the third party, analysed), of the same
law. What is released after the S synchronisations that a mechanism is bound for is not a number.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedbandit_jax.certificate import Certificate, no_privacy
from fedbandit_jax.core import struct
from fedbandit_jax.privacy.budget import ADJACENCY, Budget
from fedbandit_jax.privacy.releases import Release
from fedbandit_jax.privacy.statistic import LinearStatistic, pack, pack_users, packed_size, unpack
from fedbandit_jax.privacy.trust.gaussian import Numbers, own_code
from fedbandit_jax.privacy.trust.model import Ask, Proof, Trust

MAX_BITS = 10**9  # of message-level vector sums, one byte each


class Sums(NamedTuple):
    """Compensated sum of all batches."""

    high: Array  # (d, d + 1) W | U
    low: Array  # (d, d + 1) what `high` has too much (Kahan)

    def add(self, batch: Array) -> Sums:
        """Add one batch."""
        batch = batch - self.low
        high = self.high + batch
        return Sums(high, (high - self.high) - batch)


class Timing(NamedTuple):
    """What a bound schedule says of itself: who decides when silos synchronise, and what that costs."""

    sentence: str
    pure: Any = 0.0  # epsilon that it spends on one user of every silo, () or (M,)
    fixed: bool = True  # is every batch of the size that the mechanism is bound for?
    n_agents: int | None = None  # M, silos that it tests, each with noise of its own


class ChannelState(NamedTuple):
    """A mechanism between two synchronisations."""

    sums: Sums | None
    release: Any
    trust: Any
    view: Any  # what the last synchronisation showed to those who are not trusted


@struct.sealed
@struct.pytree
class Exact:
    """The sums themselves."""

    n_agents: int = struct.static()

    def admit(self, x: Array, y: Array) -> tuple[Array, Array, Array]:
        """Features (d, M) and rewards (M,) as they enter a statistic, and which users broke what was promised."""
        return x, y, jnp.zeros(y.shape, bool)

    def guarantee(self, timing: Timing, batch: int | None) -> Certificate:
        """What this object proves when it is used by that schedule, in batches of that size."""
        del timing, batch
        return no_privacy("not a private algorithm: no noise is added")

    def init(self, dim: int) -> ChannelState:
        """Nothing sent."""
        zeros = jnp.zeros((dim, dim + 1))
        return ChannelState(Sums(zeros, zeros), (), (), zeros)

    def step(self, key: Array, k: Array, state: ChannelState, x: Array, y: Array) -> tuple[Array, ChannelState]:
        """(W | U) of all batches (d, d + 1) after batch k = 1, 2, ... of users x (B, d, M), y (B, M)."""
        return self.release_sum(key, k, state, jnp.einsum("bim,bjm->ij", x, _rows(x, y), precision="highest"), x, y)

    def release_sum(
        self, key: Array, k: Array, state: ChannelState, total: Array, x: Array, y: Array
    ) -> tuple[Array, ChannelState]:
        """As `step`, from the sum `total` (d, d + 1) over the users of batch k; x and y for those who send on their
        own.

        With x (0, d, M) and y (0, M) of nobody, only for trust models that need no users.
        """
        del key, k, x, y
        sums = state.sums.add(total)  # pyright: ignore[reportOptionalMemberAccess]
        return sums.high, state._replace(sums=sums, view=sums.high)

    def uplink(self, k: Array, dim: int) -> tuple[Array | int, Array | int]:
        """Numbers that all silos send at release k, and bits of each."""
        del k
        return self.n_agents * packed_size(dim), 32


@struct.sealed
@struct.pytree
class Closed(Exact):
    """No synchronisation fits into the horizon, so that nothing is released, ever."""

    def stds(self) -> np.ndarray:
        """None."""
        return np.zeros(0)

    def release_sum(
        self, key: Array, k: Array, state: ChannelState, total: Array, x: Array, y: Array
    ) -> tuple[Array, ChannelState]:
        """Not a number."""
        del key, k, x, y
        return jnp.full_like(total, jnp.nan), state

    def guarantee(self, timing: Timing, batch: int | None) -> Certificate:
        """Nothing leaves a silo."""
        del batch
        if np.any(timing.pure):
            return no_privacy("nothing is released, so that nobody may ask for a release, and this schedule does")
        return Certificate(
            claim="certified",
            reason="nothing is released: no synchronisation before the horizon",
            not_covered=NOT_COVERED,
        )


NOT_COVERED = (
    "the number of users (fixed in advance, not private)",
    "a user's own recommendation, seen by that user alone",
    "what only a simulator sees: regret curves, checkpoints",
    "floating-point attacks: noise is pseudo-random, all arithmetic float32",
)
FIXED_CONTEXTS = "one user's rewards changed; contexts are fixed for each silo and public"


@struct.pytree
class BoundMechanism(Exact):
    """A release through a trust model, bound to a statistic and to S synchronisations. It proves what it draws.

    Everything that decides the noise, and everything that decides how far one user moves what is released, is a field.
    The certificate is a function of these fields alone: whoever changes one changes both.
    """

    trust: Trust
    release: Release = struct.static()
    statistic: LinearStatistic = struct.static()
    adjacency: str = struct.static()
    epsilon: Any  # (1,) or (M,) asked for, of all silos or of every silo
    delta: struct.Number
    visits: struct.Number  # r
    batch: int | None = struct.static()  # B, if batches have one known size
    method: str = struct.static()  # the calibration that was asked for

    @property
    def budgets(self) -> tuple[Budget, ...]:
        """One, or one for every silo."""
        return tuple(Budget(float(epsilon), float(self.delta), self.adjacency) for epsilon in self.epsilon)

    def admit(self, x: Array, y: Array) -> tuple[Array, Array, Array]:
        """See `LinearStatistic.admit`."""
        return self.statistic.admit(x, y)

    def stds(self) -> np.ndarray:
        """Standard deviation of the noise of every release, (S,)."""
        return self.trust.sum_std() * np.sqrt(self.release.prefix_variance())

    @property
    def sensitivity(self) -> float:
        """How far one user moves all messages together, in joint l2 norm in which every entry's noise is the same."""
        ask = self._ask(0, Timing(""))
        return ask.matrix_sensitivity if self.trust.joint_matrix else ask.sensitivity

    def guarantee(self, timing: Timing, batch: int | None) -> Certificate:
        """The certificate of this noise for this use of it."""
        wrong = self._misfit(timing, batch)
        if wrong:
            return no_privacy(f"nothing is proved of this mechanism: {wrong}")
        proofs = [self._proof(i, timing) for i in range(len(self.budgets))]
        budget, proof = max(zip(self.budgets, proofs), key=lambda pair: pair[1].epsilon / pair[0].epsilon)
        bounded, statistic = self.statistic.bounded, self.statistic
        gives = f"{self.method!r} noise gives epsilon = {proof.epsilon:.4g} at delta = {budget.delta:g}"
        if not bounded:
            claim, reason = (
                "none",
                f"rewards enter unclipped, so no sensitivity bound holds; were they in [0, 1], {gives}",
            )
        elif not proof.epsilon <= budget.epsilon:
            claim, reason = "none", f"{gives}, not {budget.epsilon:g}"
        else:
            claim, reason = "certified", "; ".join(self._why(timing))
        worst = max(proofs, key=lambda proof: proof.epsilon)
        asked = self.budgets[proofs.index(worst)]
        several = zip(self.budgets, proofs) if len(proofs) > 1 else ()
        fixed = statistic.fixed_contexts
        return Certificate(
            claim=claim,  # pyright: ignore[reportArgumentType]
            reason=reason,
            trust=self.trust.sentence,
            adjacency=f"{asked.adjacency} ({FIXED_CONTEXTS if fixed else ADJACENCY[asked.adjacency]})",
            unit=self._unit(),
            epsilon=asked.epsilon,
            delta=asked.delta,
            epsilon_exact=worst.epsilon if bounded else math.inf,
            accountant=worst.accountant,
            noise_std=worst.sigma,
            noise_whose=f"per entry {self.trust.whose}",
            server_noise_std=self.trust.sum_std() * math.sqrt(self.release.largest_variance()),
            releases=self.release.n_syncs,
            releases_per_user=self.release.sensitivity_sq(),
            per_silo=tuple((one.epsilon, one.delta, each.epsilon) for one, each in several),
            schedule=timing.sentence + (f" (epsilon = {self._pure(timing):g})" if self._pure(timing) else ""),
            not_covered=(*worst.assumes, *NOT_COVERED, *(["contexts, which are fixed and public"] if fixed else [])),
        )

    def _why(self, timing: Timing) -> Iterator[str]:
        """Why the claim holds."""
        yield "noise of known law is on every statistic that leaves the mechanism, and only earlier ones steer it"
        if self._pure(timing):
            yield "each silo's private tests of its own users are charged"
        if isinstance(self.trust, Numbers):
            yield "who adds it, and who sees what, is as the user's own trust model says"

    def _misfit(self, timing: Timing, batch: int | None) -> str:
        """Why nothing can be said, if so."""
        release, model = self.release, type(self.trust)
        if not struct.is_sealed(release):
            return f"{type(release).__name__} was put in after binding, which checks what a release does"
        if not struct.is_sealed(self.trust):
            return own_code(self.trust) or f"{model.__name__} was put in after binding, which keeps its numbers alone"
        if model.releases is not None and type(release) not in model.releases:
            return f"the proof of {model.__name__} does not cover {type(release).__name__}: {model.why}"
        if release.prefix_at_silo and not model.prefixes:
            return f"the proof of {model.__name__} does not cover silos that send prefix sums"
        if len(self.epsilon) not in (1, self.n_agents):
            return f"it has {len(self.epsilon)} budgets for {self.n_agents} silos"
        if not (self.visits >= 1 and self.visits == int(self.visits)):
            return f"visits must be an integer >= 1, got {self.visits}"
        if not 0 <= self._pure(timing) < math.inf:
            return "the schedule's tests have less noise than an epsilon can be computed for"
        if timing.n_agents not in (None, self.n_agents):
            return f"the schedule tests {timing.n_agents} silos, there are {self.n_agents}"
        if (self.batch is None or not timing.fixed) and (not model.any_schedule or isinstance(self, Messages)):
            return "it needs batches of one known size, and a schedule decides about them"
        if self.batch is not None and batch != self.batch:
            return f"it is bound to batches of {self.batch} rounds, and runs with {batch}"
        return self.trust.misfit(self._ask(0, timing))

    def _unit(self) -> str:
        if self.statistic.n_users:
            rounds = "one round" if self.visits == 1 else f"any {int(self.visits)} rounds at one silo"
            return f"what a user did in {rounds}; users return in this environment, and more rounds are not covered"
        if self.visits == 1:
            return "one user, who comes once; users do not return"
        return f"one user, who comes up to {int(self.visits)} times, always to the same silo"

    def _pure(self, timing: Timing) -> float:
        return float(self.visits * np.max(timing.pure))

    def _ask(self, i: int, timing: Timing) -> Ask:
        pure, n = np.asarray(timing.pure, float).reshape(-1), len(self.budgets)
        return Ask(
            budget=self.budgets[i],
            release=self.release,
            visits=int(self.visits),
            n_agents=self.n_agents,
            batch=self.batch or 1,
            dim=self.statistic.dim,
            pure=float(self.visits * (pure[i] if len(pure) == n else pure.max())),
        )

    def _proof(self, i: int, timing: Timing) -> Proof:
        """Of all silos, or of the one with this budget."""
        return self.trust.silo(i, len(self.budgets)).proof(self._ask(i, timing))

    def _released(self, k: Array, statistics: Array) -> Array:
        """Nothing after S synchronisations."""
        return jnp.where(k <= self.release.n_syncs, statistics, jnp.nan)

    def uplink(self, k: Array, dim: int) -> tuple[Array | int, Array | int]:
        """Numbers that all silos send at release k, and bits of each."""
        parts = jnp.asarray(self.release.live(k)).sum()
        size = packed_size(dim)
        return self.trust.uplink(k, self.n_agents * size * parts, size)


@struct.sealed
@struct.pytree
class Aggregated(BoundMechanism):
    """The sums and the noise that the messages would have had, in law."""

    def init(self, dim: int) -> ChannelState:
        """No release yet."""
        state = Exact.init(self, dim)
        size = packed_size(dim)
        return state._replace(release=self.release.init((size,)), trust=self.trust.init(size))

    def release_sum(
        self, key: Array, k: Array, state: ChannelState, total: Array, x: Array, y: Array
    ) -> tuple[Array, ChannelState]:
        """Private (W | U), (d, d + 1)."""
        exact, state = Exact.release_sum(self, key, k, state, total, x, y)
        draw = self.trust.noise(key, packed_size(len(exact)))
        noise, release = self.release.step(state.release, k, draw)
        statistics = self._released(k, exact + unpack(noise, len(exact)))
        return statistics, state._replace(release=release, view=statistics)


@struct.sealed
@struct.pytree
class Rounded(BoundMechanism):
    """The sum of all silos' messages on the trust model's grid, with integer noise. An exact sum would show through."""

    def init(self, dim: int) -> ChannelState:
        """No release yet."""
        size = packed_size(dim)
        release = (self.release.encode_init((size,)), self.release.init((size,)))
        return ChannelState(None, release, self.trust.init(size), jnp.zeros((dim, dim + 1)))

    def release_sum(
        self, key: Array, k: Array, state: ChannelState, total: Array, x: Array, y: Array
    ) -> tuple[Array, ChannelState]:
        """Private (W | U), (d, d + 1)."""
        encoder, decoder = state.release
        message, encoder = self.release.encode(encoder, k, pack(total))
        noisy, trust = self.trust.noisy_sum(key, k, state.trust, message, x, y)
        prefix, decoder = self.release.decode(decoder, k, noisy)
        statistics = self._released(k, unpack(prefix, x.shape[1]))
        return statistics, ChannelState(None, (encoder, decoder), trust, statistics)


@struct.sealed
@struct.pytree
class Messages(BoundMechanism):
    """Every message of every silo. Slower; for audits, and to convince oneself."""

    def init(self, dim: int) -> ChannelState:
        """Silos that have encoded nothing, and a server that has decoded nothing."""
        size, release = packed_size(dim), self.release
        batch = self.batch or 0  # a mechanism of messages is bound to one
        if self.trust.needs_users:
            bits = release.n_syncs * batch * self.n_agents * size * self.trust.width
            if bits > MAX_BITS:
                raise ValueError(
                    f"messages=True would hold {bits:.3g} bits of users' messages at once, more than {MAX_BITS:.0e}: "
                    "choose fewer silos, rounds or features"
                )
        decoder = release.init((size,))
        users = jnp.zeros((release.n_syncs, batch, size, self.n_agents)) if self.trust.needs_users else ()
        state = ChannelState(
            sums=None,
            release=(
                self._each(release.encode_init((size,))),
                self._each(decoder) if release.prefix_at_silo else decoder,
            ),
            trust=users,
            view=None,
        )
        x, y = jnp.zeros((batch, dim, self.n_agents)), jnp.zeros((batch, self.n_agents))
        view = jax.eval_shape(self.step, jax.random.key(0), jnp.int32(1), state, x, y)[1].view
        return state._replace(view=jnp.zeros(view.shape, view.dtype))

    def step(self, key: Array, k: Array, state: ChannelState, x: Array, y: Array) -> tuple[Array, ChannelState]:
        """R at every silo, S between, A at the server."""
        trust, release, m = self.trust, self.release, self.n_agents
        silos, third, server = jax.random.split(key, 3)
        encoders, decoder = state.release
        sums = pack(jnp.einsum("bim,bjm->mij", x, _rows(x, y), precision="highest"))
        messages, encoders = jax.vmap(release.encode, (0, None, 0))(encoders, k, sums)
        users = state.trust
        if trust.needs_users:
            users = users.at[k - 1].set(pack_users(x, y), mode="drop")
            batches = jnp.arange(1, release.n_syncs + 1)
            inside = jnp.repeat((batches <= k) & (batches > k - (k & -k)), x.shape[0])
            messages = (
                jnp.moveaxis(users, 3, 0).reshape(m, len(inside), -1),
                jnp.broadcast_to(inside, (m, len(inside))),
            )
        keys = jax.random.split(silos, m)
        sent = jax.vmap(trust.randomize, (0, 0, None, 0))(keys, jnp.arange(m), k, messages)
        if release.prefix_at_silo:
            sent, decoder = jax.vmap(release.decode, (0, None, 0))(decoder, k, sent)
        shown = trust.third_party(third, sent)
        total = prefix = trust.analyze(server, k, shown)
        if not release.prefix_at_silo:
            prefix, decoder = release.decode(decoder, k, total)
        view = total if trust.shows_sum else shown
        if state.view is not None:
            view = jnp.where(k <= release.n_syncs, view, state.view)
        return self._released(k, unpack(prefix, x.shape[1])), ChannelState(None, (encoders, decoder), users, view)

    def _each(self, state: Any) -> Any:
        """One copy for every silo."""
        return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (self.n_agents, *jnp.shape(leaf))), state)


def _rows(x: Array, y: Array) -> Array:
    """(B, d + 1, M): features and reward of every user."""
    return jnp.concatenate([x, y[:, None]], axis=1)
