"""User classes: told apart by the compiler, told what they must return, and given nothing that the spec forbids."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import PLAIN, refused, stepped

import fedbandit_jax as fb
from fedbandit_jax.core.struct import Static
from fedbandit_jax.engine.clocks import RoundClock
from fedbandit_jax.envs._wrapper import Wrapper
from fedbandit_jax.interfaces import Partition

ENV = fb.envs.sphere(3, 4, 5, rewards="bernoulli")


def sweep(algos, env=ENV):
    return fb.sweep(env, algos, horizon=40, key=jax.random.key(0), seeds=3)


def test_equal_values_of_other_types_are_different_programs():
    for one, other in ((1, True), (1, 1.0), ((1, 2), Partition(1, 2)), ((1,), (1.0,))):
        assert one == other
        assert Static(one) != Static(other)


def test_classes_with_equal_fields_are_different_programs():
    """jax 0.10.2 gives registered dataclasses with the same fields equal tree structures: ours must differ."""

    @fb.pytree
    class First(fb.Algorithm):
        def init(self, key, spec):
            return ()

        def act(self, key, t, local, offered):
            return jnp.zeros(3, jnp.int32)

        def learn(self, t, local, offered, arms, rewards):
            return local, None

    @fb.pytree
    class Last(First):
        def act(self, key, t, local, offered):
            return jnp.full(3, 3, jnp.int32)

    assert jax.tree.structure(First()) != jax.tree.structure(Last())
    assert jax.tree.structure(First()) == jax.tree.structure(First())
    both = sweep({"first": First(), "last": Last()})
    assert (both["first"].regret[:, -1] != both["last"].regret[:, -1]).all()


class Changes(dict):
    """Hashable by identity."""

    __hash__ = object.__hash__


@fb.pytree
class Misfit(Wrapper):
    """A sphere, but for what one test changes."""

    change: dict = fb.static()

    def observe(self, key, world, t):
        return self.change.get("observe", lambda *found: found)(*self.env.observe(key, world, t))

    def pull(self, key, world, offered, arms):
        return self.change.get("pull", lambda found: found)(self.env.pull(key, world, offered, arms))


@pytest.mark.parametrize(
    ("method", "change", "words"),
    [
        ("observe", lambda o, w: o, "(fb.Round, world)"),
        ("observe", lambda o, w: (o._replace(contexts=o.contexts[:2]), w), "contexts of shape (3, 4, 5)"),
        ("observe", lambda o, w: (o._replace(mask=jnp.ones((4, 3), bool)), w), "boolean mask of shape (3, 4)"),
        ("observe", lambda o, w: (o._replace(user=jnp.zeros(3, jnp.int32)), w), "no user"),
        ("observe", lambda o, w: (o, w._replace(theta=w.theta[:2])), "a world of unchanged structure"),
        ("pull", lambda f: (f.reward, f.gap), "fb.Feedback(reward, gap)"),
        ("pull", lambda f: f._replace(reward=f.reward[:, None]), "float reward of shape (3,)"),
        ("pull", lambda f: f._replace(gap=f.gap.sum()), "float gap of shape (3,)"),
    ],
)
def test_misfit_environments(method, change, words):
    with refused(f"env.{method}") as found:
        sweep([PLAIN], Misfit(env=ENV, spec=ENV.spec, change=Changes({method: change})))
    assert words in str(found.value)


@pytest.mark.parametrize(
    ("method", "value", "words"),
    [
        ("act", lambda *_: jnp.zeros(3), "integer arms of shape (3,)"),
        ("act", lambda *_: jnp.zeros(2, jnp.int32), "integer arms of shape (3,)"),
        ("learn", lambda local: local, "(local state, record)"),
        ("learn", lambda local: (local[:1], None), "a local state of unchanged"),
        ("sync", lambda state: state, "(state, fb.Report)"),
    ],
)
def test_misfit_algorithms(method, value, words):
    @fb.pytree
    class Misfitting(fb.Algorithm):
        def init(self, key, spec):
            return jnp.zeros(3)

        def act(self, key, t, local, offered):
            return value() if method == "act" else jnp.zeros(3, jnp.int32)

        def learn(self, t, local, offered, arms, rewards):
            return value(local) if method == "learn" else (local, None)

        def sync(self, key, k, state, local, records):
            return value(state) if method == "sync" else super().sync(key, k, state, local, records)

    with refused(f"misfit's {method}") as found:
        sweep({"misfit": Misfitting()})
    assert words in str(found.value)


M, K, D, T = 2, 3, 2, 6
FLAGGED = int(fb.Status.OUTSIDE_SPEC)


@fb.pytree
class Fixed(fb.Algorithm):
    """Plays what it is told, and remembers what it is given."""

    arms: jax.Array
    batch: int = fb.static(default=3)

    def init(self, key, spec):
        return jnp.zeros(()), jnp.zeros(())

    def download(self, state, offered):
        return state

    def act(self, key, t, local, offered):
        return self.arms

    def learn(self, t, local, offered, arms, rewards):
        inside = ((arms >= 0) & (arms < K)).all()
        user = jnp.float32(-1) if offered.user is None else offered.user.sum()
        return (local[0] + rewards.sum(), jnp.where(inside, user, jnp.nan)), None

    def sync(self, key, k, state, local, records):
        return local, fb.Report()


@fb.pytree
class World(Wrapper):
    mask: jax.Array | None = None
    user: jax.Array | None = None

    def observe(self, key, world, t):
        offered, world = self.env.observe(key, world, t)
        return offered._replace(mask=self.mask, user=self.user), world


def script(answers=0.5, mask=None, **spec):
    """Two agents, three arms, six rounds; the answer of round 4 to agent 1, and what else a test changes."""
    table = np.full((T, M, K), 0.5, np.float32)
    table[4, 1] = answers
    env = fb.envs.script(np.ones((T, M, K, D)) / 2, np.full((T, M, K), 0.5))
    env = dataclasses.replace(env, answers=table)  # `script` itself refuses what is no number
    spec = fb.Spec(**dict(n_agents=M, n_arms=K, dim=D, max_norm=1.0, rewards_in_unit=True) | spec)
    return World(env=env, spec=spec, mask=mask, user=jnp.array([1, 9], jnp.int32) if spec.n_users else None)


def flags(state, metrics):
    return metrics.report.status


def given(env, algo, horizon=T):
    """The status bits of every step, the sum of all rewards that the algorithm was given, and what it saw of users."""
    clock = RoundClock(env=env, algo=algo, horizon=horizon)
    clock.check("it")
    state, status = stepped(flags, clock, np.arange(clock.n_steps), jax.random.key(0))
    return status.tolist(), *map(float, state)


HONEST = Fixed(arms=jnp.array([0, 1], jnp.int32))


def test_honest_parts_are_not_touched():
    assert given(script(), HONEST) == ([0, 0], 0.5 * T * M, -1.0)


@pytest.mark.parametrize(
    ("answer", "becomes"),
    [(0.0, 0.0), (1.0, 1.0), (np.nan, 0.0), (np.inf, 0.0), (-np.inf, 0.0), (1.5, 1.0), (-3.0, 0.0), (1e30, 1.0)],
)
def test_rewards_outside_the_spec(answer, becomes):
    """They are clipped, or 0 if they are no numbers, and the step has a status bit."""
    status, total, _ = given(script(answer), HONEST)
    assert (status, total) == ([0, FLAGGED * (answer != becomes)], 0.5 * (T * M - 1) + becomes)


@pytest.mark.parametrize(("answer", "becomes"), [(7.0, 7.0), (np.nan, 0.0)])
def test_rewards_without_a_promise(answer, becomes):
    """Large ones are given as they are; what is no number never is."""
    status, total, _ = given(script(answer, rewards_in_unit=False), HONEST)
    assert (status, total) == ([0, FLAGGED * (answer != becomes)], 0.5 * (T * M - 1) + becomes)


@pytest.mark.parametrize("arm", [-1, K, 2**30, -(2**31)])
def test_arms_that_do_not_exist(arm):
    """They are not played: their agent is given nothing, in every round; `learn` is given arms 0 ... K - 1."""
    assert given(script(), Fixed(arms=jnp.array([0, arm], jnp.int32))) == ([FLAGGED, FLAGGED], 0.5 * T, -1.0)


def test_arms_that_are_not_offered():
    mask = jnp.array([[True, True, True], [True, False, True]])
    assert given(script(mask=mask), HONEST)[:2] == ([FLAGGED, FLAGGED], 0.5 * T)
    assert given(script(mask=mask), Fixed(arms=jnp.array([1, 2], jnp.int32)))[:2] == ([0, 0], 0.5 * T * M)


def test_users_who_do_not_exist():
    """User 9 of five is given the number 5, which no table has, and nothing is learned from her reward."""
    assert given(script(n_users=5), HONEST) == ([FLAGGED, FLAGGED], 0.5 * T, 1.0 + 5.0)
    assert given(script(n_users=10), HONEST) == ([0, 0], 0.5 * T * M, 1.0 + 9.0)


def test_rounds_after_the_horizon_do_not_count():
    """A batch is played to its end, but what the last rounds are like is nobody's business."""
    assert given(script(np.nan), HONEST, horizon=4)[0] == [0, 0]
    assert given(script(np.nan), HONEST, horizon=5)[0] == [0, FLAGGED]


