"""A checkpoint is of one run, whose fingerprint knows the program, numbers bound into it, and code on the host."""

import dataclasses
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import ENV, PRIVATE, deep, simulate

import fedbandit_jax as fb
from fedbandit_jax.engine import provenance
from fedbandit_jax.engine.clocks import RoundClock
from fedbandit_jax.engine.identity import digest, salt


@pytest.mark.slow
def test_a_checkpoint_knows_the_program(tmp_path):
    """The same class name and fields with another body is another run."""

    def environment(scale):
        @fb.pytree
        class Edited:
            spec = ENV.spec

            def init(self, key):
                return ENV.init(key)

            def observe(self, key, world, t):
                return ENV.observe(key, world, t)

            def pull(self, key, world, offered, arms):
                feedback = ENV.pull(key, world, offered, arms)
                return feedback._replace(gap=scale * feedback.gap)

        return Edited()

    one = simulate(environment(1.0), checkpoint=tmp_path / "run")
    np.testing.assert_array_equal(simulate(environment(1.0), checkpoint=tmp_path / "run").regret, one.regret)
    with pytest.raises(ValueError, match="belongs to another run"):
        simulate(environment(2.0), checkpoint=tmp_path / "run")
    (tmp_path / "run.0").write_bytes(b"PK")
    with pytest.raises(ValueError, match=r"checkpoint .*run.0' cannot be continued, delete it to begin anew or give"):
        simulate(environment(1.0), checkpoint=tmp_path / "run")
    with pytest.raises(ValueError, match="checkpoint must be a file, got the folder"):
        simulate(checkpoint=tmp_path)


def checkpointed(tmp_path, env=ENV, algo=None):
    """A run of an algorithm of one's own that goes on from its checkpoint."""
    return simulate(env, algo, checkpoint=tmp_path / "run", throw=False)


def own_algorithm(bonus=0.0, told="nothing", table=None, seen=lambda state: state):
    """Equal arguments make equal code; `told` and `seen` are never traced."""

    @fb.pytree
    class Own(fb.Algorithm):
        table: jax.Array
        hook: object = fb.static(default=None)

        def init(self, key, spec):
            return jnp.zeros(())

        def act(self, key, t, local, offered):
            return jnp.argmax(offered.contexts.sum(-1) + self.table[0], 1)

        def learn(self, t, local, offered, arms, rewards):
            return local + bonus * rewards.sum(), None

    if told == "something":
        Own.view = lambda self, report: 1 if report else 2
    return Own(table=jnp.zeros(2) if table is None else table, hook=seen)


def other_hook(state):
    return state + 1


@pytest.mark.parametrize(
    "change",
    deep([dict(bonus=1.0), dict(told="something"), dict(table=jnp.ones(2)), dict(seen=other_hook)], keep=()),
    ids=["traced", "on the host", "a number that is bound", "in a static field"],
)
def test_a_checkpoint_knows_the_code(tmp_path, change):
    """Whatever changes, the checkpoint is another run's; the same code made again is not."""
    checkpointed(tmp_path, algo=own_algorithm())
    checkpointed(tmp_path, algo=own_algorithm())
    with pytest.raises(ValueError, match="belongs to another run"):
        checkpointed(tmp_path, algo=own_algorithm(**change))


def settled(told):
    """A process whose policy holds settings of a class of their own; `told` is never traced."""

    @dataclasses.dataclass(frozen=True)
    class Settings:
        def tell(self, words=told):
            return words

    @fb.pytree
    class Own(fb.algos.Thompson):
        settings: object = fb.static()

    algo = fb.algos.Federated(policy=Own(settings=Settings()), schedule=5)
    return RoundClock(env=ENV, algo=algo.bind(ENV.spec, 40), horizon=40)


def test_a_fingerprint_knows_the_code_of_static_fields():
    marks = [provenance.fingerprint({}, [settled(told)]) for told in ("one", "one", "other")]
    assert marks[0] == marks[1] != marks[2]


def test_a_fingerprint_knows_the_numbers():
    """Of arrays, which the text of a program leaves out."""

    def mark(reward):
        env = fb.envs.script(np.ones((4, 1, 2, 2)), np.full((4, 1, 2), reward))
        bound = fb.algos.fed_lin_ucb(schedule=2).bind(env.spec, 4)
        return provenance.fingerprint({}, [RoundClock(env=env, algo=bound, horizon=4)])

    assert mark(0.5) == mark(0.5) != mark(0.6)


@pytest.mark.slow
def test_a_checkpoint_knows_the_code_of_the_package(tmp_path, monkeypatch):
    """A built-in class that was changed at run time, for instance to add less noise or to claim more."""
    run = PRIVATE.replace(release="blt")
    checkpointed(tmp_path, algo=run)
    checkpointed(tmp_path, algo=run)
    bound = run.bind(ENV.spec, 40)
    monkeypatch.setattr(type(bound), "guarantee", lambda self: "all is well")
    mark = provenance.fingerprint({}, [RoundClock(env=ENV, algo=bound, horizon=40)])
    monkeypatch.undo()
    assert provenance.fingerprint({}, [RoundClock(env=ENV, algo=bound, horizon=40)]) != mark


@pytest.mark.slow
def test_a_fingerprint_is_that_of_another_process(tmp_path):
    """Nothing in it depends on addresses, or on the order of a set."""
    code = (
        "import jax, fedbandit_jax as fb\n"
        "from fedbandit_jax.engine import process, provenance, salt\n"
        "env = fb.envs.sphere(3, 4, 5, rewards='gaussian')\n"
        "bound = fb.algos.LinUCB().bind(env.spec, 40)\n"
        "print(provenance.fingerprint({}, [process.process(env, bound, 40, ())]))\n"
        "print(*salt.salt(salt.digest(env), salt.digest(bound)))"
    )
    (tmp_path / "it.py").write_text(code)
    environment = {**os.environ, "PYTHONHASHSEED": "1"}
    done = subprocess.run([sys.executable, tmp_path / "it.py"], capture_output=True, text=True, env=environment)
    assert not done.returncode, done.stderr
    bound = fb.algos.LinUCB().bind(ENV.spec, 40)
    here = RoundClock(env=ENV, algo=bound, horizon=40)
    marks = provenance.fingerprint({}, [here]), *salt(digest(ENV), digest(bound))
    assert done.stdout.split() == list(map(str, marks))
