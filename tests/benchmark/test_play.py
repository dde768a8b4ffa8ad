"""Rows: what is run, on which seeds, what counts, and what is kept."""

import dataclasses
import traceback
from pathlib import Path

import jax
import networkx as nx
import numpy as np
import pytest
from helpers import refused
from small import SMALL, SOURCE, cell, suite

import fedbandit_jax as fb
from fedbandit_jax.benchmark import play as module
from fedbandit_jax.benchmark.entry import Entry
from fedbandit_jax.benchmark.row import DRAWS, Cell, Row, score
from fedbandit_jax.core.files import locked

ONE, TWO = (dataclasses.replace(SMALL, name=name) for name in ("one", "two"))


@pytest.fixture
def entry(tmp_path):
    (tmp_path / "mine.py").write_text(SOURCE)
    return str(tmp_path / "mine.py")


@pytest.fixture(scope="module")
def row(tmp_path_factory):
    """The row of greedy play in the small task."""
    path = tmp_path_factory.mktemp("entry") / "mine.py"
    path.write_text(SOURCE)
    with pytest.MonkeyPatch.context() as patch:
        suite(patch)
        return fb.benchmark.run(path)


def cells_of(row, **changes):
    """A row with other numbers in its cell."""
    return dataclasses.replace(row, cells={"small": dataclasses.replace(row.cells["small"], **changes)})


def test_score_by_hand():
    for regret, expected in ((10.0, 1.0), (1000.0, 0.0), (100.0, 0.5), (10_000.0, -0.5), (1e-9, 1.0)):
        assert cell(regret).score == pytest.approx(expected)
    assert cell(100.0, refused="why").score == 0.0
    assert cell(100.0, refused="why").unchecked == pytest.approx(0.5)


def test_error_is_that_of_ratios_of_means():
    """Against the delta method, for regrets that go together."""
    rng = np.random.default_rng(0)
    common = 1 + 0.1 * rng.standard_normal(16)
    regret = 100 * common * (1 + 0.05 * rng.standard_normal(16))
    one = dataclasses.replace(cell(1.0), regret=regret, uniform=1000 * common, reference=10 * common)
    relative = np.array([getattr(one, k) / getattr(one, k).mean() for k in ("regret", "uniform", "reference")])
    up = np.log(one.uniform.mean() / one.regret.mean())
    down = np.log(one.uniform.mean() / one.reference.mean())
    influence = (relative[1] - relative[0]) / down - up / down**2 * (relative[1] - relative[2])
    assert one.error == pytest.approx(influence.std() / 4, rel=0.1)
    assert one.draws().shape == (DRAWS,)
    assert cell(100.0).error == pytest.approx(0, abs=1e-12)


def test_interval_covers(row):
    """The 95 % interval of a mean over three tasks has the true one in it, in most of 300 rows."""
    rng, hits = np.random.default_rng(1), 0
    true = np.mean([float(score(r, 1000.0, 10.0)) for r in (20, 50, 200)])
    for _ in range(300):
        cells = {
            str(r): dataclasses.replace(cell(1.0), digest=f"{int(r):064x}", regret=r * rng.gamma(10, 0.1, 16))
            for r in (20, 50, 200)
        }
        low, high = dataclasses.replace(row, cells=cells).interval
        hits += low <= true <= high
    assert 0.88 <= hits / 300 <= 0.99


def test_a_row_by_hand(row):
    """Regrets are those of `fb.simulate` under the key that the code decides."""
    algo = fb.algos.Federated(policy=fb.algos.Greedy(), schedule=SMALL.batch, privacy=SMALL.mechanism())
    own = fb.simulate(SMALL.env, algo, horizon=60, key=SMALL.key(row.digest), seeds=16, stride=60)
    one = row.cells["small"]
    np.testing.assert_allclose(one.regret, own.regret[:, -1], rtol=1e-5)
    np.testing.assert_array_equal(one.syncs, own.communication["rounds"][:, -1])
    np.testing.assert_allclose(one.bits, own.communication["bits"][:, -1] / 4)
    assert (one.certificate, one.refused) == (own.certificate, "")
    assert row.score == one.score == pytest.approx(score(one.regret.mean(), one.uniform.mean(), one.reference.mean()))
    expected = 60 * 4 * 0.3  # uniform play loses about this much a round in such worlds
    assert 0.5 * expected < one.uniform.mean() < 2 * expected


def test_seeds_are_decided_by_the_code(entry):
    one = Entry.of(entry)
    keys = [SMALL.key(one.digest), SMALL.key(Entry.read(SOURCE + "# a comment\n", "recipe", "mine").digest)]
    keys += [SMALL.key(one.digest, "nonce"), ONE.key(one.digest)]
    assert len({tuple(jax.random.key_data(key).tolist()) for key in keys}) == 4
    assert Entry.read(SOURCE, "recipe", "another name").digest == one.digest
    assert Entry.of(f"{entry}:slip").digest != one.digest
    changed = [dict(epsilon=4.0), dict(delta=1e-5), dict(horizon=61), dict(max_syncs=9), dict(trusted=("silo",))]
    changed += [dict(unit="visit"), dict(make=lambda: fb.envs.sphere(4, 4, 2))]
    digests = {dataclasses.replace(SMALL, **change).digest for change in changed}
    assert len(digests | {SMALL.digest}) == len(changed) + 1


