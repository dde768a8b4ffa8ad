"""The pictures of experiments/figures: none is older than its module or its numbers, and helpers do what they say."""

import functools
import itertools
import json
import re
import runpy
import struct
import sys
from pathlib import Path

import jax
import matplotlib
import numpy as np
import pytest
from scipy import stats

import fedbandit_jax as fb

EXPERIMENTS = Path(__file__).parents[1] / "experiments"
FIGURES = EXPERIMENTS / "figures"
PAGES = Path(__file__).parents[1] / "docs" / "reproduction"
README = PAGES.parents[1] / "README.md"
SUMMARY = PAGES.parent / "reproduction.md"
DRAWN = re.compile(r"python experiments/draw\.py (\w+)")
OPTIMAL = PAGES.parent / "optimal.md"
QUOTING = [path for path in (README, *sorted(PAGES.parent.rglob("*.md"))) if " ± " in path.read_text()]
QUOTING.remove(SUMMARY)  # it has no pictures


def page(name):
    """Returns the text of a page in one line, with cells of a table as a list of numbers is written."""
    return " ".join((PAGES / f"{name}.md").read_text().replace(" | ", ", ").split())


@pytest.fixture(scope="module")
def draw():
    """The module that draws, which imports the others from its own folder."""
    with matplotlib.rc_context(), pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(EXPERIMENTS))
        import draw  # pyright: ignore[reportMissingImports]

        yield draw
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None)).startswith(str(EXPERIMENTS)):
            sys.modules.pop(name)


@pytest.fixture(scope="module")
def curves(draw):
    """The module of numbers."""
    return sys.modules["curves"]


def test_no_picture_is_stale(draw):
    assert [wrong for path in sorted(FIGURES.glob("*.csv")) if (wrong := draw.stale(path))] == []


def test_pictures_have_their_numbers(draw):
    """Those of `draw.py`; commands and benchmarks draw the others."""
    pictures = [path for path in FIGURES.glob("*.png") if path.name.startswith(tuple(draw.experiments()))]
    assert len(pictures) > 60
    assert [path.stem for path in pictures if not path.with_suffix(".csv").exists()] == []


def test_pictures_fit_a_page(draw):
    """Seven inches at 180 dots, as far as words at the sides allow, and 120 kB."""
    pictures = [path for path in FIGURES.glob("*.png") if path.name.startswith(tuple(draw.experiments()))]
    widths = {path.name: struct.unpack(">I", path.read_bytes()[16:20])[0] for path in pictures}
    assert {name: width for name, width in widths.items() if width > 7.3 * 180} == {}
    assert {path.name for path in pictures if path.stat().st_size > 120_000} == set()


def test_all_draws_every_picture_and_tries_every_figure(draw):
    commands = runpy.run_path(str(EXPERIMENTS / "all.py"))["commands"]
    tried = [command.split() for command in commands(smoke=True)]
    assert {one[1] for one in tried if one[0] == "draw.py"} == draw.experiments().keys()
    assert {one[0] for one in tried} == {"draw.py", "planning.py", "benchmark.py"}
    assert len(commands(smoke=False)) == len(list(FIGURES.glob("*.png")))


def test_pages_name_figures(draw):
    """And the figures that exist have a picture."""
    named = {name for path in (README, *PAGES.parent.rglob("*.md")) for name in DRAWN.findall(path.read_text())}
    assert len(named) > 50
    assert named <= draw.experiments().keys()
    assert {draw.name_of(draw.head(path)[0]) for path in FIGURES.glob("*.csv")} == draw.experiments().keys()


def test_an_unknown_figure_is_named(draw):
    with pytest.raises(SystemExit, match=r"got 'beyond_user': did you mean 'beyond_users'\?$"):
        draw.main(["beyond_user"])


