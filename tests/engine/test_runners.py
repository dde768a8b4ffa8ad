"""User classes: told apart by the compiler, told what they must return, and given nothing that the spec forbids."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import Bias, refused, stepped

import fedbandit_jax as fb
from fedbandit_jax.core.struct import Static, shipped
from fedbandit_jax.engine.runners import Synchronous, signature
from fedbandit_jax.envs._wrapper import Wrapper
from fedbandit_jax.interfaces import Feedback

M, K, D, T = 2, 3, 2, 6
FLAGGED = int(fb.Status.OUTSIDE_SPEC)
ENV = fb.envs.gap(M, K, D, rewards="bernoulli")
USERS = fb.envs.clustered(4, 2, 2, n_arms=3, dim=3)


def sweep(algos, env=ENV):
    return fb.sweep(env, algos, horizon=T, key=jax.random.key(0), seeds=3)


class Changes(dict):
    """What is made of that which methods return. Hashable by identity."""

    __hash__ = object.__hash__

    def of(self, method, *found):
        return self[method](*found) if method in self else found if len(found) > 1 else next(iter(found))


@fb.pytree
class Fixed(fb.Algorithm):
    """Plays what it is told, and remembers what it is given."""

    arms: jax.Array
    change: Changes = fb.static(default=Changes())
    batch: int = fb.static(default=3)

    def init(self, key, spec):
        return jnp.zeros(()), jnp.zeros(())

    def download(self, state, offered):
        return state

    def act(self, key, t, local, offered):
        return self.change.of("act", self.arms)

    def learn(self, t, local, offered, arms, rewards):
        inside = ((arms >= 0) & (arms < K)).all()
        user = jnp.float32(-1) if offered.user is None else offered.user.sum()
        return self.change.of("learn", (local[0] + rewards.sum(), jnp.where(inside, user, jnp.nan)), None)

    def sync(self, key, k, state, local, records):
        return self.change.of("sync", local, fb.Report())


@fb.pytree
class World(Wrapper):
    """An environment, but for what one test changes."""

    change: Changes = fb.static(default=Changes())

    def clusters(self, world):
        return self.env.clusters(world)

    @property
    def n_clusters(self):
        return self.env.n_clusters

    def observe(self, key, world, t):
        return self.change.of("observe", *self.env.observe(key, world, t))

    def pull(self, key, world, offered, arms):
        return self.change.of("pull", self.env.pull(key, world, offered, arms))


@fb.pytree
class Below(World):
    """An environment whose gaps are a number."""

    gap: object = 0.0

    def pull(self, key, world, offered, arms):
        found = self.env.pull(key, world, offered, arms)
        return found._replace(gap=jnp.full_like(found.gap, self.gap))


HONEST = Fixed(arms=jnp.array([0, 1], jnp.int32))


@dataclasses.dataclass(frozen=True)
class Settings:
    sign: float = dataclasses.field(compare=False)


@dataclasses.dataclass(frozen=True, slots=True)
class Slots:
    sign: float = dataclasses.field(compare=False)


def test_equal_values_of_other_types_are_different_programs():
    settings, slots = (Settings(1.0), Settings(-1.0)), (Slots(1.0), Slots(-1.0))
    for one, other in ((1, True), (1, 1.0), ((1, 2), Feedback(1, 2)), ((1,), (1.0,)), settings, slots):
        assert one == other
        assert Static(one) != Static(other)


def test_classes_with_equal_fields_are_different_programs():
    """jax 0.10.2 gives registered dataclasses with the same fields equal tree structures: ours must differ."""

    @fb.pytree
    class Other(Fixed):
        def act(self, key, t, local, offered):
            return 1 - self.arms

    one, same, other = (Synchronous(env=ENV, algo=kind(arms=HONEST.arms), horizon=T) for kind in (Fixed, Fixed, Other))
    assert signature(one) == signature(same) != signature(other)
    assert jax.tree.structure(one) == jax.tree.structure(same) != jax.tree.structure(other)


def test_one_foreign_part_is_enough():
    ours = fb.algos.Federated(policy=fb.algos.Greedy(), schedule=5)
    for within in (tuple, list, lambda parts: dict(enumerate(parts))):
        assert shipped(within([1, "a", ours, fb.algos.UCB()]))
        for foreign in (Bias(), Bias, lambda: 0, dataclasses.replace(ours, policy=Bias())):
            assert not shipped(within([1, foreign, ours]))


# What a method makes of what it should return, and the words that say what it must return.
AWAY, INT, PAIR = jnp.zeros(M, bool), jnp.zeros(M, jnp.int32), "(2,)"
MISFITS = [
    ("env.observe", lambda o, w: o, "(fb.Round, world)"),
    ("env.observe", lambda o, w: (o._replace(contexts=o.contexts[:1]), w), "contexts of shape (2, 3, 2)"),
    ("env.observe", lambda o, w: (o._replace(mask=jnp.ones((3, 2), bool)), w), "boolean mask of shape (2, 3)"),
    ("env.observe", lambda o, w: (o, w._replace(theta=w.theta[:1])), "a world of unchanged structure"),
    ("env.pull", lambda f: (f.reward, f.gap), "fb.Feedback(reward, gap)"),
    ("env.pull", lambda f: f._replace(reward=f.reward[:, None]), "float reward of shape (2,)"),
    ("env.pull", lambda f: f._replace(gap=f.gap.sum()), "float gap of shape (2,)"),
    ("misfit's act", lambda arms: arms * 1.0, "integer arms of shape (2,)"),
    ("misfit's act", lambda arms: arms[:1], "integer arms of shape (2,)"),
    ("misfit's learn", lambda local, record: local[0], "(local state, record)"),
    ("misfit's learn", lambda local, record: (local[:1], None), "a local state of unchanged"),
    ("misfit's sync", lambda state, report: state, "(state, fb.Report)"),
]
# A field of a round, what a spec says if it must be there, what it must not be then, and what it must not be otherwise.
FIELDS = [
    ("user", dict(n_users=5), [None, AWAY * 1.0, INT[:1]], INT),
    ("away", dict(drops=True), [None, INT, AWAY[:1], AWAY[:, None]], AWAY),  # integers: every silo is away
    ("arrives", dict(late=2), [None, AWAY * 1.0, INT[:1]], INT),
]


def with_fields():
    for field, told, wrong, other in FIELDS:
        for value, spec, words in [*((value, told, PAIR) for value in wrong), (other, {}, f"no {field}")]:
            given = {field: value}
            yield "env.observe", lambda o, w, given=given: (o._replace(**given), w), words, spec


@pytest.mark.parametrize(("method", "change", "words", "spec"), [*((*row, {}) for row in MISFITS), *with_fields()])
def test_what_methods_must_return(method, change, words, spec):
    owner, _, name = method.rpartition(" " if "'s " in method else ".")
    changes = Changes({name: change})
    env = World(env=ENV, spec=dataclasses.replace(ENV.spec, **spec), change=changes) if owner == "env" else ENV
    algo = fb.algos.Federated(policy=fb.algos.UCB(), schedule=2)
    with refused(method) as found:
        sweep({"misfit": algo if spec else dataclasses.replace(HONEST, change=changes)}, env)
    assert words in str(found.value)


def script(answers=0.5, mask=None, **spec):
    """Two agents, three arms, six rounds; the answer of round 4 to agent 1, and what else a test changes."""
    table = np.full((T, M, K), 0.5, np.float32)
    table[4, 1] = answers
    env = fb.envs.script(np.ones((T, M, K, D)) / 2, np.full((T, M, K), 0.5))
    env = dataclasses.replace(env, answers=table)  # `script` itself refuses what is no number
    spec = fb.Spec(**dict(n_agents=M, n_arms=K, dim=D, max_norm=1.0, rewards_in_unit=True) | spec)
    user = jnp.array([1, 9], jnp.int32) if spec.n_users else None
    change = Changes({"observe": lambda offered, world: (offered._replace(mask=mask, user=user), world)})
    return World(env=env, spec=spec, change=change)


def flags(state, metrics):
    return metrics.report.status


IN_UNIT = {1.0: 1.0, np.nan: 0.0, -np.inf: 0.0, 1.5: 1.0, -3.0: 0.0}
MASK = jnp.array([[True, True, True], [True, False, True]])
REST = 0.5 * (T * M - 1)  # of the other rewards


@pytest.mark.parametrize(
    ("env", "arm", "horizon", "found"),
    [
        *((script(it), 1, T, ([0, FLAGGED * (it != given)], REST + given, -1.0)) for it, given in IN_UNIT.items()),
        (script(7.0, rewards_in_unit=False), 1, T, ([0, 0], REST + 7.0, -1.0)),
        (script(np.nan, rewards_in_unit=False), 1, T, ([0, FLAGGED], REST, -1.0)),
        *((script(), arm, T, ([FLAGGED, FLAGGED], REST - 2.5, -1.0)) for arm in (-1, K, -(2**31))),
        (script(mask=MASK), 1, T, ([FLAGGED, FLAGGED], REST - 2.5, -1.0)),
        (script(mask=MASK), 2, T, ([0, 0], REST + 0.5, -1.0)),
        # User 9 of five is nobody, and nothing is learned from her; rounds after the horizon are nobody's business.
        (script(n_users=5), 1, T, ([FLAGGED, FLAGGED], 0.5 * T, 1.0 + 5.0)),
        (script(n_users=10), 1, T, ([0, 0], 0.5 * T * M, 1.0 + 9.0)),
        (script(np.nan), 1, 4, ([0, 0], REST, -1.0)),
        (script(np.nan), 1, 5, ([0, FLAGGED], REST, -1.0)),
    ],
)
def test_what_is_outside_the_spec(env, arm, horizon, found):
    """Rewards are clipped, or 0 if they are no numbers; arms not offered are not played; the step has a status bit."""
    runner = Synchronous(
        env=env, algo=dataclasses.replace(HONEST, arms=jnp.array([0, arm], jnp.int32)), horizon=horizon
    )
    runner.check("it")
    state, status = stepped(flags, runner, np.arange(runner.n_steps), jax.random.key(0))
    assert (status.tolist(), *map(float, state)) == found  # and the sum of all rewards, and what is seen of users


def test_a_gap_below_0_is_not_believed():
    """Of users one at a time: algos/clusters/test_clustering_forgeries.py."""
    for gap, status in ((-0.5, FLAGGED), (-1e-4, 0)):
        runner = Synchronous(env=Below(env=script(), spec=script().spec, gap=np.float32(gap)), algo=HONEST, horizon=T)
        assert (stepped(flags, runner, np.arange(runner.n_steps), jax.random.key(0))[1] == status).all()


def test_status_bits_name_themselves():
    with pytest.raises(fb.SimulationError, match="OUTSIDE_SPEC in algorithm: seeds 0, 1") as caught:
        fb.simulate(script(2.0), HONEST, horizon=T, key=jax.random.key(0), seeds=2)
    text, certificate = caught.value.result.summary(), caught.value.result.certificate
    assert ("OUTSIDE_SPEC: an arm" in text, "NOT_FINITE" in text, certificate.claim) == (True, False, "none")


DRIFTS = Changes({"observe": lambda offered, world: (offered, world._replace(thetas=world.thetas + 0))})
DRIFTING = World(env=USERS, spec=USERS.spec, change=DRIFTS)


def test_rounds_that_are_drawn_many_at_a_time_leave_the_world_as_it_is():
    with refused("env.observe"):
        fb.simulate(DRIFTING, fb.algos.CLUB(), horizon=5, key=jax.random.key(0), seeds=1)
