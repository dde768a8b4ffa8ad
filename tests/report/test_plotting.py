"""Figures say what the numbers say: which lines, labels, bands, colours and points; and nothing is cut off."""

import dataclasses
import itertools
import math

import matplotlib.colors
import matplotlib.pyplot as plt
import numpy as np
import pytest
from results import PROVED, WORLD, made

import fedbandit_jax as fb
from fedbandit_jax.certificate import no_privacy
from fedbandit_jax.report.plotting import colours
from fedbandit_jax.report.plotting.frontiers import FRONT, pareto

P = fb.privacy
BUDGET = P.Budget(1.0, 1e-6)
PLAIN, PRIVATE = fb.algos.fed_lin_ucb(), fb.algos.private_fed_lin_ucb(BUDGET)


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def account(algo):
    """What a result says of an algorithm, as far as colours go."""
    found = {field.name: getattr(algo, field.name) for field in dataclasses.fields(algo)}
    return {"type": type(algo).__name__} | {
        name: account(part) if dataclasses.is_dataclass(part) and not isinstance(part, type) else part
        for name, part in found.items()
    }


def proved(epsilon, **changes):
    """A certificate that gives the epsilon that was asked for."""
    asked = {"epsilon_exact": epsilon, "adjacency": "replace (one user is replaced by any other)", "per_silo": ()}
    return dataclasses.replace(PROVED, epsilon=epsilon, **{**asked, **changes})


def swept(points, *, algos=None, certificates=None, environments=None, bits=None, seeds=3):
    """A result of two recorded rounds: label -> (place in the sweep, mean of final regret; seeds are 1 apart)."""
    labels = tuple(points)
    finals = np.array([[mean + i - (seeds - 1) / 2 for i in range(seeds)] for _, mean in points.values()])
    config = {
        "environments": {label: (environments or {}).get(label, WORLD) for label in labels},
        "algorithms": {label: account((algos or {}).get(label, PRIVATE)) for label in labels},
        "coordinates": {label: point for label, (point, _) in points.items()},
        **dict(horizon=2, seeds=[[0, seeds]], stride=None, key=[0, 7]),
    }
    sent = np.array([(bits or {}).get(label, 8.0) for label in labels])[:, None, None]
    curve = finals[..., None] * np.array([0.25, 1.0])
    return made(
        seeds,
        2,
        labels,
        regret=curve,
        communication={name: sent * np.ones_like(curve) for name in ("rounds", "floats", "bits")},
        counts={},
        gauges={},
        status=np.zeros(finals.shape, int),
        config=config,
        certificates={
            label: (certificates or {}).get(label, proved(float(points[label][0].get("epsilon", 1))))
            for label in labels
        },
    )


def grid():
    """A sweep over epsilon, in which the larger one comes first, and one algorithm that has none."""
    points = {
        "plain": ({"algorithm": "plain"}, 3.0),
        "ours(epsilon=2.0)": ({"algorithm": "ours", "epsilon": 2.0}, 5.0),
        "ours(epsilon=0.5)": ({"algorithm": "ours", "epsilon": 0.5}, 7.0),
    }
    return swept(points, algos={"plain": PLAIN}, certificates={"plain": no_privacy("it adds no noise")})


