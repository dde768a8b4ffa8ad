"""Trust models: exact sums behind the noise, and what parties see.

How much noise there is, and that it is drawn, is in `test_calibration.py` and `test_behaviour.py`.
"""

import collections
import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import refused, released
from honest import of
from scipy import stats

import fedbandit_jax as fb
from fedbandit_jax.audits.messages import Messages, by_message
from fedbandit_jax.interfaces import certify
from fedbandit_jax.privacy import Budget, Mechanism, calibrate
from fedbandit_jax.privacy.admission import BoundStatistic
from fedbandit_jax.privacy.packing import matrix_weights, pack, pack_users, packed_size, unpack
from fedbandit_jax.privacy.trust import SecAgg, Shuffled, VectorSum

M, B, D, S = 3, 2, 2, 5
BUDGET = Budget(1.0, 0.1)
PACK = jax.jit(pack)
SIZES = dict(n_syncs=S, n_agents=M, batch=B, dim=D)


def bound(trust, release="tree", messages=False):
    made = Mechanism(BUDGET, release, trust).bind(BoundStatistic(D), n_agents=M, n_syncs=S, batch=B)
    return by_message(made) if messages else made


def users():
    rng = np.random.default_rng(3)
    x = rng.standard_normal((S, B, D, M))
    x /= np.linalg.norm(x, axis=2, keepdims=True) * 1.1
    return x.astype(np.float32), rng.random((S, B, M)).astype(np.float32)


def exact():
    """Packed prefix sums (S, D)."""
    x, y = users()
    rows = np.concatenate([x, y[:, :, None]], 2)
    return np.asarray(PACK(np.cumsum(np.einsum("kbim,kbjm->kij", x, rows), 0)))


@jax.jit
def play(mechanism, key, x, y):
    """Packed private sums (S, D) of one run, and what is shown at its end."""

    def body(state, inputs):
        k, x, y = inputs
        statistics, state = released(mechanism, jax.random.fold_in(key, k), k, state, x, y)
        return state, pack(statistics)

    state, statistics = jax.lax.scan(body, mechanism.init(D), (jnp.arange(1, S + 1), x, y))
    return statistics, state.view


@jax.jit
def plays(mechanism, keys, x, y):
    return jax.vmap(lambda key: play(mechanism, key, x, y)[0])(keys)


# --- The sums behind the noise ---


