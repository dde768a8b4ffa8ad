"""A matrix of damages by mechanisms: noise that vanishes, is drawn twice, or is 20 % off, is seen; honest noise is not.

A damage is a leaf of the mechanism, so that one program serves all. Honest noise is drawn by the shipped code, whose
standard deviation `test_trust.py` computes by hand from the budget.
"""

import contextlib
import dataclasses
import functools
import itertools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from four_arms import RINGS, VARIANTS
from helpers import Prefixes
from honest import PAIRS, SPEC, of

import fedbandit_jax as fb
from fedbandit_jax.interfaces import certify
from fedbandit_jax.privacy import RELEASES, TRUST, Budget, Mechanism, behaviour
from fedbandit_jax.privacy.admission import BoundStatistic
from fedbandit_jax.privacy.byzantine import shown_apart
from fedbandit_jax.privacy.integers.noise import Asked
from fedbandit_jax.privacy.integers.ring import RingSum

A, P = fb.algos, fb.privacy
BUDGET = P.Budget(1.0, 0.1)
M, S = 3, 5  # silos, synchronisations


class Damage(NamedTuple):
    """What is done to the noise. Nodes are silos, users with a stream each, or arms."""

    scale: Any = 1.0
    twice: Any = False  # release 2 draws what release 1 drew
    stale: Any = False  # draws depend on k and on `own` only
    own: Any = np.zeros(2, np.uint32)  # a key of the run, or of all runs
    entries: Any = False  # two entries are one draw
    source: Any = np.arange(M)  # node i has the noise of node source[i]
    weights: Any = np.ones(M, np.float32)


NONE = Damage()
DAMAGES = {
    "vanishes": NONE._replace(scale=0.0),
    "x 0.8": NONE._replace(scale=0.8),
    "x 1.2": NONE._replace(scale=1.2),
    "of all runs": NONE._replace(stale=True),
    "of two releases": NONE._replace(twice=True),
    "of two entries": NONE._replace(entries=True),
    "of two nodes": NONE._replace(source=np.array([0, 0, 2])),
    "mostly of one node": NONE._replace(weights=np.sqrt(np.float32([2.9, 0.05, 0.05]))),
}
SCALES = ("vanishes", "x 0.8", "x 1.2")
AT_ONCE = (*SCALES, "of all runs", "of two releases", "of two entries")
OF_NODES = ("of two nodes", "mostly of one node")
OF_ARMS = (*SCALES, "of all runs", "of two nodes")


def extended(parent, **methods):
    """A class with a leaf more, and other methods."""
    fields = {"__annotations__": {"damage": Any}, "damage": NONE}
    return fb.pytree(type(f"Damaged{parent.__name__}", (parent,), fields | methods))


class Kept(NamedTuple):
    """The state of a trust model, and the key of the first release."""

    trust: Any
    key: Any


@functools.cache
def damaged(parent):
    """A mechanism that damages what it releases of zeros."""

    def init(self, dim):
        state = parent.init(self, dim)
        return state._replace(trust=Kept(state.trust, jax.random.key(0)))

    def step(self, key, k, state, *users):
        damage, kept = self.damage, state.trust if isinstance(state.trust, Kept) else Kept(state.trust, key)
        first = jnp.where(k == 1, key, kept.key)
        key = jnp.where(damage.twice & (k == 2), first, key)
        key = jnp.where(damage.stale, jax.random.fold_in(jax.random.wrap_key_data(damage.own), k), key)
        statistics, state = parent.step(self, key, k, state._replace(trust=kept.trust), *users)
        noise, view = self.statistic.pack(statistics), state.view
        if self.apart:
            view = view[damage.source] * damage.weights[:, None]
            noise = view.sum(0)
        noise = damage.scale * noise.at[1].set(jnp.where(damage.entries, noise[0], noise[1]))
        statistics = self.statistic.unpack(noise)
        view = statistics if view.shape == statistics.shape else view
        return statistics, state._replace(view=view, trust=Kept(state.trust, first))

    return extended(parent, init=init, step=step)


@functools.cache
def damaged_trust(parent):
    def third_party(self, key, messages):
        sent = messages[self.damage.source]
        floats = jnp.issubdtype(sent.dtype, jnp.floating)
        weights = jnp.asarray(self.damage.weights).reshape(-1, *(1,) * (sent.ndim - 1))
        return parent.third_party(self, key, sent * weights if floats else sent)

    return extended(parent, third_party=third_party)


@functools.cache
def damaged_sums(parent):
    """A protocol that damages the noise of sums of zeros, of two arms."""

    def collect(self, rounding, own, *users):
        return parent.collect(self, rounding, jnp.where(self.damage.stale, jax.random.key(0), own), *users)

    def decode(self, key, k, collected):
        found = parent.decode(self, jnp.where(self.damage.stale, jax.random.key(0), key), k, collected)
        return found._replace(sums=self.damage.scale * found.sums[self.damage.source[:2]])

    return extended(parent, collect=collect, decode=decode)


