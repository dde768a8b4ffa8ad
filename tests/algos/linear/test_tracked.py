"""Inverses are computed anew for all agents at once, or for a few after every round."""

import examples as ex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedbandit_jax.algos.loops import own_rows
from fedbandit_jax.engine import batching

READERS = ["Async-FedLinUCB", "FedUCB", "Private-FedUCB", "Private-Gossip-FedUCB"]  # test_async.py has the first


@pytest.mark.parametrize("cpu", [True, False])
@pytest.mark.parametrize("n_agents", [3, 10])
def test_every_agent_has_one_turn(n_agents, cpu, monkeypatch):
    """Once in 7 rounds, whether there are more agents than rounds or fewer; `place` finds who has it in `who`."""
    monkeypatch.setattr(own_rows, "REFRESH", 7)
    monkeypatch.setattr(own_rows, "on_cpu", lambda: cpu)
    numbers = jnp.arange(n_agents)

    def refresh(turns, turn):
        assert cpu or len(turn.who) == -(-n_agents // 7)
        found = numbers[turn.who][turn.place]
        return turns + jnp.where(turn.due, jnp.where(found == numbers, 1, 100), 0)

    def body(turns, k):
        turns = own_rows.in_turn(k, n_agents, refresh, turns)
        return turns, turns

    _, turns = jax.lax.scan(body, 0 * numbers, jnp.arange(21))
    np.testing.assert_array_equal(turns[6::7], [[1] * n_agents, [2] * n_agents, [3] * n_agents])


@pytest.mark.slow
@pytest.mark.parametrize("cpu", [True, False])
@pytest.mark.parametrize("name", READERS)
def test_computing_inverses_more_often_changes_nothing_but_rounding(name, cpu, monkeypatch):
    """Nor does what is written otherwise where programs are not compiled for a CPU."""
    row, whole = ex.EXAMPLES[name], ex.played(name)
    monkeypatch.setattr(own_rows, "REFRESH", 3)
    for module in ("algos.loops.own_rows", "core.ridge", "core.control"):
        monkeypatch.setattr(f"fedbandit_jax.{module}.on_cpu", lambda: cpu)
    forget_programs()
    again = ex.play(row.env, row.algo)
    monkeypatch.undo()
    forget_programs()
    np.testing.assert_array_equal(again.synced, whole.synced)
    np.testing.assert_allclose(again.gaps, whole.gaps, atol=2e-5)
    changed = zip(*(jax.tree.leaves(run.state(1)) for run in (again, whole)))
    assert any(not np.array_equal(one, other) for one, other in changed)  # handed over at other times


def forget_programs():
    """Programs that were traced for other settings are traced anew."""
    jax.clear_caches()
    for program in (batching._init, batching._advance):
        program.cache_clear()
