"""What goes with what: of all pairs of changes to a default, a list says which are refused."""

import contextlib
import dataclasses
import functools
import operator
import runpy
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from helpers import refused

import fedbandit_jax as fb
from fedbandit_jax.core.validate import BadArgument
from fedbandit_jax.interfaces import certify
from fedbandit_jax.privacy import compatibility
from fedbandit_jax.privacy.compatibility import EXCLUDES, conflict, objection, tagged

A, P, S = fb.algos, fb.privacy, fb.schedules
DOCS = Path(__file__).parents[2] / "docs"
M, BUDGET = 12, P.Budget(2.0, 0.05)
SPEC = dict(n_agents=M, n_arms=3, dim=2, max_norm=1.0, rewards_in_unit=True, constant=True)
MECHANISM = ("budget", "release", "trust", "std", "unit", "statistic", "dropouts")
NETWORK = dict(graph=nx.path_graph(M))


# What is changed, and what it brings along, lest it is refused by itself
CHANGES = {
    "matrix": (dict(trust="silo_local_matrix"), {}),
    "shuffle": (dict(trust="shuffle_amplified"), dict(release="tree")),
    "bits": (dict(trust="shuffle_vector_sum"), dict(release="tree")),
    "secagg": (dict(trust="secagg"), {}),
    "central": (dict(trust="central"), {}),
    "local": (dict(trust="local"), {}),
    "own": (dict(trust=P.GaussianTrust("somebody adds it")), {}),
    "tree": (dict(release="tree"), {}),
    "reports": (dict(release="input_perturbation"), {}),
    "std": (dict(std=30.0), {}),
    "budgets": (dict(budget=(BUDGET,) * M), {}),
    "users": (dict(unit=P.Users(2)), {}),
    "silos": (dict(unit=P.Users(2, silos=2)), {}),
    "together": (dict(unit=P.Users(2, silos="together")), {}),
    "no-unit": (dict(unit=None), {}),
    "centred": (dict(statistic=P.Linear(centred=True)), {}),
    "scaled": (dict(statistic=P.Linear(gram_scale=0.5)), {}),
    "logistic": (dict(statistic=P.Logistic()), {}),
    "dropouts": (dict(dropouts=1), dict(trust="secagg")),
    "exact": (dict(privacy=None), {}),
    "Greedy": (dict(policy=A.Greedy()), {}),
    "EpsilonGreedy": (dict(policy=A.EpsilonGreedy()), {}),
    "known": (dict(policy=A.UCB(confidence="known_noise")), {}),
    "LogDetUCB": (dict(policy=A.LogDetUCB()), {}),
    "phases": (dict(policy=A.PhasedElimination(arms=np.eye(3, 2))), {}),
    "learns": (dict(learns_in_batch=True), dict(policy=A.UCB())),
    "long": (dict(schedule=S.Every(1001)), {}),
    "growing": (dict(schedule=S.Geometric(1.5, first=3)), {}),
    "LogDet": (dict(schedule=S.LogDet(0.7)), {}),
    "dp20": (dict(schedule=S.LogDet(0.7, "dp20")), dict(policy=A.LogDetUCB())),
    "tests": (dict(schedule=S.PrivateLogDet(3.0, max_syncs=4)), {}),
    "median": (dict(aggregate="median"), {}),
    "liars": (dict(liars=P.Liars(0.25)), {}),
    "returns": (dict(n_users=5), {}),
    "drops": (dict(drops=True), {}),
    "late": (dict(late=3), {}),
    "no-intercept": (dict(constant=False), {}),
    "Gossip": (dict(recipe=A.Gossip), dict(schedule=S.Every(5))),
    "Async": (dict(recipe=A.AsyncFederated), dict(n_users=5, schedule=S.Geometric(1.5, first=3))),
    "Grouped": (dict(recipe=A.Grouped), dict(n_users=5, schedule=S.Geometric(1.5, first=3))),
    "Cliques": (dict(recipe=A.GossipFedUCB), dict(policy=A.LogDetUCB(), schedule=S.LogDet(0.7))),
}