def legend(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def error_bars(ax):
    """label -> x, y and half-widths of the error bars."""
    found = {}
    for one in ax.containers:
        (data, _, (bars,)) = one.lines
        ends = np.array([[segment[0][1], segment[1][1]] for segment in bars.get_segments()])
        x, y = (np.asarray(values, float) for values in data.get_data())
        found[one.get_label()] = (x.tolist(), y.tolist(), (np.diff(ends)[:, 0] / 2).tolist())
    return found


@pytest.mark.parametrize(("band", "width"), [("error", math.sqrt(7 / 3)), ("deviation", math.sqrt(7))])
@pytest.mark.parametrize("time_average", [True, False])
def test_curves_by_hand(band, width, time_average):
    """Regrets 1, 2, 6 of one algorithm after four rounds, and 2, 5, 5 of another, whose promise is weaker."""
    regret = np.linspace(0, 1, 5)[1:] * np.array([[1.0, 2, 6], [2, 5, 5]])[..., None]
    curves = {name: regret for name in ("rounds", "floats", "bits")}
    result = made(3, 4, regret=regret, communication=curves, status=np.zeros((2, 3), int), counts={}, gauges={})
    claims = {"plain": dataclasses.replace(PROVED, claim="as_printed"), "private": PROVED}
    result = dataclasses.replace(result, certificates=claims)
    figure = fb.plotting.regret(result, time_average=time_average, band=band, title="three")
    (axes,) = figure.axes
    assert axes.get_title() == f"three\nmean of 3 seeds ± {'1 s.e.' if band == 'error' else '1 standard deviation'}"
    drawn = [(line.get_linestyle(), line.get_label()) for line in axes.lines]
    assert drawn == [("--", "plain: weaker than stated"), ("-", "private: certified")]
    scale = 4 if time_average else 1
    np.testing.assert_allclose(axes.lines[0].get_ydata(), [0.75] * 4 if time_average else [0.75, 1.5, 2.25, 3])
    assert np.asarray(axes.collections[0].get_paths()[0].vertices)[:, 1].max() == pytest.approx((3 + width) / scale)
    assert ("time-average" in axes.get_ylabel()) == time_average


def test_a_curve_under_a_later_one_is_wider():
    points = {name: ({"algorithm": name}, regret) for name, regret in (("under", 1.0), ("over", 1.005), ("apart", 2.0))}
    (axes,) = fb.plotting.regret(swept(points)).axes
    assert [line.get_linewidth() for line in axes.lines] == [4.0, 1.5, 1.5]


def test_no_band_for_one_seed():
    (axes,) = fb.plotting.regret(swept({"one": ({"algorithm": "one"}, 1.0)}, seeds=1)).axes
    assert len(axes.lines) == 1
    assert not axes.collections
    assert axes.get_title() == "Sphere: M = 3, d = 2; ε = 1, δ = $10^{-6}$"
    (axes,) = fb.plotting.regret(grid()).axes
    assert axes.get_title().startswith("Sphere: M = 3, d = 2; ε = 0.5, 2, δ = $10^{-6}$\n")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"notion": "Renyi DP"}, "; ε = 1"),  # at whose ε no (ε, δ)-DP is claimed
        ({"per_silo": ((1.0, 0.1, 1.0), (2.0, 0.1, 2.0))}, ""),
    ],
)
def test_a_title_has_no_budget_that_nobody_asked_for(changes, words):
    result = swept({"one": ({"algorithm": "one"}, 1.0)}, certificates={"one": proved(1.0, **changes)}, seeds=1)
    assert fb.plotting.regret(result).axes[0].get_title() == f"Sphere: M = 3, d = 2{words}"


def test_legends_say_who_is_not_private_beside_those_who_are():
    """Of curves over rounds; where nobody asks for privacy the legend does not speak of it."""
    plain = dict.fromkeys("a", no_privacy("it adds no noise"))
    both, alone = {"a": ({}, 1.0), "b": ({}, 2.0)}, {"a": ({}, 1.0)}
    assert legend(fb.plotting.regret(swept(both, certificates=plain)).axes[0]) == ["a: not private", "b: certified"]
    assert legend(fb.plotting.regret(swept(alone, certificates=plain)).axes[0]) == ["a"]


def test_against_epsilon():
    (ax,) = fb.plotting.against(grid(), "epsilon", title="a title").axes
    assert ax.get_title() == "a title\nmean of 3 seeds ± 1 s.e."
    assert [text.get_text() for text in ax.get_xticklabels()] == ["0.5", "2"]
    assert legend(ax) == ["plain: not private", "ours: certified"]
    x, y, half = error_bars(ax)["ours: certified"]
    assert (x, y) == ([0.5, 2.0], [7.0, 5.0])  # the last record, in the order of epsilon
    np.testing.assert_allclose(half, 1 / math.sqrt(3))
    np.testing.assert_allclose(ax.lines[0].get_ydata(), 3.0)


