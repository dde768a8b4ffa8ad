"""Rows: what is run, on which seeds, what counts, and what is kept."""

import dataclasses
import re
import subprocess
import sys
import traceback
from pathlib import Path

import jax
import networkx as nx
import numpy as np
import pytest
from small import SMALL, SOURCE, suite

import fedbandit_jax as fb
from fedbandit_jax.benchmark import board
from fedbandit_jax.benchmark import play as module
from fedbandit_jax.benchmark.entry import Entry
from fedbandit_jax.benchmark.row import DRAWS, Cell, Row, score
from fedbandit_jax.core.files import locked

ENTRIES = Path(__file__).parents[2] / "experiments" / "entries"


@pytest.fixture
def entry(tmp_path):
    (tmp_path / "mine.py").write_text(SOURCE)
    return str(tmp_path / "mine.py")


@pytest.fixture
def row(monkeypatch, entry):
    suite(monkeypatch)
    return fb.benchmark.run(entry)


def cell(regret, uniform=1000.0, reference=10.0, **more):
    arrays = {"regret": regret, "uniform": uniform, "reference": reference, "syncs": 3, "bits": 100}
    return Cell(task="t", digest="0a" * 32, **{k: np.full(16, v, float) for k, v in arrays.items()}, **more)


def test_score_by_hand():
    assert cell(10.0).score == pytest.approx(1.0)
    assert cell(1000.0).score == pytest.approx(0.0)
    assert cell(100.0).score == pytest.approx(0.5)
    assert cell(10_000.0).score == pytest.approx(-0.5)
    assert cell(100.0, refused="why").score == 0.0
    assert cell(100.0, refused="why").unchecked == pytest.approx(0.5)


def test_error_is_that_of_ratios_of_means():
    """Against the delta method, for regrets that go together."""
    rng = np.random.default_rng(0)
    common = 1 + 0.1 * rng.standard_normal(16)
    one = dataclasses.replace(cell(1.0), regret=100 * common * (1 + 0.05 * rng.standard_normal(16)),
                              uniform=1000 * common, reference=10 * common)  # fmt: skip
    relative = np.array([getattr(one, k) / getattr(one, k).mean() for k in ("regret", "uniform", "reference")])
    up = np.log(one.uniform.mean() / one.regret.mean())
    down = np.log(one.uniform.mean() / one.reference.mean())
    influence = (relative[1] - relative[0]) / down - up / down**2 * (relative[1] - relative[2])
    assert one.error == pytest.approx(influence.std() / 4, rel=0.1)
    assert one.draws().shape == (DRAWS,)
    assert cell(100.0).error == pytest.approx(0, abs=1e-12)


def test_interval_covers():
    """The 95 % interval of a mean over three tasks has the true one in it, in most of 300 rows."""
    rng, hits = np.random.default_rng(1), 0
    true = np.mean([float(score(r, 1000.0, 10.0)) for r in (20, 50, 200)])
    for _ in range(300):
        cells = {
            str(r): dataclasses.replace(cell(1.0), digest=f"{int(r):064x}", regret=r * rng.gamma(10, 0.1, 16))
            for r in (20, 50, 200)
        }
        low, high = Row(
            name="r", about="", function="f", source="", digest="", track="", trials=0, cells=cells
        ).interval
        hits += low <= true <= high
    assert 0.88 <= hits / 300 <= 0.99


def test_a_row_by_hand(row):
    """Regrets are those of `fb.simulate` under the key that the code decides."""
    key = SMALL.key(row.digest)
    algo = fb.algos.Federated(policy=fb.algos.Greedy(), schedule=SMALL.batch, privacy=SMALL.mechanism())
    own = fb.simulate(SMALL.env, algo, horizon=60, key=key, seeds=16)
    one = row.cells["small"]
    np.testing.assert_allclose(one.regret, own.regret[:, -1], rtol=1e-5)
    np.testing.assert_array_equal(one.syncs, own.communication["rounds"][:, -1])
    np.testing.assert_allclose(one.bits, own.communication["bits"][:, -1] / 4)
    assert one.certificate == own.certificate
    assert one.refused == ""
    assert row.score == one.score == pytest.approx(score(one.regret.mean(), one.uniform.mean(), one.reference.mean()))
    expected = 60 * 4 * 0.3  # uniform play loses about this much a round in such worlds
    assert 0.5 * expected < one.uniform.mean() < 2 * expected


