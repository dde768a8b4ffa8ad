"""Arguments of environments that do not go together, and environments that cannot be wrapped."""

import numpy as np
import pytest
from helpers import PRIVATE, refused

import fedbandit_jax as fb

E = fb.envs
SPHERE = E.sphere(4, 5, 3, rewards="bernoulli")
FIXED = E.sphere(4, 5, 3, contexts="fixed")
GROUPS = E.clustered(5, 1, 2)
STAYING = E.returning(SPHERE, 5, session=4)
EYE, LABELS = np.eye(3), np.array([0, 1, 1])
ROWS = dict(features=EYE, query_sizes=np.array([2, 1]), theta=np.full(3, 0.5), n_agents=1)
LOG = {"silo": np.arange(60) % 2, "arm": np.arange(60) // 2 % 3, "y": np.arange(60) // 6 % 2, "p": np.full(60, 1 / 3)}
OPTIONS = dict(silo="silo", arm="arm", reward="y")
REPLAYED = E.rejection(fb.data.table(LOG, **OPTIONS, propensity="p"))


def community(items=EYE, thetas=EYE, clusters=LABELS, n_servers=1):
    return E.community(items, thetas, clusters, n_servers=n_servers)


def replay(**changes):
    return E.replay(**ROWS | changes)


def script(fixed=True):
    contexts = np.zeros((3, 1, 2, 1))
    contexts[2] = 0.5
    return E.script(contexts, np.zeros((3, 1, 2)), fixed_contexts=fixed)


REFUSED = [
    ("n_arms", lambda: E.arms(n_arms=3, means=[0.1, 0.2])),
    ("means", lambda: E.arms(means=[0.2])),
    ("means", lambda: E.arms(means=[0.2, 1.1])),
    ("n_arms", lambda: E.gap(2, 17, 4)),  # > d^2
    ("shape", lambda: E.sphere(2, 2, 2, rewards="gaussian", shape=2.0)),
    ("shape", lambda: E.sphere(2, 2, 2, rewards="student_t", shape=1.0)),
    ("shape", lambda: E.sphere(2, 2, 2, rewards="pareto", shape=1.2)),
    ("n_clusters", lambda: E.clustered(3, 1, 4)),
    ("n_clusters", lambda: E.clustered(10**5, 1, 10_000)),
    ("n_servers", lambda: E.clustered(3, 4, 1)),
    ("gap", lambda: E.clustered(n_clusters=5, gap=0.95)),  # of random vectors, which are not so far apart
    ("gap", lambda: E.clustered(n_clusters=3, dim=2)),
    ("arrivals", lambda: E.clustered(4, 2, arrivals=[1, 2])),
    ("items", lambda: community(thetas=EYE[:, :2])),
    ("clusters", lambda: community(clusters=LABELS[:2])),
    ("clusters", lambda: community(clusters=LABELS + 1)),
    ("n_servers", lambda: community(n_servers=4)),
    ("rewards", lambda: community(items=2 * EYE)),
    ("features", lambda: replay(features=np.zeros((0, 3)))),
    ("theta", lambda: replay(theta=np.ones(4))),
    ("query_sizes", lambda: replay(query_sizes=np.array([4, 4]))),
    ("query_sizes", lambda: replay(query_sizes=np.array([3, 0]))),
    ("n_agents", lambda: replay(n_agents=3)),
    ("rewards", lambda: replay(theta=np.full(3, 2.0), rewards="bernoulli")),
    ("rewards", lambda: replay(theta=np.full(3, -0.5), rewards="pareto")),
    ("fixed_contexts", script),
    ("env", lambda: E.returning(STAYING, 4)),
    ("arrivals", lambda: E.returning(SPHERE, 4, [1, 2])),
    ("arrivals", lambda: E.returning(SPHERE, 4, [1, 1, 1, 1e-7])),
    ("session", lambda: E.returning(E.arms(3), 4, session=2)),
    ("rate", lambda: E.dropout(SPHERE, [0.1, 0.2])),  # of four silos
    ("rate", lambda: E.dropout(SPHERE, 0.1, np.zeros((2, 4), bool))),
    ("schedule", lambda: E.dropout(SPHERE, schedule=[[1, 0, 0, 0]])),
    ("schedule", lambda: E.dropout(SPHERE, schedule=np.zeros((2, 3), bool))),
    *(("shape", lambda shape=shape: E.arms(means=[0.1, 0.2, 0.3], rewards="pareto", shape=shape))
      for shape in (1.2, [2.0, 3.0], "long")),
    ("shape", lambda: E.arms(n_arms=3, shape=2.0)),
    ("env", lambda: E.contaminate(E.returning(E.arms(3), 5))),
    ("env", lambda: E.contaminate(SPHERE)),
    ("env", lambda: E.corrupt(E.arms(3))),
    ("silos", lambda: E.corrupt(SPHERE, 0.95)),
    ("silos", lambda: E.corrupt(SPHERE, 0.1)),
    ("silos", lambda: E.corrupt(SPHERE, [4])),
    ("env", lambda: E.drift(STAYING, 3)),  # a new world would forget who is being served
    ("env", lambda: E.drift(E.dropout(STAYING, 0.1), 3)),
    ("env", lambda: E.drift(GROUPS, 3)),
    ("env", lambda: E.drift(E.arms(means=[0.2, 0.8]), 3)),  # the same world for every seed
    ("when", lambda: E.drift(SPHERE, (3, 3))),
    ("when", lambda: E.drift(SPHERE, ())),
    ("how", lambda: E.drift(FIXED, 3, "slide")),
    ("how", lambda: E.drift(E.arms(3), 3, "slide")),
    ("env", lambda: E.rejection(SPHERE)),
    ("env", lambda: E.rejection(fb.data.table(LOG, **OPTIONS))),
    ("max_norm", lambda: PRIVATE.bind(replay(features=3.2 * EYE).spec, 50)),
    *(("env", lambda wrap=wrap: wrap(REPLAYED, 2)) for name, wrap in E.WRAPPERS.items() if name != "rejection"),
]  # fmt: skip


@pytest.mark.parametrize(("argument", "make"), REFUSED)
def test_what_does_not_go_together_is_refused(argument, make):
    with refused(argument):
        make()
