"""Runs of successive elimination: what the driver does with them, extremes, and bad input."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from four_arms import ARMS, HORIZON, PRIVATE, algorithm, play
from helpers import deep, stopped_after

import fedbandit_jax as fb
from fedbandit_jax.algos import ELIMINATION
from fedbandit_jax.algos import radius as radii
from fedbandit_jax.algos.loops.arms import EliminationState
from fedbandit_jax.engine import driver, setup
from fedbandit_jax.engine.clocks import ArmBatchClock, signature
from fedbandit_jax.engine.curves import StretchTally
from fedbandit_jax.engine.grid import expand
from fedbandit_jax.engine.identity import digest
from fedbandit_jax.envs._wrapper import Wrapper
from fedbandit_jax.privacy.accounting.lattice import DiscreteLaplace, Skellam
from fedbandit_jax.privacy.integers.protocol import Decoded

FOUR = algorithm("Dist-DP-SE", 0.2, growth=4)  # at which seeds differ


def simulate(algo=FOUR, env=ARMS, **options):
    return fb.simulate(env, algo, **{"horizon": HORIZON, "key": jax.random.key(0), "seeds": 3, **options})


@pytest.mark.slow
def test_seeds_side_by_side_equal_each_alone(same_noise):
    result = simulate()
    np.testing.assert_array_equal(result.rounds, np.arange(1, HORIZON + 1))
    for seed in range(3):
        _, regret, counters, _ = play(FOUR, jax.random.fold_in(jax.random.key(0), seed), block=2**16)
        np.testing.assert_allclose(result.regret[seed], regret, rtol=1e-6)
        for name, curve in (result.communication | result.counts).items():
            np.testing.assert_array_equal(curve[seed], counters[name])
    assert len(np.unique(result.regret[:, -1])) > 1


@pytest.mark.slow
def test_records_on_a_logarithmic_axis():
    fine, coarse = simulate(), simulate(stride="log")
    np.testing.assert_array_equal(coarse.regret, fine.regret[:, coarse.rounds - 1])
    np.testing.assert_array_equal(coarse.communication["bits"], fine.communication["bits"][:, coarse.rounds - 1])
    ratios = np.diff(np.log(coarse.rounds[coarse.rounds > 100]))
    assert ratios.max() < 0.05
    assert coarse.rounds[0] == 1
    assert coarse.rounds[-1] == HORIZON


@pytest.mark.slow
def test_interrupted_runs_continue(tmp_path, monkeypatch):
    monkeypatch.setattr(driver, "CHUNK_SECONDS", 0)
    whole = simulate()
    with stopped_after(3, StretchTally):
        simulate(checkpoint=tmp_path / "run")
    with pytest.raises(ValueError, match="belongs to another run"):
        simulate(FOUR.replace(epsilon=3.0), checkpoint=tmp_path / "run")
    for _ in range(2):  # the second time it is finished, and read back
        resumed = simulate(checkpoint=tmp_path / "run")
        for name, curve in (whole.communication | whole.counts | {"regret": whole.regret}).items():
            other = (resumed.communication | resumed.counts | {"regret": resumed.regret})[name]
            np.testing.assert_array_equal(other, curve)


@pytest.mark.parametrize("name", ELIMINATION)
def test_numbers_do_not_recompile(name):
    """Processes that differ in numbers are one program: the same structure, shapes and types."""
    numbers = {"epsilon": [1e-3, 0.1, 7.0, 100.0], "scale": [1.0, 12.5], "delta": [0.1], "radius": ["theory", "exact"]}
    if name != "DP-SE":
        numbers["failure"] = [0.01, 0.2]  # of DP-SE it decides how long epochs are
    algo, spec = algorithm(name), fb.envs.arms().spec
    variants = [algo.replace(**{k: v}) for k in numbers if k in algo.parameters() for v in numbers[k]]
    signatures = {
        signature(ArmBatchClock(env=ARMS, algo=variant.bind(spec, 10**5), horizon=10**5)) for variant in variants
    }
    assert len(variants) > 1
    assert len(signatures) == 1


def test_other_numbers_of_batches_share_a_program(monkeypatch):
    """Batches that grow faster are fewer; beside them, others still play all of theirs."""
    algos = [FOUR.replace(growth=growth, name=f"growth {growth}") for growth in (3, 2)]
    started = []
    compiled = driver._compiled
    monkeypatch.setattr(driver, "_compiled", lambda *about: started.append(about) or compiled(*about))
    together = fb.sweep(ARMS, algos, horizon=30_000, key=jax.random.key(0), seeds=2)
    assert len(started) == 1
    assert [one.bind(ARMS.spec, 30_000).n_batches for one in algos] == [10, 14]
    for one, regret in zip(algos, together.regret):
        alone = fb.simulate(ARMS, one, horizon=30_000, key=jax.random.key(0), seeds=2)
        np.testing.assert_array_equal(regret, alone.regret)


@fb.pytree
class Counting(Wrapper):
    """Arms that count how often they are traced."""

    counter: object = fb.static()

    def means(self, world):
        return self.env.means(world)

    def answers(self, key, world, arm, size):
        self.counter.traced += 1
        return self.env.answers(key, world, arm, size)


class Counter:
    """A static field whose contents are in no digest: noise must not change when it has counted."""

    traced = 0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Dist-DP-SE", *ELIMINATION])
def test_a_sweep_compiles_once_and_equals_single_runs(name, monkeypatch):
    monkeypatch.setattr(ArmBatchClock, "check", lambda *_: None)  # which traces once more
    monkeypatch.setattr(setup, "program", lambda *_, **__: b"")  # likewise
    options = dict(horizon=HORIZON, key=jax.random.key(0), seeds=3)
    algo, epsilons = algorithm(name, growth=None if name == "DP-SE" else 4), [0.5, 2.0, 8.0]
    grid = None if name == "SE" else {"epsilon": epsilons}
    counters = [Counter(), Counter()]
    single = [
        fb.simulate(
            Counting(env=ARMS, spec=ARMS.spec, counter=counters[0]),
            algo if grid is None else algo.replace(epsilon=e),
            **options,
        )
        for e in epsilons
    ]
    sweep = fb.sweep(Counting(env=ARMS, spec=ARMS.spec, counter=counters[1]), [algo], grid=grid, **options)
    assert counters[0].traced == counters[1].traced > 0
    for label, alone in zip(sweep.labels, single):
        np.testing.assert_allclose(sweep[label].regret, alone.regret, rtol=1e-6)
        for kind, curve in alone.communication.items():
            np.testing.assert_array_equal(sweep[label].communication[kind], curve)


@pytest.mark.parametrize("name", deep(PRIVATE, keep={0}))
def test_extremes_fit(name):
    """As many users as there may be, in few batches or many, and little or much privacy: all tables are finite."""
    most, ring = 2**31 - 1 - 2**16, name != "DP-SE"
    settings = [(most, 0.1, dict(growth=g, radius="exact")) for g in (4, 1024)] if ring else []
    for horizon, epsilon, options in [*settings, (most, 0.1, {}), (10**4, 500.0, {}), (10**6, 1e-6, {})]:
        algo, spec = algorithm(name, epsilon, **options), fb.envs.arms().spec
        bound, certificate = (f(spec, horizon) for f in (algo.bind, algo.certificate))
        assert np.isfinite(bound.radius[:, 1:]).all()
        assert bound.users.min() > 0
        assert certificate.claim == ("none" if epsilon == 500 else "certified")
        assert ("far tails" in certificate.reason) == (epsilon == 500)


def test_parameters_reach_what_runs():
    """By hand: batches of 3, 9, ..., users, scale * epsilon * sqrt(n) steps, radii that pay for wrapped sums."""
    spec, p = ARMS.spec, 0.2
    skellam = algorithm("Dist-RDP-SE", 0.5, growth=3, scale=7.0).bind(spec, 5000)
    sizes = 3 ** np.arange(1, 8)
    np.testing.assert_array_equal(skellam.users[:7, 2], sizes)
    np.testing.assert_array_equal(skellam.protocol.steps[:5], np.ceil(3.5 * np.sqrt(sizes[:5])))
    for name, law_of in (("Dist-DP-SE", DiscreteLaplace), ("Dist-RDP-SE", lambda width: Skellam(width**2))):
        bound = algorithm(name, 0.5, radius="exact", failure=p).bind(spec, 5000)
        users = [int(n) for n in bound.users[: bound.n_batches, 2]]
        steps = [math.ceil({"Dist-DP-SE": 1, "Dist-RDP-SE": 10}[name] * 0.5 * math.sqrt(n)) for n in users]
        laws = [law_of(g / 0.5) for g in steps]  # a sum wraps with probability p / 100, all together
        right = radii.exact(users, laws, steps, n_arms=4, p=p * (1 - 1 / 300))
        np.testing.assert_allclose(bound.radius[: bound.n_batches], right, rtol=1e-6)


def test_an_arm_that_was_dropped_has_no_say():
    """A sum of noise alone, however large, brings no arm back, and is no best that others must reach."""

    class Told:
        bits = np.zeros(20)

        def decode(self, key, k, sums):
            return Decoded(sums, np.zeros(4, bool))

    bound = algorithm("SE").bind(ARMS.spec, HORIZON)
    bound = dataclasses.replace(bound, protocol=Told(), radius=np.full_like(bound.radius, 0.1))
    users = int(bound.users[5, 3])
    sums = users * np.array([0.5, 0.9, 20.0, 0.85], np.float32)
    state = EliminationState(jnp.array([True, True, False, True]), jnp.zeros(4))
    new, report = jax.jit(bound.conclude)(jax.random.key(0), 5, state, sums)
    np.testing.assert_array_equal(new.active, [False, True, False, True])
    np.testing.assert_allclose(new.shown, users * np.array([0.5, 0.9, 0, 0.85]), rtol=1e-6)
    assert int(report.counts["eliminations"]) == 1


NUMBER = "epsilon must be finite and > 0"
PAIRS = r"mechanism and trust must be one of fb.algos.ELIMINATION, SE: none, none; .* got \("


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"epsilon": 0}, ValueError, f"{NUMBER}, got 0"),
        ({"epsilon": -1.0}, ValueError, f"{NUMBER}, got -1.0"),
        ({"epsilon": float("nan")}, ValueError, f"{NUMBER}, got nan"),
        ({"epsilon": float("inf")}, ValueError, f"{NUMBER}, got inf"),
        ({"epsilon": 1e4}, ValueError, r"epsilon must be in \[1e-09, 500\], got 10000.0"),
        ({"epsilon": None}, TypeError, "epsilon must be a number > 0, got None"),
        ({"epsilon": "1"}, TypeError, "epsilon must be a number > 0, got '1'"),
        ({"mechanism": "none", "trust": "none"}, ValueError, "epsilon must be None with mechanism='none', got 1.0"),
        ({"trust": "nobody"}, ValueError, f"{PAIRS}'discrete_laplace', 'nobody'"),
        ({"mechanism": "skellam", "trust": "local"}, ValueError, f"{PAIRS}'skellam', 'local'"),
        ({"radius": "small"}, ValueError, "radius must be one of 'theory', 'exact', got 'small'"),
        (
            {"mechanism": "laplace", "trust": "central", "radius": "exact"},
            ValueError,
            "radius must be 'theory' for DP-SE, which has its own, got 'exact'",
        ),
        ({"growth": 1}, ValueError, "growth must be >= 2, got 1"),
        ({"growth": 2.0}, TypeError, "growth must be an integer >= 2, got 2.0"),
        ({"growth": 2000}, ValueError, r"growth must be in \[2, 1024\], got 2000"),
        (
            {"mechanism": "laplace", "trust": "central", "growth": 2},
            ValueError,
            "growth must be None for DP-SE, whose epochs have their own sizes, got 2",
        ),
        (
            {"scale": 10.0},
            ValueError,
            "scale must be None unless mechanism is 'skellam' or 'discrete_gaussian', got 10",
        ),
        ({"scale": 0.5}, ValueError, r"scale must be in \[1, 16777216\], got 0.5"),
        ({"scale": float("nan")}, ValueError, "scale must be in .*, got nan"),
        ({"failure": 0.0}, ValueError, r"failure must be finite and > 0, got 0.0"),
        ({"failure": 0.5}, ValueError, r"failure must be in \[0, 0.3\], got 0.5"),
        ({"delta": 1.0}, ValueError, r"delta must be in \(0, 1\), got 1.0"),
        ({"mechanism": "none", "trust": "none", "epsilon": None, "delta": 0.1}, ValueError, "delta must be None with"),
        ({"messages": 1}, TypeError, "messages must be True or False, got 1"),
        (
            {"mechanism": "laplace", "trust": "central", "messages": True},
            ValueError,
            "messages must be False where users add nothing to their rewards, got True",
        ),
    ],
)
def test_bad_algorithms(options, error, words):
    with pytest.raises(error, match=words):
        fb.algos.SuccessiveElimination(
            **{"epsilon": 1.0, "mechanism": "discrete_laplace", "trust": "secagg", **options}
        )


@pytest.mark.parametrize("name", ELIMINATION)
def test_a_parameter_changes_what_is_bound_or_is_refused(name):
    """And a grid over one that would change nothing leaves the algorithm as it is."""
    algo, spec, scaled = algorithm(name), fb.envs.arms().spec, ("Dist-RDP-SE", "Dist-CDP-SE")
    bound = digest(algo.bind(spec, 10**5))
    for parameter, value, default in (("growth", 3, 2), ("scale", 20.0, 10.0)):
        assert algo.takes(parameter) == (name != "DP-SE" if parameter == "growth" else name in scaled)
        if algo.takes(parameter):
            assert digest(algo.replace(**{parameter: value}).bind(spec, 10**5)) != bound
            assert digest(algo.replace(**{parameter: default}).bind(spec, 10**5)) == bound
        else:
            with pytest.raises(ValueError, match=f"^{parameter} must be None"):
                algo.replace(**{parameter: value})


RING = "epsilon, scale or horizon must be smaller: 25,600,000 steps per unit of reward, at most 2.24; got epsilon = 500"


@pytest.mark.parametrize(
    ("algo", "options", "error", "words"),
    [
        (algorithm("SE"), {"horizon": 3}, ValueError, "horizon must be at least the number of arms 4, got 3"),
        (
            algorithm("SE"),
            {"horizon": 2**31 - 1},
            ValueError,
            "horizon must be at most 2,147,467,263 users, got 2,147,483,647",
        ),
        (
            algorithm("Dist-RDP-SE", 500.0, scale=200.0),
            {"horizon": 400_000},
            ValueError,
            f"{RING}, .* batches of up to 65,536 users",
        ),
        (algorithm("Dist-CDP-SE", 500.0, scale=200.0, radius="exact"), {"horizon": 400_000}, ValueError, RING),
        (
            algorithm("CDP-SE", 1e-9, radius="exact"),
            {},
            ValueError,
            r"epsilon must be larger: noise of scale 1,000,000,000 steps, at most 2\^25; got epsilon = 1e-09",
        ),
        (
            algorithm("Dist-RDP-SE", 1.0, scale=2.0**12, messages=True),
            {"horizon": 2**24},
            ValueError,
            "scale or horizon must be smaller: a ring of .* integers, at most 4,398,046,511,104; got .* 4,194,304",
        ),
        (
            algorithm("Shuffle-DP-SE", radius="exact", failure=1e-6),
            {"horizon": 1000},
            ValueError,
            "failure must be larger with radius='exact' and so few users, got 1e-06",
        ),
        (
            algorithm("Dist-DP-SE"),
            {"env": fb.envs.sphere(1, 4, 5)},
            TypeError,
            "env must be multi-armed, such as fb.envs.arms",
        ),
        (
            algorithm("SE", name="S"),
            {"env": fb.envs.sphere(1, 1, 5)},
            ValueError,
            "S needs at least two arms, the environment has 1",
        ),
    ],
)
def test_bad_runs(algo, options, error, words, monkeypatch):
    monkeypatch.setattr(driver, "run_program", lambda *a, **k: pytest.fail("compiled before checking"))
    with pytest.raises(error, match=words):
        simulate(algo, **options)


def test_a_grid_leaves_alone_what_has_no_such_parameter():
    """DP-SE has radii and epochs of its own, and SE no privacy: in a sweep, each of them is one configuration."""
    algos = [algorithm(name) for name in ("SE", "DP-SE", "Dist-DP-SE")]
    counts = {"radius": (2, 1, 2), "growth": (2, 1, 2), "epsilon": (1, 2, 2), "delta": (1, 2, 2)}
    values = {"radius": ["theory", "exact"], "growth": [2, 4], "epsilon": [0.5, 1.0], "delta": [1e-3, 1e-6]}
    for name, listed in values.items():
        found = expand(fb.envs.arms(2), algos, {name: listed})
        coordinates = [one.coordinates["algorithm"] for one in found.values()]
        assert tuple(coordinates.count(algo.name) for algo in algos) == counts[name]


def test_replace_checks():
    private, plain = algorithm("Dist-DP-SE"), algorithm("SE")
    assert private.replace(epsilon=2.0).epsilon == 2.0
    assert private.replace(growth=4).name == "Dist-DP-SE"
    assert private.replace(trust="shuffle").name == "Shuffle-DP-SE"
    assert private.replace(name="mine", trust="shuffle").name == "mine"
    with pytest.raises(TypeError, match="Dist-DP-SE has no parameter epsilom"):
        private.replace(epsilom=2.0)
    with pytest.raises(ValueError, match="epsilon must be None with mechanism='none', got 2.0"):
        plain.replace(epsilon=2.0)
    with pytest.raises(ValueError, match=f"{NUMBER}, got -2.0"):
        private.replace(epsilon=-2.0)


@pytest.mark.slow
def test_a_grid_over_epsilon_leaves_se_as_it_is():
    algos = [algorithm("SE"), FOUR]
    options = dict(horizon=200, key=jax.random.key(0), seeds=1)
    result = fb.sweep(ARMS, algos, grid={"epsilon": [0.5, 1.0]}, **options)
    assert result.labels == ("SE", "Dist-DP-SE(epsilon=0.5)", "Dist-DP-SE(epsilon=1.0)")
    assert [result[label].certificate.claim for label in result] == ["none", "certified", "certified"]