@pytest.mark.parametrize(
    ("function", "why"),
    [
        ("open_play", "claim none"),
        ("often", "it communicates 60 times, the task allows 10"),
        ("nothing", "it has no recipe for this task"),
        ("refused", "its recipe was refused: not this one"),
    ],
)
def test_what_does_not_count(monkeypatch, entry, function, why):
    suite(monkeypatch)
    found = fb.benchmark.run(f"{entry}:{function}").cells["small"]
    assert found.refused.startswith(why)
    assert found.score == 0
    assert found.error == 0


def test_seeds_are_decided_by_the_code(entry):
    one = Entry.of(entry)
    keys = [SMALL.key(one.digest), SMALL.key(Entry.read(SOURCE + "# a comment\n", "recipe", "mine").digest),
            SMALL.key(one.digest, "nonce"), dataclasses.replace(SMALL, name="other").key(one.digest)]  # fmt: skip
    assert len({tuple(jax.random.key_data(key).tolist()) for key in keys}) == 4
    assert Entry.read(SOURCE, "recipe", "another name").digest == one.digest
    assert Entry.of(f"{entry}:often").digest != one.digest
    changed = [dict(epsilon=4.0), dict(delta=1e-5), dict(horizon=61), dict(max_syncs=9), dict(trusted=("silo",)),
               dict(unit="visit"), dict(make=lambda: fb.envs.sphere(4, 4, 2))]  # fmt: skip
    digests = {dataclasses.replace(SMALL, **change).digest for change in changed}
    assert len(digests | {SMALL.digest}) == len(changed) + 1


def test_development_seeds_are_the_same_for_all(monkeypatch, entry):
    suite(monkeypatch)
    one, two = (fb.benchmark.run(f"{entry}:{function}", develop=True) for function in ("recipe", "often"))
    test = fb.benchmark.run(entry)
    np.testing.assert_array_equal(one.cells["small"].uniform, two.cells["small"].uniform)
    assert (one.cells["small"].uniform != test.cells["small"].uniform).any()


def test_a_file_keeps_everything(row, tmp_path):
    read = Row.load(row.save(tmp_path / "row.npz"))
    for name in ("name", "about", "function", "source", "digest", "track", "trials", "nonce", "score", "interval"):
        assert getattr(read, name) == getattr(row, name)
    one, two = read.cells["small"], row.cells["small"]
    for field in dataclasses.fields(Cell):
        np.testing.assert_equal(getattr(one, field.name), getattr(two, field.name))
    data = bytearray((tmp_path / "row.npz").read_bytes())
    data[100] ^= 1
    (tmp_path / "row.npz").write_bytes(data)
    with pytest.raises(ValueError, match=r"path must be a row of the benchmark, got '.*row.npz': it was damaged"):
        Row.load(tmp_path / "row.npz")
    with pytest.raises(ValueError, match="path must be a row of the benchmark, got '.*none.npz': No such file"):
        Row.load(tmp_path / "none.npz")


def test_goes_on_from_what_is_there(monkeypatch, entry, tmp_path):
    """After a stop only what is missing is played; after a change of the file, all of it."""
    played, real = [], module.played

    def spy(task, *given):
        played.append(task.name)
        if played == ["one", "two"]:
            raise KeyboardInterrupt
        return real(task, *given)

    monkeypatch.setattr(module, "played", spy)
    suite(monkeypatch, one=dataclasses.replace(SMALL, name="one"), two=dataclasses.replace(SMALL, name="two"))
    with pytest.raises(KeyboardInterrupt):
        fb.benchmark.run(entry, out=tmp_path)
    assert list(Row.load(tmp_path / "mine.npz").cells) == ["one"]
    row = fb.benchmark.run(entry, out=tmp_path)
    assert played == ["one", "two", "two"]
    assert list(row.cells) == list(Row.load(tmp_path / "mine.npz").cells) == ["one", "two"]
    assert list(fb.benchmark.run(entry, out=tmp_path, tasks=["two"]).cells) == ["two"]
    assert len(played) == 3
    Path(entry).write_text(SOURCE + "#\n")
    with pytest.warns(UserWarning, match="is of another text of the entry: it is .*mine.before now"):
        fb.benchmark.run(entry, out=tmp_path, tasks=["two"])
    assert played[3:] == ["two"]
    assert list(Row.load(tmp_path / "mine.before").cells) == ["one", "two"]  # what was computed is not lost
    fb.benchmark.run(entry, out=tmp_path, tasks=["two"], trials=9)  # a declaration changes no seeds
    assert len(played) == 4
    assert Row.load(tmp_path / "mine.npz").trials == 9
    Path(entry).write_text(SOURCE + "##\n")
    with pytest.warns(UserWarning, match="it is .*mine.before1 now"):
        fb.benchmark.run(entry, out=tmp_path, tasks=["two"])
    assert list(Row.load(tmp_path / "mine.before").cells) == ["one", "two"]


