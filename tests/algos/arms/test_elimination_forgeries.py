"""Whoever changes what runs, after or before binding, changes what is certified: every way loses the claim."""

import dataclasses
import math
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from four_arms import ARMS, INIT, PRIVATE, STEP, algorithm
from helpers import deep

import fedbandit_jax as fb
from fedbandit_jax.algos.loops.arms import BoundElimination
from fedbandit_jax.core import wide
from fedbandit_jax.engine.clocks import ArmBatchClock
from fedbandit_jax.interfaces import certify
from fedbandit_jax.privacy.integers import protocol, ring
from fedbandit_jax.privacy.integers.mechanisms import MECHANISMS, Polya
from fedbandit_jax.privacy.integers.shares import LocalNoise, Noise, PolyaNoise, ServerNoise

HORIZON = 2000  # batches of 2, 4, ..., 256 users


def bound(label="Dist-DP-SE", epsilon=1.0, **options):
    return algorithm(label, epsilon, **options).bind(ARMS.spec, HORIZON)


def changed(of, **fields):
    """With another protocol."""
    return replace(of, protocol=replace(of.protocol, **fields))


def noisier(of, factor):
    """With noise of another width, nothing else being told of it."""
    if isinstance(of.protocol, protocol.GridSum):
        return changed(of, scale=of.protocol.scale * factor)
    power = factor * abs(factor) if hasattr(of.protocol.noise, "variance") else factor
    return changed(of, noise=jax.tree.map(lambda table: table * np.float32(power), of.protocol.noise))


def run(algo, env=ARMS, **options):
    return fb.simulate(env, algo, horizon=HORIZON, key=jax.random.key(0), seeds=2, **options)


@pytest.mark.parametrize("label", PRIVATE)
def test_as_bound_it_is_certified(label):
    """A control; more noise is certified too."""
    horizon = HORIZON if label != "DP-SE" else 20_000
    honest = algorithm(label).bind(ARMS.spec, horizon)
    for algo in (honest, noisier(honest, 2.0)):
        found = certify(algo)
        assert found.claim == "certified"
        if found.notion == "pure DP":
            assert found.epsilon_exact <= found.epsilon == 1.0
    assert certify(honest).epsilon_exact > certify(noisier(honest, 2.0)).epsilon_exact


@pytest.mark.parametrize("factor", [0.999, 0.5, 1e-3, 0.0, -1.0, math.nan, math.inf])
@pytest.mark.parametrize("label", PRIVATE)
def test_scaled_noise(label, factor):
    """What is proved is the true epsilon, or nothing is."""
    horizon = HORIZON if label != "DP-SE" else 20_000
    honest = algorithm(label).bind(ARMS.spec, horizon)
    found = certify(noisier(honest, factor))
    assert found.claim == "none"
    if found.epsilon_exact is not None:
        assert found.epsilon_exact > certify(honest).epsilon_exact
        assert "more than the 1 asked for" in found.reason
    if factor == 0.5 and found.notion == "pure DP":
        assert found.epsilon_exact == pytest.approx(1.5 if label == "Shuffle-DP-SE" else 2.0, rel=0.01)


def test_the_true_epsilon_is_that_of_the_pmf():
    algo = noisier(bound(), 0.5)
    worst = []
    for k, n in enumerate(algo.protocol.users[:7].tolist()):
        g, m = int(algo.protocol.steps[k]), int(wide.to_int(algo.protocol.modulus)[k])
        copies = np.arange(-50, 51)[:, None] * m + np.arange(m)
        pmf = np.exp(-np.abs(copies) / float(algo.protocol.noise.scale[k])).sum(0)
        worst += [np.abs(np.log(pmf / np.roll(pmf, shift))).max() for shift in range(1, g + 1)]
        assert n == 2 ** (k + 1)
    only = changed(algo, users=np.where(np.arange(len(algo.users)) < 7, algo.protocol.users, 0))
    assert certify(only).epsilon_exact == pytest.approx(max(worst), rel=1e-9)


@pytest.mark.parametrize("label", PRIVATE)
def test_finer_steps(label):
    """Twice the steps: one user moves a sum twice as far."""
    honest = algorithm(label).bind(ARMS.spec, HORIZON if label != "DP-SE" else 20_000)
    found = certify(changed(honest, steps=2 * honest.protocol.steps))
    assert found.claim == "none"
    assert found.epsilon_exact > 1.4