def test_against_numbers_of_the_environment_and_words():
    """There is a line for every value of what else varies; words stand in the order of the sweep."""
    worlds = itertools.product((4, 80), ("ring", "a very long name of a star"), ("one", "two"))
    points = {
        f"{name}({n}, {graph})": ({"algorithm": name, "n_agents": n, "graph": graph, "dim": 3}, float(n + len(graph)))
        for n, graph, name in worlds
    }
    result = swept(points)
    (ax,) = fb.plotting.against(result, "n_agents").axes
    assert ax.get_xscale() == ax.get_yscale() == "log"
    lines = [
        f"{a}, graph = {graph}: certified" for graph in ("ring", "a very long name of a star") for a in ("one", "two")
    ]
    assert legend(ax) == lines
    assert error_bars(ax)[lines[0]][:2] == ([4.0, 80.0], [8.0, 84.0])
    (ax,) = fb.plotting.against(result, "graph").axes
    words = [text.get_text().replace("\n", " ") for text in ax.get_xticklabels()]
    assert words == ["ring", "a very long name of a star"]
    assert error_bars(ax)["two, M = 80: certified"][:2] == ([0.0, 1.0], [84.0, 106.0])
    (ax,) = fb.plotting.against(result, "algorithm").axes
    assert len(error_bars(ax)) == 8
    with pytest.raises(
        ValueError, match=r"coordinate must be one of algorithm, n_agents, graph, dim, got 'delta'|delta"
    ):
        fb.plotting.against(result, "delta")


def test_objects_that_differ_in_words_are_two_lines():
    """Class and numbers of both are alike; all labels without the coordinate are drawn."""
    rules = {name: {"type": "LogDet", "threshold": 1.0, "trigger": name} for name in ("dp20", "he22")}
    points = {
        f"{name}({e})": (
            {"algorithm": "ours", "epsilon": e, "schedule": rules[name]},
            e + len(name) + 10 * (name == "he22"),
        )
        for name, e in itertools.product(rules, (1.0, 4.0))
    }
    (ax,) = fb.plotting.against(swept(points), "epsilon").axes
    lines = [f"ours, schedule = LogDet(threshold=1, trigger={name}): certified" for name in rules]
    assert [error_bars(ax)[line][1] for line in lines] == [[5.0, 8.0], [15.0, 18.0]]
    (ax,) = fb.plotting.against(swept(points), "schedule").axes
    assert len(ax.get_xticks()) == 2
    bare = {
        "a": ({"algorithm": "x"}, 3.0),
        "b": ({"algorithm": "x"}, 9.0),
        "c": ({"algorithm": "y", "epsilon": 1.0}, 5.0),
    }
    (ax,) = fb.plotting.against(swept(bare), "epsilon", lines={"a": "x", "b": "x"}).axes
    assert [np.asarray(line.get_ydata()).tolist()[0] for line in ax.lines[:2]] == [3.0, 9.0]
    assert legend(ax)[0] == "x: certified"


def test_objects_are_coordinates():
    """Schedules, for instance, which a result keeps as accounts."""
    point = {"algorithm": "ours", "schedule": {"type": "Every", "batch": 25}}
    other = {"algorithm": "ours", "schedule": {"type": "Geometric", "growth": 1.5, "first": 50}}
    (ax,) = fb.plotting.against(swept({"a": (point, 1.0), "b": (other, 2.0)}), "schedule").axes
    words = [text.get_text().replace("\n", " ") for text in ax.get_xticklabels()]
    assert words == ["Every(batch=25)", "Geometric(growth=1.5, first=50)"]


def test_lines_do_not_come_from_labels():
    """Labels that look like points of a grid are not, and points of other sweeps may be drawn as one line."""
    odd = swept(
        {
            "a(epsilon=7)": ({"algorithm": "a(epsilon=7)", "epsilon": 7}, 1.0),
            "b": ({"algorithm": "b", "epsilon": 1}, 2.0),
        }
    )
    assert legend(fb.plotting.against(odd, "epsilon").axes[0]) == ["a(epsilon=7): certified", "b: certified"]
    lines = {"a(epsilon=7)": "one line", "b": "one line"}
    assert legend(fb.plotting.against(odd, "epsilon", lines=lines).axes[0]) == ["one line: certified"]


def test_horizontal_lines_of_one_colour_are_told_apart():
    """They are of algorithms that do not have the coordinate."""
    points = {
        "a": ({"algorithm": "a"}, 1.0),
        "b": ({"algorithm": "b"}, 2.0),
        "c": ({"algorithm": "c", "epsilon": 1}, 3.0),
    }
    result = swept(points, certificates=dict.fromkeys("ab", no_privacy("it adds no noise")))
    for draw in (lambda one: fb.plotting.against(one, "epsilon"), fb.plotting.privacy_frontier):
        lines = {str(line.get_label()).removesuffix(": not private"): line for line in draw(result).axes[0].lines}
        assert lines["a"].get_color() == lines["b"].get_color()
        assert lines["a"].get_marker() != lines["b"].get_marker()