def test_one_run_at_a_time_writes_a_row(entry, tmp_path):
    lock = locked(tmp_path / ".mine.lock", "held", otherwise="wait")
    with lock, pytest.raises(ValueError, match="name must be that of one run at a time, got 'mine', which is being"):
        fb.benchmark.run(entry, out=tmp_path)


def test_what_was_kept_is_never_written_over(tmp_path, row):
    row.save(tmp_path / "a.npz")
    (tmp_path / "a.before1").write_text("kept")
    for name in ("a.before", "a.before2"):
        row.save(tmp_path / "a.npz")
        with pytest.warns(UserWarning, match=f"it is .*{name} now"):
            module._done(tmp_path / "a.npz", dataclasses.replace(row, digest="another"))
    assert (tmp_path / "a.before1").read_text() == "kept"


def test_rows_with_brackets_in_their_names_are_kept(tmp_path, row):
    """A name is no pattern of files."""
    for number in range(3):
        row.save(tmp_path / "a[1].npz")
        with pytest.warns(UserWarning, match="is of another text of the entry"):
            module._done(tmp_path / "a[1].npz", dataclasses.replace(row, digest="another"))
        assert len(list(tmp_path.glob("a*"))) == number + 1


def test_verify(row, tmp_path):
    found = fb.benchmark.verify(row, out=tmp_path)
    again = found.again
    assert (again.cells["small"].regret != row.cells["small"].regret).any()
    assert again.nonce
    assert Row.load(tmp_path / "mine.checked.npz").nonce == again.nonce
    apart = abs(again.score - row.score) / np.hypot(again.error, row.error)
    assert f"{apart:5.1f} standard errors apart" in str(found)
    assert bool(found.far) == (apart > 3)


def test_only_rows_are_repeated():
    with pytest.raises(TypeError, match=r"row must be an fb.benchmark.Row, .* got 'mine.npz'"):
        fb.benchmark.verify("mine.npz")


def test_only_tasks_of_a_row_are_repeated(row):
    with pytest.raises(ValueError, match="tasks must be some of the row's, other, got 'small'"):
        fb.benchmark.verify(dataclasses.replace(row, cells={"other": row.cells["small"]}), tasks=["small"])


def test_one_silo_of_all_users_is_a_trusted_server(monkeypatch, tmp_path):
    """Where users come one at a time, who adds up all of them in one place trusts more than a silo."""
    (tmp_path / "mine.py").write_text(SOURCE)
    arrivals = dataclasses.replace(
        SMALL, family="clusters", make=lambda: fb.envs.clustered(6, 1, 1, n_arms=4, dim=3), unit="visit",
        trusted=("nobody", "silo"), reference=lambda task: fb.algos.Grouped(),
    )  # fmt: skip
    suite(monkeypatch, small=arrivals)
    found = fb.benchmark.run(tmp_path / "mine.py").cells["small"]
    assert found.refused.startswith("it has one silo of all users, which is a trusted server")
    printed = fb.algos.homo_dc(fb.privacy.Budget(5.0, 1e-4), trigger="count").certificate(arrivals.spec, 60)
    assert arrivals.refusal(printed, 0, 0) == "its only server is trusted with the data of all users"