def test_one_batch_with_less_noise():
    """The worst batch counts."""
    honest = bound()
    scale = honest.protocol.noise.scale.copy()
    scale[3] /= 7
    found = certify(changed(honest, noise=PolyaNoise(scale=scale)))
    assert (found.claim, round(found.epsilon_exact)) == ("none", 7)
    short = changed(honest, noise=PolyaNoise(scale=scale[:4]))  # in a run the last entry would serve all later batches
    assert certify(short).claim == "none"
    never = np.where(honest.protocol.users > 0, honest.protocol.noise.scale, 0)  # what is never drawn may be anything
    assert certify(changed(honest, noise=PolyaNoise(scale=never))) == certify(honest)


@fb.pytree
class Quiet(PolyaNoise):
    def total(self, key, k, n, shape):
        return jax.tree.map(jnp.zeros_like, super().total(key, k, n, shape))


@fb.pytree
class Own(Noise):
    """Says that it is more than enough."""

    def total(self, key, k, n, shape):
        return wide.from_int32(jnp.zeros(shape, jnp.int32))

    def width(self, k):
        return 1e6


@fb.pytree
class Loud(ring.RingSum):
    def decode(self, key, k, collected):
        return protocol.Decoded(wide.to_float(collected), jnp.zeros(collected.low.shape, bool))


@fb.pytree
class Generous(ring.Aggregation):
    def behind(self, noise):
        return noise._replace(pure=0.0, at=lambda delta: 0.0)


@fb.pytree
class Peeking(BoundElimination):
    def conclude(self, key, k, state, sums):
        state, report = super().conclude(key, k, state, sums)
        return state._replace(shown=wide.to_float(sums)), report


@fb.pytree
class Wrapper(fb.ArmAlgorithm):
    inner: BoundElimination

    @property
    def n_batches(self):
        return self.inner.n_batches

    def __getattribute__(self, name):
        own = ("inner", "n_batches", "__dict__", "__class__")
        return object.__getattribute__(self, name) if name in own else getattr(self.inner, name)


def parts(of):
    return {field.name: getattr(of, field.name) for field in dataclasses.fields(of)}


def shuffled(epsilon, failure):
    """Another shuffler in place of the one that the noise leaves room for."""
    return changed(bound("Shuffle-DP-SE"), aggregation=ring.Aggregation(epsilon=epsilon, failure=failure))


def real_noise():
    return algorithm("DP-SE").bind(ARMS.spec, 20_000)


FORGED = {
    "noise of a subclass": lambda: changed(bound(), noise=Quiet(scale=bound().protocol.noise.scale)),
    "noise of one's own": lambda: changed(bound(), noise=Own()),
    "protocol of a subclass": lambda: replace(bound(), protocol=Loud(**parts(bound().protocol))),
    "aggregation of a subclass": lambda: changed(bound(), aggregation=Generous()),
    "loop of a subclass": lambda: Peeking(**parts(bound())),
    "wrapped loop": lambda: Wrapper(inner=bound()),
    "bits that cost more": lambda: shuffled(3.0, 0.1),
    "bits that never fail": lambda: shuffled(0.5, 0.0),
    "bits of negative cost": lambda: shuffled(-0.5, 0.0),
    "steps beyond float32": lambda: changed(bound(), steps=bound().protocol.steps * 2.0**24),
    "no ring": lambda: changed(bound(), modulus=wide.of([1] * len(bound().users))),
    "a ring beyond its words": lambda: changed(bound(), modulus=wide.of([2**62] * len(bound().users))),
    "steps that are no integer": lambda: changed(real_noise(), steps=4095.5),
    "no steps": lambda: changed(real_noise(), steps=0.5, scale=0.5),
    "noise beyond its words": lambda: changed(real_noise(), steps=1.0, scale=2.0**26),
    "hardly any noise": lambda: changed(real_noise(), scale=1e-5),
    "less asked than given": lambda: replace(bound(), epsilon=0.9),
    "no delta": lambda: replace(bound("Dist-CDP-SE"), delta=0.0),
}  # fmt: skip


