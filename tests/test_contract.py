"""One suite for every registered environment and algorithm."""

import contextlib
import itertools

import jax
import numpy as np
import pytest
from helpers import deep

import fedbandit_jax as fb
from fedbandit_jax.algos import ALGORITHMS
from fedbandit_jax.algos.loops.loop import LEFT_OUT
from fedbandit_jax.envs import ENVIRONMENTS
from fedbandit_jax.privacy.releases import RELEASES
from fedbandit_jax.privacy.trust import TRUST, check

S, UCB = fb.schedules, fb.algos.UCB
BUDGET = fb.privacy.Budget(2.0, 0.05)
EYE = np.eye(3, dtype=np.float32)
ENVS = {
    "sphere": [
        fb.envs.sphere(3, 4, 5, contexts=contexts, rewards=rewards)
        for contexts, rewards in itertools.product(("fresh", "fixed"), ("gaussian", "bernoulli", "clipped_gaussian"))
    ],
    "replay": [fb.envs.replay(EYE, np.array([1, 2]), np.array([0.2, 0.5, 0.9]), n_agents=2)],
    "gap": [fb.envs.gap(3, 4, 5, rewards=rewards) for rewards in ("bernoulli", "gaussian")],
    "arms": [fb.envs.arms(n_arms=3, rewards=rewards) for rewards in ("gaussian", "bernoulli", "beta")],
    "clustered": [
        fb.envs.clustered(5, 2, 2, n_arms=4, dim=3),
        fb.envs.clustered(5, 2, 2, n_arms=4, dim=3, arrivals=[1, 2, 3, 4, 5], rewards="gaussian"),
    ],
    "community": [fb.envs.community(EYE, 0.5 * EYE[[0, 1, 1]], np.array([0, 1, 1]), n_servers=2, n_arms=4)],
}


def private(*, learns_in_batch=False, policy=None, **options):
    """Private-FedLinUCB with batches of 4 under a mechanism with these options."""
    return fb.algos.private_fed_lin_ucb(
        fb.privacy.Mechanism(BUDGET, **options),
        policy=policy or UCB(),
        schedule=4,
        learns_in_batch=learns_in_batch,
    )


def fitting():
    """Every release under every trust model that its proof covers."""
    for trust, release in itertools.product(TRUST, RELEASES):
        with contextlib.suppress(ValueError):
            check(trust, release, "tight")
            yield trust, release


