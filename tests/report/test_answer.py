"""The answer of `fedbandit simulate`: order, ratios, digits, and words for guarantees."""

from dataclasses import replace

import numpy as np
import pytest
from handmade import PLAIN, proved, swept

import fedbandit_jax as fb
from fedbandit_jax.certificate import no_privacy
from fedbandit_jax.report.answer import answer, overview

OPEN, FOREIGN = no_privacy("it adds no noise"), replace(no_privacy("its author says so"), user_defined=("Mine",))
WEAK = proved(1.0, claim="as_printed", reason="actions are fixed; for data that pass the mechanism: all is well")
FALSE, RAW = proved(1.0, claim="none", epsilon_exact=7.5), proved(1.0, claim="none", reason="raw data are read")
RAW = replace(RAW, epsilon_exact=np.inf)
CASES = {  # label -> final regret, certificate, ratio, privacy
    "UCB": (900.0, OPEN, "1.8", "not private"),
    "greedy": (500.0, OPEN, "1.0", "not private"),
    "mine": (800.0, FOREIGN, "1.6", "no claim"),
    "tree": (50_000.0, proved(1.0), "100", "certified"),
    "printed": (60_000.0, WEAK, "120", "weaker"),
    "forged": (600.0, FALSE, "1.2", "weaker"),
    "leaky": (700.0, RAW, "1.4", "no claim"),
    "uniform": (90_000.0, proved(0.0), "180", "uses no data"),
}


def rows(text):
    """Rows of the table by their first cell."""
    cells = [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in text.splitlines()]
    return {one[0].removesuffix(" (!)"): one[1:] for one in cells if one and one[0].removesuffix(" (!)") in CASES}


def result(**changes):
    points = {label: mean for label, (mean, *_) in CASES.items()}
    found = swept(points, certificates={label: one for label, (_, one, *_) in CASES.items()}, algos={"UCB": PLAIN})
    return replace(found, **changes)


def test_sorted_by_regret_with_ratio_and_guarantee():
    table = rows(answer(result()))
    assert list(table) == sorted(CASES, key=lambda label: CASES[label][0])
    for label, (_, _, ratio, privacy) in CASES.items():
        assert table[label][1] == ratio
        assert table[label][2].partition(" [")[0] == privacy


def test_what_does_not_hold_is_explained_once():
    lines = answer(result()).splitlines()
    notes = [line for line in lines if line.startswith("[")]
    assert len(notes) == 4
    assert "[4]" in notes[-1]
    assert "epsilon = 7.5" in "".join(lines)
    assert not any("all is well" in line for line in lines)
    assert len(lines) <= 35
    assert max(map(len, lines)) <= 80


def test_warnings_and_seeds_that_failed():
    weak = result(certificates=result().certificates | {"tree": proved(1.0, warning="delta is large")})
    assert "WARNING delta is large" in answer(weak)
    status = np.zeros((len(CASES), 3), int)
    status[3, 0] = fb.Status.NOT_FINITE
    assert "tree (!)" in answer(result(status=status))
    assert "NOT_FINITE" in answer(result(status=status))


def test_epsilon_is_a_column_if_it_varies():
    points = {f"tree(epsilon={e})": ({"algorithm": "tree", "epsilon": e}, 100 / e) for e in (0.5, 2.0)}
    text = answer(swept(points))
    first, second = [line.split() for line in text.splitlines() if line.startswith("tree")]
    assert (first[:2], second[:2]) == (["tree", "2"], ["tree", "0.5"])


@pytest.mark.parametrize("epsilons", [(1.0,), (0.5, 2.0)])
def test_the_picture_names_curves_at_their_ends(epsilons):
    many = len(epsilons) > 1
    points = {
        f"tree(epsilon={e})" if many else "tree": ({"algorithm": "tree", "epsilon": e}, 100 / e) for e in epsilons
    }
    points |= {"uniform play": 500.0, "greedy": 480.0}
    algos = {"uniform play": fb.algos.Uniform(), "greedy": PLAIN}
    ax = overview(swept(points, algos=algos, certificates={"greedy": OPEN})).axes[0]
    names = [text for text in ax.texts if text.get_text()]
    assert {text.get_text() for text in names} == {"tree", "uniform play", "greedy"}
    assert len({text.get_color() for text in names}) == 3
    (chance,) = {line.get_linestyle() for line in ax.lines if line.get_color() == "#999999"}
    assert chance == "-."
    ax.figure.draw_without_rendering()
    heights = sorted(text.get_window_extent().y0 for text in names)
    assert min(np.diff(heights)) > 0.9 * names[0].get_window_extent().height
