"""Configurations under one key have privacy noise of their own, and all else in common."""

import dataclasses
import importlib
import itertools
import json
import math
import os
import subprocess
import sys

import dp_accounting
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import PLAIN, variance_test
from jax.custom_batching import custom_vmap

import fedbandit_jax as fb
from fedbandit_jax.core import wide
from fedbandit_jax.engine import prepare, store
from fedbandit_jax.engine.identity import digest, salt
from fedbandit_jax.engine.options import Run
from fedbandit_jax.engine.prepare import Configuration, expand, set_up
from fedbandit_jax.engine.runners import BatchedArms, Sequential, Synchronous
from fedbandit_jax.interfaces import ArmAlgorithm, ArrivalAlgorithm, Partition, Pulls

M, RUNS, ALPHA = 3, 2000, 1e-6
BUDGET = fb.privacy.Budget(1.0, 0.1)
ENV = fb.envs.sphere(M, 4, 2, rewards="bernoulli")
ONE_ARM = fb.envs.script(np.ones((2, M, 1, 2)) / 2, np.ones((2, M, 1)))  # all do the same, so noise alone differs


def private(epsilon=1.0, **options):
    return fb.algos.private_fed_lin_ucb(fb.privacy.Mechanism(fb.privacy.Budget(epsilon, 0.1), **options), schedule=2)


def made(env=ENV, algo=PLAIN, **options):
    run = Run(**{"horizon": 2, "key": jax.random.key(0), "seeds": 1, **options})
    return run, set_up({"a": Configuration(env, algo, {"algorithm": "a"})}, run)


def runner(env, algo, **options):
    return made(env, algo, **options)[1].runners["a"]


def marks(**options):
    """By what a checkpoint, a piece of a sweep, and noise, are told apart from others."""
    run, setup = made(**options)
    runner = setup.runners["a"]
    return setup.fingerprint(), store.name_of(setup.digests["a"], runner, run), runner.salt


@jax.jit
def released(runner):
    """[W | U] after the first synchronisation, of many seeds."""

    def run(key):
        world, state = jax.jit(runner.init)(key)
        return runner.step(key, world, state, 0)[1].ledger.mechanism.view

    return jax.vmap(run)(jax.random.split(jax.random.key(7), RUNS))


@pytest.mark.parametrize(("other", "epsilon"), [(private(2.0), 2.0), (private(release="blt"), 1.0)])
def test_the_difference_of_two_runs_is_noise(other, epsilon):
    """Its variance is the sum of both: shared noise would leave (sigma_1 - sigma_2)^2, or nothing at all."""
    views = [np.asarray(released(runner(ONE_ARM, algo))) for algo in (private(), other)]
    difference = np.subtract(*views)[:, :, -1].ravel()  # of sums of x y
    # one synchronisation, to which every silo sends one message: each visit moves it by sqrt 4.5 at most
    sigmas = [math.sqrt(4.5) * dp_accounting.get_sigma_gaussian(one, 0.1) for one in (1.0, epsilon)]
    assert variance_test(difference, M * sum(sigma**2 for sigma in sigmas)) > ALPHA
    assert variance_test(difference, M * (sigmas[0] - sigmas[1]) ** 2 + 1e-9) < ALPHA


def test_the_same_configuration_has_the_same_noise():
    alone = runner(ENV, private(2.0)).salt
    for other in (private().replace(epsilon=2), private(2.0).replace(name="other")):
        assert runner(ENV, other).salt == alone
    points = expand(ENV, {"a": private(), "b": private(3.0)}, {"epsilon": [0.5, 2, 1.0]})
    runners = set_up(points, Run(horizon=2, key=jax.random.key(1), seeds=2)).runners
    assert [label for label, one in runners.items() if one.salt == alone] == ["a(epsilon=2)", "b(epsilon=2)"]
    assert len(alone) == 2