def test_silos_talk_along_the_edges_of_the_task():
    """Whoever lets all silos talk to each other has another task than the ring."""
    task = fb.benchmark.load("ring")
    algo = fb.algos.Gossip(graph=task.graph, schedule=task.batch, privacy=task.mechanism())

    def found(graph):
        return module._recipe(task, Entry("", "", "", lambda task: algo.replace(graph=graph)))

    assert isinstance(found(nx.Graph(list(task.graph.edges)[::-1])), fb.algos.Gossip)
    for graph in (nx.complete_graph(20), nx.relabel_nodes(task.graph, {0: 1, 1: 0})):
        assert found(graph) == "its graph is not the task's: use fb.algos.Gossip(graph=task.graph, ...)"


def test_what_is_too_good_is_not_repeated(row):
    forged = dataclasses.replace(row.cells["small"], regret=row.cells["small"].regret / 3)
    found = fb.benchmark.Verdict(dataclasses.replace(row, cells={"small": forged}), row)
    assert found.far == ("small", "mean")
    assert str(found).endswith("not repeated: small, mean")
    refused = dataclasses.replace(row, cells={"small": dataclasses.replace(row.cells["small"], refused="why")})
    assert "small" in fb.benchmark.Verdict(row, refused).far
    assert "refused: why" in str(fb.benchmark.Verdict(row, refused))
    assert fb.benchmark.Verdict(row, row).far == ()
    assert str(fb.benchmark.Verdict(row, row)).endswith("repeated: all within 3 standard errors")


@pytest.mark.parametrize(
    ("entry", "options", "message"),
    [
        ("none.py:recipe", {}, "entry must be FILE.py or FILE.py:FUNCTION, got 'none.py:recipe'"),
        ("FILE:missing", {}, "entry must name a function of the file, got 'missing', but it has recipe, open_play"),
        (7, {}, "entry must be a function, or a path such as 'mine.py:recipe', got 7"),
        ("FILE", {"tasks": ["sphere"]}, "tasks must be one of 'small', got 'sphere'"),
        ("FILE", {"tasks": []}, "tasks must name at least one task, got none"),
        ("FILE", {"track": "mine"}, "track must be one of 'one recipe', 'tuned', got 'mine'"),
        ("FILE", {"track": "tuned"}, "trials must be > 0 in the track 'tuned', got 0"),
        ("FILE", {"trials": -1}, "trials must be >= 0, got -1"),
        ("FILE", {"develop": True, "out": "rows"}, "out must be None on development seeds"),
        ("FILE", {"name": "../mine"}, "name must be a name for a file, without a folder, got '../mine'"),
        ("FILE", {"name": 5}, "name must be a name for a file, got 5"),
        ("FILE:wrong", {}, "entry must return an fb.Algorithm or None, got 7 for small"),
    ],
)
def test_errors(monkeypatch, entry, options, message, tmp_path):
    suite(monkeypatch)
    (tmp_path / "mine.py").write_text(SOURCE)
    entry = entry.replace("FILE", str(tmp_path / "mine.py")) if isinstance(entry, str) else entry
    with pytest.raises((ValueError, TypeError)) as error:
        fb.benchmark.run(entry, **options)
    assert str(error.value).startswith(message)


def test_shipped_rows_are_of_the_entries_beside_the_figures():
    """Every entry has its row, of this code and of these tasks, and no other has one."""
    rows = {row.name: row for row in board.rows()}
    assert sorted(rows) == sorted(path.stem for path in ENTRIES.glob("*.py"))
    for name, row in rows.items():
        assert row.source == (ENTRIES / f"{name}.py").read_text(), (
            f"{name}.py has changed: python experiments/benchmark.py"
        )
        assert {task: cell.digest for task, cell in row.cells.items()} == {
            task: one.digest for task, one in fb.benchmark.TASKS.items()
        }
        assert all(cell.certificate.claim == "certified" for cell in row.cells.values() if not cell.refused)


def test_no_baseline_is_at_the_ends():
    """In every task the best row leaves room, and somebody is clearly better than uniform play."""
    rows = board.rows()
    for name in fb.benchmark.TASKS:
        best = max(row.cells[name].score for row in rows)
        assert 0.3 < best < 1.02, name


def test_the_shortest_entry_is_short():
    lines = (ENTRIES / "private_fed_lin_ucb.py").read_text().splitlines()
    assert len(lines) <= 15