THOMPSON = [
    private(trust=trust, release=release).replace(policy=fb.algos.Thompson(), name=f"Thompson {trust} {release}")
    for trust, release in fitting()
]
ALGOS = {
    "lin_ucb": [fb.algos.LinUCB(), fb.algos.LinUCB(policy=UCB(confidence="authors"))],
    "fed_lin_ucb": [
        fb.algos.fed_lin_ucb(schedule=4),
        fb.algos.fed_lin_ucb(schedule=4, learns_in_batch=False, policy=UCB(confidence="authors")),
    ],
    "private_fed_lin_ucb": [
        private(policy=UCB(regularizer=regularizer), release=release, learns_in_batch=learns)
        for release, learns, regularizer in itertools.product(
            ("tree", "prefix_tree"), (False, True), ("shift", "project")
        )
    ]
    + [
        private(policy=UCB(confidence=confidence), **options)
        for confidence, options in (
            ("known_noise", dict(release="blt")),
            ("authors", dict(unit=fb.privacy.Users(2))),
            ("theory", dict(release="honaker", unit=fb.privacy.Users(2), messages=True)),
            ("theory", dict(trust="secagg", release="blt")),
            ("theory", dict(trust="shuffle_vector_sum")),
            ("theory", dict(trust="local", release="input_perturbation")),
        )
    ],
    "adac_oful": [fb.algos.adac_oful(schedule=4), fb.algos.adac_oful(BUDGET, schedule=S.Geometric(2.0, first=2))],
    "dp_dpe": [
        fb.algos.dp_dpe(np.eye(4, 5), BUDGET, schedule=S.Geometric(2.0, first=2)),
        *(
            fb.algos.dp_dpe(np.eye(4, 5), fb.privacy.Mechanism(BUDGET, *how), schedule=4, name=" ".join(how))
            for how in (("tree", "shuffle_amplified"), ("blt", "secagg"), ("input_perturbation", "local"))
        ),
    ],
    "fed_ucb": [
        fb.algos.fed_ucb(schedule=S.Every(4)),
        fb.algos.fed_ucb(BUDGET, schedule=S.LogDet(5.0, "dp20")),
        fb.algos.fed_ucb(BUDGET, schedule=S.PrivateLogDet(5.0), learns_in_batch=False),
    ],
    "gossip_fed_ucb": [fb.algos.GossipFedUCB(graph=fb.networks.make("line", 3), gamma=2, privacy=BUDGET)],
    "async_federated": [
        fb.algos.AsyncFederated(policy=policy, schedule=schedule, privacy=fb.privacy.Mechanism(BUDGET, unit="visit"))
        for policy, schedule in (
            (fb.algos.Thompson(), S.Every(2)),
            (fb.algos.Greedy(), S.PrivateLogDet(0.5, trigger="he22")),
        )
    ],
    "async_fed_lin_ucb": [fb.algos.async_fed_lin_ucb()],
    "federated": [
        *THOMPSON,
        fb.algos.Federated(policy=fb.algos.Thompson(), schedule=4, name="Thompson"),
        fb.algos.Federated(
            policy=fb.algos.Thompson(), schedule=S.Geometric(1.5, first=2), privacy=BUDGET, name="Thompson geometric"
        ),
        fb.algos.Federated(
            policy=fb.algos.Greedy(),
            schedule=S.Geometric(1.5, first=2),
            privacy=fb.privacy.Mechanism(
                BUDGET, fb.privacy.Decaying(1.5), statistic=fb.privacy.Linear(centred=True, gram_scale=0.5)
            ),
            name="Greedy",
        ),
        fb.algos.Federated(
            policy=fb.algos.Greedy(),
            schedule=4,
            privacy=fb.privacy.Mechanism(BUDGET, "blt", statistic=fb.privacy.Logistic()),
            name="Logistic",
        ),
        *(
            fb.algos.Federated(
                policy=fb.algos.Greedy(),
                schedule=schedule,
                privacy=budget,
                aggregate=rule,
                liars=fb.privacy.Liars([0], attack),
                name=f"{rule} of lies",
            )
            for rule, attack, schedule, budget in (
                ("sum", "sign_flip", 4, None),
                ("median", "random", S.Geometric(1.5, first=2), None),
                ("geometric_median", "large", S.Geometric(1.5, first=2), BUDGET),
                ("trimmed_mean", "collude", 4, BUDGET),
            )
        ),
        fb.algos.Federated(
            policy=fb.algos.EpsilonGreedy(),
            schedule=4,
            privacy=fb.privacy.Mechanism(BUDGET, "blt", "secagg"),
            name="EpsilonGreedy",
        ),
        *(
            fb.algos.Federated(
                policy=fb.algos.Forgetting(policy=policy, memory=memory),
                schedule=schedule,
                privacy=fb.privacy.Mechanism(BUDGET, memory, trust),
                name=f"Forgetting {name}",
            )
            for name, policy, memory, schedule, trust in (
                ("UCB", UCB(), fb.privacy.Discounted(0.7), 4, "silo_local"),
                ("Thompson", fb.algos.Thompson(), fb.privacy.Window(2), S.Geometric(1.5, first=2), "secagg"),
            )
        ),
    ],
    "fclub": [
        fb.algos.FCLUB(),
        fb.algos.FCLUB(budget=BUDGET, shift="once"),
        fb.algos.FCLUB(budget=BUDGET, trigger="count"),
    ],
    "homo": [fb.algos.homo()],
    "homo_dc": [fb.algos.homo_dc(BUDGET, trigger="count", upload=1.5)],
    "club": [fb.algos.CLUB()],
    "sclub": [fb.algos.SCLUB()],
    "grouped": [
        fb.algos.Grouped(grouping=fb.algos.Alone(), schedule=4),
        fb.algos.Grouped(schedule=4, privacy=BUDGET),
    ],
    "adac_ucb": [
        fb.algos.AdaCUCB(),
        fb.algos.AdaCUCB(epsilon=1.0, mechanism="skellam", trust="secagg"),
        fb.algos.AdaCUCB(epsilon=1.0, mechanism="discrete_laplace", trust="local"),  # shuffling is for more users
    ],
    "successive_elimination": [
        fb.algos.SuccessiveElimination(),
        fb.algos.SuccessiveElimination(epsilon=1.0, mechanism="laplace", trust="central"),
        fb.algos.SuccessiveElimination(epsilon=1.0, mechanism="skellam", trust="secagg", messages=True),
        fb.algos.SuccessiveElimination(epsilon=1.0, mechanism="discrete_laplace", trust="local", radius="exact"),
    ],
    "uniform": [fb.algos.Uniform()],
    "uniform_arms": [fb.algos.UniformArms()],
    "gossip": [
        fb.algos.Gossip(graph=fb.networks.make("line", 3), gamma=2, schedule=S.Geometric(1.5, first=4), privacy=BUDGET)
    ],
}