def test_whatever_differs_has_noise_of_its_own():
    """Salts of configurations that all differ, by what they differ in."""
    varied = [private(), private(1.001), private().replace(delta=0.11), private(unit=fb.privacy.Users(2))]
    varied += [private(trust=trust) for trust in ("central", "silo_local_matrix")]
    varied += [private(release=release) for release in ("sqrt_toeplitz", "blt")]
    varied += [private(statistic=fb.privacy.Linear(clip=False))]
    varied += [fb.algos.private_fed_lin_ucb(fb.privacy.Budget(1.0, 0.1, "zero_out"), schedule=2)]
    varied += [private().replace(exploration_scale=0.5), private().replace(confidence="known_noise")]
    varied += [private().replace(learns_in_batch=True), private().replace(schedule=1)]
    varied += [private().replace(schedule=fb.schedules.Geometric(1.5))]
    varied += [fb.algos.Federated(policy=fb.algos.Thompson(), privacy=BUDGET, schedule=2)]
    found = [runner(ENV, algo, horizon=4).salt for algo in varied]
    found += [runner(ENV, private(), horizon=6).salt]  # three synchronisations, not two
    found += [runner(fb.envs.sphere(M, 5, 2, rewards="bernoulli"), private(), horizon=4).salt]
    assert len(set(found)) == len(found) == 18


OWN = """
import jax, jax.numpy as jnp, numpy as np, fedbandit_jax as fb
from pathlib import Path
from fedbandit_jax.engine.prepare import Configuration, bind

FILE = Path(__file__).with_suffix(".npy")

class Scale:
    def __init__(self, number):
        self.number = number

def helper(x):
    return x * jnp.asarray(np.load(FILE))

def looked_up(t):  # by a program in a branch, in the middle, where a long `repr` has dots
    look = jax.jit(lambda t: jax.lax.dynamic_index_in_dim(jnp.asarray(TABLE), 1000 + t, keepdims=False))
    return jax.lax.cond(t >= 0, look, lambda _: jnp.zeros(2), t)

@fb.pytree
class Own:
    scale: object = fb.static()
    spec: fb.Spec = fb.static(default=fb.Spec(n_agents=1, n_arms=1, dim=2, max_norm=1.0))
    def init(self, key):
        return ()
    def observe(self, key, world, t):
        return fb.Round(helper(self.scale.number * looked_up(t))[None, None]), world
    def pull(self, key, world, offered, arms):
        return fb.Feedback(offered.contexts[:, 0, 0], 1 + offered.contexts[:, 0, 1])

def found(number=1.0, entry=.5, file=1, help=helper):
    global TABLE, helper
    TABLE, helper = np.full((2000, 2), .5, np.float32), help
    TABLE[1000, 1] = entry
    np.save(FILE, np.float32(file))
    env, algo = Own(scale=Scale(number)), fb.algos.private_fed_lin_ucb(fb.privacy.Budget(1.0, 0.1), schedule=2)
    runner, mark = bind("a", Configuration(env, algo, {}), 4)
    run = fb.simulate(env, fb.algos.fed_lin_ucb(), horizon=2, key=jax.random.key(0), seeds=1)
    return [mark.hex(), *map(int, runner.salt), float(run.regret[0, 0])]
"""


def test_whatever_a_part_of_ones_own_reads_counts_in_every_process(tmp_path, monkeypatch):
    """A module's table, a file, a helper, an object without a repr; equal programs on equal data have equal noise."""
    (tmp_path / "own_parts.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    found = importlib.import_module("own_parts").found
    changes = dict(number=0.5), dict(entry=0.125), dict(file=0.75), dict(help=lambda x: x * 0.375)
    here = [found(), *(found(**change) for change in changes)]
    assert all(len(set(column)) == 5 for column in zip(*here))
    assert [regret for *_, regret in here] == [1.5, 1.25, 1.125, 1.375, 1.1875]
    program = "import json, own_parts; print(json.dumps([own_parts.found(), own_parts.found(0.5)]))"
    paths = os.pathsep.join([str(tmp_path), *sys.path])
    env = os.environ | {"PYTHONPATH": paths, "PYTHONHASHSEED": "7"}
    there = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True).stdout
    assert json.loads(there) == here[:2]


def asking(t):
    return jax.pure_callback(lambda t: np.full((M, 1, 2), 0.5, np.float32), jnp.zeros((M, 1, 2)), t)


@custom_vmap
def batched(t):
    return jnp.full((M, 1, 2), 0.5)


@batched.def_vmap
def _(size, batched, t):
    return jnp.full((size, M, 1, 2), 0.5), True


@fb.pytree
class Asking:
    answer: object = fb.static(default=asking)
    spec: fb.Spec = fb.static(default=fb.Spec(n_agents=M, n_arms=1, dim=2, max_norm=1.0))

    def init(self, key):
        return ()

    def observe(self, key, world, t):
        return fb.Round(self.answer(t)), world

    def pull(self, key, world, offered, arms):
        return fb.Feedback(offered.contexts[:, 0, 0], jnp.ones(M))