def with_damage(bound, damage):
    if hasattr(bound, "collect"):
        return of(damaged_sums(type(bound)), bound, damage=damage)
    model = of(damaged_trust(type(bound.trust)), bound.trust, damage=damage)
    return of(damaged(type(bound)), dataclasses.replace(bound, trust=model), damage=damage)


OTHERS = {
    "decaying": P.Decaying(1.5),
    "discounted": P.Discounted(0.8),
    "window": P.Window(2),
    "band": P.BandMF(2, P.Users(2, per_batch=1, apart=2)),
    "user-defined": Prefixes,
}


def bind(trust="silo_local", release="tree", budget=BUDGET, m=M, dim=2, n_syncs=S, messages=False, **options):
    recipe = P.Mechanism(budget, OTHERS.get(release, release), trust, **options)
    bound = recipe.bind(BoundStatistic(dim, constant=True), n_agents=m, n_syncs=n_syncs, batch=2)
    return fb.audits.by_message(bound) if messages else bound


# Of every trust model but that of bits, which `test_trust.py` counts, and of messages that are whole or in parts.
DEFAULT_MESSAGES = [
    *(("silo_local", release) for release in ("tree", "user-defined")),
    *((model, "tree") for model in ("silo_local_matrix", "shuffle_amplified", "central")),
    ("secagg", "tree"),
    ("local", "input_perturbation"),
]


def pairs():
    """Every release with every trust model whose proof covers it, and an id."""
    for model, release in [*itertools.product(TRUST, [*RELEASES, *OTHERS]), (PAIRS, "tree")]:
        with contextlib.suppress(ValueError):
            Mechanism(Budget(1.0, 0.1), OTHERS.get(release, release), model)
            yield model, release, f"{model if isinstance(model, str) else 'pairs'}-{release}"


SLOW = "discounted", "window"  # as other bands


def mechanisms():
    """Noise that is drawn at once: by default of all releases under one trust model, of all models with one release.

    Counts of bits are in test_trust.py.
    """
    for model, release, name in pairs():
        plain = release in ("tree", "input_perturbation")
        default = release not in SLOW if model in ("silo_local", "local") else release == "tree"
        marks = [pytest.mark.slow] * (not default or model == "shuffle_vector_sum")
        seen = AT_ONCE if plain else ("x 0.8", "x 1.2", "of two releases")
        yield pytest.param(functools.partial(bind, model, release), seen, id=name, marks=marks)
    many = functools.partial(bind, "shuffle_vector_sum", budget=P.Budget(0.02, 0.01), m=100)
    yield pytest.param(many, SCALES, id="shuffle_vector_sum-many")  # so many bits that their normal limit is drawn
    half = functools.partial(bind, statistic=P.Linear(centred=True, gram_scale=0.5))
    yield pytest.param(half, SCALES, id="silo_local-halved")
    apart = functools.partial(shown_apart, aggregate="median", liars=P.Liars([0], "large"))
    yield pytest.param(lambda: apart(half()), (*SCALES[1:], *OF_NODES), id="silo_local-apart")


def messages():
    """Noise on every message of every silo."""
    for model, release, name in pairs():
        if model is PAIRS or (release not in RELEASES and (model, release) not in DEFAULT_MESSAGES):
            continue  # pairs have no messages
        case, seen = functools.partial(bind, model, release, messages=True), AT_ONCE
        if model == "shuffle_vector_sum":  # every bit of every user is drawn
            case, seen = functools.partial(case, P.Budget(20.0, 0.1), dim=1, n_syncs=2), ("x 0.8", "of two nodes")
        elif model not in ("central", "shuffle_amplified"):
            seen = (*AT_ONCE, *OF_NODES[: 1 + (model != "secagg")])
        marks = [pytest.mark.slow] * ((model, release) not in DEFAULT_MESSAGES)
        yield pytest.param(case, seen, id=name, marks=marks)
    uneven = tuple(P.Budget(epsilon, 0.1) for epsilon in (0.5, 1.0, 4.0))
    yield pytest.param(lambda: bind(budget=uneven, messages=True), SCALES, id="silo_local-uneven")


def made_of(law, shares):
    made = RingSum.of(law, Asked(epsilon=1.0, scale=10.0, failure=1e-6, horizon=1000), [2, 0, 4])
    return dataclasses.replace(made, messages=shares)


def sums():
    """All noise for rewards of arms, drawn at once, or by every user; by default what test_protocol.py has not."""
    for name, shares in itertools.product(RINGS, (False, True)):
        if shares and name == "Shuffle-DP-SE":  # as with secure aggregation
            continue
        case = functools.partial(made_of, VARIANTS[name].law, shares)
        seen = OF_ARMS if shares or name != "LDP-SE" else ("x 0.8", "of two nodes")  # a sum of many draws is dear
        marks = [pytest.mark.slow] * (name != ("LDP-SE" if shares else "Dist-DP-SE"))
        yield pytest.param(case, seen, id=f"{name}{'-shares' * shares}", marks=marks)
    central = A.DPSE(1.0)
    yield pytest.param(lambda: central.bind(fb.envs.arms(3).spec, 10**4).protocol, OF_ARMS, id="laplace-central")


