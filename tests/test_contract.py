"""One contract: what every row of `tests/examples.py` keeps, and that the table leaves nothing out."""

import dataclasses
import functools
import json
import math
import re
import zipfile
from pathlib import Path

import examples as ex
import jax
import numpy as np
import pytest
from helpers import ByMessage, SharesRDPSE, Told, deep, in_chunks, refused, same_runs, silent, stopped_after

import fedbandit_jax as fb
from fedbandit_jax.algos.clusters.pooling import Grouping
from fedbandit_jax.algos.loops.ledger import LEFT_OUT, MISSED
from fedbandit_jax.audits import FAMILIES
from fedbandit_jax.certificate import BEYOND
from fedbandit_jax.core.validate import BadArgument
from fedbandit_jax.engine import driver, prepare
from fedbandit_jax.engine.curves import RoundTally, StretchTally
from fedbandit_jax.engine.prepare import Configuration
from fedbandit_jax.engine.runners import make_runner, signature
from fedbandit_jax.interfaces import certify
from fedbandit_jax.privacy.trust.gaussian import GAUSSIAN

A, P, S = fb.algos, fb.privacy, fb.schedules
TESTS = Path(__file__).parent


def rows(slow):
    """Parameters of a test: all rows, some of which are for slow tests only."""
    marks = {True: [pytest.mark.slow], False: []}
    return [pytest.param(row, id=row.name.replace(" ", "-"), marks=marks[slow(row)]) for row in ex.EXAMPLES.values()]


def parts(one):
    """An algorithm, or a part of one, and all of its parts."""
    yield one
    for part in vars(one).values() if dataclasses.is_dataclass(one) and not isinstance(one, type) else ():
        yield from parts(part)


def test_the_table_leaves_nothing_out():
    algos = [row.algo for row in ex.EXAMPLES.values()]
    found = [part for algo in algos for part in parts(algo)]
    kinds = set(map(type, found))
    assert len(ex.EXAMPLES) == sum(map(len, ex.FAMILIES))  # names are distinct
    recipes = {one for one in A.ALGORITHMS.values() if isinstance(one, type)}
    assert recipes == {type(algo) for algo in algos} - {ByMessage, SharesRDPSE}  # which audits make
    for room, base in ((A, fb.Policy), (A, Grouping), (S, S.Schedule), (P, P.Statistic)):
        shipped = {one for one in vars(room).values() if isinstance(one, type) and issubclass(one, base)} - {base}
        assert {one for one in shipped if one.__subclasses__() == []} <= kinds | {S.Fixed}
    mechanisms = [one for one in found if isinstance(one, P.Mechanism)]
    assert {one.trust for one in mechanisms} >= set(P.TRUST)
    assert {one.release for one in mechanisms if isinstance(one.release, str)} == set(P.RELEASES)
    assert {P.Decaying, P.BandMF, P.BISR, P.Discounted} <= {type(m.release) for m in mechanisms}
    assert {algo.aggregate for algo in algos if isinstance(algo, A.Federated)} == set(P.AGGREGATES)
    assert set(ex.WORLDS) == set(fb.envs.ENVIRONMENTS) | set(fb.envs.WRAPPERS)
    loaders = {name for name, one in vars(fb.data).items() if callable(one) and not isinstance(one, type)}
    assert set(ex.DATA) == loaders - {"into_unit"}  # which loads nothing
    assert set(FAMILIES) == {row.audit for row in ex.EXAMPLES.values()} - {""}


# What is asked of every row without playing it.


def it_is_bound_to_what_is_checked(row):
    spec = row.env.spec
    for bind in (row.algo.bind, row.algo.certificate):
        for wrong in (None, row.env):
            with refused("spec", wrong):
                bind(wrong, 10)
        for wrong in ("x", True, 1.5, None, 0, -3, 10**10):
            with refused("horizon", wrong):
                bind(spec, wrong)


def its_claim_is_stated(row):
    found = row.algo.certificate(row.env.spec, ex.T)
    assert found.claim == row.claim, found.reason
    assert fb.privacy.Certificate.from_json(found.to_json()) == found
    if row.claim != "none":
        assert set(BEYOND) <= set(found.not_covered)
    if row.claim != "none" and found.epsilon:
        secagg = getattr(getattr(row.algo, "privacy", None), "trust", "") == "secagg"
        if secagg or (found.accountant == GAUSSIAN and found.sensitivity):  # its own numbers give it
            again = P.gaussian_epsilon(found.sensitivity / found.noise_std, found.delta)
            assert again == pytest.approx(found.epsilon_exact, rel=2e-3 if secagg else 1e-5)
            assert again < found.epsilon_exact or not secagg  # integer noise gives a little less privacy
        assert found.epsilon_exact <= found.epsilon * (1 + 1e-6) or found.notion != "(epsilon, delta)-DP"
        assert found.epsilon_exact > 0.95 * found.epsilon
        assert bool(row.audit)


