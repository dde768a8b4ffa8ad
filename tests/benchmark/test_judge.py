"""A task reads fields that the package fills, and never the words of an entry."""

import dataclasses
import operator
import sys

import networkx as nx
import numpy as np
import pytest
from helpers import refused
from small import SMALL

import fedbandit_jax as fb
from fedbandit_jax.benchmark import TASKS, play
from fedbandit_jax.benchmark.entry import Entry
from fedbandit_jax.benchmark.play import _recipe, played

SILO, LINE = TASKS["sphere-silo"], nx.path_graph(4)


def fixed(arms):
    """What `fb.envs.script` needs to offer these arms in every round to two silos."""
    contexts = np.broadcast_to(np.float32(arms), (4, 2, *np.shape(arms)))
    answers = np.zeros(contexts.shape[:3], np.float32)
    return contexts, answers, answers


def certificate(**options):
    return fb.algos.Federated(
        policy=fb.algos.UCB(), schedule=SILO.batch, privacy=SILO.mechanism(**options)
    ).certificate(SILO.spec, SILO.horizon)


def test_a_trust_model_with_our_words_is_its_author_s():
    """Noise of one source, which is central, under the sentence of silo-local noise."""
    theirs = fb.privacy.GaussianTrust(certificate().trust, sources=1)
    found = certificate(trust=theirs)
    assert found.claim == "certified"
    assert found.trusted == "own"
    assert found.user_defined == ("trust: GaussianTrust",)
    assert "GaussianTrust" in str(found)
    assert SILO.refusal(found, 0, 0)


def test_an_entry_is_not_given_the_world():
    """But all that it needs to build a recipe."""
    shown = SILO.shown
    for name in ("env", "digest"):
        with refused("env"):
            getattr(shown, name)
    assert (shown.spec, shown.batch, shown.mechanism()) == (SILO.spec, SILO.batch, SILO.mechanism())
    np.testing.assert_array_equal(TASKS["fixed-arms"].shown.arms, TASKS["fixed-arms"].arms)


def test_what_an_entry_does_to_what_it_is_given():
    """It can change its own copies only."""
    one, two, *_ = arms = np.eye(3)
    task = dataclasses.replace(SMALL, make=lambda: fb.envs.script(*fixed(arms), fixed_contexts=True), graph=LINE)
    task.shown.arms[:] = one
    task.shown.graph.add_edges_from(nx.complete_graph(4).edges)
    np.testing.assert_array_equal(task.arms[1], two)
    assert set(task.graph.edges) == set(nx.path_graph(4).edges)


def test_an_entry_cannot_say_that_users_never_return():
    """Of the judge's description, by which its noise is calibrated: the one it is given is its own."""
    users = fb.privacy.Users(16, per_batch=1)
    env = fb.envs.returning(fb.envs.sphere(4, 4, 3, rewards="bernoulli"), 10)
    task = dataclasses.replace(SMALL, make=lambda: env, unit=users)

    def recipe(task):
        object.__setattr__(task.spec, "n_users", 0)
        object.__setattr__(task.unit, "visits", 1)
        mechanism = task.mechanism(unit=None)
        return fb.algos.Federated(policy=fb.algos.Greedy(), schedule=task.batch, privacy=mechanism)

    algo = _recipe(task, Entry("mine", "recipe", "", recipe))
    assert (task.spec.n_users, task.unit.visits) == (env.spec.n_users, 16)
    assert env.spec.n_users > 0
    found = "unit" if isinstance(algo, str) else task.refusal(algo.certificate(task.spec, task.horizon), 0, 0)
    assert found


SWAPS = """
import fedbandit_jax as fb
from fedbandit_jax.benchmark import play

task = play.TASKS["small"]
vars(task).update(env=fb.envs.sphere(4, 2, 2), digest=task.digest)


def recipe(task):
    return None
"""


def test_tasks_are_those_of_before_the_entry_s_code(monkeypatch, tmp_path):
    """It runs in the same process, and what it writes into tasks is not played, now or when it is verified."""
    for table, change in (
        (TASKS, ("ring", SILO)),
        (sys.modules["fedbandit_jax.envs.arms"].INSTANCES, ("hard", (0.0, 1.0))),
    ):
        with pytest.raises(TypeError):
            operator.setitem(table, *change)
    shown = []
    monkeypatch.setattr(play, "TASKS", {"small": dataclasses.replace(SMALL)})
    monkeypatch.setattr(play, "played", lambda task, *more: shown.append(task.env.spec.n_arms) or played(task, *more))
    (path := tmp_path / "swaps.py").write_text(SWAPS)
    row = fb.benchmark.run(path)
    assert shown == [4]
    monkeypatch.setattr(play, "TASKS", {"small": dataclasses.replace(SMALL)})
    fb.benchmark.verify(row)
    assert shown == [4, 4]


def test_an_entry_that_exits_is_refused():
    """The check of a row would end as if it had passed."""
    with refused("entry", "mine"):
        Entry.read("import sys\nsys.exit(0)\n", "recipe", "mine")
    late = Entry.read("def recipe(task):\n    raise SystemExit(0)\n", "recipe", "mine")
    assert "line 2" in _recipe(SMALL, late)


class Full(fb.algos.Gossip):
    """Says that it is on the graph of the task, and plays where everybody hears everybody."""

    def bind(self, spec, horizon):
        return fb.algos.Gossip.bind(dataclasses.replace(self, graph=nx.complete_graph(4)), spec, horizon)


class Shy(nx.Graph):
    """A graph that has more edges from the second time on that it is asked for them."""

    asked = 0

    def __getattribute__(self, name):
        if name in ("adj", "edges", "_adj"):
            Shy.asked += 1
            if Shy.asked > 50:
                return getattr(nx.complete_graph(4), name)
        return super().__getattribute__(name)


def bound_otherwise(algo):
    """A recipe that hides its `bind`."""
    object.__setattr__(algo, "bind", lambda spec, horizon: Full(graph=LINE).bind(spec, horizon))
    return algo


@pytest.mark.parametrize("make", [Full, lambda **more: bound_otherwise(fb.algos.Gossip(**more))])
def test_a_recipe_of_one_s_own_may_bind_otherwise(make):
    task = dataclasses.replace(SMALL, graph=LINE)
    entry = Entry("mine", "recipe", "", lambda task: make(graph=task.graph, schedule=6, privacy=task.mechanism()))
    assert "class of its own" in _recipe(task, entry)


def test_the_graph_that_is_played_is_the_judge_s():
    task = dataclasses.replace(SMALL, graph=LINE)
    entry = Entry("mine", "recipe", "", lambda task: fb.algos.Gossip(graph=Shy(LINE), schedule=6))
    algo = _recipe(task, entry)
    assert isinstance(algo, str) or algo.graph is LINE