def test_a_line_has_the_weakest_claim():
    points = {f"p{e}": ({"algorithm": "p", "epsilon": e}, 1.0) for e in (1, 2, 3)}
    weaker = {"p2": proved(2.0, claim="none"), "p3": proved(3.0, claim="as_printed")}
    (ax,) = fb.plotting.against(swept(points, certificates=weaker), "epsilon").axes
    assert legend(ax) == ["p: no privacy claim"]
    assert ax.containers[0].lines[0].get_linestyle() == ":"


def test_a_gauge_that_an_algorithm_lacks():
    result = made(labels=("plain", "private"))
    gauge = {"clusters": np.stack([np.full((2, 3), np.nan), np.ones((2, 3))])}
    algos = {"plain": account(PRIVATE), "private": account(PRIVATE)}
    result = dataclasses.replace(result, gauges=gauge, config={**result.config, "algorithms": algos})
    (ax,) = fb.plotting.gauge(result, "clusters").axes
    assert [line.get_label() for line in ax.lines] == ["private: certified"]
    assert ax.get_ylim()[0] == 0
    ax.figure.draw_without_rendering()  # matplotlib cannot place markers on nothing
    below = dataclasses.replace(result, gauges={"clusters": -0.02 * np.ones((2, 2, 3))})
    assert fb.plotting.gauge(below, "clusters").axes[0].get_ylim()[0] <= -0.02
    with pytest.raises(ValueError, match="result must have gauges, as those of clustering have, got none"):
        fb.plotting.gauge(dataclasses.replace(result, gauges={}), "clusters")


def points_of(ax):
    """(x, y) -> whether it is filled."""
    single = [line for line in ax.lines if len(line.get_xdata()) == 1 and line.get_zorder() == 3]
    return {
        (float(line.get_xdata()[0]), float(line.get_ydata()[0])): matplotlib.colors.to_hex(line.get_markerfacecolor())
        != "#ffffff"
        for line in single
    }


def test_ticks_and_markers_are_whole():
    result = swept(
        {f"a{n}": ({"algorithm": "a", "n": n}, 1.0) for n in (10**6, 2 * 10**6, 10**7)}
        | {"b": ({"algorithm": "b"}, 2.0), "c": ({"algorithm": "c"}, 3.0)}
    )
    (ax,) = fb.plotting.against(result, "n").axes
    assert [text.get_text() for text in ax.get_xticklabels()] == ["$10^{6}$", r"$2 \times 10^{6}$", "$10^{7}$"]
    level = [line.get_xdata() for line in ax.lines if line.get_transform() == ax.get_yaxis_transform(which="grid")]
    assert all(0 < first < last < 1 for first, last in map(tuple, level))


def test_privacy_frontier():
    """x is what the certificate gives; a weaker claim is not on the front, nor beats anybody."""
    certificates = {
        "plain": no_privacy("it adds no noise"),
        "a": proved(9.0, epsilon_exact=1.0),
        "b": proved(9.0, epsilon_exact=2.0),
        "c": proved(9.0, epsilon_exact=2.0),
        "d": proved(9.0, epsilon_exact=1.0001),
        "printed": proved(9.0, epsilon_exact=0.5, claim="as_printed"),
        "void": proved(9.0, epsilon_exact=math.inf, claim="none"),
    }
    finals = {"plain": 1.0, "a": 8.0, "b": 4.0, "c": 6.0, "d": 9.0, "printed": 7.0, "void": 5.0}
    result = swept(
        {k: ({"algorithm": k}, v) for k, v in finals.items()}, algos={"plain": PLAIN}, certificates=certificates
    )
    (ax,) = fb.plotting.privacy_frontier(result).axes
    on = {(1.0, 8.0): True, (2.0, 4.0): True, (2.0, 6.0): False, (1.0001, 9.0): False, (0.5, 7.0): False}
    assert points_of(ax) == on
    assert "at $\\delta$ = 1e-06" in ax.get_xlabel()
    assert {"plain: not private", "void: no ε is proved", "a: certified", "printed: weaker than stated", FRONT} <= set(
        legend(ax)
    )
    steps = [line for line in ax.lines if line.get_drawstyle() == "steps-post"]
    assert [line.get_xydata().tolist() for line in steps] == [[[1.0, 8.0], [2.0, 4.0]]]