def test_a_picture_is_drawn_again_in_another_folder(draw, monkeypatch, tmp_path):
    """By the command that `all.py --redraw --out DIR` runs, from the numbers that are kept in experiments/figures."""
    run = runpy.run_path(str(EXPERIMENTS / "all.py"))["run"]
    monkeypatch.setattr(sys, "argv", sys.argv)  # as it was, afterwards
    assert run("draw.py liu2022_runtime", ["--redraw", "--out", str(tmp_path)])[2] == ""
    made, kept = (folder / "liu2022_runtime.csv" for folder in (tmp_path, FIGURES))
    assert draw.head(made) == draw.head(kept)
    assert made.read_text().split("\n")[1:] == kept.read_text().split("\n")[1:]
    assert (tmp_path / "liu2022_runtime.png").exists()


@pytest.mark.usefixtures("draw")
def test_committed_pictures_are_replaced_on_demand_only(monkeypatch, tmp_path):
    from options import Size  # pyright: ignore[reportMissingImports]

    (tmp_path / "linked").symlink_to(FIGURES)
    monkeypatch.chdir(FIGURES.parents[1])
    for out in (FIGURES, tmp_path / "linked", tmp_path / ".." / FIGURES, Path("experiments/figures")):
        with pytest.raises(SystemExit, match="--commit"):
            Size(out=out)
    monkeypatch.chdir(FIGURES.parent)
    with pytest.raises(SystemExit, match="--commit"):
        Size(out=Path("figures"))
    assert {one.folder for one in (Size(), Size(smoke=True), Size(redraw=True))} == {Path("results")}
    assert Size(out=tmp_path).folder == tmp_path
    assert Size(commit=True).folder == FIGURES
    stores = [one.store for one in (Size(out=tmp_path), Size(), Size(commit=True), Size(smoke=True))]
    assert stores == [tmp_path / "store", *[Path("results") / "store"] * 2, None]


ELSEWHERE = {  # how many numbers "a ± b" of a page are in no picture of it: differences, powers, tables of commands
    "benchmark.md": 53,
    "beyond.md": 2,
    "federation.md": 3,
    "planning.md": 14,
    "privacy.md": 2,
    "chowdhury2023.md": 2,  # see `test_slopes_of_regret`
    "dubey2020.md": 5,  # 4 in `test_powers_of_d`
    "quickstart.md": 8,
    "schedules-and-networks.md": 12,  # 9 in `test_schedules_are_compared_on_other_seeds`
    "your-data.md": 3,
}
RATIOS = {  # picture of Chowdhury & Zhou (2023) -> pairs of labels whose ratio of regrets at T its page quotes
    "fig2_theory": ("Dist-DP-SE/DP-SE", "Dist-RDP-SE (s=10)/Dist-DP-SE", "Dist-RDP-SE (s=100)/Dist-RDP-SE (s=10)"),
    "fig3_theory": ("Dist-DP-SE/DP-SE", "Dist-RDP-SE (s=10)/Dist-DP-SE", "Dist-RDP-SE (s=100)/Dist-RDP-SE (s=10)"),
    "fig2_exact": ("Dist-DP-SE/DP-SE", "Dist-RDP-SE (s=10)/Dist-DP-SE"),
    "fig3_exact": ("Dist-DP-SE/DP-SE",),
    "fig2_authors": ("Dist-DP-SE/DP-SE",),
    "fig3_authors": ("Dist-DP-SE/DP-SE",),
    "mslr_theory": ("Dist-DP-SE/DP-SE",),
    "fig4_theory": ("Dist-DP-SE/CDP-SE", "Dist-RDP-SE (s=10)/Dist-DP-SE", "Dist-CDP-SE (s=10)/Dist-RDP-SE (s=10)"),
    "fig4_exact": ("Dist-CDP-SE (s=10)/Dist-RDP-SE (s=10)",),
    "shuffle_theory": ("Shuffle-DP-SE/Dist-DP-SE",),
}


NUMBERS = re.compile(r"(-?\d[\d,]*(?:\.\d+)?) ± (\d+(?:,\d{3})*(?:\.\d+)?)")


@functools.cache
def kept(curves, picture):
    return sys.modules["draw"].parsed((FIGURES / f"{picture}.csv").read_text())


