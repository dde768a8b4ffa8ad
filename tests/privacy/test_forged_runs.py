"""What dishonest algorithms and environments do when they are run: nothing goes out that is not paid for."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import refused, released
from honest import BATCH, SPEC, changed, federated, honest, of

import fedbandit_jax as fb
from fedbandit_jax.audits.messages import Messages, by_message
from fedbandit_jax.envs._wrapper import Wrapper
from fedbandit_jax.interfaces import Status, certify
from fedbandit_jax.privacy.bound import Exact
from fedbandit_jax.privacy.noisy_sums import Aggregated, Rounded


@pytest.mark.parametrize("form", [Aggregated, Rounded, Messages])
def test_nothing_is_released_beyond_what_is_paid_for(form, key):
    """A mechanism for two releases, asked for a third: no number comes out, and no silo's message."""
    trust = {Aggregated: "silo_local", Rounded: "shuffle_vector_sum", Messages: "secagg"}[form]
    mechanism = federated(trust=trust).bind(SPEC, 2 * BATCH).mechanism
    mechanism = by_message(mechanism) if form is Messages else mechanism
    assert type(mechanism) is form
    x, y = np.full((BATCH, 2, 4), 0.5, np.float32), np.ones((BATCH, 4), np.float32)
    step = jax.jit(lambda k, state, x: released(mechanism, jax.random.fold_in(key, k), k, state, x, y))
    state = mechanism.init(2)
    for k in (1, 2):
        statistics, state = step(k, state, x)
        assert np.isfinite(statistics).all()
    third, later = step(3, state, x)
    other, _ = step(3, state, 0 * x)
    assert np.isnan(third).all()
    assert np.isnan(other).all()
    shown = np.asarray(later.view)
    np.testing.assert_array_equal(shown, shown if form is not Messages else np.asarray(state.view))
    assert form is Messages or np.isnan(shown).all()


@pytest.fixture(scope="module")
def world():
    return fb.envs.sphere(4, 3, 2, rewards="bernoulli")


def run(env, algo, horizon=8, **options):
    return fb.simulate(env, algo, horizon=horizon, key=jax.random.key(0), seeds=2, progress=False, **options)


def test_the_result_says_what_ran(world):
    """A recipe's own `certificate` is not asked."""

    class Boasts(fb.algos.Federated):
        def certificate(self, spec, horizon):
            return certify(honest("tree"))

        def bind(self, spec, horizon):
            return changed(super().bind(spec, horizon), "", mechanism=Exact(n_agents=spec.n_agents))

    algo = of(Boasts, federated(schedule=2))
    assert algo.certificate(world.spec, 6).claim == "certified"
    assert run(world, algo, horizon=6).certificate.claim == "none"


def test_environment_swapped_after_binding(world):
    class Other:
        """The same world, with features twice as long."""

        spec = dataclasses.replace(world.spec, max_norm=2.0)

        def __getattr__(self, name):
            return getattr(world, name)

    with refused("algo", other="env"):
        run(Other(), federated().bind(world.spec, 8))


@fb.pytree
class Lies(Wrapper):
    """Says what its spec says, and does what it likes."""

    longer: float = 1.0
    more: float = 1.0

    def observe(self, key, world, t):
        offered, world = self.env.observe(key, world, t)
        return offered._replace(contexts=self.longer * offered.contexts), world

    def pull(self, key, world, offered, arms):
        feedback = self.env.pull(key, world, offered, arms)
        return feedback._replace(reward=self.more * feedback.reward)


@pytest.mark.parametrize("lie", [{"longer": 30.0}, {"more": math.nan}])
def test_environments_that_lie(world, lie):
    """What they promise is enforced where it enters, and the seed says so."""
    result = run(Lies(env=world, spec=world.spec, **lie), federated(schedule=2), horizon=6, throw=False)
    assert result.certificate.claim == "certified"
    assert (result.status & Status.OUTSIDE_SPEC).all()


def test_environment_that_denies_its_users():
    """Who says that nobody returns may not tell users apart."""
    world = fb.envs.clustered(n_users=6, n_servers=2, n_clusters=2, dim=3)
    env = Lies(env=world, spec=dataclasses.replace(world.spec, n_users=0))
    with pytest.raises(TypeError, match="no user"):
        run(env, federated(schedule=2), horizon=2)


def test_what_reaches_a_policy(key):
    """Rewards of the batch that goes on do not; what is released does, and what the user who came is offered."""
    seen = []

    class Records(fb.algos.Thompson):
        calls_host = True

        def update(self, k, belief, released):
            jax.debug.callback(lambda *given: seen.append(("update", given)), *released)
            return super().update(k, belief, released)

        def index(self, key, t, belief, contexts):
            jax.debug.callback(lambda *given: seen.append(("index", given)), *belief, contexts)
            return super().index(key, t, belief, contexts)

    bound = federated(policy=fb.pytree(Records)(), schedule=1).bind(SPEC, 2)
    assert certify(bound).claim == "none"  # it tells the host
    offered = fb.Round(np.random.default_rng(0).uniform(-0.5, 0.5, (4, 3, 2)).astype(np.float32))

    @jax.jit
    def batch(reward):
        state = bound.init(key, SPEC)
        local = bound.download(state, offered)
        arms = bound.act(key, jnp.int32(0), local, offered)
        local, record = bound.learn(jnp.int32(0), local, offered, arms, reward)
        records = bound.gather(jax.tree.map(lambda leaf: leaf[None], record))
        return bound.sync(key, jnp.int32(0), state, local, records), record

    def told(reward):
        """What the policy is told before the release, and of it."""
        seen.clear()
        _, record = jax.block_until_ready(batch(np.full(4, reward, np.float32)))
        jax.effects_barrier()
        of_index = sorted((given for name, given in seen if name == "index"), key=repr)
        return of_index, [given for name, given in seen if name == "update"][-1], record

    calm, (gram, bias, *_), record = told(0.0)
    loud, (same, moved, *_), _ = told(1.0)
    assert [[np.shape(part) for part in given] for given in calm] == 4 * [[(2,), (2, 2), (3, 2)]]
    jax.tree.map(np.testing.assert_array_equal, calm, loud)
    np.testing.assert_array_equal(gram, same)
    np.testing.assert_allclose(moved - bias, record.x.sum(-1), rtol=1e-3)  # through the mechanism, under its noise
    assert abs(bias).max() > 0.1
