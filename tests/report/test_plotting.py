"""Figures say what the numbers say: which lines, labels, bands, colours and points; and nothing is cut off."""

import dataclasses
import html
import itertools
import math
import re

import matplotlib.colors
import matplotlib.pyplot as plt
import numpy as np
import pytest
from handmade import PLAIN, PRIVATE, PROVED, WORLD, grid, made, proved, swept
from helpers import deep, refused

import fedbandit_jax as fb
from fedbandit_jax.certificate import no_privacy
from fedbandit_jax.cli import parse
from fedbandit_jax.engine.identity import describe
from fedbandit_jax.report.plotting import colours


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def legend(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


KINDS = {"regret": (), "gauge": ("clusters",), "against": ("epsilon",)}
FIGURES = [*KINDS.items(), ("against", ("certificate_epsilon",)), ("against", ("communication_bits",))]


def drawn(kind, result, *more, **options):
    """The axes of a figure of this kind."""
    (ax,) = getattr(fb.plotting, kind)(result, *(more or KINDS[kind]), **options).axes
    return ax


def colours_of(ax):
    """Text of the legend, without the claim -> colour."""
    found = zip(*ax.get_legend_handles_labels())
    lines = {text.split(":")[0]: one.lines[0] if hasattr(one, "lines") else one for one, text in found}
    return {name: line.get_color() for name, line in lines.items()}


def error_bars(ax):
    """label -> x, y and half-widths of the error bars."""
    found = {}
    for one in ax.containers:
        (data, _, (bars,)) = one.lines
        ends = np.array([[segment[0][1], segment[1][1]] for segment in bars.get_segments()])
        x, y = (np.asarray(values, float) for values in data.get_data())
        found[one.get_label()] = (x.tolist(), y.tolist(), (np.diff(ends)[:, 0] / 2).tolist())
    return found


@pytest.mark.parametrize("average", [1, 4])
def test_curves_by_hand(average):
    """Regrets 1, 2, 6 of one algorithm after four rounds, and 2, 5, 5 of another, whose promise is weaker."""
    regret = np.linspace(0, 1, 5)[1:] * np.array([[1.0, 2, 6], [2, 5, 5]])[..., None]
    curves = {name: regret for name in ("rounds", "floats", "bits")}
    claims = {"plain": dataclasses.replace(PROVED, claim="as_printed"), "private": PROVED}
    parts = dict(communication=curves, status=np.zeros((2, 3), int), counts={}, gauges={}, certificates=claims)
    result = made(3, 4, regret=regret, **parts)
    axes = drawn("regret", result, time_average=average > 1)
    assert axes.get_title().endswith("\nmean of 3 seeds ± 1 s.e.")
    styles = [(line.get_linestyle(), line.get_label()) for line in axes.lines]
    assert styles == [("--", "plain: weaker than stated"), ("-", "private: certified")]
    np.testing.assert_allclose(axes.lines[0].get_ydata(), [0.75] * 4 if average > 1 else [0.75, 1.5, 2.25, 3])
    highest = np.asarray(axes.collections[0].get_paths()[0].vertices)[:, 1].max()
    assert highest == pytest.approx((3 + math.sqrt(7 / 3)) / average)
    assert ("time-average" in axes.get_ylabel()) == (average > 1)


def test_long_curves_are_thinned_between_their_ends():
    """Else a page of two results has megabytes."""
    axes = drawn("regret", made(3, 1000))
    for line in axes.lines:
        x = np.asarray(line.get_xdata())
        assert (len(x), x[0], x[-1]) == (200, 1, 1000)


def test_a_title_has_the_budget_that_was_asked_for():
    """And one seed has no band. Of Renyi DP no epsilon is claimed at that delta; silos may have their own budgets."""
    for changes, words in (
        ({}, "; ε = 1, δ = $10^{-6}$"),
        ({"notion": "Renyi DP"}, "; ε = 1"),
        ({"per_silo": ((1.0, 0.1, 1.0), (2.0, 0.1, 2.0))}, ""),
    ):
        result = swept({"one": 1.0}, certificates={"one": proved(1.0, **changes)}, seeds=1)
        axes = drawn("regret", result)
        assert axes.get_title() == f"sphere: M = 3, d = 2{words}"
        assert (len(axes.lines), len(axes.collections)) == (1, 0)


def test_legends_say_who_is_not_private_beside_those_who_are():
    """Of curves over rounds; if nobody asks for privacy the legend does not speak of it. What is covered is wider."""
    for points, words, widths in (("ab", ["a: not private", "b: certified"], [4.0, 1.5]), ("a", ["a"], [1.5])):
        ax = drawn("regret", swept(dict.fromkeys(points, 1.0), certificates={"a": PUBLIC}))
        assert (legend(ax), [line.get_linewidth() for line in ax.lines]) == (words, widths)
    scales = [fb.plotting.regret(swept({"a": 2.0, "b": most})).axes[0].get_yscale() for most in (3.0, 3000.0)]
    assert scales == ["linear", "log"]


PUBLIC = no_privacy("it adds no noise")
LONG_WORD = "a very long name of a star"
GRAPHS = {
    f"{name}({n}, {graph})": ({"algorithm": name, "n_agents": n, "graph": graph, "dim": 3}, float(n + len(graph)))
    for n, graph, name in itertools.product((4, 80), ("ring", LONG_WORD), ("one", "two"))
}
RULES = {
    f"{name}({e})": (
        {"algorithm": "p", "epsilon": e, "schedule": {"type": "LogDet", "threshold": 1.0, "trigger": name}}, e + more,
    )
    for (name, more), e in itertools.product((("dp20", 0.0), ("he22", 10.0)), (1.0, 4.0))
}  # fmt: skip
ODD = {"a(epsilon=7)": ({"algorithm": "a(epsilon=7)", "epsilon": 7}, 1.0), "b": ({"algorithm": "b", "epsilon": 1}, 2.0)}
COUNTS = {f"a{n}": ({"algorithm": "a", "n": n}, 1.0) for n in (10**6, 2 * 10**6, 10**7)}
CLAIMS = {f"p{e}": ({"algorithm": "p", "epsilon": e}, 1.0) for e in (1, 2, 3)}
WEAKER = {"p2": proved(2.0, claim="none"), "p3": proved(3.0, claim="as_printed")}
AGAINST = [  # result, coordinate, ticks, and lines with their regrets
    (grid(), "epsilon", ["0.5", "2"], {"ours: certified": [7.0, 5.0]}),  # the last record, in the order of epsilon
    (swept(GRAPHS), "n_agents", ["4", "80"], {f"one, graph = {LONG_WORD}: certified": [30.0, 106.0]}),
    (swept(RULES), "epsilon", ["1", "4"], {
        "p, schedule = LogDet(threshold=1, trigger=dp20): certified": [1.0, 4.0],
        "p, schedule = LogDet(threshold=1, trigger=he22): certified": [11.0, 14.0],
    }),
    (swept(ODD), "epsilon", ["1", "7"], {"a(epsilon=7): certified": [1.0], "b: certified": [2.0]}),
    (swept(COUNTS), "n", ["$10^{6}$", r"$2 \times 10^{6}$", "$10^{7}$"], {"a: certified": [1.0] * 3}),
]  # fmt: skip


@pytest.mark.parametrize(("result", "coordinate", "ticks", "lines"), AGAINST)
def test_against_a_coordinate(result, coordinate, ticks, lines):
    """There is a line for every value of what else varies; words do not come from labels; objects are accounts."""
    ax = drawn("against", result, coordinate)
    assert ax.get_title() == "sphere: M = 3, d = 2\nmean of 3 seeds ± 1 s.e."
    assert [text.get_text().replace("\n", " ") for text in ax.get_xticklabels()] == ticks
    found = error_bars(ax)
    assert {label: found[label][1] for label in lines} == lines
    for label in lines:
        assert label in legend(ax)
        np.testing.assert_allclose(found[label][2], 1 / math.sqrt(3))


def test_against_epsilon():
    """Of algorithms without the coordinate there are level lines, which are told apart."""
    points = {"a": 1.0, "b": 2.0, "c": ({"algorithm": "c", "epsilon": 1}, 3.0)}
    result = swept(points, certificates={"a": PUBLIC, "b": PUBLIC})
    for coordinate in ("epsilon", "certificate_epsilon"):
        ax = drawn("against", result, coordinate)
        lines = {str(line.get_label()).removesuffix(": not private"): line for line in ax.lines}
        assert [np.asarray(lines[name].get_ydata()).tolist()[0] for name in "ab"] == [1.0, 2.0]
        assert lines["a"].get_color() == lines["b"].get_color()
        assert lines["a"].get_marker() != lines["b"].get_marker()
    ax = drawn("against", swept(GRAPHS), "algorithm")
    assert len(error_bars(ax)) == 8
    with refused("coordinate", "delta"):
        fb.plotting.against(swept(GRAPHS), "delta")


def test_a_line_has_the_weakest_claim():
    ax = drawn("against", swept(CLAIMS, certificates=WEAKER))
    assert (legend(ax), ax.containers[0].lines[0].get_linestyle()) == (["p: no privacy claim"], ":")


def test_a_gauge_that_an_algorithm_lacks():
    gauge = {"clusters": np.stack([np.full((3, 2), np.nan), np.ones((3, 2))])}
    result = dataclasses.replace(swept({"a": 1.0, "b": 1.0}), gauges=gauge)
    ax = drawn("gauge", result)
    assert [line.get_label() for line in ax.lines] == ["b: certified"]
    assert ax.get_ylim()[0] == 0
    ax.figure.draw_without_rendering()  # matplotlib cannot place markers on nothing
    below = dataclasses.replace(result, gauges={"clusters": -0.02 * np.ones((2, 3, 2))})
    assert fb.plotting.gauge(below, "clusters").axes[0].get_ylim()[0] <= -0.02
    with refused("result"):
        fb.plotting.gauge(dataclasses.replace(result, gauges={}), "clusters")


def test_against_the_proved_epsilon():
    """Level lines have no finite one; the axis names every delta, and lines join the budgets of one algorithm."""
    places = {
        f"{name}{e}": ({"algorithm": name, "epsilon": e, "n": 1 + (name == "b")}, e)
        for name in "ab"
        for e in (1.0, 2.0)
    }
    proofs = {"b1.0": proved(1.0, epsilon_exact=0.5, claim="as_printed"), "a2.0": proved(2.0, delta=1e-9)}
    proofs |= {"plain": PUBLIC, "void": proved(3.0, epsilon_exact=math.inf, claim="none")}
    ax = drawn("against", swept(places | {"plain": 1.0, "void": 2.0}, certificates=proofs), "certificate_epsilon")
    assert {name: (x, y) for name, (x, y, _) in error_bars(ax).items()} == {
        "a, n = 1: certified": ([1.0, 2.0], [1.0, 2.0]),
        "b, n = 2: weaker than stated": ([0.5, 2.0], [1.0, 2.0]),
    }
    assert {"plain: not private", "void: no privacy claim"} <= {line.get_label() for line in ax.lines}
    assert ax.get_xlabel().endswith("δ = 1e-09, 1e-06")
    with refused("coordinate"):
        drawn("against", swept({"x": 1.0}, certificates={"x": PUBLIC}), "certificate_epsilon")


def test_against_the_bits_that_were_sent():
    """A line joins the schedules of an algorithm at one budget in one environment. Nobody sends nothing at a point."""
    grid = itertools.product((10, 20), (1.0, 2.0), (3, 4))
    places = {f"a{b} {e} {m}": (dict(algorithm="a", batch=b, epsilon=e, n_agents=m), b + e + m) for b, e, m in grid}
    bits = {label: 1e3 / place["batch"] for label, (place, _) in places.items()}
    worlds = {label: WORLD | {"n_agents": place["n_agents"]} for label, (place, _) in places.items()}
    result = swept(places | {"alone": 9.0}, bits=bits | {"alone": 0.0}, environments=worlds)
    ax = drawn("against", result, "communication_bits")
    assert {name: (x, y) for name, (x, y, _) in error_bars(ax).items()} == {
        f"a, ε = {e:g}, M = {m}: certified": ([50.0, 100.0], [20.0 + e + m, 10.0 + e + m])
        for e, m in itertools.product((1.0, 2.0), (3, 4))
    }
    assert "alone: certified" in {line.get_label() for line in ax.lines}


@pytest.mark.parametrize(("family", "alike"), [("linear", 1), ("schedules", 0), ("arms", 0), ("clusters", 1)])
def test_algorithms_of_one_figure_have_colours_of_their_own(family, alike):
    """But for two variants of one algorithm, and for two of clusters. A name and numbers do not change a colour."""
    algos = parse(["simulate", family]).asked().arguments["algos"].values()
    for algo in algos:
        others = [algo.replace(name="another name"), describe(algo), swept({"x": 1.0}, algos={"x": algo})]
        others += [algo.replace(epsilon=7.0)] if algo.takes("epsilon") else []
        assert {fb.plotting.colour(one) for one in others} == {fb.plotting.colour(algo)}
    assert len({fb.plotting.colour(algo) for algo in algos}) == len(algos) - alike


def test_an_algorithm_keeps_its_colour_in_every_figure():
    """Alone, beside others, and in every kind of figure; markers tell variants apart, lines show claims."""
    points = {"plain": 1.0} | {
        f"{name}({e})": ({"algorithm": name, "epsilon": e}, 9.0 - e) for name in ("blt", "tree") for e in (1, 2)
    }
    algos = {label: PRIVATE.replace(release="blt" if "blt" in label else "tree") for label in points} | {"plain": PLAIN}
    whole = swept(points, algos=algos, certificates={"plain": PUBLIC})
    results = whole, whole.sel(algorithm=["tree"])
    axes = [drawn(kind, result, *more) for kind, more in FIGURES if kind != "gauge" for result in results]
    seen = {(re.split(r"[(,]", text)[0], colour) for ax in axes for text, colour in colours_of(ax).items()}
    assert seen == {("plain", colours.BLACK), ("blt", colours.VERMILLION), ("tree", colours.BLUE)}
    one, other = (fb.plotting.styles(whole)[f"tree({e})"] for e in (1, 2))
    assert (one.colour == other.colour, one.marker == other.marker) == (True, False)


@pytest.mark.parametrize(("kind", "more"), FIGURES)
def test_names_and_colours_of_your_own(kind, more):
    """Of one label; the other keeps its own. Those of an algorithm are for all of its lines."""
    gauge = {"clusters": np.ones((2, 3, 2))}
    one = dataclasses.replace(swept({"a": ({"algorithm": "a", "epsilon": 1}, 1.0), "b": 2.0}), gauges=gauge)
    points = {f"a(n_agents={m})": ({"algorithm": "a", "epsilon": 1, "n_agents": m}, m) for m in (3, 4)}
    worlds = {label: WORLD | {"n_agents": place["n_agents"]} for label, (place, _) in points.items()}
    both = dataclasses.replace(swept(points, environments=worlds), gauges=gauge)
    for result, expected in (
        (one, {"mine": "#123456", "b": fb.plotting.styles(one)["b"].colour}),
        (both, {"mine, M = 3": "#123456", "mine, M = 4": "#123456"}),
    ):
        assert colours_of(drawn(kind, result, *more, names={"a": "mine"}, colours={"a": "#123456"})) == expected
    for wrong in (dict(colours={"c": "red"}), dict(colours={"a": "#12"}), dict(names={"c": "x"}), dict(names={"a": 3})):
        with refused(*wrong):
            drawn(kind, one, *more, **wrong)


LONG = "Private-FedLinUCB with a name that goes on and on, as names of variants of algorithms in long sweeps do, (x)"


CROWDED = [("regret", ()), ("against", ("word",)), ("against", ()), ("against", ("certificate_epsilon",))]


@pytest.mark.parametrize(("kind", "more"), deep(CROWDED, keep=(0, 1)))
def test_nothing_is_cut_off(kind, more):
    """Every text of a figure is inside it, however long labels are, and a legend lies on nothing."""
    points = {
        f"{LONG}{i}": ({"algorithm": f"{LONG}{i}", "epsilon": i, "word": f"a long word {i}"}, 1e5 / i)
        for i in range(1, 8)
    }
    ax = drawn(kind, swept(points), *more)
    (figure := ax.figure).draw_without_rendering()
    box = figure.bbox.padded(2)
    texts = [ax.title, ax.xaxis.label, ax.yaxis.label, *ax.get_xticklabels(), *ax.get_yticklabels()]
    shown = [text for text in [*texts, *ax.get_legend().get_texts()] if text.get_text() and text.get_visible()]
    assert len(shown) > 10
    for text in shown:
        extent = text.get_window_extent()
        inside = box.contains(extent.x0, extent.y0) and box.contains(extent.x1, extent.y1)
        assert inside or not extent.overlaps(figure.bbox), text.get_text()
    legend_box = ax.get_legend().get_window_extent()
    assert not legend_box.overlaps(ax.xaxis.label.get_window_extent())
    assert not legend_box.overlaps(ax.bbox)
    assert ax.bbox.height > 2.0 * figure.dpi  # the curves have room


def small():
    figure = plt.figure(figsize=(1, 1))
    figure.text(0.1, 0.5, "epsilon")
    return figure


def test_files_of_both_kinds(tmp_path):
    """Equal figures are equal files, PDFs embed TrueType, and nothing is written of who made them or when."""
    first, second = (fb.plotting.save(small(), tmp_path / name / "figure.v2") for name in "ab")
    assert [path.name for path in first] == ["figure.v2.png", "figure.v2.pdf"]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    png, pdf = (path.read_bytes() for path in first)
    assert (png[:4], pdf[:4]) == (b"\x89PNG", b"%PDF")
    assert b"/FontFile2" in pdf
    assert b"CreationDate" not in pdf
    assert b"Matplotlib" not in pdf + png
    assert not plt.get_fignums()
    for name, begins in (("alone.PDF", b"%PDF"), ("alone.svg", b"<?xml")):
        (alone,) = fb.plotting.save(plt.figure(), tmp_path / name)
        assert alone.read_bytes().startswith(begins)
    with refused("path"):
        fb.plotting.save(small(), tmp_path / "figure.jpg")


# What notebooks, dark styles and strange labels make of pictures.


def simple(labels=("a", "b"), **changes):
    return swept(dict.fromkeys(labels, 1.0), algos={labels[0]: PLAIN}, certificates={labels[0]: PUBLIC, **changes})


def test_nothing_vanishes_in_dark_styles():
    with plt.style.context("dark_background"):
        for figure in (fb.plotting.regret(simple()), fb.plotting.against(simple(), "communication_bits")):
            (ax,) = figure.axes
            lines = [line.get_color() for line in ax.lines if len(line.get_xdata())]
            assert lines
            paper = matplotlib.colors.to_rgb(ax.get_facecolor())
            assert all(np.abs(np.subtract(matplotlib.colors.to_rgb(one), paper)).max() > 0.3 for one in lines)


@pytest.mark.parametrize(("backend", "kept"), [("inline", 0), ("agg", 1)])
def test_a_notebook_draws_a_figure_once(monkeypatch, backend, kept):
    monkeypatch.setattr(matplotlib, "get_backend", lambda: backend)
    fb.plotting.regret(simple())
    assert len(plt.get_fignums()) == kept


@pytest.mark.parametrize("label", ["costs $\\frac{1$", "$5 and 6$ _^_", "a" * 100_000])
def test_any_label_can_be_drawn(label, caplog, tmp_path):
    """Also one that is broken mathematics, or has as many characters as a book; and formulas, without a word."""
    result = simple((label, "other"), other=proved(1.0, delta=1e-7))
    for figure in (fb.plotting.regret(result), fb.plotting.against(result, "communication_bits")):
        (path,) = fb.plotting.save(figure, tmp_path / "figure.svg")
        assert path.stat().st_size < 3_000_000
    assert not caplog.records


def test_a_notebook_shows_what_print_does():
    """Text is escaped."""
    for one, text in ((PUBLIC, str(PUBLIC)), (simple(), simple().summary())):
        assert one._repr_html_() == f"<pre>{html.escape(text)}</pre>"


def test_an_algorithm_of_one_s_own_is_neither_called_not_private_nor_free():
    foreign = dataclasses.replace(no_privacy("its author says so"), user_defined=("One",))
    result = swept({"mine": 1.0, "other": 1.0}, certificates={"mine": foreign, "other": PUBLIC})
    bits = result.communication["bits"] * np.array([0, 1])[:, None, None]
    result = dataclasses.replace(result, communication=result.communication | {"bits": bits})
    assert legend(fb.plotting.regret(result).axes[0]) == ["mine: no privacy claim", "other: not private"]
    ax = drawn("against", result, "communication_bits")
    assert [line.get_label() for line in ax.lines if len(line.get_xdata()) == 2] == ["mine: no privacy claim"]
