"""`CASES`: every public factory, what it is given while one argument is tried, and which values that one may have."""

import dataclasses
import inspect
import math
import numbers
from pathlib import Path

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
from handmade import swept
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import fedbandit_jax as fb

A, E, P, S = fb.algos, fb.envs, fb.privacy, fb.schedules

# What is given where another argument is tried.

BUDGET = P.Budget(1.0, 0.1)
LINE = nx.path_graph(3)
LOG = dict(where=np.arange(40) % 2, drug=np.arange(40) // 2 % 2, cured=np.arange(40) // 4 % 2)
RANDOMISED = fb.data.table(LOG | {"p": np.full(40, 0.5)}, silo="where", arm="drug", reward="cured", propensity="p")
EYE, ONE = np.eye(3, dtype=np.float32), np.ones((1, 1, 1, 1))
SPHERE = E.sphere(3, 4, 5, rewards="bernoulli")
KEY = jax.random.key(0)
PRIVATE = A.private_fed_lin_ucb(BUDGET, schedule=2)
ASYNC = A.AsyncFederated(schedule=S.Geometric(1.5), privacy=P.Mechanism(BUDGET, unit="visit"))
SUMS = A.CDPSE(1.0)

NOISE = lambda key, data: data + jax.random.normal(key)  # noqa: E731
CASE = fb.audits.Case(name="a case", mechanism=NOISE, data=0.0, neighbour=1.0, epsilon=1.0, delta=0.1)
RESULT = dataclasses.replace(swept({"one": 1.0}, seeds=2), gauges={"clusters": np.ones((1, 2, 2))})
BELIEF = fb.linalg.GaussianBelief(jnp.zeros(2), jnp.eye(2))

# Kinds of arguments: functions that say of a value if it may be given.

INF = math.inf


def number(low=-INF, high=INF, inside=False):
    """A real number in [low, high], or inside if it must not be an end."""

    def legitimate(value):
        if isinstance(value, bool) or not isinstance(value, numbers.Real):
            return False
        try:
            value = float(value)
        except OverflowError:
            return False
        return low <= value <= high and not (inside and value in (low, high))

    return legitimate


def count(low=1, high=2**31 - 1):
    return lambda value: isinstance(value, numbers.Integral) and number(low, high)(value)


def either(*kinds):
    return lambda value: any(kind(value) for kind in kinds)


def a(*types):
    return lambda value: isinstance(value, types)


none = a(type(None))


def nothing(value):
    """No value of the pool will do."""
    return False


def array(ndim, letters="iuf"):
    """Finite numbers, that 32 bits hold, with so many axes."""

    def legitimate(value):
        try:
            found = np.asarray(value)
        except (TypeError, ValueError):  # a key, or rows of unequal lengths
            return False
        return found.ndim == ndim and found.dtype.kind in letters and bool((abs(found) < 3e38).all())

    return legitimate


def function(value):
    return callable(value) and not isinstance(value, type)


def single_key(value):
    return isinstance(value, jax.Array) and str(value.dtype) == "key<fry>"


def text(value):
    return isinstance(value, str) and value != ""


def path(value):
    return isinstance(value, (str, Path)) and "\0" not in str(value)


def scalar(value):
    """A floating-point number, as the other data set is, that 32 bits hold."""
    real = isinstance(value, (float, np.floating)) or (isinstance(value, jax.Array) and value.dtype == np.float32)
    return real and (not np.isfinite(value) or abs(float(value)) < 3e38)


def short(value):
    """A value in some characters."""
    try:
        return repr(value)[:40]
    except ValueError:  # of an integer of very many digits
        return type(value).__name__


def only(*texts):
    """Values of the pool whose texts begin so."""
    return lambda value: short(value).startswith(texts)


EMPTY = "[]", "()", "array([], shape"
seeds = only("[1]", "[0, 1, 2, ", "array([1, 2])")  # distinct integers, at least one
increasing, silos = only("[1]"), only("[]", "()", "[1]", "[0, 1, 2, ")
pair, may_be_nan, no_values, empty = only("array([1, 2])"), only("array([[nan]])"), only("{}"), only(*EMPTY)
positive, factor = number(1.2e-38, 3.4e38), number(1.2e-38)  # a factor may be infinite
non_negative, finite, flag = either(positive, number(0, 0)), number(0, 3.4e38), a(bool, np.bool_)
inside_unit, failure = number(0, 1, inside=True), number(1e-30, 1, inside=True)
growth, rows = number(1, 3.4e38), array(2)

# Factories that are no functions of the package, or that check what they are given only when they are used.


def made(kind, bind=None):
    """A recipe, which is bound as well, as some of its numbers are checked then."""
    return lambda **fields: kind(**fields).bind(bind)


def ship(families):
    return fb.audits.shipped(families)


def an_audited_case(**fields):
    return fb.audits.Case(**fields).run(KEY)


def replace(epsilon, upload, visits, name):
    return A.FCLUB(BUDGET).replace(epsilon=epsilon, upload=upload, visits=visits, name=name)


thompson, epsilon_greedy, mixture = made(A.Thompson), made(A.EpsilonGreedy), made(A.Mixture, SPHERE.spec)
FOR = {  # which factory a function above is for
    **{thompson: A.Thompson, epsilon_greedy: A.EpsilonGreedy, mixture: A.Mixture},
    **{an_audited_case: fb.audits.Case, ship: fb.audits.shipped},
}

# argument -> what is given while others are tried, and the kind of what may be given; without a kind nothing of the
# pool may. None may be given where it is the default. An argument need not be here if its default is None, which alone
# may be given, or True or False, or a choice, which no value of the pool is.
USUAL = {
    **dict(n_agents=(3, count()), n_arms=(4, count()), dim=(5, count(2)), n_servers=(2, count())),
    **dict(n_users=(6, count(1, 10**6)), n_clusters=(3, count()), horizon=(4, count()), n_syncs=(4, count())),
    **dict(env=SPHERE, spec=SPHERE.spec, noise_std=(0.5, non_negative)),
    **dict(theta=(EYE[0] / 2, array(1)), silos=(1, count())),
    # Algorithms.
    **dict(name=("x", text), policy=A.UCB(), privacy=BUDGET, schedule=(5, count())),
    **dict(failure=(0.1, failure), regularization=(1.0, number(1e-5, 3.4e38)), subgaussian=(1.0, non_negative)),
    **dict(theta_norm=(1.0, non_negative), exploration_scale=(1.0, non_negative), shrinkage=(12.0, non_negative)),
    **dict(arms=(EYE, rows), graph=LINE, gamma=(1, count()), upload=(1.1, growth)),
    **dict(threshold=(5.0, positive), max_syncs=(5, count()), sums=(A.CDPSE(1.0), a(A.SE))),
    # Privacy.
    **dict(budget=BUDGET, epsilon=(1.0, number(1e-9, 1e6)), delta=(0.1, inside_unit)),
    **dict(release=("tree", either(none, callable)), std=(2.0, either(number(1e-30, 1e30), none, function))),
    **dict(users=(P.Users(2), a(P.Users)), visits=(1, count())),
    **dict(dropouts=(0, count(0, 0)), bands=(3, count(high=1024)), gram_scale=(1.0, number(1e-3, 1))),
    **dict(mu=(0.5, number(0, 1e4)), pure=(0.0, number(0, 1e6))),
    # Data and runs.
    **dict(path=(".", path), penalty=(0.1, number(0))),
    **dict(fit_share=(0.5, inside_unit), seed=(0, count(0, 2**32 - 1))),
    **dict(key=(KEY, single_key), seeds=(2, either(count(), seeds)), stride=(2, count())),
    **dict(record=(None, no_values), progress=(False, flag), checkpoint=(None, path)),
    **dict(algo=A.LinUCB(), algos=[A.LinUCB()], store=(None, path), function=(fb.record.arms, function)),
    # Results and audits.
    **dict(result=RESULT, **dict.fromkeys(("names", "colours"), (None, a(dict)))),
    **dict(data=(0.0, scalar), neighbour=(1.0, scalar)),
    **dict(which=("first user", text), sensitivity=(None, number(0, inside=True))),
    **dict(others=({"another": (0.0, 2.0)}, either(none, no_values)), measure=(lambda view, other: 0.0, callable)),
}
LIARS = dict(silos=(0.2, either(number(0, 1), silos)))
AUDITED = dict(mechanism=NOISE, epsilon=(1.0, number(0, inside=True)), delta=(0.1, number(0, 1)))
BATCHES = dict(growth=(2, count(2, 1024)), failure=(0.1, number(0, 0.3)))
ARMS = dict(epsilon=(1.0, number(1e-9, 500)), delta=(1e-6, inside_unit), unit=P.Users(2, 1), failure=BATCHES["failure"])
MEANS = dict(means=([0.5, 0.6], array(1)), epsilon=(1.0, number(1e-9)))
PHASES = dict(growth=(1.5, number(1.001, 16)))
SAMPLED = dict(first=(4, count()), growth=(1.5, number(1, 16)), variance=(1.0, number(1e-6, 1e6)))
OWN = {  # factory -> what is not usual; one of the package whose arguments all are needs no row
    E.gap: dict(n_arms=(4, count(2)), gap=(0.1, number(1.2e-38, 0.3))),
    E.arms: dict(n_arms=(3, count(2)), means=(None, array(1)), noise_std=(0.1, positive)),
    E.contaminate: dict(env=E.arms(3), share=(0.1, number(0, 0.5)), favoured=(1, count(0, 2))),
    E.returning: dict(n_users=(5, count(high=10**6)), arrivals=("uniform", array(1)), session=(2, count(high=2**30))),
    E.drift: dict(when=(5, either(count(high=2**31 - 2), increasing))),
    E.delay: dict(rounds=(5, count(high=10**4))),
    E.rejection: dict(env=RANDOMISED),
    E.dropout: dict(rate=(0.1, number(0, 1 - 1e-7)), schedule=None),
    E.clustered: dict(n_servers=(2, count(1, 10**6)), n_clusters=(2, count(1, 1_000)), gap=(0.5, number(1e-3, 1))),
    E.community: dict(items=(EYE, rows), thetas=(EYE[[0, 1, 1]] / 2, rows), clusters=np.array([0, 1, 1])),
    E.replay: dict(n_agents=(2, count()), features=(EYE, rows), query_sizes=(np.array([1, 2]), array(1, "iu"))),
    E.script: dict(contexts=ONE, answers=ONE[0], users=None),
    fb.Spec: dict(
        **dict(dim=(2, count()), n_users=(0, count(0)), late=(0, count(0)), max_norm=(1.0, number(0))),
        **dict(basis=("a model", a(str))),
    ),
    thompson: dict(regularization=(1.0, positive), scale=(0.5, positive)),
    epsilon_greedy: dict(explore=(5.0, non_negative)),
    A.Forgetting: dict(memory=P.Discounted(0.9)),
    A.PhasedElimination: dict(exploration_scale=(1.0, positive)),
    A.dp_dpe: dict(exploration_scale=(1.0, positive)),
    A.fed_ucb: dict(policy=A.LogDetUCB()),
    A.GossipFedUCB: dict(policy=A.LogDetUCB(), schedule=S.LogDet(5.0)),
    A.AsyncFederated: dict(privacy=ASYNC.privacy),
    A.async_fed_lin_ucb: dict(growth=(2.0, number(1, 3.4e38, inside=True))),
    A.SE: BATCHES,
    A.DPSE: ARMS,
    **{kind: ARMS | BATCHES for kind in (A.CDPSE, A.LDPSE, A.DistDPSE, A.ShuffleDPSE)},
    **{kind: ARMS | BATCHES | dict(scale=(10.0, number(1, 2**24))) for kind in (A.DistRDPSE, A.DistCDPSE)},
    A.RRSE: ARMS | BATCHES | dict(corrupted="messages"),
    A.TruncatedSE: dict(
        **dict(moment=(1.0, number(1e-6, 1e12)), order=(2.0, number(1.1, 16))),
        **dict(corruption=(0.1, number(0, 0.5)), level=(None, either(none, number(1e-6, 1e12)))),
    ),
    **dict.fromkeys((A.PhasedKLUCB, A.PhasedIMED), PHASES),
    A.PhasedThompson: SAMPLED,
    A.ThompsonArms: SAMPLED | dict(inflate="factor"),
    A.TopTwo: PHASES | dict(failure=(0.1, number(1e-300, 0.5))),
    A.SequentialHalving: dict(budget=(10, either(none, count(4)))),
    A.characteristic_time: MEANS,
    A.regret_lower_bound: MEANS | dict(horizon=(10, count(2))),
    A.FCLUB: dict(
        **dict(download=(1.1, growth), trigger="count", alpha_1=(1.5, factor), alpha_2=(2.0, factor)),
        **dict(max_uploads=(5, count())),
    ),
    A.CLUB: dict(alpha_edge=(0.25, factor)),
    A.SCLUB: dict(alpha_theta=(1.5, factor), alpha_p=(1.0, factor)),
    mixture: dict(max_groups=(3, count()), tries=(2, count()), subgaussian=(0.5, finite), theta_norm=(1.0, finite)),
    A.Grouped: dict(grouping=A.Alone()),
    replace: dict(name=("x", either(none, text))),
    S.Every: dict(batch=(3, count())),
    S.Geometric: dict(growth=(1.5, number(1.001, 1e6)), first=(3, count())),
    S.PrivateLogDet: dict(share=(0.1, inside_unit)),
    P.GaussianTrust: dict(
        **dict(sentence=("mine", text), sources=(1, count()), whose=("of a message", text)),
        **dict(assumes=((), a(tuple))),
    ),
    P.Mechanism: dict(unit=("visit", a(P.Users)), statistic=(P.Linear(), a(P.Statistic))),
    P.Linear: dict(low=(0.0, number(-1e30, 1 - 1e-6)), high=(1.0, number(1e-6, 1e30))),
    P.Logistic: dict(gram_scale=(2.0, number(1e-3, 4)), limit=(1.0, positive)),
    P.Users: dict(
        **dict(visits=(2, count(1, 2**30)), per_batch=(1, count(1, 2)), apart=(1, count(1, 2**30))),
        **dict(silos=(1, either(count(1, 2**30), lambda value: isinstance(value, str) and value == "together"))),
    ),
    P.Liars: LIARS,
    P.Decaying: dict(decay=(1.5, number(1, 100))),
    P.Discounted: dict(decay=(0.9, number(1e-300, 1 - 2 / 1024))),
    P.calibrate: dict(trust="shuffle_amplified", batch=(5, count()), dim=(3, count()), users=(P.Users(), a(P.Users))),
    P.rdp_epsilon: dict(rdp=(lambda alpha: 0.1 * alpha, callable)),
    P.zcdp_epsilon: dict(rho=(0.1, number(0, 1e8))),
    P.gaussian_mu: dict(pure=(0.0, number(0, 1))),
    fb.networks.make: dict(name="ring", n_agents=(6, count(2, 20_000))),
    fb.data.classification: dict(name="digits", components=(None, count())),
    fb.data.into_unit: dict(features=(np.ones((2, 2)), rows), theta=(np.ones(2), array(1))),
    fb.data.movielens: dict(n_users=(3, count()), n_items=(3, count()), n_active=(3, count())),
    fb.data.mslr_arms: dict(n_arms=(3, count(2))),
    fb.data.table: dict(
        source=LOG, silo="where", arm="drug", reward="cured", missing=(None, either(none, only(*EMPTY, "array(['x']")))
    ),
    fb.off_policy: dict(env=RANDOMISED, level=(0.95, inside_unit), by_size=(True, flag)),
    fb.linalg.project: dict(gram=(jnp.eye(2), may_be_nan)),
    fb.linalg.GaussianBelief.solve: dict(precision=(jnp.eye(2), may_be_nan), bias=jnp.zeros(2)),
    BELIEF.sample: dict(scale=(1.0, either(non_negative, a(jax.Array)))),
    BELIEF.std: dict(contexts=jnp.eye(2)),
    fb.plan: dict(
        **dict(
            horizon=(8, count(8)),
            at_most=(None, lambda value: number(1)(value) and value < INF),
            max_syncs=(1, count()),
        ),
        **dict(trusted=("silo", empty), unit=(None, a(P.Users))),
        **dict(liars=(0.0, number(0, 0.5)), seeds=(2, count(2, 2**20)), rounds=(None, count(8, 8))),
    ),
    fb.sweep: dict(grid=({"failure": [0.1]}, no_values), part=(None, pair)),
    fb.concat: dict(results=[RESULT]),
    A.Federated().certificate: {},
    RESULT.save: dict(path=("saved", path)),
    fb.Result.load: dict(path=("saved", path)),
    fb.plotting.gauge: dict(name="clusters", ax=(None, a(Axes))),
    fb.plotting.against: dict(coordinate="algorithm"),
    fb.plotting.colour: dict(algorithm=(PRIVATE, a(dict))),
    fb.plotting.save: dict(figure=Figure(), path=("saved.png", path)),
    fb.audits.audit: AUDITED | dict(n_runs=(1000, count(1000)), confidence=(0.9, inside_unit)),
    an_audited_case: AUDITED | dict(slow=(1, count())),
    CASE.run: dict(n_runs=(1000, count(1000))),
    fb.audits.run: dict(cases=([CASE], empty)),
    fb.audits.load: dict(controls=("controls.py", path)),
    ship: dict(families="arms"),
    fb.audits.linear: dict(algo=PRIVATE, n_agents=(1, count()), horizon=(2, count())),
    fb.audits.claimed: dict(algo=A.fed_ucb(BUDGET), n_agents=(2, count())),
    fb.audits.turns: dict(algo=ASYNC, horizon=(12, count())),
    fb.audits.by_message: dict(bound=PRIVATE.bind(SPHERE.spec, 4)),
    fb.audits.arms: dict(algo=SUMS),
    fb.audits.clusters: dict(algo=A.homo_dc(BUDGET, trigger="count")),
}


# Every public factory.

MADE = {  # public, but made by a function, or a part of one's own which is checked where it is used
    *(one for one in vars(E).values() if inspect.isclass(one)),
    *(S.BoundSchedule, S.BoundLogDet, S.BoundPrivateLogDet, S.Fixed, S.Schedule, S.Setting, S.check, S.leaks, S.timing),
    *(P.Calibration, P.Certificate, P.Release, P.Trust),
    *(fb.record.Thinned, fb.record.arms, fb.record.estimates, fb.record.recommended),
    *(fb.record.Moment, fb.record.Recorder, fb.record.Recording, fb.record.recorder, A.Alone, A.Together),
    *(fb.data.Community, fb.data.Queries, fb.data.Fit, fb.linalg.GaussianBelief, fb.audits.Audit, fb.networks.Network),
}
MODULES = [E, A, S, P, fb.record, fb.audits, fb.networks, fb.data, fb.linalg, fb.plotting]


def public(module):
    """Functions and classes, for a file those that it defines itself."""
    for name, value in vars(module).items():
        mine = str(getattr(value, "__module__", "")).startswith("fedbandit_jax")
        here = hasattr(module, "__path__") or getattr(value, "__module__", "") == module.__name__
        if not name.startswith("_") and (inspect.isclass(value) or inspect.isfunction(value)) and mine and here:
            yield value


def with_usual(case, own):
    """Argument -> what is given, and the kind of what may be given, for every argument of a factory."""
    found = {}
    for name, parameter in inspect.signature(FOR.get(case, case)).parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            continue
        default = parameter.default
        entry = own.get(name, USUAL.get(name, (default, flag) if isinstance(default, bool) else default))
        if entry is default and not isinstance(default, str | None):
            raise KeyError(f"{getattr(case, '__name__', case)}: add the kind of its argument {name} to OWN")
        with_kind = isinstance(entry, tuple) and len(entry) == 2 and callable(entry[1])
        given, kind = entry if with_kind else (entry, nothing)
        found[name] = given, either(none, kind) if default is None else kind
    return found


RUNS = fb.simulate, fb.sweep, fb.rollout, fb.plan, fb.off_policy, fb.concat, fb.Spec
WANTED = {*RUNS, *(value for module in MODULES for value in public(module))} - MADE - set(FOR.values())
CASES = {case: with_usual(case, OWN.get(case, {})) for case in [*OWN, *sorted(WANTED - set(OWN), key=repr)]}
NAMES = {case: getattr(case, "__qualname__", str(case)) for case in CASES}
