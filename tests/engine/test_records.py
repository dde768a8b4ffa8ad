"""What is recorded beside the curves is what happened, and recording it changes nothing."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import PLAIN, PRIVATE, in_chunks, refused, same_runs

import fedbandit_jax as fb
from fedbandit_jax.engine import batching, driver
from fedbandit_jax.engine.record import Recorder, Recording

R, KEY = fb.record, jax.random.key(0)
T, M, K, D = 40, 3, 4, 5
GAP = fb.envs.gap(M, K, D, rewards="gaussian")
EVERYTHING = {
    **{"arms": R.arms, "estimates": R.estimates, "contexts": lambda moment: moment.offered.contexts},
    **{name: lambda moment, name=name: getattr(moment, name) for name in ("gaps", "regret", "rewards")},
    **{"some": R.every(R.arms, 8), "last": R.final(lambda moment: moment.world.theta), "state": R.final()},
}
OPTIONS = {"horizon": T, "key": KEY, "seeds": 2, "stride": 1}


def simulate(algo=PLAIN, record=EVERYTHING, env=GAP, **options):
    return fb.simulate(env, algo, record=record, **OPTIONS | options)


@pytest.fixture(scope="module")
def found():
    return simulate()


def test_what_happened(found):
    """Regret is the sum of the gaps, gaps are those of the arms that were played, and rewards are near their means."""
    r = {name: array.astype(float) for name, array in found.records.items()}
    np.testing.assert_allclose(r["regret"], r["gaps"].cumsum(1), atol=1e-5)
    np.testing.assert_allclose(r["regret"].sum(-1), found.regret, atol=1e-4)
    means = np.einsum("stmkd,sd->stmk", r["contexts"], r["last"][:, 0])
    played = np.take_along_axis(means, found.records["arms"][..., None], -1)[..., 0]
    np.testing.assert_allclose(r["gaps"], means.max(-1) - played, atol=1e-5)
    noise = r["rewards"] - played
    assert abs(noise.mean()) < 5 * noise.std() / noise.size**0.5
    np.testing.assert_array_equal(r["some"], r["arms"][:, 7::8])
    np.testing.assert_array_equal(found.record_rounds["some"], np.arange(8, T + 1, 8))
    np.testing.assert_array_equal(found.record_rounds["last"], [T])


def test_estimates(found):
    """Agents learn within a batch of 5 rounds, from what all had before it and their own rows since."""
    r = {name: array.astype(float) for name, array in found.records.items()}
    x = np.take_along_axis(r["contexts"], found.records["arms"][..., None, None], -2)[..., 0, :]
    for seed, t, m in ((0, 0, 0), (0, 4, 1), (1, 5, 2), (1, 37, 0)):
        start = t // 5 * 5
        rows = np.concatenate([x[seed, :start].reshape(-1, D), x[seed, start:t, m]])
        y = np.concatenate([r["rewards"][seed, :start].ravel(), r["rewards"][seed, start:t, m]])
        v = np.eye(D) + rows.T @ rows
        np.testing.assert_allclose(r["estimates"][seed, t, m], np.linalg.solve(v, rows.T @ y), atol=1e-4)
    v = np.eye(D) + np.einsum("tmi,tmj->ij", x[0], x[0])
    np.testing.assert_allclose(r["state.belief.gram"][0, 0], v, atol=1e-4)


class Steps:
    env, algo, rounds_per_step = GAP, PLAIN, 1

    def __init__(self, n_steps):
        self.n_steps = self.horizon = n_steps


def test_the_last_state_is_that_of_the_horizon(monkeypatch):
    """A GPU takes all steps of a chunk: 7 rounds are three chunks of 3, of which the last two come too late."""
    for module in (driver, batching):
        monkeypatch.setattr(module, "on_cpu", lambda: False)
    in_chunks(monkeypatch, 3)
    assert [driver._chunk(runner, 2) for runner in (Steps(7), Steps(103))] == [(3, 3), (35, 35)]
    batching._advance.cache_clear()  # which does not ask again what the device is
    algo, record = fb.algos.fed_ucb(schedule=fb.schedules.LogDet(1e9)), {"gaps": EVERYTHING["gaps"], "state": R.final()}
    result = simulate(algo, record, horizon=7, seeds=1)
    batching._advance.cache_clear()
    np.testing.assert_allclose(result.regret, result.records["gaps"].sum(-1).cumsum(-1), rtol=1e-5)
    np.testing.assert_array_equal(result.records["state.epoch.rounds"], [[7]])  # in the first epoch, which never ends


def test_results_keep_records(found):
    """Files do, too: `test_contract.py` compares what is loaded."""
    same_runs(fb.concat([found.sel(seed=1), found.sel(seed=0)]).sel(seed=[0, 1]), found)


@pytest.mark.slow
def test_sweeps_keep_records(found, tmp_path):
    """What only one algorithm has is missing for the other; in pieces records are the same."""
    without = simulate(record=None)
    assert [one.provenance["contexts"] for one in (found, without)] == ["stored", "drawn"]
    np.testing.assert_allclose(found.regret, without.regret, atol=1e-5)  # of the plain path, which rounds otherwise
    assert without.records == {}
    joined = fb.concat([found, simulate(PRIVATE, record=None)])["Private-FedLinUCB"]
    assert np.isnan(joined.records["estimates"]).all()
    assert (joined.records["arms"] == 0).all()
    with refused("results"):
        fb.concat([found, simulate(PRIVATE, record={"arms": R.every(R.arms, 20)})])
    both = fb.sweep(GAP, [PLAIN, PRIVATE], record=EVERYTHING, **OPTIONS)
    step = both.records["state.ledger.mechanism.sums.step"]  # of sums in integers, which no noise does without
    assert np.isnan(step[0]).all()
    assert np.isfinite(step[1]).all()
    stored = fb.sweep(GAP, [PLAIN, PRIVATE], store=tmp_path / "store", record=EVERYTHING, **OPTIONS)
    for name, array in found.records.items():
        np.testing.assert_allclose(both["FedLinUCB"].records[name], array, atol=1e-5)
        np.testing.assert_allclose(stored.records[name], both.records[name], atol=1e-4)


def test_regret_is_added_up_exactly():
    """A million small gaps in float32, which would lose a thousandth of them otherwise."""
    recorder = Recorder(rounds=(), names=(), functions=(), final=())
    start = Recording(None, jnp.zeros(1), jnp.zeros(1), ())
    moment = R.Moment(jnp.int32(0), None, None, PLAIN, gaps=jnp.full(1, 0.1))
    last = jax.jit(lambda x: jax.lax.fori_loop(0, 10**6, lambda _, now: recorder.play(now, moment), x))(start)
    np.testing.assert_allclose(last.regret, 1e5, rtol=1e-6)


@pytest.mark.slow
def test_users_in_clusters():
    env = fb.envs.clustered(7, 2, 2, n_arms=3, dim=3)
    record = {"user": lambda moment: moment.offered.user, "n": lambda moment: moment.state.users.count}
    result = simulate(fb.algos.FCLUB(), record | {"regret": EVERYTHING["regret"], "end": R.final()}, env, horizon=20)
    users, counts = result.records["user"], result.records["n"]
    for seed in range(2):
        np.testing.assert_array_equal(counts[seed].reshape(20, -1).sum(1), np.arange(20))
        seen = np.bincount(users[seed, :19, 0], minlength=7)
        np.testing.assert_array_equal(np.sort(counts[seed, 19])[-7:], np.sort(seen))
        assert result.records["end.users.count"][seed].sum() == 20
    np.testing.assert_allclose(result.records["regret"][..., 0], result.regret, atol=1e-5)


def test_batches_of_users():
    """Every round of a batch has the state that the batch began with."""
    record = {"active": lambda moment: moment.state.active, "end": R.final()}
    env = fb.envs.arms(means=[0.9, 0.1, 0.1])
    result = simulate(fb.algos.SE(), record, env, horizon=4000, seeds=1)
    active, regret = result.records["active"][0], np.diff(result.regret[0], prepend=0)
    assert active[0].all()
    assert regret[active.all(-1)].max() > 0.7
    assert (active.sum(-1) == 1).any()
    np.testing.assert_allclose(regret[active.sum(-1) == 1], 0, atol=1e-6)
    assert result.records["end.active"].shape == (1, 1, 3)


@pytest.mark.slow
def test_a_posterior_is_an_estimate():
    algo = fb.algos.Federated(policy=fb.algos.Thompson(regularization=2.0), schedule=5)
    theta = simulate(algo, {"theta": R.estimates}, horizon=10).records["theta"]
    np.testing.assert_array_equal(theta[:, :5], 0)
    assert (theta[:, 5:] != 0).any(-1).all()


def test_what_does_not_fit_is_refused(monkeypatch):
    """Before anything is compiled; the size is that of all seeds, in two copies."""
    monkeypatch.setattr(driver, "_compiled", lambda *_: pytest.fail("it is compiled"))
    with refused("env", other="record") as found:
        simulate(record={"arms": R.arms, "x": lambda moment: jnp.zeros((751_619, 1000))})
    assert found.match("448 GiB for what is kept")