def refusal(make):
    """The argument that is refused, if one is."""
    try:
        make()
    except BadArgument as error:
        return error.argument
    return None


def it_supports_silos_that_are_away_and_late_rewards(row):
    """Or it refuses them before anything is compiled."""
    bound = row.algo.bind(row.env.spec, ex.T)
    for wrap, how, bears in ((fb.envs.dropout, 0.3, bound.supports_dropouts), (fb.envs.delay, 3, bound.supports_delay)):
        if wrong := refusal(lambda wrap=wrap, how=how: wrap(row.env, how)):
            assert wrong == "env"  # it has no silos, or they are away, and rewards late, already
            continue
        one = Configuration(wrap(row.env, how), row.algo, {})
        wrong = refusal(lambda one=one: prepare.bind(row.name, one, ex.T))
        parts_of_it = {"release", "trust", "bound", "schedule", "policy", "aggregate", "liars", "learns_in_batch"}
        assert wrong in ({None} if bears else {"env", "algo", "recipe"}) | parts_of_it
        if wrong is None:
            assert row.algo.certificate(one.env.spec, ex.T).claim == row.claim


RADII = {"theory": "exact", "exact": "theory"}


def its_numbers_are_no_programs(row):
    """A sweep over any of them compiles once, except over those that decide how much is drawn or released."""
    values = {path: functools.reduce(getattr, path.split("."), row.algo) for path in row.algo.parameters()}
    bits = values.get("privacy.trust") == "shuffle_vector_sum"  # a user sends as many as the budget asks for
    static = re.compile(r"growth|\bstatistic\b" + r"|budget" * bits)
    floats = {path: x for path, x in values.items() if type(x) is float and 0 < x < math.inf}
    factors = {path: 0.1 if path.endswith("epsilon") else 1.01 if x >= 1 else 0.99 for path, x in floats.items()}
    others = {path: x * factors[path] for path, x in floats.items() if not static.search(path)}
    if row.name != "Shuffle-DP-SE" and not isinstance(row.algo, A.TruncatedSE):  # too few users; or theory only
        others |= {path: RADII[x] for path, x in values.items() if path.endswith("radius")}
    if isinstance(getattr(row.algo, "schedule", None), S.LogDet):
        others["schedule.threshold"] = "M^1.5"
    both = (algo.bind(row.env.spec, ex.T) for algo in (row.algo, row.algo.replace(**others)))
    one, other = (signature(make_runner(row.env, bound, ex.T, None)) for bound in both)
    assert one == other


def other_horizons_are_no_programs(row):
    """If their synchronisations are padded to the same number."""
    runners = [make_runner(row.env, row.algo.bind(row.env.spec, horizon), horizon, None) for horizon in (220, 240)]
    assert len({(signature(one), one.hints.seeds, driver._chunk(one, 24)[1]) for one in runners}) == 1


def its_tests_are_there(row):
    file, _, function = row.oracle.partition("::")
    assert f"def {function}" in (TESTS / file).read_text() if row.oracle else True
    assert row.audit in ("", *FAMILIES)


STATED = (
    it_is_bound_to_what_is_checked,
    its_claim_is_stated,
    it_supports_silos_that_are_away_and_late_rewards,
    its_numbers_are_no_programs,
    other_horizons_are_no_programs,
    its_tests_are_there,
)


def holds(properties, *given):
    """Asserts all properties, and names those that do not hold."""
    failed = []
    for one in properties:
        try:
            one(*given)
        except (Exception, pytest.fail.Exception) as error:
            failed.append(f"{one.__name__}: {type(error).__name__}: {error}")
    assert not failed, "\n".join(failed)


@pytest.mark.parametrize("row", rows(lambda row: row in ex.DEAR))
def test_what_a_row_states(row):
    holds(STATED, row)


# What is asked of a run.


