"""`CASES`: every public factory, what it is given while one argument is tried, and which values that one may have."""

import dataclasses

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
from argument_kinds import (
    a,
    adjacencies,
    array,
    calibrations,
    count,
    delta,
    either,
    empty,
    epsilon,
    factor,
    failure,
    flag,
    function,
    increasing,
    inside_unit,
    label,
    no_values,
    non_negative,
    nothing,
    number,
    one,
    one_of,
    optional,
    pair,
    path,
    positive,
    rows,
    rows_that_may_be_nan,
    scalar,
    seeds,
    silos,
    single_key,
    text,
    titles,
    visits,
)
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import fedbandit_jax as fb
from fedbandit_jax.certificate import no_privacy
from fedbandit_jax.privacy import releases, trust
from fedbandit_jax.report.findings import Audit

A, E, P, S = fb.algos, fb.envs, fb.privacy, fb.schedules

# What is given where another argument is tried.

BUDGET = P.Budget(1.0, 0.1)
LINE = nx.path_graph(3)
LOG = dict(where=np.arange(40) % 2, drug=np.arange(40) // 2 % 2, cured=np.arange(40) // 4 % 2)
RANDOMISED = fb.data.table(LOG | {"p": np.full(40, 0.5)}, silo="where", arm="drug", reward="cured", propensity="p")
EYE = np.eye(3, dtype=np.float32)
SPHERE = E.sphere(3, 4, 5, rewards="bernoulli")
KEY = jax.random.key(0)
PRIVATE = A.private_fed_lin_ucb(BUDGET, schedule=2)
ASYNC = A.AsyncFederated(schedule=S.Geometric(1.5), privacy=P.Mechanism(BUDGET, unit="visit"))
SUMS = A.SuccessiveElimination(epsilon=1.0, mechanism="discrete_laplace", trust="central")


def a_result():
    curve = np.ones((1, 2, 2))
    spec = dict(n_agents=1, n_arms=2, dim=1)
    return fb.Result(
        rounds=np.array([1, 2]),
        regret=curve,
        communication={name: curve for name in ("rounds", "floats", "bits")},
        gauges={"clusters": curve},
        status=np.zeros((1, 2), int),
        certificates={"one": dataclasses.replace(no_privacy("a test"), epsilon=1.0, delta=0.1, epsilon_exact=1.0)},
        config={
            "environments": {"one": {"type": "Test", "spec": spec}},
            **{"algorithms": {"one": {}}, "coordinates": {"one": {"algorithm": "one"}}},
            **dict(horizon=2, seeds=[[0, 2]], stride=None, key=[0, 1]),
        },
        provenance={},
    )


def an_audit():
    numbers_of = {field.name: 1.0 for field in dataclasses.fields(Audit)}
    words = dict(name="an audit", which="first user", statistic="linear", bound="Clopper-Pearson")
    return Audit(**{**numbers_of, **words})  # pyright: ignore[reportArgumentType]


NOISE = lambda key, data: data + jax.random.normal(key)  # noqa: E731
CASE = fb.audits.Case(name="a case", mechanism=NOISE, data=0.0, neighbour=1.0, epsilon=1.0, delta=0.1)
RESULT, BELIEF = a_result(), fb.linalg.GaussianBelief(jnp.zeros(2), jnp.eye(2))


def thompson(regularization, scale, shrinkage):
    """A policy is a pytree, which checks its numbers when it is bound."""
    return A.Thompson(regularization=regularization, scale=scale, shrinkage=shrinkage).bind(None)  # pyright: ignore[reportArgumentType]


def epsilon_greedy(explore, shrinkage):
    return A.EpsilonGreedy(explore=explore, shrinkage=shrinkage).bind(None)  # pyright: ignore[reportArgumentType]


def mixture(max_groups, tries, subgaussian, theta_norm):
    made = A.Mixture(max_groups=max_groups, tries=tries, subgaussian=subgaussian, theta_norm=theta_norm)
    return made.bind(SPHERE.spec)


def ship(families):
    return fb.audits.shipped(families)


def an_audited_case(**fields):
    return fb.audits.Case(**fields).run(KEY)


def run_case(key, n_runs):
    return CASE.run(key, n_runs)


def replace(epsilon, upload, visits, name):
    return A.FCLUB(BUDGET).replace(epsilon=epsilon, upload=upload, visits=visits, name=name)


def certificate(spec, horizon):
    return A.Federated().certificate(spec, horizon)


def save(path):
    return RESULT.save(path)


def sample(key, scale):
    return BELIEF.sample(key, scale)


def std(contexts):
    return BELIEF.std(contexts)


laws, noise = one_of("gaussian", "bernoulli", "clipped_gaussian"), non_negative
linear = {"regularization": (1.0, optional(number(1e-5, 3.4e38))), "failure": (0.01, failure)}
linear |= {name: (1.0, non_negative) for name in ("subgaussian", "theta_norm", "exploration_scale")}
users = {**linear, "regularization": (1.0, number(1e-5, 3.4e38)), "name": ("x", label)}
batched = {"schedule": (5, count()), "learns_in_batch": (False, flag), "name": ("x", label)}
named = {**batched, "name": ("x", text)}
liars = dict(silos=(0.2, either(number(0, 1), silos)), attack=("sign_flip", one_of("random", "large", "collude")))
budget = {"epsilon": (1.0, epsilon), "delta": (0.1, delta)}
asked = {"threshold": (5.0, either(positive, one_of("M log T", "M^1.5"))), "max_syncs": (5, optional(count()))}
release = optional(either(one_of(*releases.RELEASES), callable))
run = {
    "env": (SPHERE, nothing),
    "horizon": (4, count()),
    "key": (KEY, single_key),
    "seeds": (2, either(count(), seeds)),
    "stride": (2, optional(either(count(), one_of("log")))),
    "record": (None, no_values),
    "devices": ("runs", one_of("agents")),
    "progress": (False, optional(flag)),
    "checkpoint": (None, optional(path)),
    "throw": (False, flag),
}
points = {
    "result": (RESULT, nothing),
    "title": (None, optional(a(str))),
    "lines": (None, optional(a(dict))),
    "ax": (None, optional(nothing)),
}
drawn = {
    "result": (RESULT, nothing),
    "band": ("error", one_of("error", "deviation")),
    "title": (None, optional(a(str))),
    "ax": (None, optional(a(Axes))),
}
alone = {"n_agents": (2, count()), "horizon": (4, count()), "name": ("x", text)}
audited = {
    **dict(mechanism=(NOISE, nothing), data=(0.0, scalar)),
    **dict(neighbour=(1.0, scalar), epsilon=(1.0, number(0, inside=True)), delta=(0.1, number(0, 1)), name=("x", text)),
    **dict(gaussian=(False, flag), scheduled=(False, flag)),
    **dict(fixed_control_flow=(False, flag), which=("first user", text)),
    **dict(others=({"another": (0.0, 2.0)}, no_values), sensitivity=(None, optional(number(0, inside=True)))),
    **dict(measure=(lambda view, other: 0.0, optional(callable))),
}
CASES = {  # factory -> argument -> what is given while others are tried, and which values may be given
    E.sphere: {
        **dict(n_agents=(3, count()), n_arms=(4, count()), dim=(5, count(2)), contexts=("fresh", one_of("fixed"))),
        **dict(rewards=("gaussian", laws), noise_std=(0.5, noise), shape=(None, optional(nothing))),
    },
    E.gap: {
        **dict(n_agents=(3, count()), n_arms=(4, count(2)), dim=(5, count(2)), gap=(0.1, number(1.2e-38, 0.3))),
        **dict(rewards=("bernoulli", laws), noise_std=(0.5, noise), shape=(None, optional(nothing))),
    },
    E.arms: {
        **dict(n_arms=(3, optional(count(2))), instance=("easy", one_of("hard")), means=(None, optional(array(1)))),
        **dict(rewards=("beta", one_of("gaussian", "bernoulli")), noise_std=(0.1, positive)),
        **dict(concentration=(10.0, positive)),
    },
    E.returning: dict(
        env=(SPHERE, nothing),
        n_users=(5, count(high=10**6)),
        arrivals=("uniform", either(one_of("uniform"), array(1))),
        session=(2, count(high=2**30)),
    ),
    E.drift: dict(
        env=(SPHERE, nothing),
        when=(5, either(count(high=2**31 - 2), number(1e-6, 1 - 1e-7), increasing)),
        how=("jump", one_of("slide")),
    ),
    E.delay: dict(env=(SPHERE, nothing), rounds=(5, count(high=10**4)), law=("fixed", one_of("geometric"))),
    E.rejection: dict(env=(RANDOMISED, nothing)),
    E.dropout: dict(env=(SPHERE, nothing), rate=(0.1, number(0, 1 - 1e-7)), schedule=(None, optional(nothing))),
    E.corrupt: dict(env=(SPHERE, nothing), **liars),
    E.lift: dict(env=(SPHERE, nothing), random_features=(4, count(2, 4096)), bandwidth=(1.0, positive)),
    E.clustered: {
        **dict(n_users=(6, count(1, 10**6)), n_servers=(2, count(1, 10**6)), n_clusters=(2, count(1, 1_000))),
        **dict(n_arms=(4, count()), dim=(5, count(2)), gap=(0.5, number(1e-3, 1)), rewards=("bernoulli", laws)),
        **dict(
            seating=("random", one_of("consecutive")),
            arrivals=("uniform", nothing),
            noise_std=(0.5, noise),
            shape=(None, optional(nothing)),
        ),
    },
    E.community: {
        **dict(items=(EYE, rows), thetas=(EYE[[0, 1, 1]] / 2, rows), clusters=(np.array([0, 1, 1]), nothing)),
        **dict(n_servers=(2, count()), n_arms=(4, count()), arrivals=("uniform", nothing)),
        **dict(rewards=("bernoulli", laws), noise_std=(0.5, noise), shape=(None, optional(nothing))),
    },
    E.replay: {
        **dict(features=(EYE, rows), query_sizes=(np.array([1, 2]), array(1, "iu")), theta=(EYE[0] / 2, array(1))),
        **dict(
            n_agents=(2, count()), rewards=("gaussian", laws), noise_std=(0.5, noise), shape=(None, optional(nothing))
        ),
    },
    E.script: dict(
        contexts=(one, nothing),
        answers=(one[0], nothing),
        means=(None, optional(nothing)),
        users=(None, optional(nothing)),
        fixed_contexts=(False, flag),
    ),
    fb.Spec: {
        **{name: (2, count()) for name in ("n_agents", "n_arms", "dim", "n_servers")},
        **dict(n_users=(0, count(0)), late=(0, count(0)), max_norm=(1.0, number(0)), fixed_contexts=(False, flag)),
        **dict(rewards_in_unit=(False, flag), constant=(False, flag), drops=(False, flag)),
        **dict(silos=(1, count()), basis=("a model", a(str))),
    },
    A.UCB: {**linear, "confidence": ("theory", one_of("authors")), "regularizer": ("shift", one_of("project"))},
    A.LogDetUCB: {**linear, "spectral": ("quantile", one_of("theory"))},
    thompson: dict(regularization=(1.0, positive), scale=(0.5, positive), shrinkage=(12.0, non_negative)),
    A.Greedy: dict(shrinkage=(12.0, non_negative), regularization=(1.0, positive)),
    epsilon_greedy: dict(explore=(5.0, non_negative), shrinkage=(1.0, non_negative)),
    A.Forgetting: dict(policy=(A.UCB(), nothing), memory=(P.Discounted(0.9), nothing)),
    A.PhasedElimination: dict(arms=(EYE, rows), failure=(0.1, failure), exploration_scale=(1.0, positive)),
    A.dp_dpe: {
        **dict(arms=(EYE, rows), privacy=(BUDGET, optional(nothing)), failure=(0.1, failure)),
        **dict(exploration_scale=(1.0, positive), schedule=(5, count()), name=("x", text)),
    },
    A.adac_oful: {
        **dict(privacy=(BUDGET, optional(nothing)), policy=(A.UCB(), nothing), schedule=(5, count())),
        **dict(name=("x", text)),
    },
    A.Uniform: dict(name=("x", text)),
    A.UniformArms: dict(name=("x", text)),
    A.LinUCB: dict(policy=(A.UCB(), nothing), name=("x", text)),
    A.Federated: {
        **{"policy": (A.UCB(), nothing), "privacy": (BUDGET, optional(nothing)), **batched},
        **dict(aggregate=("sum", one_of(*P.AGGREGATES)), liars=(None, optional(a(P.Liars)))),
    },
    A.fed_lin_ucb: {"policy": (A.UCB(), nothing), **named},
    A.private_fed_lin_ucb: {"privacy": (BUDGET, nothing), "policy": (A.UCB(), nothing), **named},
    A.fed_ucb: {
        **dict(privacy=(BUDGET, optional(nothing)), policy=(A.LogDetUCB(), nothing), **batched),
    },
    A.GossipFedUCB: {
        **dict(graph=(LINE, nothing), gamma=(1, count()), privacy=(BUDGET, optional(nothing)), name=("x", label)),
        **dict(policy=(A.LogDetUCB(), nothing), schedule=(S.LogDet(5.0), nothing)),
    },
    A.AsyncFederated: {
        **dict(policy=(A.UCB(), nothing), privacy=(ASYNC.privacy, optional(nothing)), name=("x", label)),
        **dict(schedule=(5, count())),
    },
    A.async_fed_lin_ucb: dict(
        growth=(2.0, number(1, 3.4e38, inside=True)), policy=(A.UCB(), nothing), name=("x", text)
    ),
    A.Gossip: {
        **dict(graph=(LINE, nothing), gamma=(1, count()), privacy=(BUDGET, optional(nothing)), name=("x", label)),
        **dict(policy=(A.Greedy(), nothing), schedule=(5, count())),
    },
    A.SuccessiveElimination: {
        **dict(epsilon=(1.0, number(1e-9, 500)), mechanism=("skellam", nothing), trust=("secagg", nothing)),
        **dict(radius=("theory", one_of("exact")), growth=(2, optional(count(2, 1024)))),
        **dict(calibration=("theorem", one_of("authors"))),
        **dict(scale=(10.0, optional(number(1, 2**24)))),
        **dict(failure=(0.1, number(0, 0.3)), delta=(1e-6, optional(delta)), messages=(False, flag), name=("x", label)),
        **dict(unit=(P.Users(2, 1), optional(nothing))),
    },
    A.AdaCUCB: {
        **dict(epsilon=(1.0, number(1e-9, 500)), mechanism=("skellam", nothing), trust=("secagg", nothing)),
        **dict(scale=(10.0, optional(number(1, 2**24))), failure=(0.1, number(0, 0.3))),
        **dict(delta=(1e-6, optional(delta)), name=("x", text)),
    },
    A.FCLUB: {
        **dict(budget=(BUDGET, optional(nothing)), upload=(1.1, number(1, 3.4e38)), download=(1.1, number(1, 3.4e38))),
        **dict(trigger=("count", one_of("determinant")), shift=("every", one_of("once")), alpha_1=(1.5, factor)),
        **dict(alpha_2=(2.0, factor), max_uploads=(5, optional(count())), calibration=("tight", one_of("theorem"))),
        **dict(spectral=("quantile", one_of("theory", "printed")), visits=(1, visits), **users),
    },
    A.homo: dict(budget=(BUDGET, optional(nothing))),
    A.homo_dc: dict(budget=(BUDGET, optional(nothing))),
    A.CLUB: {"alpha_edge": (0.25, factor), **users},
    mixture: dict(
        **dict(max_groups=(3, count()), tries=(2, count())),
        **dict(subgaussian=(0.5, number(0, 3.4e38)), theta_norm=(1.0, number(0, 3.4e38))),
    ),
    A.Grouped: dict(
        **dict(grouping=(A.Alone(), nothing), policy=(A.Greedy(), nothing), schedule=(5, count())),
        **dict(privacy=(BUDGET, optional(nothing)), name=("x", label)),
    ),
    A.SCLUB: {"alpha_theta": (1.5, factor), "alpha_p": (1.0, factor), **users},
    replace: dict(epsilon=(1.0, epsilon), upload=(1.1, number(1, 3.4e38)), visits=(1, visits), name=("x", label)),
    certificate: dict(spec=(SPHERE.spec, nothing), horizon=(10, count())),
    S.Every: dict(batch=(3, count())),
    S.Geometric: dict(growth=(1.5, number(1.001, 1e6)), first=(3, count())),
    S.LogDet: {"trigger": ("zc24", one_of("dp20", "he22")), **asked},
    S.PrivateLogDet: {"share": (0.1, inside_unit), "trigger": ("zc24", one_of("he22")), **asked},
    S.as_schedule: dict(schedule=(3, count())),
    P.Budget: {**budget, "adjacency": ("replace", adjacencies)},
    P.GaussianTrust: {
        **dict(sentence=("mine", text), sources=(1, either(count(), callable)), whose=("of a message", text)),
        "assumes": ((), a(tuple)),
    },
    P.Mechanism: {
        **dict(budget=(BUDGET, nothing), release=("tree", release), trust=("silo_local", one_of(*trust.TRUST))),
        **dict(
            calibration=("tight", calibrations),
            unit=("visit", optional(either(one_of("visit"), a(P.Users)))),
            statistic=(P.Linear(), a(P.Statistic)),
        ),
        **dict(dropouts=(0, count(0, 0)), resends=(True, flag), messages=(False, flag)),
    },
    P.Statistic: dict(gram_scale=(1.0, number(1e-3, 1))),
    P.Linear: dict(
        **dict(gram_scale=(1.0, number(1e-3, 1)), centred=(False, flag), clip=(True, flag)),
        **dict(low=(0.0, number(-1e30, 1 - 1e-6)), high=(1.0, number(1e-6, 1e30))),
    ),
    P.Logistic: dict(gram_scale=(2.0, number(1e-3, 4)), limit=(1.0, positive)),
    P.Users: dict(
        visits=(2, count(1, 2**30)),
        per_batch=(1, optional(count(1, 2))),
        apart=(1, count(1, 2**30)),
        silos=(1, count(1, 2**30)),
        total=(None, optional(nothing)),
    ),
    P.Liars: liars,
    P.Decaying: dict(decay=(1.5, number(1, 100))),
    P.Banded: dict(bands=(3, count(high=1024))),
    P.Discounted: dict(decay=(0.9, number(1e-300, 1 - 2 / 1024))),
    P.Window: dict(batches=(3, count(high=1024))),
    P.BandMF: dict(bands=(3, count(high=1024)), users=(P.Users(2), a(P.Users))),
    P.MultiBlt: dict(users=(P.Users(2), a(P.Users)), n_buffers=(2, count())),
    P.calibrate: {
        **dict(
            budget=(BUDGET, nothing), n_syncs=(4, count()), release=("tree", release), method=("tight", calibrations)
        ),
        **dict(trust=("shuffle_amplified", one_of(*trust.TRUST)), users=(P.Users(), a(P.Users)), n_agents=(3, count())),
        **dict(
            batch=(5, count()),
            dim=(3, optional(count())),
            pure=(0.0, number(0, 1)),
            moves_sq=(None, optional(number(1e-6, 1e3))),
            rounding=(0.0, number(0, 1e3)),
            dropouts=(0, count(0, 0)),
            held=(0, count(0)),
        ),
    },
    P.epsilon_of: {
        **dict(sigma=(3.0, number(0)), delta=(0.1, delta), n_syncs=(4, count()), release=("tree", release)),
        **dict(adjacency=("replace", adjacencies), users=(P.Users(), a(P.Users))),
    },
    P.least_std: dict(n_syncs=(4, count())),
    P.relative_std: dict(release=(releases.Tree(4), nothing)),
    P.compose: dict(events=([P.events.Gaussian(0.5)], nothing), delta=(0.1, delta)),
    P.returning: dict(event=(P.events.Gaussian(0.5), nothing), delta=(0.1, delta), visits=(3, count(1, 10**5))),
    P.rdp_epsilon: dict(rdp=(lambda alpha: 0.1 * alpha, callable), delta=(0.1, delta)),
    P.zcdp_epsilon: dict(rho=(0.1, number(0, 1e8)), delta=(0.1, delta)),
    P.gaussian_mu: {**budget, "pure": (0.0, number(0, 1))},
    P.gaussian_epsilon: dict(mu=(1.0, number(0, 1e4)), delta=(0.1, delta), pure=(0.0, number(0, 1e6))),
    P.events.Gaussian: dict(mu=(0.5, number(0, 1e4)), pure=(0.0, number(0, 1e6))),
    P.events.PureDP: dict(epsilon=(0.5, number(0, 1e6))),
    P.events.Renyi: dict(curve=(lambda alpha: alpha, callable)),
    P.events.ApproximateDP: dict(epsilon=(0.5, number(0, 1e6)), delta=(0.1, number(0, 1))),
    fb.networks.make: dict(name=("ring", nothing), n_agents=(6, count(2, 20_000)), seed=(0, count(0, 2**32 - 1))),
    fb.networks.network: dict(graph=(LINE, nothing), gamma=(1, count())),
    fb.data.classification: dict(
        name=("digits", nothing), components=(None, optional(count())), penalty=(0.1, number(0))
    ),
    fb.data.into_unit: dict(features=(np.ones((2, 2)), rows), theta=(np.ones(2), array(1))),
    fb.data.lasso: {
        **dict(features=(EYE, rows), labels=(EYE[0], array(1)), penalty=(0.1, number(0)), tolerance=(0.1, number(0))),
        **dict(max_steps=(9, count())),
    },
    fb.data.movielens: {
        **dict(path=(".", path), dim=(5, count(2)), thetas=("user", one_of("centroid")), seed=(0, count(0, 2**32 - 1))),
        **{name: (3, count()) for name in ("n_users", "n_items", "n_active", "n_clusters")},
    },
    fb.data.mslr: {
        **dict(path=(".", path), features=("title", one_of("body")), fold=(1, count(1, 5)), penalty=(0.1, number(0))),
        **dict(cache=(False, flag), normalise=(True, flag)),
    },
    fb.data.mslr_arms: {
        **dict(path=(".", path), n_arms=(3, count(2)), fold=(1, count(1, 5)), seed=(0, count(0, 2**32 - 1))),
        **dict(cache=(False, flag)),
    },
    fb.data.table: {
        **dict(source=(LOG, nothing), silo=("where", nothing), arm=("drug", nothing), reward=("cured", nothing)),
        **{name: (None, optional(nothing)) for name in ("user", "features", "arm_features", "propensity")},
        **dict(fit_share=(0.5, inside_unit), model=("linear", one_of("logistic")), seed=(0, count(0, 2**32 - 1))),
    },
    fb.data.open_bandit: {
        **dict(path=(".", path), silo=("position", text), fit_share=(0.5, inside_unit)),
        **{name: (None, optional(titles)) for name in ("features", "arm_features")},
        **dict(model=("linear", one_of("logistic")), seed=(0, count(0, 2**32 - 1))),
    },
    **{
        one: dict(fit_share=(0.5, inside_unit), model=("linear", one_of("logistic")), seed=(0, count(0, 2**32 - 1)))
        for one in fb.data.EXAMPLES.values()
    },
    fb.off_policy: {
        **dict(env=(RANDOMISED, nothing), algos=([A.LinUCB()], nothing), horizon=(8, count()), key=(KEY, single_key)),
        **dict(seeds=(2, either(count(), seeds)), level=(0.95, inside_unit), progress=(False, optional(flag))),
    },
    fb.linalg.project: dict(gram=(jnp.eye(2), rows_that_may_be_nan)),
    fb.linalg.GaussianBelief.solve: dict(precision=(jnp.eye(2), rows_that_may_be_nan), bias=(jnp.zeros(2), nothing)),
    sample: dict(key=(KEY, single_key), scale=(1.0, either(non_negative, a(jax.Array)))),
    std: dict(contexts=(jnp.eye(2), nothing)),
    fb.plan: {
        **dict(env=(SPHERE, nothing), budget=(BUDGET, nothing), horizon=(8, count(8)), key=(KEY, single_key)),
        **dict(
            trusted=("silo", empty),
            unit=(None, optional(either(one_of("visit"), a(P.Users)))),
            max_syncs=(1, optional(count())),
        ),
        **dict(dropouts=(0.0, number(0, 1)), liars=(0.0, number(0, 0.5)), delay=(0, count(0, 10**4))),
        **dict(max_bits=(None, optional(number(0, inside=True))), seeds=(2, count(2, 2**20))),
        **dict(rounds=(None, optional(count(8, 8))), progress=(False, optional(flag))),
    },
    fb.simulate: {"algo": (A.LinUCB(), nothing), "store": (None, optional(path)), **run},
    fb.sweep: {
        "algos": ([A.LinUCB()], nothing),
        "grid": ({"failure": [0.1]}, no_values),
        "store": (None, optional(path)),
        "executor": (None, optional(nothing)),
        "part": (None, optional(pair)),
        **run,
    },
    fb.rollout: {
        **dict(env=(SPHERE, nothing), algo=(A.LinUCB(), nothing), horizon=(3, count()), key=(KEY, single_key)),
        **dict(record=(None, no_values)),
    },
    fb.record.every: dict(function=(fb.record.arms, function), stride=(2, either(count(), one_of("log")))),
    fb.record.final: dict(function=(fb.record.arms, function)),
    fb.concat: dict(results=([RESULT], nothing)),
    save: dict(path=("saved", path)),
    fb.Result.load: dict(path=("saved", path)),
    fb.plotting.regret: {"time_average": (True, flag), **drawn},
    fb.plotting.gauge: {"name": ("clusters", nothing), "limits": (None, optional(array(1))), **drawn},
    fb.plotting.against: {"coordinate": ("algorithm", nothing), **points},
    fb.plotting.privacy_frontier: points,
    fb.plotting.communication_frontier: points,
    fb.plotting.colour: dict(algorithm=(PRIVATE, a(dict))),
    fb.plotting.styles: dict(result=(RESULT, nothing)),
    fb.audits.audit: {
        **audited,
        **dict(key=(KEY, single_key), n_runs=(1000, count(1000)), confidence=(0.9, inside_unit)),
    },
    an_audited_case: {**audited, "slow": (1, count())},
    run_case: dict(key=(KEY, single_key), n_runs=(1000, count(1000))),
    fb.audits.run: dict(cases=([CASE], empty), key=(KEY, single_key), progress=(False, flag)),
    fb.audits.load: dict(controls=("controls.py", path)),
    ship: dict(families=("arms", nothing)),
    fb.audits.linear: dict(
        algo=(PRIVATE, nothing),
        n_agents=(1, count()),
        name=("x", label),
        horizon=(2, optional(count())),
        drops=(False, flag),
    ),
    fb.audits.claimed: dict(
        algo=(A.fed_ucb(BUDGET), nothing),
        budget=(BUDGET, nothing),
        n_agents=(2, count()),
        horizon=(4, count()),
        visits=(1, count()),
        gaussian=(False, flag),
        name=("x", label),
    ),
    fb.audits.asynchronous: {"algo": (ASYNC, nothing), "horizon": (12, count()), "name": ("x", text)},
    fb.audits.timing: {"algo": (A.fed_ucb(BUDGET), nothing), **alone},
    fb.audits.brink: dict(algo=(A.fed_ucb(BUDGET), nothing), n_agents=(2, count()), horizon=(4, count())),
    fb.audits.above_threshold: {
        **dict(schedule=(S.PrivateLogDet(), nothing), epsilon=(1.0, epsilon), name=("x", text)),
        **dict(epochs=(1, count())),
    },
    fb.audits.transcript: dict(
        algo=(PRIVATE.bind(SPHERE.spec, 4), nothing), spec=(SPHERE.spec, nothing), horizon=(4, count())
    ),
    fb.audits.arms: dict(algo=(SUMS, nothing), name=("x", label)),
    fb.audits.clusters: dict(
        algo=(A.homo_dc(BUDGET, trigger="count"), nothing),
        n_servers=(2, count()),
        horizon=(4, count()),
        name=("x", label),
    ),
    fb.audits.streams: dict(
        algo=(A.Grouped(privacy=BUDGET, schedule=2), nothing), horizon=(4, count()), name=("x", label)
    ),
    fb.audits.labels: dict(algo=(A.FCLUB(BUDGET), nothing), name=("x", text)),
    fb.audits.uploads: dict(algo=(A.FCLUB(BUDGET), nothing), name=("x", text)),
    fb.audits.log_ratios: {},
    fb.plotting.audits: dict(audits=([an_audit()], nothing), controls=((), empty)),
    fb.plotting.save: dict(figure=(Figure(), nothing), path=("saved.png", path)),
}
NAMES = {case: getattr(case, "__qualname__", str(case)) for case in CASES}
