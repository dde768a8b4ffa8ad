"""What a run needs is known before it is compiled. Seeds that do not fit together run later: test_simulation.py."""

import tracemalloc

import jax
import pytest
from helpers import PLAIN, PRIVATE, refused, simulate

import fedbandit_jax as fb
from fedbandit_jax.core import memory
from fedbandit_jax.engine import batching, driver, prepare
from fedbandit_jax.engine.prepare import Configuration, bind


def room(monkeypatch, size):
    monkeypatch.setattr(memory, "total", lambda: size / memory.SHARE)


@pytest.mark.parametrize(
    ("sizes", "algo", "argument", "size"),
    [
        ((3, 4, 5), PLAIN, "env", 100),
        ((10, 10, 100_000), PRIVATE, "env", 2**33),
        ((2 * 10**9, 10, 5), PRIVATE, "n_agents", 2**33),
    ],
)
def test_sizes_are_refused_before_they_are_made(sizes, algo, argument, size, monkeypatch):
    """The allocations are counted, as a machine with much memory would pass a test of what is taken."""
    monkeypatch.setattr(driver, "run_program", lambda *_, **__: pytest.fail("it runs"))
    room(monkeypatch, size)
    tracemalloc.start()
    try:
        with refused(argument):
            simulate(env=fb.envs.sphere(*sizes), algo=algo)
        assert tracemalloc.get_traced_memory()[1] < 2**28
    finally:
        tracemalloc.stop()


def test_what_a_program_needs_is_refused_before_it_runs(monkeypatch):
    """The worth of very many arms is in no state. Every accelerator has a memory of its own: a piece is on one."""
    monkeypatch.setattr(driver, "run_program", lambda *_, **__: pytest.fail("it runs"))
    for size, words in ((2**20, "1 MiB of memory, got .* compiled program"), (2**33, "128 KiB .* of 1 config")):
        room(monkeypatch, size)
        with refused("env", other="seeds") as found:
            simulate(env=fb.envs.sphere(3, 10**6, 5), algo=PLAIN)
        assert found.match(words)
        monkeypatch.setattr(batching, "on_cpu", lambda: False)
        monkeypatch.setattr(jax, "local_device_count", lambda: 2**16)


def test_more_of_anything_needs_more(monkeypatch):
    def fitting(env, algo, n_configs=1, n_records=4, n_rows=500):
        runner = bind("x", Configuration(env, algo, {}), 40)[0]
        return prepare.seeds_together(runner, n_configs, n_configs * 10**7, n_records, n_rows)

    room(monkeypatch, 2**33)
    drawn, large = fb.envs.gap(3, 4, 5), fb.envs.gap(300, 4, 25)
    assert fitting(drawn, PLAIN) > fitting(drawn, PRIVATE) > fitting(drawn, PRIVATE, n_configs=2)
    assert fitting(drawn, PLAIN) > fitting(drawn, PLAIN, n_records=8)
    assert fitting(drawn, PRIVATE) > fitting(drawn, PRIVATE, n_rows=501)
    assert fitting(drawn, PLAIN) == fitting(drawn, PLAIN, n_rows=501)
    contexts = 2 * 300 * 4 * 25 * 4  # more than 20 features: stored
    assert fitting(large, PLAIN) < 2**33 // contexts
    one = (memory.limit() - 10**7 * 4 * 48) / fitting(drawn, PLAIN)
    assert 100 < one < 2000  # bytes: theta, and two copies of the server's sums and estimate


def test_a_container_may_have_less(monkeypatch, tmp_path):
    """The least limit of a job's control group and of those around it, in both versions, also of a group unseen."""
    monkeypatch.setattr(memory, "CGROUPS", tmp_path)
    monkeypatch.setattr(memory, "MEMBER", tmp_path / "member")
    machine = memory.total()
    assert machine > 2**28
    for member, root, name in (("0::", "", "memory.max"), ("4:memory:", "memory", "memory.limit_in_bytes")):
        outer, inner = tmp_path / root / name, tmp_path / root / "job/step" / name
        inner.parent.mkdir(parents=True)
        memory.MEMBER.write_text(f"9:cpu:/job/step\n{member}/job/step\n")
        for whole, own, expected in (
            ("max\n", None, machine),
            (2**27, None, 2**27),
            ("max", 2**27, 2**27),
            (2**60, 2**61, machine),
            (2**28, 2**27, 2**27),
            (2**27, 2**28, 2**27),
        ):
            outer.write_text(str(whole))
            inner.unlink(missing_ok=True)
            if own:
                inner.write_text(str(own))
            assert memory.total() == expected
        outer.unlink()
        inner.unlink()