@pytest.mark.parametrize(
    ("answer", "name", "learns"),  # "as_printed", and "certified"
    [(asking, "pure_callback", True), (batched, "custom_vmap_call", False)],
)
def test_answers_that_do_not_count(answer, name, learns):
    """So a private run must not ask for them, nor one beside another which claims nothing, as its noise is tiny."""
    env, options = Asking(answer=answer), dict(horizon=2, key=jax.random.key(0), seeds=1)
    runner(env, PLAIN)  # which may
    said = f"must not call the host in a private run, .* got {name} in .*test_identity.py"
    with pytest.raises(TypeError, match=said):
        fb.simulate(env, private().replace(learns_in_batch=learns), **options)
    algo = fb.algos.private_fed_lin_ucb(fb.privacy.Budget(1e3, 1e-6), schedule=2)
    assert algo.certificate(env.spec, 2).claim == "none"
    with pytest.raises(TypeError, match=said):
        fb.sweep(env, {"p": algo}, grid={"epsilon": [1e3, 1.0]}, **options)


def greedy(bonus, tuned=None):
    """A policy of a user; equal arguments make equal code. It may bind a number which is none of its parameters."""

    @fb.pytree
    class Greedy(fb.Policy):
        scale: float = 2.0

        def bind(self, law):
            return self if tuned is None else dataclasses.replace(self, scale=tuned)

        def update(self, k, belief, released):
            return released.bias

        def index(self, key, t, belief, contexts):
            return contexts @ belief + (bonus() if callable(bonus) else bonus)

    return Greedy()


def test_a_fingerprint_knows_the_configuration_and_the_versions(monkeypatch):
    """A checkpoint is of one run, a piece of a sweep too, and almost so is noise; code of users may be made again."""

    def own(*given):
        return dict(algo=fb.algos.Federated(policy=greedy(*given), schedule=2))

    def script(reward):
        return dict(env=fb.envs.script(np.ones((4, 1, 2, 2)), np.full((4, 1, 2), reward)))

    def record(number):
        return dict(record={"a": lambda now: now.t + number})

    changes = [{}, dict(horizon=6), dict(key=jax.random.key(1)), dict(seeds=2), record(1), record(2)]
    changes += [script(0.5), script(0.6), own(1.0), own(jnp.zeros(4)), own(jnp.ones(4)), own(1.0, 3.0)]
    found = [marks(**change) for change in changes]
    assert [marks(**change) for change in ({}, record(1), own(lambda: 1.0))] == [found[0], found[4], found[8]]
    fingerprints, names, salts = map(set, zip(*found))
    assert len(fingerprints) == len(changes)
    assert len(names) == len(changes) - 1  # a piece has other seeds in another file
    assert len(salts) == len(changes) - 4  # noise is that of the configuration: with other keys, seeds or records, too
    for name, value in (("versions", {"jax": "0"}), ("code", "others")):
        with monkeypatch.context() as patch:
            patch.setattr(prepare, name, lambda value=value: value)
            fingerprints.add(made()[1].fingerprint())
    assert len(fingerprints) == len(changes) + 2


@fb.pytree
class Held:
    number: object = None
    fixed: object = fb.static(default=None)


@fb.pytree
class Kept(Held):
    pass


@dataclasses.dataclass(frozen=True)
class Hidden:
    value: object = dataclasses.field(repr=False)


def test_numbers_are_those_of_the_device():
    """Two programs that are given the same float32 numbers do the same; all that a device tells apart counts."""
    assert digest(Held(number=np.float64(0.1))) == digest(Held(number=0.1))
    assert digest(Held(number=1)) == digest(Held(number=1.0))
    assert digest(Held(number=np.full(2, 0.1))) == digest(Held(number=np.full(2, 0.1) + 1e-12))
    numbers = [0.1, 0.2, 1, True, None, (0.1,), {"a": 0.1}, {"b": 0.1}, jax.random.key(0), jax.random.key(1)]
    numbers += [np.float32(x) for x in ([0.1, 0.2], [[0.1, 0.2]], [0.2, 0.1])]
    numbers += [np.arange(2, dtype=kind) for kind in (np.int32, np.uint32, np.float32)]
    fixed = [0.1, 0.1 + 1e-12, 2**54, 2**54 + 1, "a", b"a", (), frozenset("ab"), frozenset("a"), Held]
    fixed += [Hidden(bytes(5000 * [0]) + bytes([i])) for i in (0, 1)]  # longer than any repr shows
    different = [Kept(number=0.1), *(Held(number=x) for x in numbers), *(Held(fixed=x) for x in fixed)]
    assert len({digest(one) for one in different}) == len(different)
    marks = [digest("a", "b"), digest("ab"), digest("a", ("b",))]
    assert len(set(map(salt, marks))) == 3