def test_every_registered_component_is_here():
    assert set(ENVS) == set(ENVIRONMENTS)
    assert set(ALGOS) == set(ALGORITHMS)
    names = {algo.name for algo in THOMPSON}
    assert len(names) == len(THOMPSON)
    assert {name.split()[1] for name in names} == set(TRUST)
    assert {name.split()[2] for name in names} == set(RELEASES)
    policies = {one for one in vars(fb.algos).values() if isinstance(one, type) and issubclass(one, fb.Policy)}
    assert policies == {type(algo.policy) for algos in ALGOS.values() for algo in algos if hasattr(algo, "policy")}


SPHERE = ENVS["sphere"][1].spec
UNFIT = [
    *((spec, 10, TypeError, "spec must be an fb.Spec, as env.spec is, got ") for spec in (None, ENVS["sphere"][1])),
    *((SPHERE, horizon, TypeError, "horizon must be an integer >= 1, got ") for horizon in ("x", True, 1.5, None)),
    *((SPHERE, horizon, ValueError, "horizon must be >= 1, got ") for horizon in (0, -3)),
    (SPHERE, 10**10, ValueError, "horizon must be <= 2147483647, got "),
]


@pytest.mark.parametrize("name", ALGOS)
@pytest.mark.parametrize(("spec", "horizon", "error", "words"), UNFIT)
def test_what_a_recipe_is_bound_to_is_checked_first(name, spec, horizon, error, words):
    for algo in ALGOS[name]:
        for bind in (algo.bind, algo.certificate):
            with pytest.raises(error, match=f"^{words}") as found:
                bind(spec, horizon)
            assert "\n" not in str(found.value)


def test_a_recipe_of_ones_own_is_bound_to_what_was_checked():
    class Mine(fb.algos.Federated):
        def bind(self, spec, horizon):
            """Binds."""
            assert type(horizon) is int
            return super().bind(spec, 2 * horizon)

    with pytest.raises(TypeError, match="horizon must be an integer >= 1, got 'x'"):
        Mine(schedule=5).bind(SPHERE, "x")
    assert Mine(schedule=5).bind(SPHERE, np.int64(10)).n_syncs == 4
    assert Mine.bind.__doc__ == "Binds."


