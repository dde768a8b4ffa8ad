"""The zoo and references.bib agree with the code, and leave out no part."""

import importlib.util
import re
from pathlib import Path

import pytest

import fedbandit_jax as fb
from fedbandit_jax.algos.clusters.streams import Grouping
from fedbandit_jax.benchmark import board

DOCS = Path(__file__).parent.parent / "docs"


@pytest.fixture(scope="module")
def zoo():
    spec = importlib.util.spec_from_file_location("zoo", DOCS / "zoo.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_as_written_now(zoo):
    assert (DOCS / "zoo.md").read_text(encoding="utf-8") == zoo.page(), "python docs/zoo.py"


def test_letters_are_attributes(zoo):
    names = zoo.instances()
    for card in zoo.cards():
        algo = eval(card["code"], names)
        for paths in card.get("letters", {}).values():
            for path in paths.split(", "):
                one = algo
                for name in path.split("."):
                    assert hasattr(one, name), (card["title"], path)
                    one = getattr(one, name)


def test_nothing_is_left_out(zoo):
    code = " ".join(card["code"] for card in zoo.cards())
    assert {name for name in fb.algos.ALGORITHMS.values() if f"fb.algos.{name.__name__}(" not in code} <= {
        fb.algos.AsyncFederated, fb.algos.LinUCB, fb.algos.homo}  # parts, and what a card beside them has  # fmt: skip
    played = {row.name for row in board.rows()}
    assert played - {name for card in zoo.cards() for name in card.get("rows", ())} == {"async_greedy"}


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