def it_is_sound(row, run):
    found = run.result
    assert found.regret.shape == (ex.SEEDS, ex.T)
    assert np.isfinite(found.regret).all()
    assert (run.gaps >= -1e-6).all()
    assert not found.status.any()
    for name, curve in (found.communication | found.counts).items():
        assert curve.shape == (ex.SEEDS, ex.T), name
        assert (np.diff(curve, axis=1) >= 0).all(), name
    if row.env.spec.drops:
        assert found.counts[MISSED][:, -1].min() > 0
    if row.env in (ex.BACK, ex.ARMS_BACK):
        assert "beyond" in found.certificate.unit
        assert found.counts[LEFT_OUT][:, -1].min() > 0


def its_certificate_is_that_of_what_ran(row, run):
    assert run.result.certificate == row.algo.certificate(row.env.spec, ex.T)


def it_is_saved(row, run, folder):
    with zipfile.ZipFile(run.result.save(folder / "run")) as file:
        json.loads(file.read("result.json"), parse_constant=pytest.fail)  # NaN is no JSON
    same_runs(fb.Result.load(folder / "run"), run.result)


def it_resumes(row, run, folder):
    """After Ctrl-C in the middle, exactly."""
    if run.runner.n_steps < 2:
        return
    with pytest.MonkeyPatch.context() as patch:
        in_chunks(patch, 2)
        with stopped_after(1, RoundTally if run.runner.rounds_per_step else StretchTally):
            ex.simulate(row.env, row.algo, checkpoint=folder / "checkpoint")
        again = ex.simulate(row.env, row.algo, checkpoint=folder / "checkpoint")
    same_runs(again, run.result)


def without_noise_it_is_another_row(row, run, folder):
    """And seeds, which differ in their noise alone in a script, do differ with it."""
    if not row.plain:
        return
    plain = ex.played(row.plain)
    mute = silent(run.bound)
    assert certify(mute).claim == "none"
    mute = dataclasses.replace(mute, policy=plain.bound.policy)
    np.testing.assert_allclose(ex.simulate(row.env, mute).regret, plain.result.regret, atol=1e-4)
    assert not np.array_equal(run.result.regret, plain.result.regret)


PLAYED = it_is_sound, its_certificate_is_that_of_what_ran
KEPT = it_is_saved, it_resumes, without_noise_it_is_another_row


@pytest.mark.parametrize("row", rows(lambda row: row.slow))
def test_a_run(row, tmp_path):
    run = ex.played(row.name)
    holds(PLAYED, row, run)
    holds(KEPT, row, run, tmp_path)


@pytest.mark.parametrize("name", deep(["Private-FedLinUCB", "Together", "SE", "FedUCB", "Gossip"], keep={0}))
def test_a_rollout_is_a_seed_alone(name, same_noise):
    """By itself, inside of `jit`, where all seeds of a run are side by side."""
    row, whole = ex.EXAMPLES[name], ex.played(name).result
    rollout = jax.jit(lambda key: fb.rollout(row.env, row.algo, key, horizon=ex.T))
    for seed in (0, ex.SEEDS - 1):
        alone = rollout(jax.random.fold_in(ex.KEY, seed))
        np.testing.assert_allclose(alone.regret, whole.regret[seed], rtol=1e-4, atol=1e-4)


# What every loop tells its policy of a release: whose users are in it, and how much noise. By default oracles of
# greedy policies, whose ridge is that much noise, ask it of silos with a server and of streams.


N, ROUNDS, DOUBLING = 300, 12, S.Geometric(2.0, first=3)  # seeds; after rounds 3, 6, 12
# Noise drowns all users.
LITTLE = P.Mechanism(P.Budget(0.01, 1e-6), unit="visit", statistic=P.Linear(gram_scale=0.5))
COMMON = dict(policy=Told(), schedule=DOUBLING, privacy=LITTLE)
FORGETS = A.Forgetting(policy=Told(), memory=P.Discounted(0.5))
# A loop: environment, algorithm, users in the last sums of an agent of theirs, which one (None: who came last), last k.
LOOPS = {
    "batches": (ex.SPHERE, A.Federated(**COMMON).replace(schedule=4), 4 * ROUNDS, 0, 2),  # two nodes of a tree
    "schedule": (ex.SPHERE, A.Federated(**COMMON), 4 * ROUNDS, 0, 2),
    "a median": (ex.SPHERE, A.Federated(**COMMON, aggregate="median"), 4 * ROUNDS, 0, 2),
    "a line": (ex.SPHERE, A.Gossip(**COMMON, **ex.GRAPH), 3 * ROUNDS, 1, 2),
    "uploads": (ex.USERS, A.AsyncFederated(**COMMON).replace(schedule=1), ROUNDS, None, None),
    "streams": (ex.USERS, A.Grouped(**COMMON, grouping=A.Together()), ROUNDS, 0, 2),
    "forgetting": (ex.SPHERE, A.Federated(**{**COMMON, "policy": FORGETS, "schedule": 4}), 16 * 1.75, 0, 2),
}


