"""A checkpoint is of one run, whose fingerprint knows parameters, versions, and programs of code that is not ours."""

import jax
import jax.numpy as jnp
import numpy as np
from helpers import ENV, PLAIN

import fedbandit_jax as fb
from fedbandit_jax.engine import setup
from fedbandit_jax.engine.grid import Configuration
from fedbandit_jax.engine.options import Run


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


def fingerprint(env=ENV, algo=PLAIN, **options):
    one = {"x": Configuration(env, algo, {"algorithm": "x"})}
    return setup.set_up(one, Run(**{"horizon": 4, "key": jax.random.key(0), "seeds": 1, **options})).fingerprint()


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
    found += [own, fingerprint(algo=own_algorithm(bonus=1.0)), fingerprint(algo=own_algorithm(table=jnp.ones(2)))]
    assert len({one, a, b, *found}) == 3 + len(changes) + 5