# Of each change the later ones that it does not support, or that do not support it.
REFUSED = {
    "matrix": "centred scaled logistic dropouts median liars drops",
    "shuffle": "reports budgets centred scaled logistic dropouts growing LogDet dp20 tests median liars "
    "drops Gossip Async Grouped Cliques",
    "bits": "reports budgets centred scaled logistic dropouts LogDetUCB growing LogDet dp20 tests "
    "median liars drops Gossip Async Grouped Cliques",
    "secagg": "budgets LogDetUCB LogDet dp20 tests median liars Gossip Async Grouped Cliques",
    "central": "budgets dropouts LogDetUCB dp20 median liars Gossip Async Grouped Cliques",
    "local": "tree budgets dropouts LogDetUCB learns growing LogDet dp20 "
    "tests median liars drops Gossip Async Grouped Cliques",
    "own": "budgets dropouts LogDetUCB dp20 median liars drops Gossip Async Grouped Cliques",
    "tree": "drops",
    "budgets": "silos together dropouts median liars Gossip Async Grouped Cliques",
    "users": "Cliques",
    "silos": "Cliques",
    "together": "drops Gossip Async Grouped Cliques",
    "no-unit": "returns Async Grouped",
    "centred": "no-intercept",
    "scaled": "LogDetUCB dp20 Cliques",
    "logistic": "LogDetUCB phases learns LogDet dp20 tests Cliques",
    "dropouts": "LogDetUCB LogDet dp20 tests median liars Gossip Async Grouped Cliques",
    "exact": "tests",
    "EpsilonGreedy": "learns LogDet dp20 tests",
    "known": "dp20",
    "LogDetUCB": "median liars Gossip Async Grouped",
    "phases": "learns LogDet dp20 tests median liars drops late Gossip Async Grouped",
    "learns": "long median liars drops",
    "LogDet": "median liars drops Grouped",
    "dp20": "median liars drops Gossip Async Grouped",
    "tests": "median liars drops Grouped",
    "median": "drops",
    "liars": "drops",
    "drops": "Gossip Async Grouped Cliques",
    "late": "Gossip Async Grouped Cliques",
}

TOLD = fb.Spec(**SPEC | {"n_agents": 1, "n_users": 5})
MEMORY = dict(memory=P.Discounted(0.7))
WITHIN = [  # refused within one part, or by a recipe that has no mechanism
    (lambda: A.Forgetting(policy=A.LogDetUCB(), **MEMORY), "policy", "memory"),
    (lambda: A.UCB(confidence="known_noise", theta_norm=0), "theta_norm", "confidence"),
    (lambda: A.LinUCB(policy=A.UCB(confidence="known_noise")).bind(TOLD, 40), "confidence", "n_users"),
    *((functools.partial(A.DistDPSE, 1.0, unit=unit), "unit", None) for unit in (P.Users(2), P.Users(2, 1, silos=2))),
    (lambda: A.AdaCUCB(A.DistDPSE(1.0, unit=P.Users(2, 1))), "unit", "sums"),
    (lambda: A.TruncatedSE(A.DistDPSE(1.0, unit=P.Users(2, 1))), "unit", "algorithm"),
    (lambda: A.TruncatedSE(A.SE(radius="exact")), "radius", "algorithm"),
    (lambda: A.GossipFedUCB(**NETWORK, schedule=S.LogDet(max_syncs=3)), "max_syncs", "recipe"),
]


def fields(*names):
    """The fields of some changes; what one brings along gives way to what another one is."""
    return {k: v for part in (1, 0) for name in names for k, v in CHANGES[name][part].items()}


def bound(*names, **more):
    """The default with these changes, bound; None where a recipe has no such field, or it is of another type."""
    got = fields(*names) | more
    kind = got.pop("recipe", A.Federated)
    spec = fb.Spec(**SPEC | {name: got.pop(name) for name in ("n_users", "drops", "late", "constant") if name in got})
    default = dict(budget=BUDGET, release="input_perturbation", unit="visit")
    mechanism = P.Mechanism(**default | {name: got.pop(name) for name in MECHANISM if name in got})
    got = {"privacy": mechanism} | got
    if not set(got) <= {field.name for field in dataclasses.fields(kind)}:
        return None
    if kind is A.Federated:
        got = {"schedule": 5} | got
    try:
        return kind(**got, **NETWORK if "graph" in kind.__dataclass_fields__ else {}).bind(spec, 40)
    except fb.BadType:
        return None


