"""Configurations under one key have privacy noise of their own, and all else in common."""

import dataclasses
import itertools
import json
import math
import os
import subprocess
import sys

import dp_accounting
import examples as ex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import PLAIN, One, variance_test
from jax.custom_batching import custom_vmap

import fedbandit_jax as fb
from fedbandit_jax.engine import prepare, store
from fedbandit_jax.engine.identity import digest, salt
from fedbandit_jax.engine.options import Run
from fedbandit_jax.engine.prepare import Configuration, expand, set_up
from fedbandit_jax.engine.runners import make_runner

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


def asking(t, key):
    return jax.pure_callback(lambda t: np.full((M, 1, 2), 0.5, np.float32), jnp.zeros((M, 1, 2)), t)


@custom_vmap
def batched(t, key):
    return jnp.full((M, 1, 2), 0.5)


@batched.def_vmap
def _(size, batched, t, key):
    return jnp.full((size, M, 1, 2), 0.5), True


@fb.pytree
class Asking:
    """What is offered is an answer, and so is the reward, drawn from their keys."""

    answer: object = fb.static(default=asking)
    spec: fb.Spec = fb.static(default=fb.Spec(n_agents=M, n_arms=1, dim=2, max_norm=1.0))

    def init(self, key):
        return ()

    def observe(self, key, world, t):
        return fb.Round(self.answer(t, key)), world

    def pull(self, key, world, offered, arms):
        return fb.Feedback(jnp.full(M, jax.random.uniform(key)), jnp.ones(M))


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


class Scale:  # without a repr
    def __init__(self, number):
        self.number = number


def answer(number=1.0, entry=0.5, help=jnp.sin):
    """What an environment reads: an object, a table whose long `repr` has dots, by a program in a branch, a helper."""
    table, scale = np.full((2000, 2), 0.5, np.float32), Scale(number)
    table[1000, 1] = entry

    def found(t, key):
        look = jax.jit(lambda t: jax.lax.dynamic_index_in_dim(jnp.asarray(table), 1000 + t, keepdims=False))
        row = jax.lax.cond(t >= 0, look, lambda _: jnp.zeros(2), t)
        return jnp.broadcast_to(help(scale.number * row), (M, 1, 2))

    return found


def marks_of_answers(n=4):
    """By n changes of what is read, none of which is a parameter."""
    changes = [{}, dict(help=lambda x: x * 0.375), dict(number=0.5), dict(entry=0.125)][:n]
    found = [marks(env=Asking(answer=answer(**change)), algo=private()) for change in changes]
    return [[*names, *map(int, salt)] for *names, salt in found]


def test_whatever_a_part_of_ones_own_reads_counts_in_every_process():
    """And equal programs on equal data have equal noise."""
    here = marks_of_answers()
    assert all(len(set(column)) == 4 for column in zip(*here))
    program = "import json, test_identity; print(json.dumps(test_identity.marks_of_answers(2)))"
    env = os.environ | {"PYTHONPATH": os.pathsep.join([os.path.dirname(__file__), *sys.path]), "PYTHONHASHSEED": "7"}
    there = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True).stdout
    assert json.loads(there) == here[:2]


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


def own(*given):
    return dict(algo=fb.algos.Federated(policy=greedy(*given), schedule=2))


def script(reward):
    return dict(env=fb.envs.script(np.ones((4, 1, 2, 2)), np.full((4, 1, 2), reward)))


def record(number):
    return dict(record={"a": lambda now: now.t + number})


