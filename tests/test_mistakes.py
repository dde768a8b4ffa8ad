"""The one-line mistakes that `python tests/mutants.py` tries are places of the package, and tests that there are."""

import ast

import pytest
from mutants import PACKAGE, TESTS, mistakes
from patterns import anchors, mutated, read

ALL = list(mistakes())
SMALL = """
def area(width, height=3):
    return round(width * height) + round(2 * width)  # of both


class Box:
    depth: int = 4

    def area(self):
        return f"{self.depth:.3f}"
"""


KNOWN = anchors({"a/b.py": SMALL})


@pytest.mark.parametrize(
    ("anchor", "change", "old", "new"),
    [
        ("area", "A * B -> A # 1/2", "width * height", "width"),
        ("area", "2 * A -> A - 2", "2 * width", "(width - 2)"),
        ("b.py:area", "3 -> 4", "=3", "=4"),
        ("Box.depth", "4 -> 5", "= 4", "= 5"),
        ("Box.area", "f'{A:.3f}' -> f'{A:.2f}'", "3f", "2f"),
        ("area", "round(A * B) + C -> -C", "round(width * height) + round(2 * width)", "-round(2 * width)"),
    ],
)
def test_a_pattern_is_replaced_where_it_stands(anchor, change, old, new):
    """Whatever layout, comments and names that a letter covers are."""
    file, text = mutated(anchor, change, KNOWN)
    assert file == "a/b.py"
    assert ast.dump(ast.parse(text)) == ast.dump(ast.parse(SMALL.replace(old, new)))


@pytest.mark.parametrize(
    ("anchor", "change", "says"),
    [
        ("areas", "A -> 0", "areas must be in one file, not in none"),
        ("area", "A * B -> A", "must be 1 times in area, not 2 times"),
        ("area", "round(A) -> A # 1/3", "must be 3 times in area, not 2 times"),
        ("area", "A * B -> A * B # 1/2", "changes nothing"),
        ("Box", "A.B -> B", "must be 1 times in Box, not 0 times"),  # what is in an f-string counts as one
        ("area", "return A -> return B + A", "does not say what B is"),
        ("area", "A * B -> A * length # 1/2", "length is not a name of a/b.py"),
    ],
)
def test_what_is_not_there_is_told(anchor, change, says):
    with pytest.raises(ValueError, match=says):
        mutated(anchor, change, KNOWN)


def test_every_mistake_is_a_place_of_the_package():
    """Also renamed functions; no mistake is there twice, and all layers have some."""
    known, lost, rooms = anchors(read(TESTS.parent / PACKAGE)), [], set()
    for one in ALL:
        try:
            file, text = mutated(one.anchor, one.change, known)
            compile(text, one.what, "exec")
            rooms.add(file.partition("/")[0].removesuffix(".py"))
        except ValueError as error:
            lost.append(f"tests/mistakes/{one.layer}.txt, {one.anchor}: {one.what}: {error}")
    assert not lost, "\n".join(lost)
    assert len({(one.anchor, one.change) for one in ALL}) == len(ALL) >= 150
    assert rooms >= {"core", "interfaces", "privacy", "schedules", "algos", "envs", "data", "engine", "report", "cli"}


def test_tests_that_should_see_them_exist():
    lost = set()
    for one in ALL:
        for name, _, function in (test.partition("::") for test in one.tests):
            path = TESTS / name
            if not path.exists() or (f"def {function}(" not in path.read_text() and function):
                lost.add(f"tests/mistakes/{one.layer}.txt: {name}::{function}")
    assert not lost, "\n".join(sorted(lost))
