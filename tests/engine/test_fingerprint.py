"""A checkpoint is of one run, whose fingerprint knows parameters, versions, and programs of code that is not ours."""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import ENV, deep, simulate

import fedbandit_jax as fb
from fedbandit_jax.engine import setup
from fedbandit_jax.engine.grid import Configuration
from fedbandit_jax.engine.options import Run
from fedbandit_jax.engine.setup import bind, set_up


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


def own_algorithm(bonus=0.0, table=None):
    """Equal arguments make equal code."""

    @fb.pytree
    class Own(fb.Algorithm):
        table: jax.Array

        def init(self, key, spec):
            return jnp.zeros(())

        def act(self, key, t, local, offered):
            return jnp.argmax(offered.contexts.sum(-1) + self.table[0], 1)

        def learn(self, t, local, offered, arms, rewards):
            return local + bonus * rewards.sum(), None

    return Own(table=jnp.zeros(2) if table is None else table)


@pytest.mark.parametrize(
    "change",
    deep([dict(bonus=1.0), dict(bonus=jnp.ones(2)[1]), dict(table=jnp.ones(2))], keep=()),
    ids=["traced", "a constant", "a number that is bound"],
)
def test_a_checkpoint_knows_the_code(tmp_path, change):
    """Whatever changes, the checkpoint is another run's; the same code made again is not."""
    checkpointed(tmp_path, algo=own_algorithm())
    checkpointed(tmp_path, algo=own_algorithm())
    with pytest.raises(ValueError, match="belongs to another run"):
        checkpointed(tmp_path, algo=own_algorithm(**change))


def fingerprint(env=ENV, algo=None, **options):
    algo = fb.algos.fed_lin_ucb(schedule=2) if algo is None else algo
    one = {"x": Configuration(env, algo, {"algorithm": "x"})}
    return set_up(one, Run(**{"horizon": 4, "key": jax.random.key(0), "seeds": 1, **options})).fingerprint()


def test_a_fingerprint_knows_the_configuration_and_the_versions(monkeypatch):
    one = fingerprint()
    assert one == fingerprint()
    changes = [dict(horizon=6), dict(key=jax.random.key(1)), dict(seeds=2), dict(record={"arms": fb.record.arms})]
    found = [fingerprint(**change) for change in changes]
    script = (fb.envs.script(np.ones((4, 1, 2, 2)), np.full((4, 1, 2), reward)) for reward in (0.5, 0.5, 0.6))
    a, same, b = map(fingerprint, script)
    assert a == same
    for name, value in (("versions", {"jax": "0"}), ("code", "others")):
        with monkeypatch.context() as patch:
            patch.setattr(setup, name, lambda value=value: value)
            found.append(fingerprint())
    own = fingerprint(algo=own_algorithm())
    assert own == fingerprint(algo=own_algorithm())
    found += [own, fingerprint(algo=own_algorithm(bonus=1.0))]
    assert len({one, a, b, *found}) == 3 + len(changes) + 4


@pytest.mark.slow
def test_a_fingerprint_is_that_of_another_process(tmp_path):
    """Nothing in it depends on addresses, or on the order of a set."""
    code = (
        "import jax, fedbandit_jax as fb\n"
        "from fedbandit_jax.engine.grid import Configuration\n"
        "from fedbandit_jax.engine.setup import bind\n"
        "env, algo = fb.envs.sphere(3, 4, 5, rewards='gaussian'), fb.algos.LinUCB()\n"
        "@fb.pytree\n"
        "class Own(type(env)):\n"
        "    def pull(self, key, world, offered, arms):\n"
        "        return super(Own, self).pull(key, world, offered, arms)\n"
        "own = Own(**{name: getattr(env, name) for name in env.__dataclass_fields__})\n"
        "for one in (env, own):\n"
        "    clock, mark = bind('x', Configuration(one, algo, {}), 40)\n"
        "    print(mark.hex(), *clock.salt)"
    )
    (tmp_path / "it.py").write_text(code)
    environment = {**os.environ, "PYTHONHASHSEED": "1"}
    done = subprocess.run([sys.executable, tmp_path / "it.py"], capture_output=True, text=True, env=environment)
    assert not done.returncode, done.stderr
    here = [bind("x", Configuration(env, fb.algos.LinUCB(), {}), 40) for env in (ENV, own_sphere())]
    assert done.stdout.split() == [str(word) for clock, mark in here for word in (mark.hex(), *clock.salt)]


def own_sphere():
    """What the script above calls `own`."""

    @fb.pytree
    class Own(type(ENV)):
        def pull(self, key, world, offered, arms):
            return super().pull(key, world, offered, arms)

    return Own(**{name: getattr(ENV, name) for name in ENV.__dataclass_fields__})