@pytest.mark.slow
def test_rows_are_read_without_compiling(tmp_path):
    code = "from fedbandit_jax.benchmark import board\nprint(len(board.rows()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) > 10


def test_data_that_are_missing_are_missed_at_once(monkeypatch, entry, tmp_path):
    def make():
        raise ImportError("install the extra examples")

    suite(monkeypatch, small=SMALL, real=dataclasses.replace(SMALL, name="real", make=make))
    with pytest.raises(
        ImportError, match="tasks must be those whose data are installed, got 'real': install the extra"
    ):
        fb.benchmark.run(entry, out=tmp_path)
    with pytest.raises(ImportError, match=r"; all others are small$"):
        fb.benchmark.run(entry)
    with pytest.raises(ValueError, match="no such file"):  # before any data
        fb.benchmark.run(str(tmp_path / "none.py"))
    assert not list(tmp_path.glob("*.npz"))
    assert fb.benchmark.run(entry, tasks=["small"]).cells


PAGE = (Path(__file__).parents[2] / "docs" / "benchmark.md").read_text()


def test_numbers_of_the_page():
    """Tables of the page are those of the shipped rows, and leave out no entry and no task."""
    rows = {row.name: row for row in board.rows()}
    lines = [[cell.strip() for cell in line.strip("| ").split("|")] for line in PAGE.splitlines() if line[:2] == "| "]
    means = {cells[0]: cells[1:] for cells in lines if cells[0] in rows}
    assert set(means) == set(rows)
    for name, (mean, interval, count) in means.items():
        low, high = rows[name].interval
        assert mean == f"{rows[name].score:.3f}"
        assert interval == f"{low:.3f} to {high:.3f}"
        assert int(count) == sum(not cell.refused for cell in rows[name].cells.values())
    tasks = {cells[0]: cells[1:] for cells in lines if cells[0] in fb.benchmark.TASKS and len(cells) == 5}
    assert set(tasks) == set(fb.benchmark.TASKS)
    for task, groups in tasks.items():
        named = [cell.split(" ", 1) for cell in groups[:-1] if cell != "-"] + [["best", groups[-1]]]
        for name, numbers in named:
            cell = rows[name].cells[task]
            assert numbers == f"{cell.score:.3f} ± {cell.error:.3f}"
        assert max(row.cells[task].score for row in rows.values()) == max(
            rows[name].cells[task].score for name, _ in named
        )


def test_tasks_of_the_page():
    """Its table of tasks says what they are."""
    lines = [[cell.strip() for cell in line.strip("| ").split("|")] for line in PAGE.splitlines() if line[:2] == "| "]
    tasks = {cells[0]: cells[1:] for cells in lines if cells[0] in fb.benchmark.TASKS and len(cells) == 8}
    assert set(tasks) == set(fb.benchmark.TASKS)
    for name, (family, sizes, horizon, budget, trusted, unit, syncs) in tasks.items():
        task = fb.benchmark.TASKS[name]
        assert (family, trusted) == (task.family, ", ".join(task.trusted))
        assert sizes == ", ".join(f"{size:,}" for size in task.sizes)
        assert (horizon, budget) == (f"{task.horizon:,}", f"{task.epsilon:g}, {task.delta:g}")
        units = {"-": None, "a visit": "visit", "all visits": fb.privacy.Users(16, per_batch=1)}
        assert task.unit == units[unit]
        assert syncs == ("any" if task.max_syncs is None else f"{task.max_syncs:,}")


def test_the_example_of_the_page_is_an_entry():
    assert (ENTRIES / "private_fed_lin_ucb.py").read_text() in PAGE


@pytest.mark.parametrize("first", [pytest.param("", marks=pytest.mark.slow), "from __future__ import annotations\n\n"])
def test_a_policy_of_ones_own_is_an_entry(monkeypatch, tmp_path, first):
    """The page's example, with classes of its own; also where annotations are strings, and run again from its row."""
    (source,) = [block for block in re.findall(r"```python\n(.*?)```", PAGE, re.S) if "class Softmax" in block]
    docstring, rest = source.split("\n\n", 1)
    (tmp_path / "mine.py").write_text(f"{docstring}\n\n{first}{rest}")
    suite(monkeypatch)
    row = fb.benchmark.run(tmp_path / "mine.py")
    assert row.cells["small"].refused == ""
    assert row.cells["small"].certificate.claim == "certified"
    again = fb.benchmark.verify(row).again
    assert again.cells["small"].refused == ""


