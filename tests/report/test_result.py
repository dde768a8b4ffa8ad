"""What a result says of its runs: its configuration, selections of it, results put together, tables and a summary."""

import dataclasses
import subprocess
from pathlib import Path

import numpy as np
import pytest
from handmade import PROVED, WORLD, grid, made, visits
from helpers import ENV, refused, same_runs, simulate

import fedbandit_jax as fb
from fedbandit_jax.certificate import no_privacy


def test_a_run_says_what_to_run(tmp_path):
    result = simulate()
    (label,) = result.labels
    loaded = fb.Result.load(result.save(tmp_path / "run"))
    same_runs(result, loaded)
    assert (loaded.provenance, loaded.summary()) == (result.provenance, result.summary())
    assert (result.config["environments"][label]["type"], result.spec["n_agents"]) == ("Sphere", ENV.spec.n_agents)
    budget = {"type": "Budget", "epsilon": 1.0, "delta": 0.1, "adjacency": "replace"}
    assert result.config["algorithms"][label]["privacy"]["budget"] == budget
    assert (result.config["horizon"], result.config["seeds"], result.config["key"]) == (40, [[0, 3]], [0, 0])
    root = Path(fb.__file__).resolve().parents[1]
    told = subprocess.run(["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True).stdout.strip()
    commit = result.provenance["git_commit"]
    assert (commit or "").removesuffix("+") == (told if (root / ".git").exists() else "")


def test_selection():
    result = made()
    one = result["private"]
    assert (one.regret.shape, one.certificate, list(result)) == ((2, 3), PROVED, ["plain", "private"])
    for unknown in ("other", []):
        with pytest.raises(KeyError):
            result[unknown]
    with pytest.raises(ValueError, match="2 certificates"):
        result.certificate  # noqa: B018


def test_a_selection_does_not_change_what_it_is_of():
    result = made()
    for some in (result["private"], result.sel(algorithm="private")):
        for array in (some.regret, some.status, *some.communication.values()):
            with pytest.raises(ValueError, match="read-only"):
                array[...] = 0
    both = result.sel(seed=result.seeds.tolist())
    both.regret[...] = 0
    assert result.regret.any()


def test_selected_seeds_are_distinct():
    for seeds in ([], [0, 0]):
        with refused("seed", seeds):
            made().sel(seed=seeds)


def test_concat_of_seeds():
    """In the order in which they are given, of the curves that they have."""
    result = made(seeds=8)
    same_runs(fb.concat([result["plain"], result["private"]]), result)
    with refused("labels"):
        fb.concat([result["plain"], result])
    apart = fb.concat([result.sel(seed=[2, 0]), result.sel(seed=[1])])
    assert apart.seeds.tolist() == [2, 0, 1]
    assert apart.config["seeds"] == [[2, 3], [0, 2]]
    for kind in ("communication", "counts", "gauges"):
        for name, curve in getattr(result, kind).items():
            np.testing.assert_array_equal(getattr(apart, kind)[name], curve[:, [2, 0, 1]])
    np.testing.assert_array_equal(apart.regret, result.regret[:, [2, 0, 1]])
    one = fb.concat([apart["plain"], result.sel(seed=[7])["plain"]])
    assert (one.regret.shape, one.seeds.tolist()) == ((4, 3), [2, 0, 1, 7])
    plain = result["plain"]
    for wrong in ([plain, result["private"], apart.sel(seed=[1])], [plain, result.sel(algorithm=["plain"])]):
        with refused("results"):
            fb.concat(wrong)


DIFFERENT = {  # part of the configuration of other seeds -> how it differs
    "horizon": 9,
    "key": [0, 8],
    "seeds": [[0, 2]],  # the same again
    "environments.plain.spec.n_agents": {"plain": {**WORLD, "spec": {"n_agents": 4, "dim": 2}}, "private": WORLD},
    "environments.plain": {"plain": "another", "private": WORLD},
    "certificates": None,
}


@pytest.mark.parametrize("part", DIFFERENT)
def test_concat_names_the_difference(part):
    one = made()
    other = dataclasses.replace(one, config={**one.config, "seeds": [[2, 4]]})
    if part == "certificates":
        other = dataclasses.replace(other, certificates=dict.fromkeys(one.labels, PROVED))
    else:
        other = dataclasses.replace(other, config={**other.config, part.partition(".")[0]: DIFFERENT[part]})
    with refused("results") as found:
        fb.concat([one, other])
    assert part in str(found.value)


TWO, HALF = "ours(epsilon=2.0)", "ours(epsilon=0.5)"


def test_parameters_are_columns():
    """An algorithm without a parameter has none there, and certificates have columns of their own."""
    result = grid()
    table = result.to_pandas()
    assert len(table) == 3 * 3 * 2
    rows = table[(table.algorithm == "ours") & (table.epsilon == 2.0) & (table.seed == 1)].sort_values("round")
    np.testing.assert_array_equal(rows.regret, result[TWO].regret[1])
    assert table.epsilon.isnull().sum() == 3 * 2
    for label, its in table.groupby("label"):
        proof = result[label].certificate
        assert set(its.certificate_claim) == {proof.claim}
        for name, value in (("epsilon", proof.epsilon_exact), ("delta", proof.delta)):
            expected = np.nan if proof.epsilon_exact is None else value
            np.testing.assert_array_equal(its[f"certificate_{name}"], [expected] * len(its))


def test_selection_by_coordinates(tmp_path):
    """Where a label stands in the sweep is recorded, so that nothing reads it from the label."""
    result = grid()
    assert result.sel(epsilon=2.0).labels == ("plain", TWO)
    for values in ([0.5, 2.0], np.array([0.5, 2.0])):
        assert result.sel(epsilon=values, algorithm="ours").labels == (TWO, HALF)
    np.testing.assert_array_equal(result.sel(epsilon=2.0).regret, result.regret[:2])
    for wrong, words in ((dict(delta=0.1), "'delta'"), (dict(epsilon=3), "epsilon=3")):
        with pytest.raises(KeyError, match=words):
            result.sel(**wrong)
    for same in (fb.Result.load(result.save(tmp_path / "run")), fb.concat([result[label] for label in result])):
        assert same.coordinates == result.coordinates
    assert result[TWO].coordinates == {TWO: {"algorithm": "ours", "epsilon": 2.0}}


def test_numbers_of_a_summary_by_hand():
    """Means, standard errors and paired differences with t quantiles (4.303 at two degrees of freedom), status bits."""
    curves = {name: np.full((2, 3, 4), 4e6) for name in ("rounds", "floats", "bits")}
    regret = np.linspace(0, 1, 5)[1:] * np.array([[1.0, 2, 6], [2, 5, 5]])[..., None]
    status = np.array([[0, 0, 0], [0, fb.Status.OUTSIDE_SPEC, 0]])
    result = made(seeds=3, horizon=4, regret=regret, communication=curves, status=status, counts={}, gauges={})
    text = result.summary()
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "plain 3.0 1.5 0.25000 4e+06 0.50 not private - -" in lines  # sqrt(7 / 3); 3 agents, 4 rounds
    assert "private (!) 4.0 1.0 0.33333 4e+06 0.50 certified inf 1e-06" in lines
    assert "private +1.0 1.2 [-4.0, +6.0]" in lines  # 1, 3, -1: 2 / sqrt 3 times 4.303
    assert result.compare()["private"] == pytest.approx(("plain", 1, 2 / 3**0.5, -3.968, 5.968), abs=1e-3)
    np.testing.assert_allclose(result.time_average[0, 2], [1.5] * 4)
    assert result["private"].status.tolist() == [0, fb.Status.OUTSIDE_SPEC, 0]
    assert ("(!) 1 runs" in text, "OUTSIDE_SPEC: " in text, "NO_ESTIMATE" in text) == (True, True, False)
    assert len(fb.Status) == len(fb.Status(7).sentences())
    proofs = dict.fromkeys(("plain", "private"), no_privacy("no noise"))
    assert "nan" not in made(seeds=1, certificates=proofs).summary()


def test_differences_are_from_the_baseline():
    """Or else from the first label; the heading says from which, and in which environments."""
    result = grid()
    for more, heading, first, others in (
        ({}, "first label", "plain", {TWO: "+2.0", HALF: "+4.0"}),
        (dict(baseline=HALF), "baseline", HALF, {"plain": "-4.0", TWO: "-2.0"}),
    ):
        text = result.summary(**more).partition("Final regret, paired by seed, minus the ")[2]
        title, head, *rows = text.splitlines()
        assert (title, " ".join(head.split()[:2])) == (f"{heading}:", f"minus {first.split()[0]}")
        assert {row.split()[0]: row.split()[1] for row in rows} == others
        found = result.compare(**more)
        assert {label: f"{its.mean:+.1f}" for label, its in found.items()} == others
        assert {its.baseline for its in found.values()} == {first}
    elsewhere = {TWO: WORLD | {"n_agents": 9}, HALF: WORLD | {"n_agents": 9}}
    apart = dataclasses.replace(
        result, config=result.config | {"environments": result.config["environments"] | elsewhere}
    )
    assert f"minus the first label there:\nminus {TWO}" in apart.summary(baseline="plain")
    with refused("baseline", "other"):
        result.summary(baseline="other")


def test_reprs_are_short():
    """Ten lines of 100 characters at most, of whatever size, with the names that a reader needs."""
    env = fb.data.table(visits(), silo="hospital", arm="drug", reward="cured", features=["age"], propensity="p")
    long = made(labels=tuple(f"label {i}" for i in range(26)))
    row = fb.benchmark.Row(name="mine", about="", function="f", source="#" * 5000, digest="", track="tuned", trials=0)
    replay = fb.envs.replay(np.tile(np.eye(4), (50, 1)), np.full(50, 4), np.full(4, 0.1), n_agents=5)
    for one, words in (
        (env, "rows=float32[200,"),
        (env.spec, "n_agents=3"),
        (env.fit, "silos=3"),
        (replay, "features=float32["),
        (long, "label 3 and 22 more"),
        (row, "'mine', 0 tasks"),
    ):
        assert words in repr(one)
        assert len(repr(one)) <= 1000
        assert repr(one).count("\n") < 10


def test_who_is_served():
    whole = made()
    for spec, words, title in (
        ({"n_agents": 5, "n_users": 175, "n_servers": 1}, "175 users of 5 agents,", "n = 175, M = 5"),
        ({"n_agents": 1, "n_users": 175, "n_servers": 2}, "175 users on 2 servers,", "n = 175, L = 2"),
        ({"n_agents": 5, "n_users": 0, "n_servers": 1}, "5 agents,", "M = 5"),
    ):
        worlds = {label: {"type": "Sphere", "spec": spec} for label in whole.labels}
        result = dataclasses.replace(whole, config={**whole.config, "environments": worlds})
        assert result.summary().startswith(words)
        assert title in fb.plotting.regret(result).axes[0].get_title()
