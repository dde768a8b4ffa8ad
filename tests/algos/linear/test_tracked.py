"""Inverses are computed anew for all agents at once, or for a few after every round."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedbandit_jax.algos.loops import own_rows


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
