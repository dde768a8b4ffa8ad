"""A small task, in place of the fourteen of the suite, entries for it, and cells of rows by hand."""

import dataclasses
import zlib

import numpy as np

import fedbandit_jax as fb
from fedbandit_jax.benchmark import play as module
from fedbandit_jax.benchmark.row import Cell
from fedbandit_jax.benchmark.task import Task

SMALL = Task(
    name="small",
    about="Four silos.",
    family="linear",
    sizes=(4, 4, 3),
    make=lambda: fb.envs.sphere(4, 4, 3, rewards="bernoulli"),
    horizon=60,
    epsilon=5.0,
    delta=1e-4,
    trusted=("nobody", "silo"),
    max_syncs=10,
    reference=lambda task: fb.algos.Federated(policy=fb.algos.Greedy(), schedule=task.batch),
)
OTHER = """
import fedbandit_jax as fb

def recipe(task):
    return None

def broken(task):
    return fb.algos.private_fed_lin_ucb(task.mechanism("tree", trust="local"), schedule=6)
"""
SOURCE = '''"""Greedy play."""

import fedbandit_jax as fb

SMALL = None


def recipe(task):
    return fb.algos.Federated(policy=fb.algos.Greedy(), schedule=task.batch, privacy=task.mechanism())


def wrong(task):
    return 7


def slip(task):
    if task.name == "one":
        return task.nonsense
    return recipe(task)


@fb.pytree
class Slip(fb.Policy):
    def update(self, k, belief, released):
        return released.bias

    def index(self, key, t, belief, contexts):
        return contexts @ belief[:2]


def late(task):
    return fb.algos.Federated(policy=Slip(), schedule=task.batch)
'''


def suite(monkeypatch, **tasks):
    """Puts tasks in the place of those of the suite."""
    found = tasks or {"small": SMALL}
    monkeypatch.setattr(module, "TASKS", found)
    return found


def cell(regret, uniform=1000.0, reference=10.0, **more):
    """A cell whose numbers are the same under all seeds."""
    arrays = {"regret": regret, "uniform": uniform, "reference": reference, "syncs": 3, "bits": 100}
    arrays = {name: np.full(16, value, float) for name, value in arrays.items()}
    return Cell(**{"task": "t", "digest": "0a" * 32, **arrays, **more})


def drawn(task, algo, entry, nonce=""):
    """In place of what plays a task: regrets that are drawn, under seeds that the nonce decides, too."""
    if isinstance(algo, str):
        return Cell(task=task.name, digest=task.digest, refused=algo)
    noise = np.random.default_rng(zlib.crc32(nonce.encode())).gamma(50, 1 / 50, 16)
    return dataclasses.replace(cell(100.0, task=task.name, digest=task.digest), regret=100 * noise)
