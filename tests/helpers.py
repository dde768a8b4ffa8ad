"""What tests of several rooms share."""

import contextlib
import functools
import runpy
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

import fedbandit_jax as fb
from fedbandit_jax.core import lots, random
from fedbandit_jax.core.validate import BadArgument
from fedbandit_jax.engine import driver
from fedbandit_jax.engine.curves import RoundTally
from fedbandit_jax.engine.runners import Synchronous

# A small run, for tests that need any run: its programs are compiled once.
BUDGET = fb.privacy.Budget(1.0, 0.1)
ENV = fb.envs.sphere(3, 4, 5, rewards="gaussian")
# the code of Zhou & Chowdhury (2024): standard deviations by trust model, and the policy
_CODE = runpy.run_path(str(Path(__file__).parents[1] / "experiments" / "authors.py"))
AUTHORS, AuthorsUCB = _CODE["NOISE"], _CODE["UCB"]
PLAIN, PRIVATE = fb.algos.fed_lin_ucb(schedule=5), fb.algos.private_fed_lin_ucb(BUDGET, schedule=5)


@contextlib.contextmanager
def refused(argument, *value, other=None):
    """A block that refuses this argument, perhaps with this value, and names another that it does not go with."""
    with pytest.raises(BadArgument) as found:
        yield found
    assert "\n" not in str(found.value)
    assert found.value.argument == argument, str(found.value)
    assert value in ((), (found.value.value,)), str(found.value)
    assert other is None or other in found.value.others, str(found.value)


def fits(trust, release):
    """Whether the proof of a trust model covers a release."""
    try:
        fb.privacy.Mechanism(BUDGET, release, trust)
    except BadArgument:
        return False
    return True


class ByMessage(fb.algos.Federated):
    """Federated learning in which every message of every silo is made, as audits see it."""

    def bind(self, spec, horizon):
        return fb.audits.by_message(super().bind(spec, horizon))


class SharesRDPSE(fb.algos.DistRDPSE):
    """Elimination in which every user draws a share of the noise, as audits see it."""

    def bind(self, spec, horizon):
        return fb.audits.by_message(super().bind(spec, horizon))


def recalibrated(found, **changes):
    """The least noise for a calibration, with other fields of its `Requirement`."""
    need = replace(found.requirement, **changes)
    return fb.privacy.Calibration(requirement=need, model=type(found.model).calibrate(need))


def simulate(env=ENV, algo=PRIVATE, **options):
    return fb.simulate(env, algo, **{"horizon": 40, "key": jax.random.key(0), "seeds": 3, **options})


def sweep(algos, **options):
    return fb.sweep(ENV, algos, **{"horizon": 40, "key": jax.random.key(0), "seeds": 3, **options})


@functools.partial(jax.jit, static_argnums=0)
def stepped(told, runner, ks, key):
    """The last state of a runner after steps ks, and what `told(state, metrics)` made of each."""

    def body(carry, k):
        world, state, metrics = runner.step(key, *carry, k)
        return (world, state), told(state, metrics)

    (_, state), found = jax.lax.scan(body, runner.init(key), ks)
    return state, found


def gaps(state, metrics):
    return metrics.gap


def regrets(env, bound, horizon, key):
    """Regret per round of a bound algorithm."""
    runner = Synchronous(env=env, algo=bound, horizon=horizon)
    return np.asarray(stepped(gaps, runner, np.arange(runner.n_steps), key)[1]).ravel()[:horizon]


@functools.partial(jax.jit, static_argnums=(2, 3))
def by_lot(key, t, n_arms, n_agents):
    """The arms (M,) of agents to whom all arms are alike in round t."""
    choices = jax.random.fold_in(random.stream(key, "choices"), t)
    return lots.best(choices, jnp.zeros((n_arms, n_agents)))


def silent(bound):
    """The same bound private algorithm, with a trust model that adds no noise."""
    trust = bound.mechanism.trust
    mute = replace(bound.mechanism, trust=replace(trust, std=np.zeros_like(trust.std)))
    return replace(bound, mechanism=mute, stds=np.zeros_like(bound.stds))


def released(mechanism, key, k, state, x, y):
    """What a mechanism makes of batch k of users x (B, d, M), y (B, M), and its state."""
    return mechanism.step(key, k, state, jnp.einsum("bim,bjm->ij", x, jnp.concatenate([x, y[:, None]], 1)), x, y)


@fb.pytree
class Told(fb.Policy):
    """Believes what it is told: k, the count, the std, that of the last release as announced, W and U."""

    last: Any = 0.0

    def bind(self, law):
        return replace(self, last=np.float32(law.stds[-1]))

    def start(self, dim):
        return jnp.zeros(4 + dim * (dim + 1))

    def update(self, k, belief, released):
        told = jnp.stack([jnp.float32(k), released.count, released.std, jnp.float32(self.last)])
        return jnp.concatenate([told, released.gram.ravel(), released.bias])

    def index(self, key, t, belief, contexts):
        return contexts[:, 0]


@fb.pytree
class Bias(fb.Policy):
    """A policy of one's own: it plays the arm that points to the noisy bias."""

    def update(self, k, belief, released):
        return released.bias

    def index(self, key, t, belief, contexts):
        return contexts @ belief