def test_delta_adjacency_and_environment_are_asked_for():
    """Epsilons at other deltas, for other neighbours or elsewhere are not compared as if they were equal."""
    worse = dict(a=proved(1.0, delta=1e-3), b=proved(2.0, delta=1e-9), c=proved(3.0, adjacency="zero_out"))
    points = {k: ({"algorithm": k}, float(i + 1)) for i, k in enumerate("abcd")}
    result = swept(points, certificates={**worse, "d": proved(4.0)}, environments={"d": {**WORLD, "n_agents": 9}})
    (ax,) = fb.plotting.privacy_frontier(result).axes
    assert all(points_of(ax).values())
    assert "1e-09, 1e-06, 0.001" in ax.get_xlabel()
    assert not [line for line in ax.lines if line.get_drawstyle() == "steps-post"]
    with pytest.raises(ValueError, match="result must have an algorithm of which a finite epsilon is proved"):
        fb.plotting.privacy_frontier(swept({"x": ({"algorithm": "x"}, 1.0)}, certificates={"x": no_privacy("none")}))


def test_communication_frontier():
    points = {k: ({"algorithm": k}, v) for k, v in {"alone": 9.0, "rare": 5.0, "often": 4.0, "waste": 6.0}.items()}
    bits = {"alone": 0.0, "rare": 1e3, "often": 1e6, "waste": 1e6}
    (ax,) = fb.plotting.communication_frontier(swept(points, bits=bits)).axes
    assert points_of(ax) == {(0.0, 9.0): True, (1e3, 5.0): True, (1e6, 4.0): True, (1e6, 6.0): False}
    assert ax.get_xscale() == "symlog"


def test_pareto_against_its_definition():
    table = np.random.default_rng(0).integers(0, 4, (60, 3))
    beaten = [any((a <= b).all() and (a < b).any() for a in table) for b in table]
    assert pareto(table, [0] * 60) == [not one for one in beaten]  # pyright: ignore[reportArgumentType]
    assert 0 < sum(beaten) < 60


ALGOS = {
    "FedLinUCB": PLAIN,
    "FedUCB": fb.algos.fed_ucb(),
    "tree": PRIVATE,
    "BLT": PRIVATE.replace(release="blt"),
    "secagg": PRIVATE.replace(trust="secagg"),
    "shuffled": PRIVATE.replace(trust="shuffle_amplified"),
    "leaky": fb.algos.fed_ucb(BUDGET),
    "LinUCB": fb.algos.LinUCB(),
    "Thompson": fb.algos.Federated(policy=fb.algos.Thompson(), privacy=BUDGET),
    "FCLUB": fb.algos.FCLUB(upload=1, download=1),
    "FCLUB-DC": fb.algos.FCLUB(),
    "CDP-FCLUB-DC": fb.algos.FCLUB(BUDGET),
    "Homo-DC": fb.algos.homo_dc(),
    "CLUB": fb.algos.CLUB(),
    "SCLUB": fb.algos.SCLUB(),
}


@pytest.mark.parametrize("name", ALGOS)
def test_a_name_and_numbers_do_not_change_a_colour(name):
    algo = ALGOS[name]
    again = algo.replace(name="another name")
    assert fb.plotting.colour(algo) == fb.plotting.colour(again) == fb.plotting.colour(account(algo))
    if algo.takes("epsilon"):
        assert fb.plotting.colour(algo.replace(epsilon=7.0)) == fb.plotting.colour(algo)
    one = swept({"x": ({"algorithm": "x"}, 1.0)}, algos={"x": algo})
    assert fb.plotting.colour(one) == fb.plotting.colour(algo)


def test_colours_of_a_comparison_differ():
    for names in (
        ("FedLinUCB", "tree", "BLT", "secagg", "shuffled", "LinUCB"),
        ("FCLUB", "FCLUB-DC", "CDP-FCLUB-DC", "Homo-DC", "CLUB", "SCLUB", "LinUCB"),
        ("FedUCB", "tree", "leaky"),
    ):
        assert len({fb.plotting.colour(ALGOS[name]) for name in names}) == len(names)
    elimination = {
        name: fb.plotting.colour(
            fb.algos.SuccessiveElimination(epsilon=None if name == "SE" else 1.0, mechanism=mechanism, trust=trust)
        )
        for name, (mechanism, trust) in fb.algos.ELIMINATION.items()
    }
    del elimination["Shuffle-DP-SE"]  # shares a colour with Dist-CDP-SE
    assert len(set(elimination.values())) == 7