def test_development_seeds_are_the_same_for_all(monkeypatch, row, capsys):
    """What is done is told as it is done; what talks too often does not count."""
    suite(monkeypatch, small=dataclasses.replace(SMALL, max_syncs=5, reference=lambda task: SMALL.reference(SMALL)))
    texts = (SOURCE.replace("task.batch", str(SMALL.batch)) + end for end in ("", "# another text\n"))
    one, two = (fb.benchmark.run(Entry.read(text, "recipe", "mine"), develop=True, progress=True) for text in texts)
    np.testing.assert_array_equal(one.cells["small"].uniform, two.cells["small"].uniform)
    assert (one.cells["small"].uniform != row.cells["small"].uniform).any()
    assert two.cells["small"].refused.startswith("it communicates 10 times, the task allows 5")
    assert f"small           {one.cells['small']}\n" in capsys.readouterr().err


def test_a_file_keeps_everything(row, tmp_path):
    read = Row.load(row.save(tmp_path / "row.npz"))
    for name in ("name", "about", "function", "source", "digest", "track", "trials", "nonce", "score", "interval"):
        assert getattr(read, name) == getattr(row, name)
    for field in dataclasses.fields(Cell):
        one, two = (getattr(each.cells["small"], field.name) for each in (read, row))
        np.testing.assert_equal(one, two)
    data = bytearray((tmp_path / "row.npz").read_bytes())
    data[100] ^= 1
    (tmp_path / "row.npz").write_bytes(data)
    for name, why in (("row.npz", "it is damaged"), ("none.npz", "No such file")):
        with pytest.raises(ValueError, match=f"{name}': {why}"):
            Row.load(tmp_path / name)


def test_goes_on_from_what_is_there(monkeypatch, entry, tmp_path, row):
    """After a stop only what is missing is played; after a change of the file nothing, and the old row is kept."""
    played = []

    def spy(task, *given):
        played.append(task.name)
        if played == ["one", "two"]:
            raise KeyboardInterrupt
        return dataclasses.replace(row.cells["small"], task=task.name, digest=task.digest)

    def run(**more):
        return fb.benchmark.run(entry, out=tmp_path, **more)

    monkeypatch.setattr(module, "played", spy)
    suite(monkeypatch, one=ONE, two=TWO)
    with locked(tmp_path / ".mine", "", ""), refused("name", "mine"):
        run()
    with pytest.raises(KeyboardInterrupt):
        run()
    assert list(Row.load(tmp_path / "mine.npz").cells) == ["one"]
    assert list(run().cells) == list(Row.load(tmp_path / "mine.npz").cells) == ["one", "two"]
    assert list(run(tasks=["two"]).cells) == ["two"]
    assert played == ["one", "two", "two"]
    run(tasks=["two"], trials=9)  # a declaration changes no seeds
    assert Row.load(tmp_path / "mine.npz").trials == 9
    assert len(played) == 3
    Path(entry).write_text(SOURCE + "#\n")
    with refused("out"):
        run(tasks=["two"])
    assert len(played) == 3
    assert list(Row.load(tmp_path / "mine.npz").cells) == ["one", "two"]


def test_verify(row, tmp_path, monkeypatch):
    suite(monkeypatch)
    found = fb.benchmark.verify(row, out=tmp_path)
    again = found.again
    assert (again.cells["small"].regret != row.cells["small"].regret).any()
    assert again.nonce == Row.load(tmp_path / "mine.checked.npz").nonce != ""
    apart = abs(again.score - row.score) / np.hypot(again.error, row.error)
    assert f"{row.score:.3f}  {row.error:.3f}  {again.score:.3f}  {again.error:.3f}" in str(found)
    assert bool(found.far) == (apart > 3)
    other = dataclasses.replace(row, cells={"other": row.cells["small"]})
    for wrong, argument in ((other, "tasks"), ("mine.npz", "row")):
        with refused(argument):
            fb.benchmark.verify(wrong, tasks=["small"])
    bad, refusal = cells_of(row, regret=row.cells["small"].regret * 3), cells_of(row, refused="why")
    found = fb.benchmark.Verdict(row, bad)
    assert (found.far, str(found).splitlines()[-1]) == (("small", "mean"), "not repeated: small, mean")
    assert "small" in fb.benchmark.Verdict(row, refusal).far
    assert "refused: why" in str(fb.benchmark.Verdict(row, refusal))
    assert fb.benchmark.Verdict(row, row).far == ()