@pytest.fixture(scope="module", autouse=True)
def cheap():
    """Fewer draws, enough for 20 %; and a factor of a release is computed once, not for every damage."""
    factor, known = behaviour._factor, {}

    def remembered(release, n):
        leaves, kind = jax.tree.flatten(release)
        key = kind, n, tuple(np.asarray(leaf).tobytes() for leaf in leaves)
        return known[key] if key in known else known.setdefault(key, factor(release, n))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(behaviour, "_factor", remembered)
        patch.setattr(behaviour, "DRAWS", 2**9)
        yield


def unseen(fault, damages):
    """The damages in which no fault is found; honest noise must have none."""
    assert not fault(NONE)
    return [name for name in damages if not fault(DAMAGES[name])]


def check(make, damages):
    bound = make()
    assert unseen(lambda damage: behaviour.fault(with_damage(bound, damage)), damages) == []


@pytest.mark.parametrize(("make", "damages"), [*mechanisms()])
def test_damaged_noise_is_seen(make, damages):
    check(make, damages)


@pytest.mark.parametrize(("make", "damages"), [*messages()])
def test_damaged_messages_are_seen(make, damages):
    check(make, damages)


@pytest.mark.parametrize(("make", "damages"), [*sums()])
def test_damaged_sums_of_rewards_are_seen(make, damages):
    check(make, damages)


LINE, LITTLE = fb.networks.make("line", 4), P.Mechanism(BUDGET, unit="visit")
RECIPES = {  # every node has a release of its own after rounds 4, 8, 12; users with zeros come in turn
    "a line": A.Gossip(graph=LINE, policy=A.Greedy(), schedule=4, privacy=LITTLE),
    "uploads": A.AsyncFederated(policy=A.Greedy(), schedule=1, privacy=LITTLE),
    "streams": A.Grouped(policy=A.Greedy(), grouping=A.Alone(), schedule=4, privacy=LITTLE),
}


def releases(name, algo, key):
    """What the four nodes released (S, 4, D) in a run of twelve rounds without users' data."""

    def after(state, t):
        if name == "a line":
            state = algo.sync(jax.random.fold_in(key, t), t, state, state, ())[0]
            return state, state.sent
        state = algo.serve(key, t, state, t % 4, jnp.zeros(2), jnp.float32(0))[0]
        return state, (state.ledgers if name == "streams" else state.agents.ledger).mechanism.view

    sent = jax.lax.scan(after, algo.init(key, algo.spec), jnp.arange(12))[1]
    return algo.mechanism.statistic.pack(sent[3::4])


@pytest.mark.parametrize("name", RECIPES)
def test_damage_is_seen_in_loops(name):
    """The loop may also have all nodes draw what one draws."""
    spec = SPEC if name == "a line" else fb.envs.clustered(4, 2, 1, n_arms=2, dim=2).spec
    bound = RECIPES[name].bind(spec, 12)
    keys = jax.random.split(jax.random.key(0), 300)

    @jax.jit
    def run(damage):
        def one(key):
            own = damage._replace(own=jax.random.key_data(key))
            return releases(name, dataclasses.replace(bound, mechanism=with_damage(bound.mechanism, own)), key)

        return jax.vmap(one)(keys)

    def wrong(damage):
        noise = np.moveaxis(np.asarray(run(damage), float), 0, 1)
        factor = behaviour._factor(bound.mechanism.release, 3) * bound.mechanism.trust.sum_std()
        fresh = np.linalg.solve(factor, noise.reshape(3, -1)).reshape(noise.shape)  # (S, runs, nodes, D)
        nodes = np.moveaxis(fresh, 3, 2).reshape(3, -1, 4)
        return [*behaviour._unlike(nodes, "nodes"), *behaviour._unlike(fresh[:, :, 0], "entries")]

    assert unseen(wrong, AT_ONCE) == []


def test_a_tenth_is_seen_with_all_draws(monkeypatch):
    """And a mechanism may hold numbers of any type."""
    monkeypatch.setattr(behaviour, "DRAWS", 2**11)
    bound = bind()
    for by, seen in ((0.9, True), (1.0, False), (1.1, True)):
        assert bool(behaviour.fault(with_damage(bound, NONE._replace(scale=by)))) == seen
    for extra in (jnp.ones(3, jnp.bfloat16), jnp.zeros((0, 2))):
        mine = of(extended(type(bound.trust)), bound.trust, damage=extra)
        assert behaviour.fault(dataclasses.replace(bound, trust=mine)) == ""


def test_a_patched_class_is_seen(monkeypatch):
    """The package can be patched, and then no type tells; user-defined parts are measured when they are certified."""

    def certificate(m):
        privacy = P.Mechanism(BUDGET, release=Prefixes)
        spec = dataclasses.replace(SPEC, n_agents=m)
        return certify(A.Federated(policy=A.Thompson(), schedule=2, privacy=privacy).bind(spec, 10))

    assert certificate(4).claim == "certified"
    monkeypatch.setattr(TRUST["silo_local"], "noise", lambda self, key, size: jnp.zeros(size))
    found = certificate(7)  # of a size that nothing else has, so that no program is kept from before
    assert (found.claim, "0 times the standard deviation" in found.reason) == ("none", True)