@pytest.mark.parametrize("name", FORGED)
def test_forged_parts(name):
    assert certify(FORGED[name]()).claim == "none"


def test_trust_is_of_what_runs():
    """Noise that the server adds is not secure aggregation, whatever the recipe was called."""
    scale = bound().protocol.noise.scale
    trust = [certify(changed(bound(), noise=kind(scale=scale))).trust for kind in (PolyaNoise, ServerNoise, LocalNoise)]
    assert [sentence.split(":")[0] for sentence in trust] == ["secure aggregation", "central", "local"]


def test_a_narrower_ring_is_told():
    """It costs no privacy, but sums."""
    honest = bound()
    narrow = wide.of(wide.to_int(honest.protocol.largest) - 8)
    found = certify(changed(honest, largest=narrow))
    assert found.claim == "certified"
    assert found.wrap_probability > 2 * certify(honest).wrap_probability


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cheap(fb.algos.SuccessiveElimination):
    """A recipe that overrides `bind`, and says what it likes."""

    def bind(self, spec, horizon):
        return noisier(super().bind(spec, horizon), 1e-1)

    def certificate(self, spec, horizon):
        return algorithm("Dist-DP-SE").certificate(spec, horizon)


@fb.pytree
class Registered(PolyaNoise):
    def total(self, key, k, n, shape):
        return wide.from_int32(jnp.zeros(shape, jnp.int32))


class Less(Polya):
    """A mechanism entered in the registry, with a tenth of the noise."""

    def noise(self, users):
        return jax.tree.map(lambda scale: scale / 10, super().noise(users))


class Unknown(Polya):
    """With noise of its own."""

    noise_class = Registered


def test_a_run_has_the_certificate_of_what_ran():
    cheap = run(Cheap(epsilon=1.0, mechanism="discrete_laplace", trust="secagg")).certificate
    assert (cheap.claim, round(cheap.epsilon_exact)) == ("none", 10)


@pytest.mark.parametrize(("kind", "exact"), [(Less, pytest.approx(10, rel=1e-3)), (Unknown, None)])
def test_a_changed_registry(monkeypatch, kind, exact):
    monkeypatch.setitem(MECHANISMS, ("discrete_laplace", "secagg"), kind)
    found = algorithm("Dist-DP-SE").certificate(ARMS.spec, HORIZON)
    assert (found.claim, found.epsilon_exact) == ("none", exact)


EQUAL = fb.envs.arms(means=[0.5] * 4)  # no arm is dropped


def may_ask(algo):
    """Batches that it would ask, however many arms are left."""
    fresh = algo.init(jax.random.key(0), EQUAL.spec)
    left = [fresh._replace(active=np.arange(4) < n) for n in (2, 3, 4)]
    asked = jax.jit(lambda state, k: algo.pulls(state, k).asked)
    return [k for k in range(algo.n_batches) if any(bool(asked(state, np.int32(k))) for state in left)]


@pytest.mark.parametrize("messages", [False, True])
def test_only_calibrated_batches_are_asked(messages):
    """Other or more batches after binding: nothing is learned from what the noise is not for."""
    algo = algorithm("Dist-DP-SE", messages=messages).bind(EQUAL.spec, 58)  # not the 16 that two arms would have next
    assert certify(algo).releases == 3
    assert algo.protocol.users.tolist() == [2, 4, 8] + [0] * 5  # tables are padded
    assert may_ask(algo) == [0, 1, 2]
    assert may_ask(replace(algo, users=np.concatenate([algo.users, algo.users[-1:]]))) == [0, 1, 2]
    for other in (algo.users + 2, algo.users - 1):
        assert may_ask(replace(algo, users=other)) == []
    shifted = np.roll(algo.users, 1, 0)  # batch 1 has the users of batch 0, and the noise of its own
    assert may_ask(replace(algo, users=shifted)) == []


def test_only_calibrated_epochs_are_asked():
    """DP-SE: any number of users up to the most that were to come."""
    algo = algorithm("DP-SE", 2.0).bind(EQUAL.spec, 5000)
    assert (certify(algo).releases, algo.n_batches) == (1, 3)
    assert may_ask(algo) == [0]
    assert may_ask(algorithm("DP-SE", 2.0).bind(EQUAL.spec, 20_000)) == [0, 1]
    assert may_ask(replace(algo, users=2 * algo.users)) == []