def test_one_silo_of_all_users_is_a_trusted_server(entry):
    """Where users come one at a time, who adds up all of them in one place trusts more than a silo."""
    arrivals = dataclasses.replace(
        SMALL, family="clusters", make=lambda: fb.envs.clustered(6, 1, 1, n_arms=4, dim=3), unit="visit"
    )
    assert "trusted server" in module._recipe(arrivals, Entry.of(entry))
    printed = fb.algos.homo_dc(fb.privacy.Budget(5.0, 1e-4), trigger="count").certificate(arrivals.spec, 60)
    assert arrivals.refusal(printed, 0, 0).startswith("users must trust server")


def test_silos_talk_along_the_edges_of_the_task():
    """Whoever lets all silos talk to each other has another task than the ring."""
    task = fb.benchmark.TASKS["ring"]
    algo = fb.algos.Gossip(graph=task.graph, schedule=task.batch, privacy=task.mechanism())

    def found(graph):
        return module._recipe(task, Entry("", "", "", lambda task: algo.replace(graph=graph)))

    assert isinstance(found(nx.Graph(list(task.graph.edges)[::-1])), fb.algos.Gossip)
    for graph in (nx.complete_graph(20), nx.relabel_nodes(task.graph, {0: 1, 1: 0})):
        assert found(graph).startswith("its graph is not the task's")


@pytest.mark.parametrize(
    ("argument", "file", "options"),
    [
        *(("entry", wrong, {}) for wrong in ("none.py:recipe", "FILE:missing", "FILE:SMALL", "FILE:wrong", 7)),
        ("entry's recipe", Entry("mine", "recipe", "", 5), {}),  # pyright: ignore[reportArgumentType]
        *(("tasks", "FILE", {"tasks": wrong}) for wrong in (["sphere"], [])),
        *(("name", "FILE", {"name": wrong}) for wrong in ("../mine", "")),
        *(("trials", "FILE", wrong) for wrong in ({"trials": -1}, {"track": "tuned"})),
        *(("out", "FILE", wrong) for wrong in ({"out": 5}, {"develop": True, "out": "rows"})),
        ("track", "FILE", {"track": "mine"}),
    ],
)
def test_what_cannot_be_run_is_refused(monkeypatch, entry, argument, file, options):
    suite(monkeypatch)
    with refused(argument):
        fb.benchmark.run(file.replace("FILE", entry) if isinstance(file, str) else file, **options)


def test_missing_data_are_told_before_anything_is_played(monkeypatch, entry, tmp_path):
    def make():
        raise ImportError("install the extra examples")

    suite(monkeypatch, small=SMALL, real=dataclasses.replace(SMALL, name="real", make=make))
    with pytest.raises(ImportError, match="'real': install the extra examples; all others are small$"):
        fb.benchmark.run(entry, out=tmp_path)
    with refused("entry"):  # before any data
        fb.benchmark.run(str(tmp_path / "none.py"))
    assert not list(tmp_path.glob("*.npz"))
    assert [task.name for task in module.tasks_of(["small"])] == ["small"]


def test_an_error_ends_its_task_only(monkeypatch, entry, row):
    """It is told with its line before anything is played, and other tasks go on."""
    order, recipe = [], module._recipe

    def played(task, algo, *given):
        order.append(task.name)
        return dataclasses.replace(row.cells["small"], task=task.name, refused=algo if isinstance(algo, str) else "")

    monkeypatch.setattr(module, "played", played)
    monkeypatch.setattr(module, "_recipe", lambda *given: order.append("asked") or recipe(*given))
    suite(monkeypatch, two=TWO, one=ONE)
    row = fb.benchmark.run(f"{entry}:slip")
    assert list(row.cells) == ["two", "one"]
    assert order == ["asked", "asked", "one", "two"]  # what is refused comes first
    line = SOURCE.splitlines().index("        return task.nonsense") + 1
    said = row.cells["one"].refused
    assert said.startswith("its recipe was refused: AttributeError: ")
    assert said.endswith(f"(mine.py, line {line})")
    with pytest.raises(AttributeError) as error:
        Entry.of(f"{entry}:slip").recipe(ONE)
    assert "return task.nonsense" in "".join(traceback.format_exception(error.value))
    assert str(row.cells["one"]) == f"counts as uniform play: {said}"
    assert str(row.cells["two"]) == f"S = {row.cells['two'].score:.3f} +- {row.cells['two'].error:.3f}"


def test_an_error_while_it_plays(monkeypatch, entry):
    suite(monkeypatch)
    found = fb.benchmark.run(f"{entry}:late").cells["small"]
    line = SOURCE.splitlines().index("        return contexts @ belief[:2]") + 1
    assert found.refused.startswith(("it failed: ", "its recipe was refused: "))
    assert found.refused.endswith(f"(mine.py, line {line})")
    assert np.isnan(found.unchecked)
