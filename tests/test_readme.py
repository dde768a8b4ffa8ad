"""The numbers, names and commands of README and docs are true (their Python runs as doctests)."""

import doctest
import math
import operator
import re
import runpy
import shlex
import tomllib
from pathlib import Path

import pytest
from helpers import AUTHORS
from scipy import stats

import fedbandit_jax as fb
from fedbandit_jax import cli
from fedbandit_jax.algos.clusters.pooling import Grouping
from fedbandit_jax.benchmark import board
from fedbandit_jax.cli import reproduce
from fedbandit_jax.privacy import Budget, calibrate
from fedbandit_jax.privacy.releases import RELEASES, make

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
README = PAGES[0].read_text()
PRIVACY, CODE = ((ROOT / "docs" / name).read_text() for name in ("privacy.md", "reproduction/zhou2024.md"))


def test_table_of_released_epsilons():
    rows = re.findall(r"^\| \(([\d.e-]+), ([\d.e-]+)\) \| (.*), (.*) \| (.*), (.*) \| (.*) \|$", CODE, re.M)
    assert len(rows) == 4
    for epsilon, delta, *cells in rows:
        budget = Budget(float(epsilon), float(delta))
        theorem, theorem_epsilon, released, released_epsilon, tight = (float(cell.strip("* ")) for cell in cells)
        authors = AUTHORS["silo_local"]
        for std, variance in (("theorem_5_1", theorem), (authors, released), (None, tight)):
            assert calibrate(budget, n_syncs=400, std=std).sigma ** 2 == pytest.approx(variance, rel=5e-4)
        for std, value in (("theorem_5_1", theorem_epsilon), (authors, released_epsilon)):
            exact = calibrate(budget, n_syncs=400, std=std).epsilon_exact
            assert exact == pytest.approx(value, abs=0.006 if value > 0.1 else 5e-4, rel=3e-3)


def test_numbers_of_the_readme():
    """They are on the page of Zhou & Chowdhury (2024) and in bench/RESULTS.md, which other tests compare with runs."""
    measured = (ROOT / "bench" / "RESULTS.md").read_text()
    (times,) = re.findall(r"mode A, 24 seeds: over numpy_vectorised +([\d.]+)", measured)
    for number in ("2.44", "11.9", f"{float(times):.0f}"):
        assert re.search(rf"(?<![\d.]){re.escape(number)}(?![\d.])", README)
    assert {"2.44", "11.9"} <= set(re.findall(r"\*\*([\d.]+)\*\* \|", CODE))
    assert len(README.splitlines()) <= 100


def test_the_picture_of_the_readme():
    """Its ratios are those of the picture's numbers, and so is what it says of the last points."""
    numbers = reproduce.numbers(ROOT / "experiments" / "figures" / "price.csv")
    regret = {(label, x): values for (_, label, x), values in numbers.items()}
    for name, quoted in zip(("tree noise", "width / 10"), re.findall(r"(\d+) times\s+less", README), strict=True):
        assert f"{regret[f'published, {name}', '1'].mean() / regret['greedy, less noise', '1'].mean():.0f}" == quoted
    secure, free = regret["secure aggregation", "10"], regret["not private", "0"]
    assert len(secure) == len(free) == 8
    assert abs(secure.mean() - free.mean()) < 2 * math.hypot(stats.sem(secure), stats.sem(free))


@pytest.mark.slow
def test_the_summary_of_the_readme():
    """Its example has the regrets of its table, to four standard errors of both draws, and its other columns."""
    (code,), (shown,) = (re.findall(rf"```{kind}\n(.*?)```", README, re.S)[:1] for kind in ("python", "text"))
    found: dict = {}
    for example in doctest.DocTestParser().get_examples(code):
        exec(example.source, found)
    again = found["result"].summary().splitlines()[: len(shown.splitlines())]
    assert again[0] == shown.splitlines()[0]
    for line, now in zip(shown.splitlines()[1:], again[1:], strict=True):
        (label, *cells), (name, *fresh) = (re.split(r"\s{2,}", one) for one in (line, now))
        assert label == name
        if label == "algorithm":
            assert cells == fresh
            continue
        (mean, error, _, *rest), (mean_now, error_now, _, *rest_now) = cells, fresh
        assert abs(float(mean) - float(mean_now)) < 4 * math.hypot(float(error), float(error_now))
        assert rest == rest_now


