"""The parts of the benchmarks that are pure functions: verdicts, fits and tables."""

import sys
from pathlib import Path

import numpy as np
import pytest

BENCH = Path(__file__).parent.parent / "bench"


@pytest.fixture(autouse=True)
def modules_of_bench(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCH))
    yield
    for name in [name for name, module in sys.modules.items() if str(BENCH) in str(getattr(module, "__file__", ""))]:
        del sys.modules[name]  # `arms` and `linear` are names that others may use


def test_verdict():
    import measure

    both = dict(least=0.9, most=1.1)
    for value, target, met in (
        *((20.0, dict(least=20.0), True), (19.9, dict(least=20.0), False), (1.8, dict(most=1.8), True)),
        *((1.81, dict(most=1.8), False), (0.8, both, False), (1.2, both, False)),
        *((5.0, {}, None), (None, dict(least=1.0), None), (5.0, dict(least=1.0, judged=False), None)),
    ):
        assert measure.verdict(value, **target)["met"] is met


def test_ratios_are_taken_within_turns():
    import measure

    def times(*wall):
        return measure.Times(np.array(wall), np.array(wall), 0.0, [])

    # The third turn was slow for both: ratios 2, 3, 2, of which the median is 2.
    assert measure.speed_over(times(1.0, 1.0, 10.0), times(2.0, 3.0, 20.0)) == 2.0
    assert measure.speed_over(times(2.0, 2.0, 2.0).each(4), times(2.0, 2.0, 2.0)) == 4.0


def test_turns_alternate_and_the_first_run_is_not_timed():
    """A timed run that compiles is an error."""
    import measure

    played, compilations = [], measure.Compilations()
    runs = {name: lambda turn, name=name: played.append((name, turn)) or turn for name in "ab"}
    times = measure.in_turns(runs, {"a": 2, "b": 1}, compilations)
    assert played == [("a", 0), ("b", 0), ("a", 1), ("b", 1), ("a", 2)]
    assert times["a"].results == [1, 2]
    assert times["b"].wall.shape == (1,)

    def compiles(turn):
        compilations.count += turn == 2

    with pytest.raises(RuntimeError):
        measure.in_turns({"": compiles}, 2, compilations)


def test_compilations_are_counted():
    import jax
    import measure

    compilations, double = measure.Compilations(), jax.jit(lambda x: 2 * x)
    for shape, count in ((3, 1), (3, 1), (4, 2)):
        double(np.zeros(shape, np.float32))
        assert compilations.count == count


def test_parts_are_chosen_by_number_and_a_failure_is_a_miss(monkeypatch):
    import run

    assert (run.numbered("1,4"), run.numbered("")) == ({1, 4}, set())
    with pytest.raises(SystemExit):
        run.numbered("14")

    def breaks(part):
        part.holds("4: before", 1.0, least=2.0)
        raise MemoryError("no room")

    monkeypatch.setattr(run, "PARTS", {breaks: (4,), run.elsewhere: (10, 11)})
    monkeypatch.setattr(run, "CAUSES", {"4: before": "known"})
    _, ratios = run.measured(run.FULL, {4})
    assert ratios["4: before"] == {"value": 1.0, "least": 2.0, "most": None, "met": False, "cause": "known"}
    assert ratios["4: breaks failed"]["met"] is False
    assert ratios["4: breaks failed"]["cause"] == "MemoryError: no room"
    assert "10: see python tests/gpu_programs.py" not in ratios


def test_the_reference_in_c_draws_on_the_sphere_and_keeps_its_tables():
    import reference

    shape = reference.Shape(n_agents=3, n_arms=21, dim=4)
    if reference.missing(shape):
        pytest.skip(reference.missing(shape))
    (fresh,) = reference.run(shape, "A", 20_000, 1, processes=1)
    # The mean (1 + u_1) / 2 has u_1 uniform on [-1, 1] for d - 1 = 3 (Archimedes): the largest of 21 is Beta(21, 1).
    mean, std = 21 / 22, np.sqrt(21 / (22**2 * 23))
    assert abs(fresh["check"] - mean) < 4 * std / np.sqrt(20_000)
    both = reference.run(shape, "B", 2000, 1, processes=2)
    assert len(both) == 2
    assert all(0 < one["check"] < 1e-5 for one in both)


def test_what_a_gpu_is_judged_by():
    import gpu

    rates = [("off", 1.0), ("on", 2.0), ("while", 3.0)]
    rows = [
        {"part": "latency", "round_us": 40.0, "call_ms": 5.0},
        *({"part": "programs", "mode": mode, "spills": spills} for mode, spills in (("A", 0), ("A-d20", 300))),
        {"part": "agreement", "mode": "A", "z": -3.5, "twice_equal": False},
        *({"part": "command buffers", "mode": "A", "command_buffers": which, "rate": rate} for which, rate in rates),
    ]
    found = [ratio for ratio in gpu.ratios(rows, smoke=False).values() if ratio["value"] is not None]
    assert {one["value"]: one["met"] for one in found} == {
        **{40.0: None, 5.0: None},  # of one seed: microseconds of a round, milliseconds of a call beside its rounds
        **{300.0: None, 3.5: False, 1.0: False},  # spilled, the largest |z|, results that differ between two runs
        **{2.0: None, 1.5: None},  # command buffers on / off, while / on
    }
    products = [size * n_seeds for size, n_seeds in gpu.pairs("A", gpu.modes(smoke=False)["A"], smoke=False)]
    assert products == [100, 2500, 25_000, 250_000, 2_500_000]
