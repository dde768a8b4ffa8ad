"""The loop of decentralised FedUCB: Algorithm 3 of Dubey & Pentland (2020).

Letters: M agents, d features, C cliques of the power graph, n_C agents in a clique. A message is dropped after gamma
hops. V is the matrix that a clique shares since its last synchronisation, and V_i adds agent i's own rows. c >= 0 is a
shift, for a schedule that reads log det (V_i + c I).

One step is gamma rounds, and uses each of the gamma estimators once. Use j of estimator g is round t = j gamma + g. A
request after use j reaches the whole clique before use j + 1. After that use every member sends its private sums, which
arrive before use j + 2. The estimator rests in between, so a step can compute the effect of all its messages at its
end.

DEVIATION dubey2020 Alg. 3: the printed algorithm differs from its proof. Line 1 starts S at 0 and log det S at minus
infinity. Here S starts at n_C rho_min I. Line 6 has M for a clique of n_C agents. Line 15 releases when a request
arrives, so members would have different S. Here all release after their next use. Lines 18-22 handle arriving sums
inside the branch for requests. Here they stand outside it. A clique that awaits an answer raises no request.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from typing_extensions import override

from fedbandit_jax.algos.loops import own_rows
from fedbandit_jax.algos.loops.leaks import LEARNS_IN_BATCH
from fedbandit_jax.algos.loops.loop import PEERS, PlayingLoop, without_sums
from fedbandit_jax.algos.loops.own_rows import Tracked, Turn, follow
from fedbandit_jax.algos.policies.ucb import BoundUCB, Prepared
from fedbandit_jax.certificate import Certificate, Raw, no_privacy
from fedbandit_jax.core import control, random, ridge, struct, tables
from fedbandit_jax.interfaces import Report, Round, Spec, Status
from fedbandit_jax.privacy.bound import BoundMechanism
from fedbandit_jax.privacy.noisy_sums import NoisyMechanism
from fedbandit_jax.privacy.packing import added, packed_size
from fedbandit_jax.schedules import LEAKS, BoundSchedule, timing


class Shared(NamedTuple):
    """The statistics that the members of a clique share since their last synchronisation."""

    gram: Array  # (C, d, d) V
    bias: Array  # (C, d) noisy sum of x y
    log_det: Array  # (C,) log det V


class Estimator(NamedTuple):
    """One of the gamma estimators, of all agents and cliques."""

    mechanism: Any  # `MechanismState` of every clique, leaves (C, ...)
    shared: Shared
    pending: Array  # (d, d + 1, M) sums of [x x' | x y] since the last synchronisation
    settled: Array  # older rows, separate for accuracy in float32
    own: Tracked  # V_i
    shifted: Tracked | None  # V_i + c I, if the schedule reads that
    asked: Array  # (C,) bool: whether a member asked for a synchronisation after the last use
    synced: Array  # (C,) int32: number of synchronisations so far
    uses: Array  # (C,) int32: uses since the last one
    status: Array  # int32 `Status` bits


class Cliques(NamedTuple):
    """The cliques, and what one estimator needs of them."""

    mechanism: BoundMechanism  # leaves (C, ...)
    clique: Array  # (M,) int32: each agent's clique
    shift: Any  # (C,) c, if the schedule reads log det (V_i + c I), and None otherwise

    def open(self, gram: Array) -> Estimator:
        """Returns the estimator before the first round, with V = `gram` (C, d, d) and no rows."""
        c, d, _ = gram.shape
        sent = jax.vmap(lambda mechanism: mechanism.init(d), axis_size=c)(self.mechanism)
        shared, own, shifted = self._start(gram, jnp.zeros((c, d)))
        nothing, zeros = jnp.zeros((d, d + 1, len(self.clique))), jnp.zeros(c, jnp.int32)
        return Estimator(sent, shared, nothing, nothing, own, shifted, zeros > 0, zeros, zeros, jnp.int32(0))

    def synchronised(self, key: Array, due: Array, one: Estimator, regularization: Array) -> Estimator:
        """Returns the estimator after the cliques that are `due` (C,) have synchronised (Algorithm 3, lines 15-22).

        Their new V is `regularization` (C,) times I, plus the release.
        """
        c, d, m = len(due), one.shared.bias.shape[1], len(self.clique)
        member = (self.clique == jnp.arange(c)[:, None]).astype(jnp.float32)  # (C, M)
        totals = jnp.einsum("ijm,cm->cij", one.settled + one.pending, member, precision="highest")

        keys, nobody = jax.random.split(random.stream(key, "release"), c), (jnp.zeros((0, d, m)), jnp.zeros((0, m)))
        release = jax.vmap(lambda mechanism, *given: mechanism.step(*given, *nobody), axis_size=c)
        statistics, sent = release(self.mechanism, keys, one.synced + 1, one.mechanism, totals)
        gram = regularization[:, None, None] * jnp.eye(d) + statistics[..., :-1]
        *_, ok = ridge.solve(gram, statistics[..., -1])
        gram = jnp.where(ok[:, None, None], gram, one.shared.gram)  # if V has no inverse, keep the old one
        bias = jnp.where(ok[:, None], statistics[..., -1], one.shared.bias)
        shared, own, shifted = self._start(gram, bias)
        in_clique = due[self.clique]

        def chosen(new: Any, old: Any) -> Any:
            return jax.tree.map(lambda a, b: jnp.where(due.reshape(-1, *(1,) * (a.ndim - 1)), a, b), new, old)

        return one._replace(
            mechanism=chosen(sent, one.mechanism),
            shared=chosen(shared, one.shared),
            pending=jnp.where(in_clique, 0, one.pending),
            settled=jnp.where(in_clique, 0, one.settled),
            own=own_rows.where(in_clique, own, one.own),
            shifted=own_rows.where(in_clique, shifted, one.shifted),
            synced=one.synced + due,
            uses=jnp.where(due, 0, one.uses),
            status=one.status | jnp.where((due & ~ok).any(), Status.NO_ESTIMATE, 0),
        )

    def anew(self, one: Estimator, turn: Turn) -> Estimator:
        """Returns the estimator with the posteriors of the agents in turn recomputed from their rows."""
        sums, pending, settled = own_rows.add_pending(one.pending, one.settled, turn)
        clique = jnp.asarray(self.clique)[turn.who]
        gram, bias = one.shared.gram[clique] + sums[..., :-1], one.shared.bias[clique] + sums[..., -1]
        shift = None if self.shift is None else jnp.asarray(self.shift)[clique]
        own, shifted = own_rows.solve_anew(gram, bias, shift, one.own, one.shifted, turn)
        return one._replace(settled=settled, pending=pending, own=own, shifted=shifted)

    def _start(self, gram: Array, bias: Array) -> tuple[Shared, Tracked, Tracked | None]:
        d, c, zeros = gram.shape[-1], len(gram), jnp.zeros(len(self.clique))
        grams, biases, shifted = gram, bias, None
        if self.shift is not None:  # one solve for both, see `solve_anew`
            grams = jnp.concatenate([gram, gram + jnp.asarray(self.shift)[:, None, None] * jnp.eye(d)])
            biases = jnp.concatenate([bias, bias])
        solved, log_dets, _ = ridge.solve(grams, biases)
        own = Tracked(ridge.agents(solved, self.clique), zeros)
        if self.shift is not None:
            more = (log_dets[c:] - log_dets[:c])[self.clique]
            shifted = Tracked(ridge.agents(solved, c + self.clique), more)
        return Shared(gram, bias, log_dets[:c]), own, shifted


@struct.sealed
@struct.pytree
class CliqueLoop(PlayingLoop):
    """Decentralised FedUCB on a known network. Its sums have the mechanism's noise, and its requests reveal raw data.

    The policy's regularisers have leaves (C,): n_C rho_min before the first synchronisation, and n_C (rho_min +
    rho_max) / 2 after it. Its width has leaves (M,).
    """

    stops_by_itself = True

    policy: BoundUCB
    mechanism: BoundMechanism  # leaves (C, ...)
    sizes: Any  # (C,) n_C, silos of every clique
    schedule: BoundSchedule
    shift: Any  # (C,) c, if the schedule reads log det (V_i + c I) with c > 0, and None otherwise
    clique: Any  # (M,) int32: each agent's clique
    hops: Any  # (M,) int32: transmissions over edges of one broadcast
    horizon: struct.Number  # T
    batch: int = struct.static()  # gamma

    @property
    def cliques(self) -> Cliques:
        """The cliques of every estimator."""
        return Cliques(self.mechanism, jnp.asarray(self.clique), self.shift)

    @property
    def raw(self) -> tuple[Raw, ...]:
        """The accesses to raw data. As a property, no attribute of an object hides it."""
        return LEAKS, LEARNS_IN_BATCH

    @override
    def guarantee(self) -> Certificate:
        # A silo adds its share of its clique's noise; the smallest share counts.
        if not struct.is_sealed(self.mechanism):
            return no_privacy(f"nothing is proved of {type(self.mechanism).__name__}, a user-defined mechanism")
        mechanism, when = self._silo(), timing(self.schedule)
        if not isinstance(mechanism, NoisyMechanism):
            return mechanism.guarantee(when, None).through(self.raw)
        std = np.asarray(self.mechanism.trust.std, float)[:, 0]  # pyright: ignore[reportAttributeAccessIssue]
        least = (std / np.sqrt(np.asarray(self.sizes, float))).min()
        trust = dataclasses.replace(mechanism.trust, std=np.array([least]))  # pyright: ignore
        found = dataclasses.replace(mechanism, trust=trust).guarantee(when, None)
        if found.server_noise_std is not None:
            clique = found.server_noise_std * std.max() / max(least, 1e-30)
            found = without_sums(found, PEERS, clique, "the sums that the silos of a clique add up", server=False)
        return found.through(self.raw)

    @override
    def init(self, key: Array, spec: Spec) -> Estimator:
        one = self.cliques.open(jnp.asarray(self.policy.first_regularization)[:, None, None] * jnp.eye(spec.dim))
        return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (self.batch, *leaf.shape)), one)

    @override
    def prepared(self, t: Array, local: Estimator, offered: Round) -> Prepared:
        one = tables.take(local, t % self.batch)  # lines 4-5
        log_det = one.shared.log_det[self.clique] + one.own.gained
        return Prepared(one.own.posterior, None, self.policy.width._replace(log_det=log_det))

    def learn(self, t: Array, local: Estimator, offered: Round, arms: Array, rewards: Array):
        """Adds each agent's row to the statistics and determinants of the estimator in use (line 5)."""
        g = t % self.batch
        one = tables.take(local, g)
        x, y, outside, _ = self._silo().admit(ridge.take(offered.contexts, arms), rewards)
        used = dict(
            pending=one.pending + added(x, y),
            own=follow(one.own, x, y),
            shifted=follow(one.shifted, x, y),
            uses=one.uses + 1,
            status=one.status | jnp.where(outside.any(), Status.OUTSIDE_SPEC, 0),
        )
        return local._replace(**tables.put({name: getattr(local, name) for name in used}, g, used)), ()

    def sync(self, key: Array, k: Array, state: Estimator, local: Estimator, records: Any):
        """Carries out requests and synchronisations after use k of every estimator within the horizon (lines 6-22)."""
        g = jnp.arange(self.batch)
        keys = jax.vmap(jax.random.fold_in, (None, 0))(key, g)
        used = k * self.batch + g < self.horizon
        due = local.asked & used[:, None]  # (gamma, C)

        def send(state: Estimator) -> Estimator:
            regularization = jnp.asarray(self.policy.regularization)
            return jax.vmap(self.cliques.synchronised, (0, 0, 0, None))(keys, due, state, regularization)

        def ask(key: Array, one: Estimator, used: Array) -> Array:
            read = one.own if one.shifted is None else one.shifted
            return used & self.schedule.requests(key, k, (), read.gained, one.uses[self.clique])

        asking = jax.vmap(ask)(keys, local, used) & ~local.asked[:, self.clique]  # (gamma, M)
        new = control.cond_any(due.any(), send, local)
        asked = (asking[..., None] & (self.clique[:, None] == jnp.arange(len(self.sizes)))).any(1)
        new = new._replace(asked=jnp.where(used[:, None], asked, local.asked))
        new = own_rows.in_turn(k, self.spec.n_agents, jax.vmap(self.cliques.anew, (0, None)), new)
        sending = due[:, self.clique]
        hops = jnp.asarray(self.hops)
        numbers = (sending * hops).sum() * jnp.float32(packed_size(self.spec.dim))
        counts = {"messages": sending.sum() + asking.sum(), "hops": ((sending.astype(jnp.int32) + asking) * hops).sum()}
        status = jnp.bitwise_or.reduce(new.status)
        return new, Report(rounds=due.any(1).sum(), floats=numbers, float_bits=32, status=status, counts=counts)

    @override
    def view(self, state: Estimator) -> Any:
        return state.mechanism.view, state.synced

    def _silo(self) -> BoundMechanism:
        return jax.tree.map(lambda leaf: leaf[0], self.mechanism)