def test_whatever_differs_has_noise_pieces_and_checkpoints_of_its_own(monkeypatch):
    """Noise is of a configuration, the others are of a run; code of users may be made again."""
    varied = [private(), private(1.001), private().replace(delta=0.11), private(unit=fb.privacy.Users(2))]
    varied += [private(trust=trust) for trust in ("central", "silo_local_matrix")]
    varied += [private(release=release) for release in ("sqrt_toeplitz", "blt")]
    varied += [private(statistic=fb.privacy.Linear(clip=False))]
    varied += [fb.algos.private_fed_lin_ucb(fb.privacy.Budget(1.0, 0.1, "zero_out"), schedule=2)]
    varied += [private().replace(exploration_scale=0.5), private().replace(confidence="known_noise")]
    varied += [private().replace(learns_in_batch=True), private().replace(schedule=1)]
    varied += [private().replace(schedule=fb.schedules.Geometric(1.5))]
    varied += [fb.algos.Federated(policy=fb.algos.Thompson(), privacy=BUDGET, schedule=2)]
    changes = [dict(algo=algo, horizon=4) for algo in varied]
    changes += [dict(algo=private(), horizon=6)]  # three synchronisations, not two
    changes += [dict(algo=private(), horizon=4, env=fb.envs.sphere(M, 5, 2, rewards="bernoulli"))]
    changes += [script(0.5), script(0.6), own(1.0), own(jnp.zeros(4)), own(jnp.ones(4)), own(1.0, 3.0)]
    found = [marks(**change) for change in changes]
    assert [len(set(column)) for column in zip(*found)] == 3 * [len(changes)]
    assert marks(**own(lambda: 1.0)) == marks(**own(1.0))
    runs = [marks(**change) for change in ({}, dict(key=jax.random.key(1)), dict(seeds=2), record(1), record(2))]
    assert marks(**record(1)) == runs[3]
    fingerprints, names, salts = map(set, zip(*runs))
    assert (len(names), len(salts)) == (4, 1)  # a piece has other seeds in another file
    for name, value in (("versions", {"jax": "0"}), ("code", "others")):
        with monkeypatch.context() as patch:
            patch.setattr(prepare, name, lambda value=value: value)
            fingerprints.add(made()[1].fingerprint())
    assert len(fingerprints) == 5 + 2


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


# Which keys are salted: those of privacy noise are, those of users and of an algorithm's choices are not.


@fb.pytree
class Drawn(One):
    """Its state is a number that it draws when it begins."""

    def init(self, key, spec):
        return jax.random.uniform(key)


def states(env, algo, key):
    """The world and the learner's state after a run, under three salts."""
    fresh = make_runner(env, algo.bind(env.spec, ex.T), ex.T, None)

    @jax.jit
    def played(salt):
        made = dataclasses.replace(fresh, salt=salt)
        return jax.lax.fori_loop(0, made.n_steps, lambda k, now: made.step(key, *now, k)[:2], made.init(key))

    found = [played(tuple(map(np.uint32, words))) for words in [(1, 2), (1, 3), (2, 2)]]
    return [[np.concatenate([np.ravel(x) for x in jax.tree.leaves(part)]) for part in one] for one in found]


SAME, SALTED = ["Thompson", "Async-FedLinUCB", "SE"], ["Private-FedLinUCB", "Together", "LDP-SE", "CDP-SE"]


@pytest.mark.parametrize("name", [*SAME, *SALTED, "drawn"])
def test_which_streams_are_salted(name, key):
    env, algo = (ex.EXAMPLES[name].env, ex.EXAMPLES[name].algo) if name != "drawn" else (ENV, Drawn())
    for (world, state), (other, another) in itertools.combinations(states(env, algo, key), 2):
        np.testing.assert_array_equal(world, other)
        assert np.array_equal(state, another) == (name in SAME)


def test_every_round_draws_users_and_answers_anew(key):
    env = Asking(answer=lambda t, key: jnp.full((M, 1, 2), jax.random.uniform(key)))
    record = {"x": lambda now: now.offered.contexts[0, 0, 0], "y": lambda now: now.rewards[0]}
    found = fb.simulate(env, PLAIN, horizon=2, key=key, seeds=2, record=record, stride=1).records
    assert len({*found["x"].ravel().tolist(), *found["y"].ravel().tolist()}) == 8