@fb.pytree
class Ridge(fb.Policy):
    """A policy of one's own, with a number of its own, that solves a system by itself."""

    c: float = 1.0

    def start(self, dim):
        return jnp.zeros(dim)

    def update(self, k, belief, released):
        return jnp.linalg.solve(released.gram + self.c * jnp.eye(len(belief)), released.bias)

    def index(self, key, t, belief, contexts):
        return contexts @ belief


@fb.pytree
class One(fb.Algorithm):
    """An algorithm of one's own: it plays one arm, or random ones if that is -1, and counts no bits."""

    arm: Any = 0

    def init(self, key, spec):
        return jnp.zeros(())

    def act(self, key, t, local, offered):
        n_agents, n_arms = offered.contexts.shape[:2]
        return jnp.where(self.arm < 0, jax.random.randint(key, (n_agents,), 0, n_arms), self.arm)

    def learn(self, t, local, offered, arms, rewards):
        return local, ()

    def sync(self, key, k, state, local, records):
        return state, fb.Report(rounds=1)


def prefixes(n):
    """An honest release of one's own: send every prefix sum itself."""
    return np.tril(np.ones((n, n)))


def arrivals(places):
    """The round whose reward arrives at every silo in every round, or -1."""
    waiting, found = {}, np.full(np.shape(places), -1)
    for t, i in np.ndindex(found.shape):
        found[t, i] = waiting.get((i, places[t][i]), -1)
        waiting[i, places[t][i]] = t
    return found


def within_ball(rng, shape, least):
    """Vectors in random directions, of norms in [least, 1]."""
    x = rng.standard_normal(shape)
    return x * rng.uniform(least, 1, (*shape[:-1], 1)) / np.linalg.norm(x, axis=-1, keepdims=True)


def random_script(seed, shape, theta):
    """A script of rewards 0 and 1 with linear means; its contexts have the shape (T, M, K, d)."""
    rng = np.random.default_rng(seed)
    contexts = rng.standard_normal(shape)
    contexts /= np.linalg.norm(contexts, axis=-1, keepdims=True) * rng.uniform(1, 2, shape[:-1])[..., None]
    means = 0.5 + 0.5 * contexts @ np.array(theta)
    return fb.envs.script(contexts, (rng.random(means.shape) < means).astype(float), means)


def variance_test(sample, variance=1.0):
    """Two-sided chi-square p-value that a zero-mean Gaussian sample has this variance."""
    law, squares = stats.chi2(np.size(sample)), (np.asarray(sample, float) ** 2).sum() / variance
    return 2 * min(law.sf(squares), law.cdf(squares))


def p_value(draws, law, cells=60):
    """Chi-square test on cells between quantiles of a law, finer in the tails; those too rare are pooled."""
    if hasattr(law, "log_pmf"):  # of integers
        edge = int(20 * law.variance**0.5) + 1
        pmf = np.exp(law.log_pmf(np.arange(-edge, edge + 1)))
        law = stats.rv_discrete(values=(np.arange(-edge, edge + 1), pmf / pmf.sum()))
    edges = np.unique(law.ppf(special.expit(np.linspace(-8, 8, cells + 1))))
    expected = np.diff(law.cdf(edges), prepend=0, append=1) * len(draws)
    observed = np.bincount(np.searchsorted(edges, draws), minlength=len(expected))
    rare = expected < 5
    pooled = [np.append(counts[~rare], counts[rare].sum()) for counts in (observed, expected)]
    observed, expected = (counts[pooled[1] > 0] for counts in pooled)
    return stats.chi2.sf(((observed - expected) ** 2 / expected).sum(), len(observed) - 1)


def workload(memory, n):
    """A of sums that forget by definition, (n, n)."""
    ages = np.subtract.outer(np.arange(n), np.arange(n))
    return np.where(ages >= 0, memory.decay ** np.maximum(ages, 0), 0.0)


def in_chunks(monkeypatch, n):
    """Runs are cut into so many chunks, which do not grow if they are soon over."""
    for name, number in (("CHUNKS", n), ("CHUNK_SECONDS", 0), ("CHUNK_WORK", 0)):
        monkeypatch.setattr(driver, name, number)


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


def same_runs(one, other, atol=0.0):
    """Asserts that two results have the same labels, certificates, configuration and numbers."""
    assert one.labels == other.labels
    assert one.config == other.config
    assert dict(one.certificates) == dict(other.certificates)
    pairs = [(one.rounds, other.rounds), (one.regret, other.regret), (one.status, other.status)]
    for kind in ("communication", "counts", "gauges", "records", "record_rounds"):
        mine, theirs = getattr(one, kind), getattr(other, kind)
        assert set(mine) == set(theirs)
        pairs += [(curve, theirs[name]) for name, curve in mine.items()]
    for found, expected in pairs:
        np.testing.assert_allclose(found, expected, rtol=0, atol=atol)


def edit(file, number, change):
    """Changes one line of a file, which are numbered from 1."""
    rows = file.read_text().splitlines(keepends=True)
    rows[number - 1] = change(rows[number - 1])
    file.write_text("".join(rows))


def deep(parameters, *, keep):
    """Parameters of a test: the default tests run those at the positions `keep`, and the slow ones the rest."""
    made = []
    for i, one in enumerate(parameters):
        values = one if isinstance(one, tuple) and not hasattr(one, "_fields") else (one,)
        made.append(pytest.param(*values, marks=[pytest.mark.slow] * (i not in keep)))
    return made