@pytest.mark.parametrize("dim", [1, 3])
def test_packing_is_an_isometry(dim):
    rng = np.random.default_rng(dim)
    w = rng.standard_normal((7, dim, dim))
    statistics = np.concatenate([w + np.swapaxes(w, 1, 2), rng.standard_normal((7, dim, 1))], -1).astype(np.float32)
    vector = PACK(statistics)
    assert vector.shape == (7, packed_size(dim))
    np.testing.assert_allclose(np.linalg.norm(vector, axis=-1), np.sqrt((statistics**2).sum((1, 2))), rtol=1e-5)
    np.testing.assert_allclose(unpack(vector, dim), statistics, rtol=1e-6)
    x, y = rng.standard_normal((dim, 3)), rng.random(3)
    one = PACK(np.einsum("im,jm->mij", x, np.concatenate([x, y[None]])))
    np.testing.assert_allclose(pack_users(x, y).T, one, rtol=1e-5)
    root = math.sqrt(2)
    assert matrix_weights(packed_size(dim)).tolist() == pytest.approx([root] * (dim * (dim + 1) // 2) + [1] * dim)


def test_integer_messages_are_nearly_exact_with_little_noise(key):
    mechanism = bound("secagg", "blt")
    trust = dataclasses.replace(mechanism.trust, share=np.float32(0.6))
    found = play(of(Messages, mechanism, trust=trust), key, *users())[0]
    np.testing.assert_allclose(found, exact(), atol=100 / float(trust.scale))


def small_vector_sum():
    """A few coarse bits of every user, in the three levels of a tree over S = 5."""
    g, b = np.array([4, 5, 7], np.float32), np.array([9, 6, 5], np.float32)
    trust = VectorSum(g=g, b=b, n_batch=M * B, exact=True, width=int((2 * g + b).max()))
    return trust, dataclasses.replace(bound("shuffle_vector_sum"), trust=trust)


def test_vector_sum_on_users(key):
    """Counts of all bits, and the law drawn at once: unbiased, of variance (sum f (1 - f) + n b / 4) / g^2."""
    trust, rounded = small_vector_sum()
    x, y = users()
    w = np.asarray(jax.jit(pack_users)(x, y), float)  # (S, B, D, M)
    z = [(w + 1) * g for g in trust.g]
    rounding = [np.cumsum(((v % 1) * (1 - v % 1)).sum((1, 3)), 0) for v in z]
    for mechanism, n in ((of(Messages, rounded), 64), (rounded, 300)):
        found = np.asarray(plays(mechanism, jax.random.split(key, n), x, y), float)
        assert (abs(found.mean(0) - exact()) < 5 * found.std(0) / np.sqrt(n)).all()
        ratios = []
        for k, level in ((0, 0), (1, 1), (3, 2)):  # prefixes 1, 2, 4 are single nodes, which start at batch 1
            variance = (rounding[level][k] + (M * B << level) * trust.b[level] / 4) / trust.g[level] ** 2
            ratios.append(found[:, k].var(0) / variance)
            assert trust.sum_std() ** 2 >= max(variance)
        error = 5 * np.sqrt(2 / (n * np.size(ratios)))
        np.testing.assert_allclose(ratios, 1, atol=5 * np.sqrt(2 / n))
        assert abs(np.mean(ratios) - 1) < error
        assert (abs(np.mean(ratios) * np.array([0.8, 1.2]) ** 2 - 1) > error).all()


@pytest.mark.parametrize("trust", ["secagg", "shuffle_vector_sum"])
def test_nothing_shows_between_the_lines_of_the_grid(key, trust):
    """Integer noise on a sum that is not an integer would give it away modulo one step, without any noise."""
    messages = trust == "secagg"  # those of vector sums are bits, and their counts integers by construction
    mechanism = bound(trust, "blt" if messages else "tree", messages)
    x, y = users()

    @jax.jit
    def step(x, y):
        view = released(mechanism, key, jnp.int32(1), mechanism.init(D), x, y)[1].view
        return view if messages else pack(view.reshape(D, D + 1))

    counts = np.asarray(step(x[0], y[0]), float)
    steps = counts * float(mechanism.trust.scale if trust == "secagg" else mechanism.trust.g[0])
    centre = 0.0 if trust == "secagg" else float(M * B * mechanism.trust.b[0] / 2)
    assert abs(steps + centre - np.round(steps + centre)).max() < 0.05  # float32 of 10^5 steps


def test_the_place_between_two_steps_shows_nothing(key):
    """The noise of all silos together is uniform within a step, so that no fraction of a sum is seen through it."""
    trust = SecAgg(share=np.float32(1.0), scale=np.float32(4.0), n_agents=9)
    steps = np.asarray(trust.noise(key, 20_000), float) * 4
    assert stats.kstest(steps % 1, "uniform").pvalue > 1e-3
    assert stats.kstest(np.round(steps) % 1, "uniform").pvalue < 1e-9  # as without a dither
    whole = np.round(steps)
    error = 5 * np.sqrt(2 / len(steps))
    assert abs(np.var(whole) / 9 - 1) < error  # a dither of half a step moves no integer
    assert abs(np.var(0.8 * whole) / 9 - 1) > error
    assert abs(np.corrcoef(whole, steps - whole)[0, 1]) < 5 / np.sqrt(len(steps))


def test_rounding_is_unbiased_whatever_the_silos_have(key):
    """All silos with the same fraction of a step: rounding to the nearest would add up to M/2 steps."""
    trust = SecAgg(share=np.float32(1.0), scale=np.float32(1.0), n_agents=50)

    @jax.jit
    def run(key):
        keys, messages = jax.random.split(key, 50), jnp.full((50, 2000), 0.49)
        sent = jax.vmap(trust.randomize, (0, 0, None, 0))(keys, jnp.arange(50), 1, messages)
        return trust.analyze(key, 1, trust.third_party(key, sent))

    errors = np.asarray(run(key)) - 50 * 0.49
    assert abs(errors.mean()) < 5 * errors.std() / np.sqrt(errors.size)
    assert errors.std() < 1.05 * trust.sum_std()


def test_what_users_send():
    """Users report one by one if they trust nobody, else silos; bits of 5.2e9 users are more than 32 bits count."""
    for trust in ("local", "silo_local"):
        model = bound(trust, "input_perturbation" if trust == "local" else "tree").trust
        assert model.uplink(1, 15, 5) == (15 * (B if trust == "local" else 1), 32)
    size = dict(n_agents=10_000, batch=1, dim=1)
    model = calibrate(BUDGET, n_syncs=2**19, trust="shuffle_vector_sum", **size).model
    numbers, bits = model.uplink(jnp.int32(2**19), 0, 2)
    assert float(numbers) == pytest.approx(2 * 10_000 * 2.0**19)
    assert float(bits) == pytest.approx(2 * model.g[-1] + model.b[-1])


# --- Keys, and what parties are shown ---


PARTS = {"slice", "squeeze", "dynamic_slice", "gather", "reshape"}  # of an array of keys


def drawn_twice(program):
    """Operations on keys that another one draws from, or folds a number into, in a program and those within."""
    uses = collections.defaultdict(list)
    for one in program.eqns:
        for key in {x for x in one.invars if jnp.issubdtype(x.aval.dtype, jax.dtypes.prng_key)}:
            name = one.params.get("name", one.primitive.name)
            start = f" from {one.invars[1:]}" * (name == "bits")  # `core.random.bits` starts at this counter
            uses[key] += [name + start] * (name not in PARTS)
        for inner in jax.tree.leaves(one.params, is_leaf=lambda x: hasattr(x, "eqns") or hasattr(x, "jaxpr")):
            if hasattr(inner, "eqns") or hasattr(inner, "jaxpr"):
                yield from drawn_twice(getattr(inner, "jaxpr", inner))
    for names in uses.values():
        apart = all(name.startswith("bits from") for name in names) and len(names) == len({*names})
        if len(names) > 1 and not apart and {*names} != {"random_fold_in"}:
            yield names


@pytest.mark.parametrize("messages", [False, True])
@pytest.mark.parametrize("trust", fb.privacy.TRUST)
def test_no_key_is_used_twice(key, trust, messages):
    """Rounding, dithers, shuffles and noise draw from keys of their own."""
    mechanism = bound(trust, "input_perturbation" if trust == "local" else "tree", messages)
    x, y = (one[0] for one in users())

    def run(key):
        return released(mechanism, key, 1, mechanism.init(D), x, y)[1].view

    assert [*drawn_twice(jax.make_jaxpr(run)(key).jaxpr)] == []
    twice = jax.make_jaxpr(lambda key: jax.random.normal(key) + jax.random.uniform(jax.random.fold_in(key, 1)))(key)
    assert len([*drawn_twice(twice.jaxpr)]) == 1


def test_who_sees_single_messages(key):
    """The server sees every silo's message, or their sum alone."""
    for trust, seen in (("silo_local", (M,)), ("central", ()), ("secagg", ())):
        _, shown = jax.eval_shape(lambda trust=trust: play(bound(trust, messages=True), key, *users()))
        assert shown.shape == (*seen, packed_size(D))


def test_vector_sum_shows_only_mixed_bits(key):
    """Of every entry another permutation, so that bits of one user do not stay together."""
    trust, rounded = small_vector_sum()
    shown, again = (
        np.asarray(play(of(Messages, rounded), one, *users())[1]) for one in (key, jax.random.fold_in(key, 1))
    )
    assert shown.shape == (packed_size(D), M * rounded.release.size * B * trust.width)
    assert ((shown >= 0).sum(1) == M * B * (2 * 4 + 9)).all()  # node 5 is one batch: 2 g_0 + b_0 bits of each user
    assert not np.array_equal(shown, again)
    messages = np.arange(24, dtype=np.int8).reshape(2, 3, 1, 4).repeat(2, 2)
    bits = np.asarray(jax.jit(trust.third_party)(key, messages))
    np.testing.assert_array_equal(np.sort(bits, 1), [range(24)] * 2)
    assert not np.array_equal(bits[0], bits[1])
    assert not np.array_equal(bits[0], np.sort(bits[0]))


def test_shuffler_permutes_silos(key):
    messages = np.arange(5.0)[:, None] * np.ones((5, 3))
    trust = Shuffled(std=np.zeros(5, np.float32))
    run = jax.jit(jax.vmap(lambda k: trust.third_party(k, messages)[:, 0]))
    seen = np.asarray(run(jax.random.split(key, 4000)))
    assert (np.sort(seen, 1) == np.arange(5)).all()
    counts = np.stack([(seen == silo).sum(0) for silo in range(5)])
    assert stats.chi2.sf(((counts - 800) ** 2 / 800).sum(), 16) > 1e-4


SPEC = fb.Spec(n_agents=100, n_arms=2, dim=10, max_norm=1.0, rewards_in_unit=True)
AWAY, GROWING = dataclasses.replace(SPEC, drops=True), fb.schedules.Geometric(1.5, first=9)
UNMADE = [  # of silos that are away; of batches of several sizes; of too many bits; of whoever adds it; of no noise
    (AWAY, dict(privacy=Mechanism(BUDGET, "input_perturbation"))),
    (SPEC, dict(privacy=Mechanism(BUDGET, trust="secagg"), schedule=GROWING)),
    (SPEC, dict(privacy=Mechanism(BUDGET, trust="shuffle_vector_sum"))),
    (SPEC, dict(privacy=Mechanism(BUDGET, trust=fb.privacy.GaussianTrust("somebody adds it")))),
    (SPEC, dict(privacy=BUDGET, aggregate="median")),
    (SPEC, {}),
]


@pytest.mark.parametrize(("spec", "options"), UNMADE)
def test_where_no_messages_are_made(spec, options):
    """They are refused, and of the first two nothing is claimed if they are made by force."""
    bound = fb.algos.Federated(**options).bind(spec, 1000)
    with refused("bound"):
        by_message(bound)
    if (spec, options) in UNMADE[:2]:
        assert certify(bound).claim == "certified"
        assert certify(dataclasses.replace(bound, mechanism=of(Messages, bound.mechanism))).claim == "none"