@pytest.mark.slow
def test_a_longer_horizon_after_binding():
    """Its users are played, but nobody beyond what the certificate covers is asked."""
    clock = ArmBatchClock(env=EQUAL, algo=algorithm("Dist-DP-SE").bind(EQUAL.spec, 58), horizon=1000, block=64)
    world, state = INIT(clock, jax.random.key(0))
    sent = []
    for k in range(clock.n_steps):
        world, state, metrics = STEP(clock, jax.random.key(0), world, state, jnp.int32(k))
        sent.append((float(metrics.report.floats), int(metrics.rounds.sum())))
    assert sent == [(8, 8), (16, 16), (32, 32), (0, 64), (0, 128)]


def test_users_who_return_by_the_environment_s_own_account():
    again = replace(ARMS.spec, n_users=40)
    unit = [algorithm("Dist-DP-SE").certificate(spec, HORIZON).unit for spec in (ARMS.spec, again)]
    assert unit[0] == "one user, who comes once; for more see visits"
    assert unit[1].startswith("one interaction, i.e. what one user did in one round; users return, and for more")


@fb.pytree
class Odd:
    """Rewards that are not those of the spec: of one arm from some user of every block on."""

    value: float
    first: int = fb.static(default=0)
    spec: fb.Spec = fb.static(default=ARMS.spec)

    def init(self, key):
        return ()

    def means(self, world):
        return jnp.array([0.1, 0.95, 0.45, 0.7])

    def answers(self, key, world, arm, size):
        users = jnp.arange(size)
        rewards = jnp.where((arm == 3) & (users >= self.first), self.value, self.means(world)[arm])
        return rewards[: size // 2], rewards[size // 2 :]


@pytest.mark.parametrize("value", deep([math.nan, math.inf, -math.inf, -0.01, 1.01, 0.0, 1.0], keep={4}))
def test_rewards_against_the_spec_are_flagged(value, same_noise):
    """And clipped, NaN to 0: the certificate stands, but the seed must not be trusted."""
    algo = algorithm("Dist-DP-SE")
    result = run(algo, env=Odd(value=value), throw=False)
    fine = 0 <= value <= 1
    assert (result.status == (fb.Status.OK if fine else fb.Status.OUTSIDE_SPEC)).all()
    assert result.certificate.claim == "certified"
    clipped = min(max(value, 0.0), 1.0) if value == value else 0.0
    same = run(algo, env=Odd(value=clipped))
    np.testing.assert_array_equal(result.regret, same.regret)
    if not fine:
        with pytest.raises(fb.SimulationError, match="OUTSIDE_SPEC"):
            run(algo, env=Odd(value=value))


@pytest.mark.slow
def test_only_users_who_are_asked_are_flagged():
    """The longest batch of this horizon has 256 users, and its block 1,024; nobody asks the others."""
    for first, status in ((256, fb.Status.OK), (255, fb.Status.OUTSIDE_SPEC)):
        result = run(algorithm("SE"), env=Odd(value=2.0, first=first), throw=False)
        assert (result.status == status).all()


@pytest.mark.slow
def test_without_a_promise_rewards_are_clipped_silently():
    """That is what the encoder is for; only what is no number is told."""
    spec = replace(ARMS.spec, rewards_in_unit=False)
    for value, status in ((1.5, fb.Status.OK), (math.nan, fb.Status.OUTSIDE_SPEC)):
        result = run(algorithm("SE"), env=Odd(value=value, spec=spec), throw=False)
        assert (result.status == status).all()


def test_bound_for_users_who_do_not_return():
    returning = dataclasses.replace(ARMS.spec, n_users=40)
    bound = algorithm("CDP-SE").bind(ARMS.spec, 100)

    @fb.pytree
    class Returning(type(ARMS)):
        """Arms whose users come again."""

    env = Returning(**{**{f.name: getattr(ARMS, f.name) for f in dataclasses.fields(ARMS)}, "spec": returning})
    with pytest.raises(ValueError, match="was bound to another environment"):
        fb.simulate(env, bound, horizon=100, key=jax.random.key(0), seeds=1)
    assert "users return" in certify(algorithm("CDP-SE").bind(returning, 100)).unit
