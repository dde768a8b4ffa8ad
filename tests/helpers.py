"""What tests of several rooms share."""

import contextlib
import functools
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedbandit_jax as fb
from fedbandit_jax.engine.clocks import RoundClock
from fedbandit_jax.engine.curves import RoundTally

# A small run, for tests that need any run: its programs are compiled once.
BUDGET = fb.privacy.Budget(1.0, 0.1)
ENV = fb.envs.sphere(3, 4, 5, rewards="gaussian")
PLAIN, PRIVATE = fb.algos.fed_lin_ucb(schedule=5), fb.algos.private_fed_lin_ucb(BUDGET, schedule=5)


def simulate(env=ENV, algo=PRIVATE, **options):
    return fb.simulate(env, algo, **{"horizon": 40, "key": jax.random.key(0), "seeds": 3, **options})


def sweep(algos, **options):
    return fb.sweep(ENV, algos, **{"horizon": 40, "key": jax.random.key(0), "seeds": 3, **options})


@functools.partial(jax.jit, static_argnums=0)
def stepped(told, clock, ks, key):
    """The last state of a clock after steps ks, and what `told(state, metrics)` made of each."""

    def body(carry, k):
        world, state, metrics = clock.step(key, *carry, k)
        return (world, state), told(state, metrics)

    (_, state), found = jax.lax.scan(body, clock.init(key), ks)
    return state, found


def gaps(state, metrics):
    return metrics.gap


def regrets(env, bound, horizon, key):
    """Regret per round of a bound algorithm."""
    clock = RoundClock(env=env, algo=bound, horizon=horizon)
    return np.asarray(stepped(gaps, clock, np.arange(clock.n_steps), key)[1]).ravel()[:horizon]


def silent(bound):
    """The same bound private algorithm, with a trust model that adds no noise."""
    trust = bound.mechanism.trust
    mute = replace(bound.mechanism, trust=replace(trust, std=np.zeros_like(trust.std)))
    return replace(bound, mechanism=mute, stds=np.zeros_like(bound.stds))


def released(mechanism, key, k, state, x, y):
    """What a mechanism makes of batch k of users x (B, d, M), y (B, M), and its state."""
    return mechanism.step(key, k, state, jnp.einsum("bim,bjm->ij", x, jnp.concatenate([x, y[:, None]], 1)), x, y)


def scripted(contexts, answers, means):
    """A script whose answers and means may be no numbers, which `fb.envs.script` refuses."""
    whole = [np.where(np.isfinite(table), table, 2.0) for table in (answers, means)]
    return replace(fb.envs.script(contexts, *whole), answers=np.float32(answers), means=np.float32(means))


@contextlib.contextmanager
def stopped_after(n, tally=RoundTally):
    """A block that Ctrl-C ends when so many chunks are added to a tally of curves, which is then as it was before."""
    add, calls = tally.add, []

    def interrupted(self, *arguments):
        calls.append(1)
        if len(calls) > n:
            raise KeyboardInterrupt
        return add(self, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tally, "add", interrupted)
        with pytest.raises(KeyboardInterrupt):
            yield


def deep(parameters, *, keep):
    """Parameters of a test: the default tests run those at the positions `keep`, and the slow ones the rest."""
    made = []
    for i, one in enumerate(parameters):
        values = one if isinstance(one, tuple) and not hasattr(one, "_fields") else (one,)
        made.append(pytest.param(*values, marks=[pytest.mark.slow] * (i not in keep)))
    return made