def test_an_algorithm_keeps_its_colour_in_every_figure():
    """Alone, beside others, and in every kind of figure; markers tell variants apart, lines say what is claimed."""
    points = {
        "plain": ({"algorithm": "plain"}, 1.0),
        **{f"blt({e})": ({"algorithm": "blt", "epsilon": e}, 9.0 - e) for e in (1, 2)},
        **{f"tree({e})": ({"algorithm": "tree", "epsilon": e}, 19.0 - e) for e in (1, 2)},
    }
    algos = {label: ALGOS["BLT" if "blt" in label else "tree"] for label in points} | {"plain": PLAIN}
    whole = swept(points, algos=algos, certificates={"plain": no_privacy("it adds no noise")})
    few = whole.sel(algorithm=["tree"])
    seen = {}
    for result in (whole, few):
        for draw in (
            fb.plotting.regret,
            lambda one: fb.plotting.against(one, "epsilon"),
            fb.plotting.privacy_frontier,
            fb.plotting.communication_frontier,
        ):
            (ax,) = draw(result).axes
            for handle, text in zip(*ax.get_legend_handles_labels()):
                shown = handle.lines[0] if hasattr(handle, "lines") else handle
                if text != FRONT:
                    seen.setdefault(text.split("(")[0].split(":")[0], set()).add(shown.get_color())
    assert seen == {"plain": {colours.BLACK}, "blt": {colours.VERMILLION}, "tree": {colours.BLUE}}
    styles = fb.plotting.styles(whole)
    assert styles["tree(1)"].colour == styles["tree(2)"].colour
    assert styles["tree(1)"].marker != styles["tree(2)"].marker


LONG = "Private-FedLinUCB with a name that goes on and on, as names of variants of algorithms in long sweeps do, (x)"


MORE = [pytest.param(kind, marks=pytest.mark.slow) for kind in ("against", "privacy", "communication")]


@pytest.mark.parametrize("kind", ["regret", "words", *MORE])
def test_nothing_is_cut_off(kind):
    """Every text of a figure is inside it, however long labels are, and a legend lies on nothing."""
    points = {
        f"{LONG}{i}": ({"algorithm": f"{LONG}{i}", "epsilon": i, "word": f"a long word {i}"}, 1e5 / i)
        for i in range(1, 8)
    }
    result = swept(points)
    figure = {
        "regret": lambda: fb.plotting.regret(result, title=LONG * 2),
        "against": lambda: fb.plotting.against(result, "epsilon", title=LONG * 2),
        "words": lambda: fb.plotting.against(result, "word"),
        "privacy": lambda: fb.plotting.privacy_frontier(result),
        "communication": lambda: fb.plotting.communication_frontier(result),
    }[kind]()
    figure.draw_without_rendering()
    (ax,) = figure.axes
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
    """A figure with a text, which is drawn in no time."""
    figure = plt.figure(figsize=(1, 1))
    figure.text(0.1, 0.5, "epsilon")
    return figure


def test_formats_that_are_not_written(tmp_path):
    with pytest.raises(ValueError, match=r"path must end in .png, .pdf or .svg, or say no format, got .*figure.jpg"):
        fb.plotting.save(small(), tmp_path / "figure.jpg")
    assert list(tmp_path.iterdir()) == []


def test_files_of_both_kinds(tmp_path):
    """Equal figures are equal files, PDFs embed TrueType, and nothing is written of who made them or when."""
    first, second = (fb.plotting.save(small(), tmp_path / name / "figure.v2") for name in "ab")
    assert [path.name for path in first] == ["figure.v2.png", "figure.v2.pdf"]
    for one, other in zip(first, second):
        assert one.read_bytes() == other.read_bytes()
    png, pdf = (path.read_bytes() for path in first)
    assert png.startswith(b"\x89PNG")
    assert pdf.startswith(b"%PDF")
    assert b"/FontFile2" in pdf
    assert b"CreationDate" not in pdf
    assert b"Matplotlib" not in pdf + png
    assert not plt.get_fignums()
    (alone,) = fb.plotting.save(plt.figure(), tmp_path / "alone.PDF")
    assert alone.read_bytes().startswith(b"%PDF")
    (drawing,) = fb.plotting.save(plt.figure(), tmp_path / "alone.svg")
    assert b"<svg" in drawing.read_bytes()