def test_table_of_shuffle_models():
    models = {"vector sum": "shuffle_vector_sum", "amplification": "shuffle_amplified"}
    printed = {"vector sum": "theorem_5_5", "amplification": "theorem_5_3"}
    stds = {name: (printed[name], AUTHORS[trust]) for name, trust in models.items()}
    row = r"^\| (vector sum|amplification), \(([\d.e-]+), ([\d.e-]+)\) \| (\S+) \| (\S+), (\S+) \| (\S+) \|$"
    rows = re.findall(row, CODE, re.M)
    assert len(rows) == 5
    for model, epsilon, delta, *cells in rows:
        common: dict = dict(n_syncs=400, trust=models[model], n_agents=100, batch=25, dim=10)
        theorem, released, gives, tight = (float(cell.strip("*")) for cell in cells)
        printed, authors = stds[model]
        for std, variance in ((printed, theorem), (authors, released), (None, tight)):
            c = calibrate(Budget(float(epsilon), float(delta)), std=std, **common)
            assert c.sigma**2 == pytest.approx(variance, rel=0.05 if std == printed else 4e-3)
            if std == authors:
                assert c.epsilon_exact == pytest.approx(gives, rel=4e-3, abs=1e-12)


def test_table_of_releases():
    """Largest prefix variance times squared sensitivity."""
    sizes = (16, 64, 400, 4096)
    rows = re.findall(r"^\| `(\w+)`" + r" \| ([\d.]+)" * len(sizes) + r" \| [^|,]*\|$", PRIVACY, re.M)
    assert [name for name, *_ in rows] == [*RELEASES]
    for name, *cells in rows:
        for n_syncs, cell in zip(sizes, cells):
            release = make(name, n_syncs)
            assert release.sensitivity_sq() * release.largest_variance() == pytest.approx(float(cell), rel=5e-3)


def test_table_of_costs():
    """What 10^12 agent-rounds take at a rate that was measured."""
    scaling, measured = (ROOT / "docs" / "scaling.md").read_text(), (ROOT / "bench" / "RESULTS.md").read_text()
    rows = re.findall(r"^\| [^|]+ \| ([\d,]+) \| ([\d.]+) (\w+) \| ([\d.,]+) \| ([\d.]+) (\w+) \|$", scaling, re.M)
    assert len(rows) == 9
    seconds_of = dict(days=86400, hours=3600, minutes=60, seconds=1)
    for rate, time, unit, core_hours, shared, shared_unit in rows:
        assert rate in measured
        seconds = 1e12 / int(rate.replace(",", ""))
        assert float(time) * seconds_of[unit] == pytest.approx(seconds, rel=5e-3)
        assert float(core_hours.replace(",", "")) * 3600 == pytest.approx(2 * seconds, rel=5e-3)
        assert float(shared) * seconds_of[shared_unit] == pytest.approx(seconds / 100, rel=5e-3)