def points(curves, picture):
    """Returns the means and errors of a picture."""
    return [pair for one in kept(curves, picture) for pair in zip(one.mean, one.error)]


def is_rounded(words, values):
    """Whether values, rounded to as many digits as the words have, are what they say."""
    return abs(float(words.replace(",", "")) - values) <= 0.5001 * 10.0 ** -len(words.partition(".")[2])


@functools.cache
def quantile(n):
    """Returns that of Student's t for half of a 95 % interval of a mean of n."""
    return stats.t.ppf(0.975, n - 1)


def spread(values, unit=1.0):
    """Returns a mean with its standard error, and with half of its 95 % interval."""
    mean, error = values.mean() / unit, values.std(ddof=1) / np.sqrt(len(values)) / unit
    return [(mean, error), (mean, quantile(len(values)) * error)]


@functools.cache
def compared(curves, picture):
    """Returns ratios and differences of paired seeds, also in % of uniform play's regret.

    Pairs differ in label, point or panel only. Of curves with many points the last ones are compared.
    """
    found, pairs = [], {}
    chances = {one.panel: one.mean[-1] / 100 for one in kept(curves, picture) if one.label == curves.CHANCE}
    for one in (one for one in kept(curves, picture) if one.n_seeds > 1):
        unit = chances.get(one.panel, 1.0)
        for i, y in list(enumerate(one.y))[0 if len(one.x) <= 8 else -1 :]:
            found += spread(y) + spread(y, unit)
            for same in (("label", one.panel, i), ("point", one.panel, one.label), ("panel", one.label, i)):
                pairs.setdefault(same, []).append((y, unit))
    for (y, unit), (z, _) in itertools.chain.from_iterable(itertools.permutations(of, 2) for of in pairs.values()):
        if y.shape == z.shape:
            found += [curves.quotient(y, z), *spread(y - z), *spread(y - z, unit)]
            found += spread(y / z) if z.all() else []
    return found


@functools.cache
def powers(curves, picture):
    """Returns powers of x of curves, and of curves over others of their panel: of all, the first or the late points."""
    ones = [one for one in kept(curves, picture) if one.n_seeds > 1 and len(one.x) > 2]
    ones = [one for one in ones if one.x.min() > 0 and one.y.min() > 0]
    pairs = [(a, b) for a, b in itertools.permutations(ones, 2) if a.panel == b.panel and a.y.shape == b.y.shape]
    ones += [a.but(y=a.y / b.y) for a, b in pairs if len(a.x) < 6]
    parts = [(one, part) for one in ones for part in (one.x > 0, one.x <= one.x[:3][-1], one.x > one.x[-1] / 10.1)]
    return [curves.exponent(one, part) for one, part in parts if part.sum() > 1]


@pytest.mark.parametrize("page", QUOTING, ids=lambda page: page.name)
def test_numbers_of_a_page_are_in_its_pictures(curves, page):
    """Every "a ± b" is a point of a curve or follows from points, except those counted in `ELSEWHERE`."""
    text = page.read_text()
    shown = {Path(one).stem for one in re.findall(r"figures/([\w.]+)\.png", text)}
    pictures = shown | {path.stem for path in FIGURES.glob(f"{page.stem}*.csv")}
    there = {name for name in pictures if (FIGURES / f"{name}.csv").exists()} - {"audits"}
    lost = NUMBERS.findall(text)
    for found in (points, compared, powers):
        means, errors = np.array([pair for name in there if lost for pair in found(curves, name)]).reshape(-1, 2).T
        lost = [(m, e) for m, e in lost if not (is_rounded(m, means) & is_rounded(e, errors)).any()]
    assert len(lost) == ELSEWHERE.get(page.name, 0), lost


