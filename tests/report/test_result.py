import dataclasses
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from helpers import BUDGET, ENV, PLAIN, PRIVATE, same_runs, sweep
from results import made

import fedbandit_jax as fb

ALGOS = {
    "plain": PLAIN,
    "private": PRIVATE,
    "void": fb.algos.private_fed_lin_ucb(  # epsilon_exact = inf
        fb.privacy.Mechanism(BUDGET, statistic=fb.privacy.Linear(clip=False)), schedule=5
    ),
}


@pytest.fixture(scope="module")
def result():
    return sweep(ALGOS)


def test_round_trip(result, tmp_path):
    path = result.save(tmp_path / "run")
    loaded = fb.Result.load(path)
    same_runs(result, loaded)
    assert loaded.config == result.config
    assert loaded.provenance == result.provenance
    assert loaded.summary() == result.summary()


@pytest.mark.slow
def test_loads_without_jax(result, tmp_path):
    result.save(tmp_path / "run")
    code = (
        "import sys; sys.modules['jax'] = None\n"
        "from fedbandit_jax.report.result import Result\n"
        f"r = Result.load({str(tmp_path / 'run')!r}); print(r.summary()); print(r['private'].certificate)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "certified" in done.stdout


def test_config_and_provenance_say_what_to_run(result):
    assert result.config["environments"]["plain"]["type"] == "Sphere"
    assert result.spec["n_agents"] == 3
    assert result.config["algorithms"]["private"]["privacy"]["budget"] == {
        "type": "Budget", "epsilon": 1.0, "delta": 0.1, "adjacency": "replace",
    }  # fmt: skip
    assert (result.config["horizon"], result.config["seeds"], result.config["key"]) == (40, [[0, 3]], [0, 0])
    assert {"jax", "jaxlib", "numpy", "fedbandit_jax", "device", "dtype", "git_commit", "seconds"} <= set(
        result.provenance
    )


def test_provenance_names_the_commit_of_a_checkout(result):
    root = Path(fb.__file__).resolve().parents[1]
    commit = result.provenance["git_commit"]
    if (root / ".git").exists():
        told = subprocess.run(["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True)
        assert (commit or "").removesuffix("+") == told.stdout.strip()
    else:
        assert commit is None


def test_summary(result):
    text = result.summary()
    for words in (
        "3 agents, T = 40 rounds, 3 seeds",
        "plain",
        "certified",
        "none",
        "inf",
        "paired",
        "95 % interval",
    ):
        assert words in text
    difference = result["private"].regret[:, -1] - result["plain"].regret[:, -1]
    assert f"{difference.mean():+.1f}" in text


@pytest.mark.slow
def test_summary_of_one_seed_has_no_error_bars():
    one = fb.simulate(ENV, ALGOS["plain"], horizon=5, key=jax.random.key(0), seeds=1)
    assert "nan" not in one.summary()


@pytest.mark.parametrize("seeds", [[], [0, 0]])
def test_selected_seeds_are_distinct(result, seeds):
    with pytest.raises(ValueError, match="^seed must") as error:
        result.sel(seed=seeds)
    assert str(error.value) == f"seed must be distinct numbers of seeds, at least one, got {seeds}"


def test_selection(result):
    one = result["private"]
    assert one.regret.shape == (3, 40)
    assert one.certificate.claim == "certified"
    assert list(result) == list(ALGOS)
    with pytest.raises(KeyError, match="no algorithm 'other'"):
        result["other"]
    with pytest.raises(KeyError, match=r"no algorithm \[\]"):
        result[[]]
    with pytest.raises(ValueError, match="3 certificates"):
        result.certificate  # noqa: B018


def test_concat(result):
    joined = fb.concat([result["plain"], result["private"], result["void"]])
    same_runs(joined, result)
    longer = dataclasses.replace(result["private"], config={**result.config, "horizon": 25})
    with pytest.raises(ValueError, match=r"results to concat must share the horizon, got 40 and 25"):
        fb.concat([result["plain"], longer])
    with pytest.raises(ValueError, match="labels must be unique"):
        fb.concat([result["plain"], result])


def test_concat_of_seeds(result):
    """Seeds that were run apart are those that run together."""
    apart = fb.concat([sweep(ALGOS, seeds=[2, 0]), sweep(ALGOS, seeds=range(1, 2))])
    assert apart.seeds.tolist() == [2, 0, 1]
    assert apart.config["seeds"] == [[2, 3], [0, 2]]
    for label in result:
        np.testing.assert_allclose(apart[label].regret, result[label].regret[[2, 0, 1]], atol=1e-5)
        sent = result[label].communication["bits"][[2, 0, 1]]
        np.testing.assert_array_equal(apart[label].communication["bits"], sent)
    one = fb.concat([apart["plain"], sweep({"plain": PLAIN}, seeds=[7])["plain"]])
    assert (one.regret.shape, one.seeds.tolist()) == ((4, 40), [2, 0, 1, 7])


@pytest.mark.slow
def test_xarray(result):
    pytest.importorskip("xarray")
    data = result.to_xarray()
    assert dict(data.sizes) == {"algorithm": 3, "seed": 3, "round": 40}
    assert float(data.regret.sel(algorithm="private", round=40, seed=2)) == result["private"].regret[2, -1]
    assert dict(result["plain"].to_xarray().sizes) == {"seed": 3, "round": 40}


def test_repr_is_short(result):
    assert repr(result) == "Result(plain, private, void; regret (3, 3, 40), rounds 1..40)"


@pytest.fixture(scope="module")
def grid():
    """A sweep over epsilon, and one algorithm that has none."""
    return sweep([PLAIN, PRIVATE.replace(name="ours")], grid={"epsilon": [0.5, 2.0]})


@pytest.mark.slow
def test_coordinates(grid, tmp_path):
    """Where a label stands in the sweep is recorded, so that nothing reads it from the label."""
    expected = {
        "FedLinUCB": {"algorithm": "FedLinUCB"},
        "ours(epsilon=0.5)": {"algorithm": "ours", "epsilon": 0.5},
        "ours(epsilon=2.0)": {"algorithm": "ours", "epsilon": 2.0},
    }
    assert grid.coordinates == expected
    grid.save(tmp_path / "run")
    assert fb.Result.load(tmp_path / "run").coordinates == expected
    assert fb.concat([grid[label] for label in grid]).coordinates == expected
    one = grid["ours(epsilon=2.0)"]
    assert one.coordinates == {"ours(epsilon=2.0)": {"algorithm": "ours", "epsilon": 2.0}}


def test_parameters_are_dimensions(grid):
    """An algorithm without a parameter stands at all its values; what was not run is NaN."""
    pytest.importorskip("xarray")
    data = grid.to_xarray()
    assert dict(data.sizes) == {"algorithm": 2, "epsilon": 2, "seed": 3, "round": 40}
    for label, point in grid.coordinates.items():
        found = data.regret.sel(algorithm=point["algorithm"], epsilon=point.get("epsilon", 0.5))
        np.testing.assert_array_equal(found, grid[label].regret)
    np.testing.assert_array_equal(data.regret[0, 0], data.regret[0, 1])
    other = grid.config["coordinates"] | {"ours(epsilon=2.0)": {"algorithm": "theirs", "epsilon": 2.0}}
    partial = dataclasses.replace(grid, config=grid.config | {"coordinates": other}).to_xarray()
    assert partial.regret.sel(algorithm="theirs", epsilon=0.5).isnull().all()
    assert (partial.status.sel(algorithm="theirs", epsilon=0.5) == -1).all()
    other = {"FedLinUCB": {"algorithm": "ours", "delta": 0.1}, "ours(epsilon=2.0)": {"algorithm": "ours", "delta": 0.2}}
    twice = dataclasses.replace(grid, config=grid.config | {"coordinates": grid.config["coordinates"] | other})
    with pytest.raises(
        ValueError, match=r"labels must stand apart .*, got 'FedLinUCB' and 'ours\(epsilon=0.5\)' at one"
    ):
        twice.to_xarray()
    table = grid.to_pandas()
    assert len(table) == 3 * 3 * 40
    rows = table[(table.algorithm == "ours") & (table.epsilon == 2.0) & (table.seed == 1)].sort_values("round")
    np.testing.assert_array_equal(rows.regret, grid["ours(epsilon=2.0)"].regret[1])
    assert table.epsilon.isnull().sum() == 3 * 40


@pytest.mark.slow
def test_selection_by_coordinates(grid):
    assert grid.sel(epsilon=2.0).labels == ("FedLinUCB", "ours(epsilon=2.0)")
    assert grid.sel(epsilon=[0.5, 2.0], algorithm="ours").labels == grid.labels[1:]
    assert grid.sel(epsilon=np.array([0.5, 2.0]), algorithm="ours").labels == grid.labels[1:]
    np.testing.assert_array_equal(grid.sel(epsilon=2.0).regret, grid.regret[[0, 2]])
    for wrong, words in [
        (dict(delta=0.1), "no algorithm has the coordinate 'delta'; have algorithm, epsilon"),
        (dict(epsilon=3), r"no algorithm is at epsilon=3; have \[0.5, 2.0\]"),
    ]:
        with pytest.raises(KeyError, match=words):
            grid.sel(**wrong)


def test_status_bits_are_explained(result):
    status = np.zeros_like(result.status)
    status[1, 2] = fb.Status.OUTSIDE_SPEC
    text = dataclasses.replace(result, status=status).summary()
    assert "private (!)" in text
    assert "(!) 1 runs have status bits set; do not trust their regret." in text
    assert "OUTSIDE_SPEC: an arm, a user, an arrival, a reward or a feature vector was not what the environment" in text
    assert "NO_ESTIMATE" not in text
    assert len(fb.Status) == len(fb.Status(7).sentences())


def three_seeds():
    """Regrets 1, 2, 6 and 2, 5, 5 after four rounds of three agents."""
    curves = {name: np.full((2, 3, 4), 4e6) for name in ("rounds", "floats", "bits")}
    regret = np.linspace(0, 1, 5)[1:] * np.array([[1.0, 2, 6], [2, 5, 5]])[..., None]
    status = np.array([[0, 0, 0], [0, 1, 0]])
    return made(seeds=3, horizon=4, regret=regret, communication=curves, status=status, counts={}, gauges={})


def test_numbers_of_a_summary_by_hand():
    """Means and their standard errors, paired differences with t quantiles (4.303 at two degrees of freedom)."""
    result = three_seeds()
    lines = [" ".join(line.split()) for line in result.summary().splitlines()]
    assert "plain 3.0 1.5 0.25000 4e+06 0.50 none - -" in lines  # sqrt(7 / 3); 3 agents, 4 rounds
    assert "private (!) 4.0 1.0 0.33333 4e+06 0.50 certified inf 1e-06" in lines
    assert "private +1.0 1.2 [-4.0, +6.0]" in lines  # 1, 3, -1: 2 / sqrt 3 times 4.303
    np.testing.assert_allclose(result.time_average[0, 2], [1.5] * 4)
    assert result["private"].status.tolist() == [0, 1, 0]


@pytest.mark.parametrize(
    ("spec", "words", "title"),
    [
        ({"n_agents": 5, "n_users": 175, "n_servers": 1}, "175 users of 5 agents,", "n = 175, M = 5"),
        ({"n_agents": 1, "n_users": 175, "n_servers": 2}, "175 users on 2 servers,", "n = 175, L = 2"),
        ({"n_agents": 5, "n_users": 0, "n_servers": 1}, "5 agents,", "M = 5"),
    ],
)
def test_who_is_served(spec, words, title):
    whole = made()
    worlds = {label: {"type": "Sphere", "spec": spec} for label in whole.labels}
    result = dataclasses.replace(whole, config={**whole.config, "environments": worlds})
    assert result.summary().startswith(words)
    assert title in fb.plotting.regret(result).axes[0].get_title()