BACK = [fb.envs.returning(ENVS["sphere"][1], 4), fb.envs.returning(ENVS["arms"][1], 4)]  # whose users come again
MOVING = [fb.envs.drift(ENVS["sphere"][1], 3), fb.envs.drift(ENVS["sphere"][1], 4, "slide")]
AROUND = [*MOVING, fb.envs.drift(ENVS["arms"][1], 2), fb.envs.lift(ENVS["sphere"][1], 6)]
AROUND += [fb.envs.corrupt(ENVS["sphere"][1], [2], attack) for attack in ("collude", "large")]
AROUND += [fb.envs.dropout(ENVS["sphere"][1], 0.3), fb.envs.delay(ENVS["sphere"][1], 3, "geometric")]
ROWS = np.arange(60)
LOG = dict(silo=ROWS % 2, arm=ROWS // 2 % 3, seen=ROWS // 6 % 2, age=np.sin(ROWS), who=ROWS % 20)
LOGGED = [fb.data.table(LOG, silo="silo", arm="arm", reward="seen", features=["age"], user="who")]
WORLDS = deep(
    [*itertools.chain(*ENVS.values()), *BACK, *AROUND, *LOGGED], keep={1, 5, 6, 7, 11, 13, 14, 15, 17, 20, 25}
)


@pytest.mark.parametrize("env", WORLDS, ids=lambda e: type(e).__name__)
def test_environment(env, key):
    spec = env.spec
    world = jax.jit(env.init)(key)
    observe = jax.jit(lambda t: env.observe(key, world, t))
    (offered, world), *twice = observe(0), observe(3), observe(3)
    assert offered.contexts.shape == (spec.n_agents, spec.n_arms, spec.dim)
    contexts = np.asarray(offered.contexts)
    assert np.linalg.norm(contexts, axis=-1).max() <= spec.max_norm + 1e-5
    within = world[0] if isinstance(env, fb.envs.Returning) else world
    if isinstance(env, fb.envs.Lift):
        contexts, within = np.asarray(world.offered), world.within
    if isinstance(env, fb.envs.Drift):
        within = world.now
    if hasattr(env, "answers"):
        means = np.asarray(env.means(world)[None])
    elif hasattr(env, "clusters"):
        assert sorted(set(np.asarray(env.clusters(world)).tolist())) == list(range(env.n_clusters))
        means = contexts @ np.asarray(world.thetas)[offered.user[0]]
    else:
        means = contexts @ np.asarray(getattr(within, "theta", within))
    if spec.n_users:
        assert offered.user.shape == (spec.n_agents,)
        assert 0 <= offered.user.min() <= offered.user.max() < spec.n_users
    if offered.mask is not None:
        assert offered.mask.shape == means.shape
        means = np.where(offered.mask, means, -np.inf)
    best = means.argmax(1).astype(np.int32)
    feedback = jax.jit(env.pull)(key, world, offered, best)
    np.testing.assert_allclose(feedback.gap, 0, atol=1e-6)
    assert feedback.reward.shape == (spec.n_agents,)
    if spec.rewards_in_unit:
        assert 0 <= feedback.reward.min() <= feedback.reward.max() <= 1
    for a, b in zip(*map(jax.tree.leaves, twice)):
        np.testing.assert_array_equal(a, b)


MULTI_ARMED = ("successive_elimination", "adac_ucb", "uniform_arms")
CLUSTERING = ("fclub", "homo", "homo_dc", "club", "sclub", "grouped", "async_federated", "async_fed_lin_ucb")
LINEAR = [a for name, algos in ALGOS.items() for a in algos if name not in (*CLUSTERING, *MULTI_ARMED)]
COMPOSED = [*ALGOS["federated"], *ALGOS["dp_dpe"]]  # all under one environment, which has four arms
PAIRS: list = [
    (env, algo)
    for env in (ENVS["sphere"][1], ENVS["replay"][0])
    for algo in LINEAR
    if algo not in COMPOSED and len(getattr(algo, "graph", range(env.spec.n_agents))) == env.spec.n_agents
]
PAIRS += itertools.product(ENVS["sphere"][1:2], COMPOSED)
PAIRS += itertools.product(
    ENVS["arms"][:1], [*ALGOS["lin_ucb"], *(algo for name in MULTI_ARMED for algo in ALGOS[name])]
)
USERS = [ALGOS["lin_ucb"][0], *itertools.chain(*(ALGOS[name] for name in CLUSTERING))]
PAIRS += itertools.product(ENVS["clustered"][:1], USERS)
PAIRS += itertools.product(ENVS["community"], [ALGOS["fclub"][0], ALGOS["fed_lin_ucb"][0]])
UNIT = fb.privacy.Users(4, per_batch=1, apart=2)
PATTERNS = {"Banded": fb.privacy.Banded(2), "BandMF": fb.privacy.BandMF(3, UNIT), "MultiBlt": fb.privacy.MultiBlt(UNIT)}
ONES = [  # one user is protected in all that she contributes
    fb.algos.Federated(
        policy=UCB(),
        schedule=2,
        privacy=fb.privacy.Mechanism(BUDGET, release, trust, unit=UNIT),
        name=f"{trust} {name}",
    )
    for trust, (name, release) in itertools.product(("silo_local", "secagg", "central"), PATTERNS.items())
]
ONES += [
    fb.algos.Federated(
        policy=UCB(),
        schedule=schedule,
        privacy=fb.privacy.Mechanism(BUDGET, "blt", trust, unit=fb.privacy.Users(2, apart=2, total=1.0)),
        name=f"{trust} totals",
    )
    for trust, schedule in (("silo_local", 2), ("secagg", 3), ("central", S.Geometric(1.5, first=2)))
]
ONES += [
    fb.algos.Gossip(
        graph=fb.networks.make("line", 3),
        schedule=S.Geometric(1.5, first=2),
        privacy=fb.privacy.Mechanism(BUDGET, fb.privacy.Decaying(1.0), unit=UNIT),
    ),
    *(
        fb.algos.Federated(
            policy=fb.algos.Thompson(),
            schedule=schedule,
            privacy=fb.privacy.Mechanism(BUDGET, "blt", unit=UNIT),
            aggregate="median",
            liars=fb.privacy.Liars([0], "collude"),
            name="median of users",
        )
        for schedule in (4, S.Geometric(1.5, first=3))
    ),
]
PAIRS += itertools.product(BACK[:1], ONES)
PAIRS += itertools.product([MOVING[0], *AROUND[3:5]], [ALGOS["lin_ucb"][0], ALGOS["private_fed_lin_ucb"][0]])
LATE = fb.algos.Federated(
    policy=UCB(),
    schedule=2,
    privacy=fb.privacy.Mechanism(BUDGET, "input_perturbation", "secagg", dropouts=1),
    name="secagg dropouts",
)
PAIRS += itertools.product(AROUND[6:], [LATE, LATE.replace(schedule=S.Geometric(1.5, first=2), trust="secagg")])
PAIRS += [
    (
        BACK[1],
        fb.algos.SuccessiveElimination(
            epsilon=1.0, mechanism="skellam", trust="secagg", unit=UNIT, name="RDP-SE of users"
        ),
    )
]
# The first of every loop that the oracle tests do not run by `simulate`.
NAMES = [algo.name for _, algo in PAIRS]
KEEP = {
    NAMES.index(name)
    for name in ("Private-FedLinUCB", "Thompson", "DP-SE", "CLUB", "silo_local MultiBlt", "Forgetting UCB")
}


@pytest.mark.parametrize(("env", "algo"), deep(PAIRS, keep=KEEP), ids=lambda x: getattr(x, "name", type(x).__name__))
def test_algorithm(env, algo, key):
    result = fb.simulate(env, algo, horizon=10, key=key, seeds=3, throw=False)
    assert result.regret.shape == (3, 10)
    assert np.isfinite(result.regret).all()
    assert (np.diff(result.regret, axis=1) >= -1e-6).all()  # cumulative
    for curve in result.communication.values():
        assert curve.shape == (3, 10)
        assert (np.diff(curve, axis=1) >= 0).all()
    assert result.certificate.claim in ("certified", "as_printed", "none")
    if algo in ALGOS["federated"] and algo.privacy is not None:
        assert result.certificate.claim == "certified"
        assert 0.99 * BUDGET.epsilon < result.certificate.epsilon_exact <= BUDGET.epsilon
    if any(env is one for one in BACK):
        assert result.certificate.claim == "certified"
        assert "beyond" in result.certificate.unit
        assert (np.diff(result.counts[LEFT_OUT], axis=1) >= 0).all()
        assert result.counts[LEFT_OUT].shape == (3, 10)
    again = fb.simulate(env, algo, horizon=10, key=key, seeds=3, throw=False)
    np.testing.assert_array_equal(result.regret, again.regret)
