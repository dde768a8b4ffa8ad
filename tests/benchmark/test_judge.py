"""A task reads fields that the package fills, and never the words of an entry."""

import dataclasses

import networkx as nx
import numpy as np
from helpers import refused
from small import SMALL

import fedbandit_jax as fb
from fedbandit_jax.benchmark import TASKS
from fedbandit_jax.benchmark.entry import Entry
from fedbandit_jax.benchmark.play import _recipe

SILO, LINE = TASKS["sphere-silo"], nx.path_graph(4)


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


def test_a_recipe_of_one_s_own_may_bind_otherwise():
    task = dataclasses.replace(SMALL, graph=LINE)
    entry = Entry("mine", "recipe", "", lambda task: Full(graph=task.graph, schedule=6, privacy=task.mechanism()))
    assert "class of its own" in _recipe(task, entry)
