"""The zoo: cards agree with the code and the shipped rows, and leave out no algorithm and no row."""

import importlib.util
from pathlib import Path

import pytest

import fedbandit_jax as fb
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
