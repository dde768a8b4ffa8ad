"""What notebooks, dark styles and strange labels make of pictures and bars."""

import dataclasses
import html
import sys

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
from helpers import PLAIN, PRIVATE, One, sweep
from matplotlib.colors import to_rgb

import fedbandit_jax as fb
from fedbandit_jax.core.bars import bar
from fedbandit_jax.report.plotting.figure import svg


@pytest.fixture(scope="module")
def result():
    return sweep([PLAIN, PRIVATE])


def test_nothing_vanishes_in_dark_styles(result):
    with plt.style.context("dark_background"):
        figures = [fb.plotting.regret(result), fb.plotting.communication_frontier(result)]
        for figure in figures:
            (ax,) = figure.axes
            drawn = [line.get_color() for line in ax.lines if len(line.get_xdata())]
            assert drawn
            for colour in drawn:
                assert np.abs(np.subtract(to_rgb(colour), to_rgb(ax.get_facecolor()))).max() > 0.3
            plt.close(figure)


@pytest.mark.parametrize(("backend", "kept"), [("inline", 0), ("agg", 1)])
def test_a_notebook_draws_a_figure_once(result, monkeypatch, backend, kept):
    plt.close("all")
    monkeypatch.setattr(mpl, "get_backend", lambda: backend)
    fb.plotting.regret(result)
    assert len(plt.get_fignums()) == kept
    plt.close("all")


@pytest.mark.parametrize(
    ("progress", "terminal", "notebook", "shown"),
    [(None, False, False, False), (None, True, False, True), (None, False, True, True), (False, True, True, False)],
)
def test_a_bar_is_shown_where_somebody_looks_on(monkeypatch, progress, terminal, notebook, shown):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    if notebook:
        monkeypatch.setitem(sys.modules, "ipykernel", sys)
    assert bar(progress, range(2)).disable != shown


@pytest.mark.parametrize("label", ["costs $\\frac{1$", "$5 and 6$ _^_", "a" * 100_000])
def test_any_label_can_be_drawn(label):
    """Also one that is broken mathematics, or has as many characters as a book."""
    result = sweep({label: PLAIN, "other": PRIVATE})
    for figure in (fb.plotting.regret(result), fb.plotting.communication_frontier(result)):
        assert len(svg(figure)) < 3_000_000


def test_titles_of_two_lines_and_formulas_are_drawn_without_a_word(result, caplog):
    proofs = {label: dataclasses.replace(one, delta=1e-7) for label, one in result.certificates.items()}
    assert svg(fb.plotting.regret(dataclasses.replace(result, certificates=proofs)))
    assert not caplog.records


def test_an_algorithm_of_one_s_own_is_neither_called_not_private_nor_free():
    result = sweep({"mine": One(), "other": PLAIN})
    words = [text.get_text() for text in fb.plotting.regret(result).axes[0].get_legend().get_texts()]
    assert words == ["mine: no privacy claim", "other: not private"]
    (ax,) = fb.plotting.communication_frontier(result).axes
    assert any("bits are not counted" in text.get_text() for text in ax.get_legend().get_texts())


def test_a_notebook_shows_what_print_does(result):
    """Results as their summary; text is escaped."""
    certificate = result[result.labels[0]].certificate
    assert certificate._repr_html_() == f"<pre>{html.escape(str(certificate))}</pre>"
    assert result._repr_html_() == f"<pre>{html.escape(result.summary())}</pre>"