def believed(moment):
    belief = getattr(moment.state, "agents", moment.state).belief
    return getattr(belief, "within", belief)


@pytest.mark.parametrize("name", deep([*LOOPS], keep={3, 4}))
def test_what_a_policy_is_told(name, key):
    env, algo, users, which, last_k = LOOPS[name]
    record = {"belief": fb.record.final(believed)}
    run = fb.simulate(env, algo, horizon=ROUNDS, key=key, seeds=N, record=record, stride=ROUNDS)
    belief = run.records["belief"].reshape(N, -1, 4 + ex.D * (ex.D + 1))
    if which is None:  # whoever came last has downloaded the sums of all rounds
        which = belief[..., 1:2].argmax(1, keepdims=True)
    belief = np.take_along_axis(belief, np.broadcast_to(which, (N, 1, 1)), 1)[:, 0]
    (k, count, std, last), diagonal = belief[:, :4].T, belief[:, 4 : 4 + ex.D**2 : ex.D + 1]  # of W
    np.testing.assert_allclose(count, users, rtol=1e-6)
    noise = diagonal / std[:, None]
    assert noise.std() == pytest.approx(1, abs=5 / math.sqrt(2 * noise.size))  # five standard errors
    if name == "uploads":  # who will have uploaded by then is not known in advance
        assert (std <= last * (1 + 1e-6)).all()
    else:
        np.testing.assert_allclose(std, last, rtol=1e-6)
        np.testing.assert_array_equal(k, last_k)


# Environments and data sets.

LISTED = [(name, env) for name, envs in ex.WORLDS.items() for env in envs]
FIRST = {i for i, (name, env) in enumerate(LISTED) if env is ex.WORLDS[name][0]}


@pytest.mark.parametrize(("name", "env"), deep(LISTED, keep=FIRST), ids=lambda x: x if isinstance(x, str) else "")
def test_an_environment(name, env, key):
    """Offers and answers are shaped as its spec says, within its bounds, and best where the gap is 0."""
    spec = env.spec
    world = jax.jit(env.init)(key)
    observe = jax.jit(lambda t: env.observe(key, world, t))
    (offered, world), *twice = observe(0), observe(3), observe(3)
    contexts, mask, user = jax.device_get((offered.contexts, offered.mask, offered.user))
    assert contexts.shape == (spec.n_agents, spec.n_arms, spec.dim)
    assert np.linalg.norm(contexts, axis=-1).max() <= spec.max_norm + 1e-5
    if spec.n_users:
        assert user.shape == (spec.n_agents,)
        assert 0 <= user.min() <= user.max() < spec.n_users
    pull = jax.jit(lambda arm: env.pull(key, world, offered, arm))
    answers = [jax.device_get(pull(np.full(spec.n_agents, arm, np.int32))) for arm in range(spec.n_arms)]
    gaps = np.array([one.gap for one in answers])
    if mask is not None:
        assert mask.shape == contexts.shape[:2]
        gaps = np.where(mask.T, gaps, np.inf)
    if name != "rejection":  # where a row that is not what was played is left out
        np.testing.assert_allclose(gaps.min(0), 0, atol=1e-6)
    for one in answers:
        assert one.reward.shape == (spec.n_agents,)
        if spec.rewards_in_unit:
            assert not ((one.reward < 0) | (one.reward > 1)).any()  # that of a row left out is no number
    for a, b in zip(*map(jax.tree.leaves, twice)):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("name", ex.DATA)
def test_a_data_set(name, tmp_path):
    """Is the same when it is read again, and says what `replay`, `community` or a run is given."""
    one, other = (ex.DATA[name](tmp_path) for _ in range(2))
    for a, b in zip(*(jax.tree.leaves(x.arguments() if hasattr(x, "arguments") else x) for x in (one, other))):
        np.testing.assert_array_equal(a, b)
        assert np.isfinite(a).all()
    if isinstance(one, fb.envs.Logged):
        assert A.fed_lin_ucb().certificate(one.spec, 10).claim == "none"