def test_the_entry_of_the_page_for_all_tasks():
    """It has a recipe for each, whose budget, trust, unit and number of synchronisations are the task's."""
    (source,) = [block for block in re.findall(r"```python\n(.*?)```", PAGE, re.S) if "for every task" in block]
    entry = Entry.read(source, "recipe", "defaults")
    for task in fb.benchmark.TASKS.values():
        algo = entry.recipe(task)
        assert algo is not None
        certificate = algo.certificate(task.spec, task.horizon)
        assert task.refusal(certificate, syncs=0, status=0) == "", task.name
        schedule = getattr(algo, "schedule", None)
        n_syncs = task.horizon // schedule if isinstance(schedule, int) else 0
        assert n_syncs <= min(task.max_syncs or 100, 100)


def test_an_error_ends_its_task_only(monkeypatch, entry, capsys):
    """It is told with its line before anything is played, and other tasks go on."""
    order, real, recipe = [], module.played, module._recipe
    monkeypatch.setattr(module, "played", lambda task, *given: order.append("played") or real(task, *given))
    monkeypatch.setattr(module, "_recipe", lambda *given: order.append("asked") or recipe(*given))
    suite(monkeypatch, two=dataclasses.replace(SMALL, name="two"), one=dataclasses.replace(SMALL, name="one"))
    row = fb.benchmark.run(f"{entry}:slip", progress=True)
    told = [line for line in capsys.readouterr().err.splitlines() if line.startswith(("one  ", "two  "))]
    assert [line.split(" ")[0] for line in told] == ["one", "two"]
    assert list(row.cells) == ["two", "one"]
    assert order == ["asked", "asked", "played", "played"]
    line = SOURCE.splitlines().index("        return task.nonsense") + 1
    said = f"its recipe was refused: AttributeError: 'Task' object has no attribute 'nonsense' (mine.py, line {line})"
    assert row.cells["one"].refused == said
    assert str(row.cells["one"]) == f"counts as uniform play: {said}"
    assert row.cells["two"].refused == ""
    assert str(row.cells["two"]) == f"S = {row.cells['two'].score:.3f} +- {row.cells['two'].error:.3f}"


def test_an_error_while_it_plays(monkeypatch, entry):
    suite(monkeypatch)
    found = fb.benchmark.run(f"{entry}:late").cells["small"]
    line = SOURCE.splitlines().index("        return contexts @ belief[:2]") + 1
    assert found.refused.startswith(("it failed: ", "its recipe was refused: "))
    assert found.refused.endswith(f"(mine.py, line {line})")
    assert np.isnan(found.unchecked)


def test_tasks_end_before_the_table(monkeypatch, entry, capsys):
    """What is done is told as it is done, so that a stop loses nothing, also on development seeds."""
    suite(monkeypatch)
    row = fb.benchmark.run(entry, develop=True, progress=True)
    assert f"small           {row.cells['small']}\n" in capsys.readouterr().err


def test_a_release_must_exist_where_another_one_is_used():
    dropout = dataclasses.replace(SMALL, make=lambda: fb.envs.dropout(fb.envs.sphere(4, 4, 3), 0.1))
    assert dropout.mechanism("blt").release == "input_perturbation"
    with pytest.raises(ValueError, match="release must be one of .*got 'blot'"):
        dropout.mechanism("blot")


def test_a_recipe_must_be_a_function(tmp_path):
    (tmp_path / "mine.py").write_text("import functools\nrecipe = functools.partial(int, 3)\n")
    with pytest.raises(ValueError, match="entry must name a function of the file, got 'recipe'"):
        Entry.of(tmp_path / "mine.py")


def test_an_error_shows_its_line(tmp_path):
    (tmp_path / "mine.py").write_text("def recipe(task):\n    return task.nonsense\n")
    with pytest.raises(AttributeError) as error:
        Entry.of(tmp_path / "mine.py").recipe(SMALL)
    assert "return task.nonsense" in "".join(traceback.format_exception(error.value))