def test_distances_from_the_least_regret(curves):
    """The tables, one for each horizon, have every algorithm at its place; so has the summary its first."""
    rows = re.findall(r"^\| ([\w ,-]+) \| (\d.* ± .*) \|$", OPTIMAL.read_text(), re.M)
    found = kept(curves, "optimal_arms")
    names, panels = ([*dict.fromkeys(getattr(one, of) for one in found)] for of in ("label", "panel"))
    assert [name for name, _ in rows] == 2 * names
    shown = {}
    for i, (name, cells) in enumerate(rows):
        points = [(p, x) for p in panels[2 * (i // len(names)) :][:2] for x in (0.1, 1.0, 10.0)]
        for (panel, x), cell in zip(points, cells.split(" | "), strict=True):
            (one,) = curves.pick(found, panel, name)
            shown[name, panel, x], at = cell, list(one.x).index(x)
            assert cell == f"{one.mean[at]:.2f} ± {one.error[at]:.2f}"
    five, ten = (shown["Phased IMED", panel, 1.0] for panel in panels[2:])
    assert f"| Phased IMED, T = $10^7$ | {five} and {ten} times |" in OPTIMAL.read_text()


VERDICTS = ("Holds.", "Holds in part.", "Does not hold.", "Undecided.", "Not run.")


def test_every_claim_has_a_verdict_and_the_summary_counts_them():
    rows = re.findall(r"^\| \[.*\]\(reproduction/(\w+)\.md\) \| ([\d |]+) \|$", SUMMARY.read_text(), re.M)
    assert {name for name, _ in rows} == {path.stem for path in PAGES.glob("*.md")}
    for name, counts in rows:
        sections = re.findall(r"^### .*\n\n(.*)", (PAGES / f"{name}.md").read_text(), re.M)
        found = [re.match(r"\*\*(.+?)\*\*", first)[1] for first in sections]
        assert counts.split(" | ") == [str(len(found)), *(str(found.count(one)) for one in VERDICTS)], name


def test_summaries_have_the_numbers_of_what_they_sum_up(curves):
    """Of pages that other tests hold to their pictures, of ratios by delta, of uploads, and of rare losses."""
    text = SUMMARY.read_text()
    pages = {pair for name in re.findall(r"reproduction/(\w+)\.md", text) for pair in NUMBERS.findall(page(name))}
    by_delta = kept(curves, "chowdhury2023_delta")
    for panel in dict.fromkeys(one.panel for one in by_delta):
        pure, renyi, *_ = curves.pick(by_delta, panel)
        ratios = [curves.quotient(y, pure.y[0]) for y in renyi.y]
        pages |= {(f"{value:.2f}", f"{error:.2f}") for value, error in ratios}
    assert [pair for pair in NUMBERS.findall(text) if pair not in pages] == []

    sent = curves.pick(kept(curves, "liu2022_long"), "uploads and downloads")
    medians = [np.median(np.diff(one.y, axis=0), axis=1) for one in sent if one.label != "LinUCB"]
    more = [100 * (last / before - 1) for *_, before, last in medians]
    assert all(f"{min(more):.0f} to {max(more):.0f} %" in words for words in (text, page("liu2022")))

    arms, both = kept(curves, "beyond_policies"), ("AdaC-UCB", "ours: Dist-DP-SE, exact radius")
    panels = [f"10 {kind} arms, T = 1,000,000, pure ε-DP" for kind in ("easy", "hard")]
    pairs = [[curves.pick(arms, panel, name)[0] for name in both] for panel in panels]
    gains = np.stack([slow.mean / fast.mean for fast, slow in pairs])
    lost = [(one.y[0] > 3 * np.median(one.y[0])).sum() for one in pairs[0]]
    beyond = " ".join((PAGES.parent / "beyond.md").read_text().split())
    assert f"factor of {gains.min():.1f} to {gains.max():.1f}" in beyond
    assert "in {} of 400 instances, and exact elimination in {}".format(*lost) in beyond


def test_ratios_are_those_of_the_picture(curves):
    """Panel after panel, as "1.23 ± 0.04, ..."."""
    for picture, pair in ((picture, pair) for picture, pairs in RATIOS.items() for pair in pairs):
        ends = {(each.panel, each.label): each.y[-1] for each in kept(curves, f"chowdhury2023_{picture}")}
        one, other = pair.split("/")
        panels = [panel for panel, label in ends if label == one and panel != "bits"]
        found = [curves.quotient(ends[panel, one], ends[panel, other]) for panel in panels]
        shown = ", ".join(f"{value:.2f} ± {error:.2f}" for value, error in found)
        assert shown in page("chowdhury2023")


def test_ratios_of_renyi_dp_and_of_users_who_return(curves):
    """Section 5 of Chowdhury & Zhou (2023) by delta, line by line of the picture, and noise for users who return."""
    by_delta, returning = kept(curves, "chowdhury2023_delta"), kept(curves, "chowdhury2023_returning")
    shown = []
    for panel in dict.fromkeys(each.panel for each in by_delta):
        pure, renyi, *others = curves.pick(by_delta, panel)
        for below in (pure.y.repeat(len(renyi.x), 0), *(each.y for each in others)):
            ratios = [f"{curves.quotient(a, b)[0]:.2f}" for a, b in zip(renyi.y, below)]
            shown += [", ".join(ratios) if below.shape == renyi.y.shape else " and ".join(ratios[-2:])]
    for radius in ("theory", "exact"):
        pure, renyi, _ = curves.pick(returning, radius)
        ratios = [curves.quotient(a, b) for a, b in zip(renyi.y, pure.y)]
        shown += [", ".join(f"{value:.2f} ± {error:.2f}" for value, error in ratios)]
    assert [one for one in shown if one not in page("chowdhury2023")] == []


def test_claims_of_pages_hold_in_their_numbers(curves):
    """What pages say of users who return, drop-outs, drift, liars and real logs, in the numbers of their pictures."""
    found = curves.pick(kept(curves, "beyond_users"), "regret by r")
    assert {one.note for one in found} == {"certified 1.00"}
    best = [min((one.y[list(one.x).index(r)] for one in found if r in one.x), key=np.mean) for r in (1, 16)]
    ratio, error = curves.quotient(best[1], best[0])
    printed = found[0]  # the paper's algorithm, by group privacy
    assert ratio + 5 * error < curves.quotient(printed.y[2], printed.y[0])[0]

    label = "secure aggregation, what is missed comes later"
    (safe,) = curves.pick(kept(curves, "beyond_dropouts"), "regret", label)
    assert curves.quotient(safe.y[list(safe.x).index(0.2)], safe.y[0])[0] < 1.3

    for one in curves.pick(kept(curves, "beyond_drift"), "jump, by discount"):
        late = one.y[list(one.x).index(1.0)] - one.y[list(one.x).index(0.8)]
        assert late.mean() > 5 * late.std(ddof=1) / np.sqrt(one.n_seeds)
        assert one.note == ("not private" if one.label == "no noise" else "certified")

    for epsilon in ("ε = 1", "ε = 5", "not private"):
        panel = {one.label: one for one in curves.pick(kept(curves, "beyond_liars"), f"{epsilon}, minus its sums")}
        assert curves.quotient(panel["geometric median"].y[3], panel["sum"].y[0])[0] < 2
        assert {one.note for one in panel.values()} == {"not private" if epsilon == "not private" else "certified"}

    logged, *world = curves.pick(kept(curves, "real_silos"), "schools: in the world")
    values = {one.label: one.mean for one in world}
    assert all(low < model < high for model, low, _, high in values.values())
    apart = {label for label, (_, low, _, high) in values.items() if not low < logged.mean[0] < high}
    assert apart == set()  # "the trial in schools is too small"
    cost = []
    for panel in ("lectures", "films"):
        of = {one.label: one.y[-1] for one in kept(curves, "real_silos") if one.panel.startswith(panel)}
        cost.append(curves.quotient(of["secure aggregation, a user with all visits"], of["no noise, not private"])[0])
    words = "about {:.0f} times (lectures) and {:.0f} times (films)".format(*cost)
    assert words in " ".join((PAGES.parent / "your-data.md").read_text().split())


def test_rows_of_plans_are_those_of_their_numbers(curves):
    """All that are kept are on the page, and rows say how often another candidate had less regret."""
    import planning  # pyright: ignore[reportMissingImports]

    found, text = json.loads((FIGURES / "planning.json").read_text()), (PAGES.parent / "planning.md").read_text()
    assert found
    assert found.keys() <= planning.instances().keys()
    assert [name for name, one in found.items() if planning.row(name, one) not in text.splitlines()] == []
    assert all(f"{one['date']}" in text for one in found.values())


def test_powers_of_d(curves):
    """Figure 1C of Dubey & Pentland (2020): powers of d of final regret, with 95 % intervals."""
    curve = kept(curves, "dubey2020_fig1c")
    for panel in ("M = 100", "M = 2"):
        for algo in ("not private", "ε = 1"):
            ends = [curves.pick(curve, panel, f"d = {d}, {algo}")[0].y[-1] for d in (4, 8, 16)]
            power, half = curves.exponent(curves.Curve("", "", [4, 8, 16], ends))
            assert f"{power:.2f} ± {half:.2f}" in page("dubey2020")


def test_slopes_of_regret(curves):
    """Those of Chowdhury & Zhou (2023) that fit some points of a curve, a seed at a time."""
    import chowdhury2023_rates as rates  # pyright: ignore[reportMissingImports]

    measured = kept(curves, "chowdhury2023_rates")
    for panel, label in (("a", "LDP-SE"), ("d", "SE")):
        slope = rates.slope(curves.the(measured, panel, label), rates.PANELS[panel][0])
        assert "{:.2f} ± {:.2f}".format(*slope) in page("chowdhury2023")


def test_schedules_are_compared_on_other_seeds(curves):
    """The best of every family on half of the seeds, less the best fixed batch, on the other half."""
    import policies  # pyright: ignore[reportMissingImports]

    measured, text = kept(curves, "beyond_schedules"), (PAGES.parent / "schedules-and-networks.md").read_text()
    for panel in curves.panels(measured):
        families = [
            [one.y[0] for one in curves.pick(measured, panel) if one.label.startswith(name)]
            for name in policies.FAMILIES
        ]
        half = len(families[0][0]) // 2
        fixed, *others = (min(of, key=lambda y: y[:half].mean())[half:] for of in families)
        for y in others:
            assert "{:,.0f} ± {:,.0f}".format(*curves.mean_error(y - fixed)) in text


POWERS = {  # row of the table -> axis and trust model of the picture
    "M, silo-level LDP": ("M", "silo-level LDP"),
    "M, central": ("M", "central"),
    "T": ("T", "silo-level LDP"),
    "d": ("d", "silo-level LDP"),
    "epsilon, delta = 0.1": ("ε, δ = 0.1", "silo-level LDP"),
    "epsilon, delta = 10^-6": ("ε, δ = $10^{-6}$", "silo-level LDP"),
    "ln(1/delta)": ("ln(1/δ)", "silo-level LDP"),
}


def steps(curve):
    """Returns the powers p of y ~ x^p from each point to the next, of means: they differ where y is no power of x."""
    return ", ".join(f"{p:.3f}" for p in np.diff(np.log(curve.mean)) / np.diff(np.log(curve.x)))


def test_powers_of_regret_and_of_its_bound(curves):
    measured, lines = kept(curves, "zhou2024_rates"), (PAGES / "zhou2024.md").read_text().splitlines()
    for row, (axis, model) in POWERS.items():
        worst = {curve.label: curve for curve in measured if curve.panel == f"worst gap, {axis}"}
        bound = f"{curves.exponent(worst[f'{model}, bound of Lemma C.2'])[0]:.3f}"
        mine = "{:.3f} ± {:.3f}".format(*curves.exponent(worst[model]))
        random = "-" if model == "central" else f"{curves.exponent(worst['uniform play'])[0]:.3f}"
        (other,) = curves.pick(measured, f"random contexts, {axis}", model)
        contexts = "two points only" if len(other.x) == 2 else "{:.3f} ± {:.3f}".format(*curves.exponent(other))
        (quoted,) = [line for line in lines if line.startswith(f"| {row} |")]
        assert quoted.strip("| ").split(" | ")[3:] == [bound, mine, steps(worst[model]), random, contexts]


@pytest.mark.usefixtures("curves")
def test_bounds_have_the_logarithm_by_which_widths_add_up():
    """Lemma C.2, from the noise alone: widths add up to the root of ln(1 + M T / (d lambda_min))."""
    m, d, horizon, batch = 100, 2, 999, 3
    privacy = fb.privacy.Mechanism(fb.privacy.Budget(1.0, 0.1), "tree", "central")
    algo = fb.algos.Federated(policy=fb.algos.UCB(), schedule=batch, privacy=privacy)
    spec = fb.envs.sphere(m, 2, d, rewards="bernoulli").spec
    std, tail = algo.certificate(spec, horizon).server_noise_std, np.sqrt(2 * np.log(2 * (horizon // batch) / 0.01))
    low = std * (np.sqrt(2 * d) + tail)  # lambda_min, if lambda is twice the bound on the noise
    log = np.log(1 + m * horizon / (d * low))
    width = np.sqrt(3 * low) + std * (np.sqrt(d) + tail) / np.sqrt(low) + 0.5 * np.sqrt(2 * np.log(100) + d * log)
    bounds = runpy.run_path(str(EXPERIMENTS / "zhou2024_rates.py"))["bounds"]
    scale = width * np.sqrt(d * m * horizon)
    assert bounds(algo, spec, horizon) == pytest.approx((scale, scale * np.sqrt(log)), rel=1e-4)


def test_the_gallery_is_as_written_now(curves):
    import gallery  # pyright: ignore[reportMissingImports]

    assert (FIGURES / "README.md").read_text() == gallery.page(), "python experiments/gallery.py"
    assert "$" not in gallery.page()  # the site shows no formulas there


def test_stale_sees_what_changed(draw, curves, monkeypatch, tmp_path):
    """A module, what it imports, its numbers and its picture; helpers are in no digest. A folder is not kept."""
    module, other, picture = tmp_path / "drawn.py", tmp_path / "arms.py", tmp_path / "drawn.png"
    monkeypatch.setattr(draw, "experiments", lambda: {"drawn": None})
    monkeypatch.setattr(draw, "module_of", lambda _: module)
    module.write_text("import arms\nimport drawing\n")
    other.write_text("x = 1\n")
    picture.write_bytes(b"picture")
    (tmp_path / "drawing.py").write_text("helpers\n")
    words = ["--full", "--out", str(tmp_path), "--movielens", str(tmp_path), "--redraw"]
    command = f"python experiments/draw.py drawn {draw.options_of(words)}"
    assert command == "python experiments/draw.py drawn --full --movielens DIR"
    table = draw.keep(picture, module, command, [curves.Curve("a", "one, two", [1, 2], [[1, 2], [3, 4]])], "It says")
    assert draw.head(table) == (command, "It says")
    assert draw.stale(table) is None
    (tmp_path / "drawing.py").write_text("other helpers\n")
    assert draw.stale(table) is None
    for path in (module, table, picture, other):
        whole = path.read_bytes()
        path.write_bytes(whole + b"#\n")
        assert "have changed" in draw.stale(table)
        path.write_bytes(whole)


def test_intervals_of_exponents_cover(curves):
    """Of 400 fits with 10 seeds, 95 % of the intervals have the true power, within three standard errors."""
    x, rng = np.array([1.0, 10, 100, 1000]), np.random.default_rng(0)
    drawn = x[:, None] ** 0.75 * rng.gamma(9, 1 / 9, (400, 4, 10))
    fits = [curves.exponent(curves.Curve("", "", x, y)) for y in drawn]
    share = np.mean([abs(power - 0.75) < half for power, half in fits])
    assert abs(share - 0.95) < 3 * np.sqrt(0.95 * 0.05 / 400)


def test_a_curve_over_another_is_the_paired_ratio(curves):
    y, unit = np.random.default_rng(0).gamma(9, 1 / 9, (2, 3, 8))
    one = curves.Curve("", "", [1, 2, 3], y).over(unit)
    for mean, error, *both in zip(one.mean, one.error, y, unit):
        assert (mean, error) == pytest.approx(curves.quotient(*both))


def test_counts_stand_until_the_next_record(curves):
    """A burst after round 7 is not in what stood there, as a line between records would have it."""
    rounds, counts = np.array([2, 6, 8]), np.array([[1, 5, 90], [0, 2, 40]])
    found = curves.standing(rounds, counts, np.array([1.0, 2.0, 7.0, 8.0]))
    np.testing.assert_array_equal(found, [[0, 0], [1, 0], [5, 2], [90, 40]])


def test_random_play_of_arms_is_that_of_the_instances_drawn(curves, key):
    """Elimination pulls all arms equally often at first, and has that regret up to float32."""
    import chowdhury2023  # pyright: ignore[reportMissingImports]

    env, run = fb.envs.arms(5, instance="hard"), dict(key=key, seeds=3)
    regret = fb.simulate(env, fb.algos.SE(), horizon=10, stride=10, **run).regret[:, -1]
    np.testing.assert_allclose(regret / 10, chowdhury2023.random_arms(env, run), rtol=1e-5)


def test_rewards_of_the_authors_on_real_data(curves, key):
    """They are <raw features, theta> of the row that was played, whatever its norm, and agents see normalised rows."""
    import zhou2024  # pyright: ignore[reportMissingImports]

    rows = np.array([[3.0, 4.0], [0.3, 0.4], [0.0, 2.0]], np.float32)
    env = zhou2024.raw_rewards(fb.data.Queries(rows, np.array([2, 1]), np.array([10.0, 1.0], np.float32), "toy"), 2)

    @jax.jit
    def played(arms):
        offered, world = env.observe(key, env.init(key), 0)
        return offered.contexts[0, :2], env.pull(key, world, offered, arms)

    for arm, paid in ((0, 34.0), (1, 3.4)):
        contexts, found = played(np.array([arm, 0], np.int32))
        np.testing.assert_allclose(contexts, [[0.6, 0.8]] * 2, rtol=1e-5)
        np.testing.assert_allclose(found.reward, [paid, 2.0], rtol=1e-5)
        np.testing.assert_allclose(found.gap, [34.0 - paid, 0.0], rtol=1e-5, atol=1e-5)
    assert not env.spec.rewards_in_unit


def test_what_audits_find_is_quoted(draw):
    """Mechanisms that show less than 0.8 of their claim are in the table of the page, with what they show."""
    kept = draw.parsed((FIGURES / "audits.csv").read_text())
    shipped = [one for one in kept if one.panel.startswith("shipped")]
    assert not any(one.note for one in shipped)
    assert all(one.note for one in kept if one not in shipped)
    text = (PAGES.parent / "audits.md").read_text()
    assert f"all {len(shipped)} shipped mechanisms passed" in text
    rows = text.partition("| mechanisms | lower bound / claim | why |\n")[2].partition("\n\n")[0]
    quoted = {float(number) for number in re.findall(r"\d\.\d\d", rows)}
    assert quoted == {round(float(one.mean[0] / one.x[0]), 2) for one in shipped if one.mean[0] < 0.8 * one.x[0]}


def test_numbers_beside_a_picture(draw, tmp_path):
    """Those of an experiment go to another name, as they may have taken hours."""
    (picture := tmp_path / "it.png").write_bytes(b"")

    def keep():
        return draw.keep(picture, EXPERIMENTS / "leaks.py", "python experiments/draw.py leak", [])

    for make in (lambda path: path.write_text("Chapter 1"), lambda path: path.symlink_to(tmp_path / "thesis")):
        make(other := tmp_path / "it.csv")
        kept = keep()
        assert keep().name != "it.csv"
        assert kept.read_text().startswith("# python experiments/")
        assert other.is_symlink() or other.read_text() == "Chapter 1"
        other.unlink()
    assert not (tmp_path / "thesis").exists()
    assert keep() == keep() == tmp_path / "it.csv"