@fb.pytree
class Below(Wrapper):
    """An environment whose gap has the wrong sign."""

    gap: float

    def clusters(self, world):
        return self.env.clusters(world)

    @property
    def n_clusters(self):
        return self.env.n_clusters

    def pull(self, key, world, offered, arms):
        found = self.env.pull(key, world, offered, arms)
        return found._replace(gap=jnp.full_like(found.gap, self.gap))


@pytest.mark.parametrize(
    ("env", "algo"), [(script(), HONEST), (fb.envs.clustered(4, 2, 2, n_arms=3, dim=3), fb.algos.CLUB())]
)
def test_a_gap_below_0_is_not_believed(env, algo):
    """Rounding may make it a little less than 0."""
    for gap, status in ((-0.5, FLAGGED), (-1e-4, 0)):
        below = Below(env=env, spec=env.spec, gap=gap)
        result = fb.simulate(below, algo, horizon=6, key=jax.random.key(0), seeds=1, throw=False)
        assert (result.status == status).all()


def test_status_bits_name_themselves():
    """An algorithm of a user proves nothing."""
    with pytest.raises(fb.SimulationError, match="OUTSIDE_SPEC in algorithm: seeds 0, 1") as caught:
        fb.simulate(script(2.0), HONEST, horizon=T, key=jax.random.key(0), seeds=2)
    result = caught.value.result
    assert "OUTSIDE_SPEC: an arm, a user, an arrival, a reward" in result.summary()
    assert "NOT_FINITE" not in result.summary()
    assert result.certificate.claim == "none"
    assert "is an algorithm of its own" in result.certificate.reason


def test_what_was_bound_to_another_environment_is_refused():
    bound = fb.algos.fed_lin_ucb(schedule=5).bind(fb.envs.sphere(3, 4, 5).spec, 40)  # rewards of another law
    with refused("algo", other="env"):
        sweep({"it": bound})
