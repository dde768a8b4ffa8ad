"""User classes: told apart by the compiler, told what they must return, and given nothing that the spec forbids."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedbandit_jax as fb
from fedbandit_jax.core.struct import Static
from fedbandit_jax.engine.clocks import RoundClock
from fedbandit_jax.envs._wrapper import Wrapper
from fedbandit_jax.interfaces import Partition

ENV = fb.envs.sphere(3, 4, 5, rewards="bernoulli")


def sweep(algos, env=ENV):
    return fb.sweep(env, algos, horizon=40, key=jax.random.key(0), seeds=3)


def simulate(algo=None, env=ENV):
    return sweep({"it": algo or fb.algos.fed_lin_ucb(schedule=5)}, env)["it"]


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


@fb.pytree
class Misfit:
    """Sphere, but for what one test changes."""

    spec = ENV.spec
    change: dict = fb.static()

    def init(self, key):
        return ENV.init(key)

    def observe(self, key, world, t):
        offered, world = ENV.observe(key, world, t)
        return self.change.get("observe", lambda o, w: (o, w))(offered, world)

    def pull(self, key, world, offered, arms):
        feedback = ENV.pull(key, world, offered, arms)
        return self.change.get("pull", lambda f: f)(feedback)


@pytest.mark.parametrize(
    ("method", "change", "words"),
    [
        ("observe", lambda o, w: o, r"env.observe must return \(fb.Round, world\)"),
        (
            "observe",
            lambda o, w: (o._replace(contexts=o.contexts[:2]), w),
            r"contexts of shape \(3, 4, 5\), as env.spec",
        ),
        ("observe", lambda o, w: (o._replace(mask=jnp.ones((4, 3), bool)), w), r"boolean mask of shape \(3, 4\)"),
        ("observe", lambda o, w: (o, w._replace(theta=w.theta[:2])), "a world of unchanged structure"),
        ("pull", lambda f: (f.reward, f.gap), r"env.pull must return fb.Feedback\(reward, gap\)"),
        ("pull", lambda f: f._replace(reward=f.reward[:, None]), r"float reward of shape \(3,\)"),
        ("pull", lambda f: f._replace(gap=f.gap.sum()), r"float gap of shape \(3,\)"),
        ("observe", lambda o, w: (o._replace(user=jnp.zeros(3, jnp.int32)), w), "no user: env.spec.n_users is 0"),
    ],
)
def test_misfit_environments(method, change, words):
    with pytest.raises(TypeError, match=words):
        simulate(env=Misfit(change=Changes({method: change})))


class Changes(dict):
    """Hashable by identity."""

    __hash__ = object.__hash__


@pytest.mark.parametrize(
    ("method", "value", "words"),
    [
        ("act", lambda *_: jnp.zeros(3), r"misfit's act must return integer arms of shape \(3,\)"),
        ("act", lambda *_: jnp.zeros(2, jnp.int32), r"misfit's act must return integer arms of shape \(3,\)"),
        ("learn", lambda local, *_: local, r"misfit's learn must return \(local state, record\)"),
        ("learn", lambda local, *_: (local[:1], None), "misfit's learn must return a local state of unchanged"),
        ("sync", lambda state, *_: state, r"misfit's sync must return \(state, fb.Report\)"),
    ],
)
def test_misfit_algorithms(method, value, words):
    def body(local, record):
        return (local, record) if method != "learn" else value(local)

    @fb.pytree
    class Misfitting(fb.Algorithm):
        def init(self, key, spec):
            return jnp.zeros(3)

        def act(self, key, t, local, offered):
            return value() if method == "act" else jnp.zeros(3, jnp.int32)

        def learn(self, t, local, offered, arms, rewards):
            return body(local, None)

        def sync(self, key, k, state, local, records):
            return value(state) if method == "sync" else super().sync(key, k, state, local, records)

    with pytest.raises(TypeError, match=words):
        sweep({"misfit": Misfitting()})


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


def script(answers=0.5, mask=None, spec=None):
    """Two agents, three arms, six rounds; the answer of round 4 to agent 1, and what else a test changes."""
    table = np.full((T, M, K), 0.5, np.float32)
    table[4, 1] = answers
    env = fb.envs.script(np.ones((T, M, K, D)) / 2, np.full((T, M, K), 0.5))
    env = dataclasses.replace(env, answers=table)  # `script` itself refuses what is no number
    spec = fb.Spec(n_agents=M, n_arms=K, dim=D, max_norm=1.0, rewards_in_unit=True, **(spec or {}))

    @fb.pytree
    class World(Wrapper):
        mask: jax.Array | None = None
        user: jax.Array | None = None

        def observe(self, key, world, t):
            offered, world = self.env.observe(key, world, t)
            return offered._replace(mask=self.mask, user=self.user), world

    return World(env=env, spec=spec, mask=mask, user=None if not spec.n_users else jnp.array([1, 9], jnp.int32))


def given(env, algo, horizon=T):
    """The status bits of every step, the sum of all rewards that the algorithm was given, and what it saw of users."""
    clock = RoundClock(env=env, algo=algo, horizon=horizon)
    clock.check("it")
    key, status = jax.random.key(0), []
    world, state = jax.jit(clock.init)(key)
    for k in range(clock.n_steps):
        world, state, metrics = jax.jit(clock.step)(key, world, state, k)
        status.append(int(metrics.report.status))
    return status, *map(float, state)


HONEST = Fixed(arms=jnp.array([0, 1], jnp.int32))


def test_honest_parts_are_not_touched():
    assert given(script(), HONEST) == ([0, 0], 0.5 * T * M, -1.0)
    for edge in (0.0, 1.0):
        status, total, _ = given(script(edge), HONEST)
        assert (status, total) == ([0, 0], 0.5 * (T * M - 1) + edge)


@pytest.mark.parametrize(
    ("answer", "becomes"), [(np.nan, 0.0), (np.inf, 0.0), (-np.inf, 0.0), (1.5, 1.0), (-3.0, 0.0), (1e30, 1.0)]
)
def test_rewards_outside_the_spec(answer, becomes):
    """They are clipped, or 0 if they are no numbers, and the step has a status bit."""
    status, total, _ = given(script(answer), HONEST)
    assert (status, total) == ([0, FLAGGED], 0.5 * (T * M - 1) + becomes)


def test_rewards_without_a_promise():
    """Large ones are given as they are; what is no number never is."""
    env = script(7.0)
    env = dataclasses.replace(env, spec=dataclasses.replace(env.spec, rewards_in_unit=False))
    assert given(env, HONEST)[:2] == ([0, 0], 0.5 * (T * M - 1) + 7)
    env = script(np.nan)
    env = dataclasses.replace(env, spec=dataclasses.replace(env.spec, rewards_in_unit=False))
    assert given(env, HONEST)[:2] == ([0, FLAGGED], 0.5 * (T * M - 1))


@pytest.mark.parametrize("arm", [-1, K, 2**30, -(2**31)])
def test_arms_that_do_not_exist(arm):
    """They are not played: their agent is given nothing, in every round."""
    status, total, seen = given(script(), Fixed(arms=jnp.array([0, arm], jnp.int32)))
    assert (status, total) == ([FLAGGED, FLAGGED], 0.5 * T)
    assert seen == -1.0  # `learn` was given arms 0 ... K - 1


def test_arms_that_are_not_offered():
    mask = jnp.array([[True, True, True], [True, False, True]])
    assert given(script(mask=mask), HONEST)[:2] == ([FLAGGED, FLAGGED], 0.5 * T)
    assert given(script(mask=mask), Fixed(arms=jnp.array([1, 2], jnp.int32)))[:2] == ([0, 0], 0.5 * T * M)


def test_users_who_do_not_exist():
    """User 9 of five is given the number 5, which no table has, and nothing is learned from her reward."""
    env = script(spec={"n_users": 5})
    assert given(env, HONEST) == ([FLAGGED, FLAGGED], 0.5 * T, 1.0 + 5.0)
    env = script(spec={"n_users": 10})
    assert given(env, HONEST) == ([0, 0], 0.5 * T * M, 1.0 + 9.0)


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


@pytest.mark.parametrize("gap", [pytest.param(-0.5, marks=pytest.mark.slow), -1e-4])
@pytest.mark.parametrize(
    ("env", "algo"), [(script(), HONEST), (fb.envs.clustered(4, 2, 2, n_arms=3, dim=3), fb.algos.CLUB())]
)
def test_a_gap_below_0_is_not_believed(env, algo, gap):
    """Rounding may make it a little less than 0."""
    env = Below(env=env, spec=env.spec, gap=gap)
    result = fb.simulate(env, algo, horizon=6, key=jax.random.key(0), seeds=1, throw=False)
    assert (result.status == (FLAGGED if gap < -0.1 else 0)).all()


def test_status_bits_name_themselves():
    env, sentence = script(2.0), "OUTSIDE_SPEC: an arm, a user, an arrival, a reward or a feature vector was not what"
    with pytest.raises(fb.SimulationError, match=f"OUTSIDE_SPEC in algorithm: seeds 0, 1.*{sentence}") as caught:
        fb.simulate(env, HONEST, horizon=T, key=jax.random.key(0), seeds=2)
    assert sentence in caught.value.result.summary()
    assert "NOT_FINITE" not in caught.value.result.summary()


def test_an_algorithm_of_ones_own_proves_nothing():
    result = fb.simulate(script(), HONEST, horizon=T, key=jax.random.key(0), seeds=1)
    assert result.certificate.claim == "none"
    assert "is an algorithm of its own" in result.certificate.reason


def test_what_was_bound_to_another_environment_is_refused():
    bound = fb.algos.fed_lin_ucb(schedule=5).bind(fb.envs.sphere(3, 4, 5).spec, 40)  # rewards of another law
    with pytest.raises(ValueError, match="algorithm 'it' was bound to another environment"):
        sweep({"it": bound})