def anchor(heading):
    """As GitHub makes it."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_a_page_names_exists(page):
    text = page.read_text()
    for link in re.findall(r"\]\((?!http)([^)]+)\)", text):
        path, _, section = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists() or target == ROOT / "docs" / "api.rst", link  # docs/conf.py writes it
        headings = re.findall(r"^#+ (.*)$", target.read_text(), re.M) if section else []
        assert not section or section in map(anchor, headings), link
    assert not re.search(r"!\[\s*\]", text), "a picture without words"
    for script in re.findall(r"python ((?:experiments|bench)/\w+\.py)", text):
        assert (ROOT / script).exists(), script
    for name in re.findall(r"\bfb\.((?:\w+\.)*\w+)", text):
        operator.attrgetter(name)(fb)
    for command in re.findall(r"`fedbandit ([^`]+)`", text):
        arguments = shlex.split(command.replace("FILE", "results/sphere.npz"))
        assert isinstance(cli.parse(arguments), cli.Command), command


def test_files_and_folders_of_the_map_exist():
    """Those of the package, named with their folder or without."""
    text = (ROOT / "docs" / "architecture.md").read_text() + (ROOT / "CONTRIBUTING.md").read_text()
    package = [path.relative_to(ROOT / "fedbandit_jax") for path in (ROOT / "fedbandit_jax").rglob("*")]
    there = {"/".join(path.parts[i:]) for path in package for i in range(len(path.parts))}
    named = set(re.findall(r"(?<![\w/.*])(?:[a-z_]+/)*[a-z_]+\.py\b|(?<![\w/.])(?:[a-z_]+/)+(?=[ ,;:)`])", text))
    assert len(named) > 40
    lost = {one for one in named if one.rstrip("/").removeprefix("fedbandit_jax/") not in there}
    assert not {one for one in lost if not (ROOT / one).exists()}


def test_one_version():
    """The package has the version, and a citation repeats it; ruff has one version in both places."""
    (cited,) = re.findall(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(), re.M)
    assert cited == fb.__version__
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "version" in project["project"]["dynamic"]
    assert project["tool"]["hatch"]["version"]["path"] == "fedbandit_jax/__init__.py"
    (hook,) = re.findall(r"ruff-pre-commit\n +rev: v(\S+)", (ROOT / ".pre-commit-config.yaml").read_text())
    assert f"ruff=={hook}" in project["project"]["optional-dependencies"]["dev"]


WORKFLOWS = [*(ROOT / ".ci").glob("*"), *(ROOT / ".github").rglob("*.yml"), ROOT / "pyproject.toml"]


def test_ci_finds_the_commands():
    for mark in ("# install and run the main job", "# install and run the tests"):
        assert README.count(f"\n{mark}\npip install") == 1
    named = [
        re.findall(r"(?:tests|docs|bench|experiments)/[\w/]+\.\w+", p.read_text()) for p in WORKFLOWS if p.is_file()
    ]
    assert not {one for some in named for one in some if not (ROOT / one).exists()}


DOCS = Path(__file__).parent.parent / "docs"


ZOO = runpy.run_path(str(DOCS / "zoo.py"))


def test_the_page_is_as_written_now():
    assert (DOCS / "zoo.md").read_text(encoding="utf-8") == ZOO["page"](), "python docs/zoo.py"


def test_letters_are_attributes():
    names = ZOO["instances"]()
    for card in ZOO["cards"]():
        algo = eval(card["code"], names)
        for paths in card.get("letters", {}).values():
            for path in paths.split(", "):
                one = algo
                for name in path.split("."):
                    assert hasattr(one, name), (card["title"], path)
                    one = getattr(one, name)


def test_nothing_is_left_out():
    code = " ".join(card["code"] for card in ZOO["cards"]())
    assert {name for name in fb.algos.ALGORITHMS.values() if f"fb.algos.{name.__name__}(" not in code} <= {
        fb.algos.AsyncFederated, fb.algos.LinUCB, fb.algos.homo}  # parts, and what a card beside them has  # fmt: skip
    played = {row.name for row in board.rows()}
    assert played - {name for card in ZOO["cards"]() for name in card.get("rows", ())} == {"async_greedy"}


def test_references_have_every_part():
    """Comments name the parts that an entry is cited for. Parts of ours are in the first comment, without an entry."""
    cited: dict[str, list[str]] = {}
    for block in (DOCS / "references.bib").read_text(encoding="utf-8").strip().split("\n\n"):
        comments, _, entry = block.partition("@")
        for part in comments.strip().rpartition("% ")[2].split(", "):
            cited.setdefault(part, []).extend(re.findall(r"{(\w+),", entry)[:1])
        assert entry.count("{") == entry.count("}")
        assert not entry or {"author", "title", "year"} <= set(re.findall(r"^  (\w+) *=", entry, re.M))
    rooms = (fb.algos, fb.privacy, fb.schedules, fb.envs)
    bases = (fb.privacy.Release, fb.privacy.Statistic, Grouping, fb.Policy, fb.Recipe, fb.schedules.Schedule)
    inner = (*bases, fb.privacy.Mechanism, fb.privacy.Users, fb.privacy.GaussianTrust, fb.privacy.Liars)
    classes = {name: one for room in rooms for name, one in vars(room).items() if isinstance(one, type)}
    parts = {name for name, one in classes.items() if one not in bases and issubclass(one, inner)}
    parts |= {one.__name__ for one in vars(fb.envs).values() if isinstance(one, type)}
    words = {*fb.privacy.RELEASES, *fb.privacy.AGGREGATES, *fb.privacy.TRUST}
    assert len(parts) > 45
    assert not {*parts, *words} - set(cited)
    sourced = {name for name in parts if re.search(r"^\s*Reference: (?!ours)", classes[name].__doc__ or "", re.M)}
    assert not {name for name in sourced if not cited[name]}