def arguments(name):
    """The arguments by which an error may name a change."""
    of_parts = {"unit": {"silos"}, "statistic": {"centred"}, "policy": {"confidence"}}
    return set().union(*({field} | of_parts.get(field, set()) for part in CHANGES[name] for field in part))


@pytest.mark.parametrize("one", CHANGES)
def test_every_pair_of_changes_is_as_listed(one):
    """Refused by a sentence of the table that names an argument of each, or bound."""
    names, listed = list(CHANGES), REFUSED.get(one, "").split()
    for other in names[names.index(one) + 1 :]:
        if set(CHANGES[one][0]) & set(CHANGES[other][0]):
            assert other not in listed
        elif other not in listed:
            bound(one, other)
        else:
            with pytest.raises(BadArgument) as found:
                bound(one, other)
            error, mine, its = found.value, arguments(one), arguments(other)
            (second,) = error.others
            assert (error.argument in mine and second in its) or (error.argument in its and second in mine), other
            assert str(error).endswith(tuple(EXCLUDES.values())), other


@pytest.mark.parametrize(("make", "argument", "other"), WITHIN)
def test_parts_of_one_part(make, argument, other):
    with refused(argument, other=other):
        make()


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("shuffle", dict(release=P.RELEASES["blt"](8))),
        ("local", dict(release=P.RELEASES["tree"](8))),
        ("drops", dict(release=P.RELEASES["tree"](8))),
        ("matrix", dict(rule=P.Logistic())),
        ("matrix", dict(drops=True)),
        ("secagg", dict(epsilon=np.ones(M))),
        ("median", dict(epsilon=np.ones(M))),
        ("median", dict(drops=True)),
        ("bits", dict(rule=P.Linear(gram_scale=0.5))),
        ("Greedy", dict(rule=P.Linear(centred=True), constant=False)),
    ],
)
def test_certificates_ask_again(name, changes):
    """Of the parts that are bound, whoever has put them together."""
    whole = bound(name)
    assert certify(whole).claim == "certified"
    names = {field.name for field in dataclasses.fields(whole.mechanism.statistic)}
    statistic = {key: value for key, value in changes.items() if key in names}
    parts = {key: value for key, value in changes.items() if key not in names}
    spec = {key: value for key, value in statistic.items() if key != "rule"}
    parts["statistic"] = dataclasses.replace(whole.mechanism.statistic, **statistic)
    mechanism = dataclasses.replace(whole.mechanism, **parts)
    found = certify(dataclasses.replace(whole, mechanism=mechanism, spec=dataclasses.replace(whole.spec, **spec)))
    assert found.claim == "none"
    assert " does not support " in found.reason


def test_every_rule_refuses_something(monkeypatch):
    """So that no tag is misspelt, and none is left that no part has."""
    seen = set()
    monkeypatch.setattr(compatibility, "conflict", lambda tags: seen.add(found := conflict(tags)) or found)
    pairs = [(one, other) for one, others in REFUSED.items() for other in others.split()]
    for make in (*(functools.partial(bound, *pair) for pair in pairs), *(make for make, *_ in WITHIN)):
        with contextlib.suppress(BadArgument):
            make()
    assert seen - {None} == set(EXCLUDES)


def test_no_rule_can_be_taken_out():
    """Certificates ask the table, and without it they would claim what no proof covers: noise for another statistic."""
    with pytest.raises(TypeError):
        operator.delitem(EXCLUDES, next(iter(EXCLUDES)))
    assert not hasattr(EXCLUDES, "clear")


def test_what_is_said():
    for pair, why in EXCLUDES.items():
        assert objection({tag: ("x", 1) for tag in pair}) == f"x = 1 does not support x = 1: {why}"
    with pytest.raises(KeyError, match="misspelt"):
        tagged("x", 1, {"misspelt": True})


def test_the_page_has_the_table():
    page = runpy.run_path(str(DOCS / "compatibility.py"))["page"]()
    assert compatibility.table() in page
    assert page == (DOCS / "choosing.md").read_text(encoding="utf-8"), "python docs/compatibility.py"