# Which keys an algorithm is given: those of privacy noise are salted, those of users and of its choices are not.


def word(key):
    return jax.random.key_data(key)[-1]


def own(base, **methods):
    """An object of a user-defined class, which remembers what it is given."""
    state = dict.fromkeys(("sync", "own", "choices"), jnp.uint32(0)) | {"users": jnp.zeros(4)}
    methods["init"] = lambda self, key, spec=None: state | {"init": word(key)}
    return fb.pytree(type(f"Own{base.__name__}", (base,), methods))()


def learned(self, t, local, offered, arms, rewards):
    now = jnp.array([offered.contexts[0, 0, 0], rewards[0]])
    users = jax.lax.dynamic_update_slice(local["users"], now, (2 * t,))
    return local | {"choices": arms[0].astype(jnp.uint32), "users": users}, None


KEYED = own(  # what is offered and what is answered is the first draw from its key
    Asking,
    observe=lambda self, key, world, t: (fb.Round(jnp.full((M, 4, 1), jax.random.uniform(key))), world),
    pull=lambda self, key, world, offered, arms: fb.Feedback(jnp.full(M, jax.random.uniform(key)), jnp.zeros(M)),
)
KEYED = dataclasses.replace(KEYED, spec=fb.Spec(n_agents=M, n_arms=4, dim=1))
ROUNDS = own(
    fb.Algorithm,
    batch=2,
    act=lambda self, key, t, local, offered: (word(key) % 4).astype(jnp.int32) * jnp.ones(M, jnp.int32),
    learn=learned,
    sync=lambda self, key, k, state, local, records: (local | {"sync": word(key)}, fb.Report()),
)
ARMS = own(
    ArmAlgorithm,
    n_batches=2,
    pulls=lambda self, state, k: Pulls(jnp.arange(4) < 1, jnp.int32(2), jnp.bool_(True)),
    collect=lambda self, rounding, own, k, rewards, inside: wide.Wide(word(own), word(rounding)),
    conclude=lambda self, key, k, state, sums: (
        state | {"sync": word(key), "own": sums.high[0], "choices": sums.low[0]}, fb.Report(rounds=1)
    ),
)  # fmt: skip
ARRIVALS = own(
    ArrivalAlgorithm,
    begin=lambda self, key, t, state: (state | {"own": word(key)}, fb.Report()),
    index=lambda self, key, t, state, user, contexts: jax.random.uniform(key, contexts.shape[:1]),
    serve=lambda self, key, t, state, user, x, y: (
        state | {"sync": word(key), "choices": jnp.uint32(1e6 * jnp.abs(x[0]))}, fb.Report()
    ),
    partition=lambda self, state: Partition(*jnp.zeros((2, 8), jnp.int32)),
)  # fmt: skip


RUNNERS = {  # runner, environment, algorithm, and what of its state is salted
    "rounds": (Synchronous, KEYED, ROUNDS, {"init", "sync"}),
    "users": (BatchedArms, fb.envs.arms(means=[0.1, 0.9, 0.5, 0.4]), ARMS, {"init", "sync", "own"}),
    "arrivals": (Sequential, fb.envs.clustered(8, 2, n_arms=4, dim=3), ARRIVALS, {"init", "sync", "own"}),
}


@pytest.mark.parametrize("name", RUNNERS)
def test_which_streams_are_salted(key, name):
    kind, env, algo, salted = RUNNERS[name]

    @jax.jit
    def states(salt):
        made = kind(env=env, algo=algo, horizon=16, salt=salt)
        world, state = jax.jit(made.init)(key)
        state = made.step(key, world, state, jnp.int32(0))[1]
        return state[1] if name == "users" else state

    found = [states(tuple(map(np.uint32, words))) for words in [(1, 2), (1, 3), (2, 2)]]
    for one, other in itertools.combinations(found, 2):
        assert {part for part in one if (one[part] != other[part]).any()} == salted
    assert name != "rounds" or len(set(found[0]["users"].tolist())) == 4
