"""A checkpoint is of one run, whose fingerprint knows parameters, versions, and programs of code that is not ours."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import ENV, PLAIN, simulate

import fedbandit_jax as fb
from fedbandit_jax.engine import setup
from fedbandit_jax.engine.grid import Configuration
from fedbandit_jax.engine.options import Run
from fedbandit_jax.envs._wrapper import Wrapper


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


def own_environment(scale=1.0):
    @fb.pytree
    class Own(Wrapper):
        def pull(self, key, world, offered, arms):
            feedback = self.env.pull(key, world, offered, arms)
            return feedback._replace(gap=scale * feedback.gap)

    return Own(env=ENV, spec=ENV.spec)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "change"),
    [
        (own_algorithm, dict(bonus=1.0)),
        (own_algorithm, dict(bonus=jnp.ones(2)[1])),
        (own_algorithm, dict(table=jnp.ones(2))),
        (own_environment, dict(scale=2.0)),
    ],
    ids=["traced", "a constant", "a number that is bound", "an environment"],
)
def test_a_checkpoint_knows_the_code(tmp_path, make, change):
    """Whatever changes, the checkpoint is another run's; the same code made again is not."""

    def play(**change):
        parts = dict(algo=make(**change)) if make is own_algorithm else dict(env=make(**change), algo=PLAIN)
        return simulate(checkpoint=tmp_path / "run", throw=False, **parts)

    np.testing.assert_array_equal(play().regret, play().regret)
    with pytest.raises(ValueError, match="another run"):
        play(**change)


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
