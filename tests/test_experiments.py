"""The pictures of experiments/figures: none is older than its script or its numbers, and helpers do what they say."""

import re
import runpy
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

import fedbandit_jax as fb

EXPERIMENTS = Path(__file__).parents[1] / "experiments"
FIGURES = EXPERIMENTS / "figures"
PAGES = Path(__file__).parents[1] / "docs" / "reproduction"


@pytest.fixture
def curves(monkeypatch):
    """The module of numbers, which scripts import from their own folder."""
    monkeypatch.syspath_prepend(str(EXPERIMENTS))
    import curves  # pyright: ignore[reportMissingImports]

    yield curves
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None)).startswith(str(EXPERIMENTS)):
            sys.modules.pop(name)


def test_no_picture_is_stale(curves):
    assert [wrong for path in sorted(FIGURES.glob("*.csv")) if (wrong := curves.stale(path))] == []


def test_pictures_have_their_numbers():
    """Those that a script draws; commands and benchmarks draw the others."""
    scripts = tuple(path.stem for path in EXPERIMENTS.glob("*.py"))
    pictures = [path for path in FIGURES.glob("*.png") if path.name.startswith(scripts)]
    assert len(pictures) > 60
    assert [path.stem for path in pictures if not path.with_suffix(".csv").exists()] == []


@pytest.mark.usefixtures("curves")
def test_all_runs_every_script_and_draws_every_picture():
    commands = runpy.run_path(str(EXPERIMENTS / "all.py"))["commands"]
    scripts = {path.name for path in EXPERIMENTS.glob("*.py") if "__main__" in path.read_text(encoding="utf-8")}
    assert {command.split()[0] for command in commands(smoke=True)} == scripts - {"all.py", "curves.py", "gallery.py"}
    assert len(commands(smoke=False)) == len(list(FIGURES.glob("*.png")))


def test_a_picture_is_drawn_again_in_another_folder(curves, monkeypatch, tmp_path):
    """By the command that `all.py --redraw --out DIR` runs, from the numbers that are kept in experiments/figures."""
    run = runpy.run_path(str(EXPERIMENTS / "all.py"))["run"]
    monkeypatch.setattr(sys, "argv", sys.argv)  # as it was, afterwards
    assert run(f"liu2022_runtime.py --redraw --out {tmp_path}")[2] == ""
    made, kept = (folder / "liu2022_runtime.csv" for folder in (tmp_path, FIGURES))
    assert curves.head(made) == curves.head(kept)
    assert made.read_text(encoding="utf-8").split("\n")[1:] == kept.read_text(encoding="utf-8").split("\n")[1:]
    assert (tmp_path / "liu2022_runtime.png").exists()


QUOTED_RATIOS = (  # picture, regret of what over that of what, digits
    ("chowdhury2023_fig2_theory", "Dist-DP-SE", "DP-SE", 2),
    ("chowdhury2023_fig2_theory", "Dist-RDP-SE (s=10)", "Dist-DP-SE", 2),
    ("chowdhury2023_fig2_theory", "Dist-RDP-SE (s=100)", "Dist-RDP-SE (s=10)", 2),
    ("chowdhury2023_fig3_theory", "Dist-DP-SE", "DP-SE", 2),
    ("chowdhury2023_fig3_theory", "Dist-RDP-SE (s=10)", "Dist-DP-SE", 2),
    ("chowdhury2023_fig3_theory", "Dist-RDP-SE (s=100)", "Dist-RDP-SE (s=10)", 2),
    ("chowdhury2023_fig2_exact", "Dist-DP-SE", "DP-SE", 2),
    ("chowdhury2023_fig2_exact", "Dist-RDP-SE (s=10)", "Dist-DP-SE", 2),
    ("chowdhury2023_fig3_exact", "Dist-DP-SE", "DP-SE", 2),
    ("chowdhury2023_fig2_authors", "Dist-DP-SE", "DP-SE", 2),
    ("chowdhury2023_fig3_authors", "Dist-DP-SE", "DP-SE", 2),
    ("chowdhury2023_mslr_theory", "Dist-DP-SE", "DP-SE", 2),
    ("chowdhury2023_fig4_theory", "Dist-DP-SE", "CDP-SE", 2),
    ("chowdhury2023_fig4_theory", "LDP-SE", "CDP-SE", 1),
    ("chowdhury2023_fig4_theory", "Dist-RDP-SE (s=10)", "Dist-DP-SE", 2),
    ("chowdhury2023_fig4_theory", "Dist-CDP-SE (s=10)", "Dist-RDP-SE (s=10)", 2),
    ("chowdhury2023_fig4_exact", "Dist-CDP-SE (s=10)", "Dist-RDP-SE (s=10)", 2),
    ("chowdhury2023_shuffle_theory", "Shuffle-DP-SE", "Dist-DP-SE", 2),
)
CAUSES = ("", ", without merging", ", without confidence widths", ", without merging and widths")
NOT_PRIVATE = ("FCLUB", "FCLUB-DC", "CLUB", "SCLUB", "LinUCB")
QUOTED_REGRETS = (  # picture, labels
    ("liu2022_order", NOT_PRIVATE),
    ("liu2022_fig2a_m4_consecutive_1", ("FCLUB", "FCLUB-DC", "CDP-FCLUB-DC", "Homo", "Homo-DC")),
    ("liu2022_fig2a_m4_consecutive_0.005", (*NOT_PRIVATE, "CDP-FCLUB-DC", "Homo")),
    ("liu2022_fig2b_centroid_40_1", (*NOT_PRIVATE, "CDP-FCLUB-DC", "Homo")),
    ("liu2022_fig2b_user_40_1", (*NOT_PRIVATE, "CDP-FCLUB-DC", "Homo")),
)


@pytest.mark.parametrize(("picture", "one", "other", "digits"), QUOTED_RATIOS)
def test_pages_quote_the_ratios_of_their_pictures(curves, picture, one, other, digits):
    """Regret at T of one over the other, panel after panel, is in the page as in the CSV of the picture."""
    kept = curves.parsed((FIGURES / f"{picture}.csv").read_text(encoding="utf-8"))
    ends = {(each.panel, each.label): each.y[-1] for each in kept}
    panels = [panel for panel, label in ends if label == one and panel != "bits"]
    found = [curves.quotient(ends[panel, one], ends[panel, other]) for panel in panels]
    shown = ", ".join(f"{value:.{digits}f} ± {error:.{digits}f}" for value, error in found)
    assert shown in (PAGES / f"{picture.split('_')[0]}.md").read_text(encoding="utf-8")


def test_the_page_quotes_at_which_delta_renyi_dp_is_worth_it(curves):
    """The ratios of Section 5 of Chowdhury & Zhou (2023), line by line of the picture, against Dist-DP-SE."""
    kept = curves.parsed((FIGURES / "chowdhury2023_delta.csv").read_text(encoding="utf-8"))
    page = (PAGES / "chowdhury2023.md").read_text(encoding="utf-8")
    for panel in dict.fromkeys(each.panel for each in kept):
        pure, renyi, *others = curves.pick(kept, panel)
        for below in (pure.y.repeat(len(renyi.x), 0), *(each.y for each in others)):
            ratios = [f"{curves.quotient(a, b)[0]:.2f}" for a, b in zip(renyi.y, below)]
            assert (", ".join(ratios) if below.shape == renyi.y.shape else " and ".join(ratios[-2:])) in page


def test_the_page_quotes_what_users_who_return_cost(curves):
    kept = curves.parsed((FIGURES / "chowdhury2023_returning.csv").read_text(encoding="utf-8"))
    page = (PAGES / "chowdhury2023.md").read_text(encoding="utf-8")
    for radius in ("theory", "exact"):
        pure, renyi, _ = curves.pick(kept, radius)
        ratios = [curves.quotient(a, b) for a, b in zip(renyi.y, pure.y)]
        assert ", ".join(f"{value:.2f} ± {error:.2f}" for value, error in ratios) in page


def test_the_page_quotes_what_one_user_in_all_her_visits_costs(curves):
    """Row by row of the table in docs/privacy.md, and what 16 visits cost, by far less than by group privacy."""
    kept = curves.parsed((FIGURES / "beyond_users.csv").read_text(encoding="utf-8"))
    page = (PAGES.parent / "privacy.md").read_text(encoding="utf-8")
    found = {one.label: one for one in curves.pick(kept, "regret by r")}
    for label, one in found.items():
        shown = " | ".join(f"{mean:,.0f} ± {error:,.0f}" for mean, error in zip(one.mean, one.error))
        assert f"{' |' * (4 - len(one.x))} {shown} |" in page.split(f"| {label} |")[1].split("\n")[0]
        assert one.note == "certified 1.00"
    best = [min((one.y[list(one.x).index(r)] for one in found.values() if r in one.x), key=np.mean) for r in (1, 16)]
    ratio, error = curves.quotient(best[1], best[0])
    assert f"{ratio:.2f} ± {error:.2f} times" in page
    once = f"{best[0].mean():,.0f} ± {best[0].std(ddof=1) / len(best[0]) ** 0.5:,.0f} where users come once"
    assert once in (PAGES.parent / "beyond.md").read_text(encoding="utf-8")
    printed = next(iter(found.values()))  # the paper's algorithm, by group privacy
    assert ratio + 5 * error < curves.quotient(printed.y[2], printed.y[0])[0]
    left_out = curves.pick(kept, "left out by c")[0]
    for c, share in zip(left_out.x, left_out.mean):
        assert f"{c:g}: {100 * share:.0f} %" in page


def test_the_page_quotes_what_silos_that_drop_out_cost(curves):
    """Row by row of the table in docs/federation.md, and the goal: 1.3 times the regret at 20 %, certified."""
    kept = curves.parsed((FIGURES / "beyond_dropouts.csv").read_text(encoding="utf-8"))
    page = (PAGES.parent / "federation.md").read_text(encoding="utf-8")
    for one in curves.pick(kept, "regret"):
        shown = " | ".join(f"{mean:,.0f} ± {error:,.0f}" for mean, error in zip(one.mean, one.error))
        assert f"| {one.label} | {shown} |" in page
        assert one.note == ("not private" if one.label == "no noise" else "certified")
    safe = next(
        one for one in kept if (one.panel, one.label) == ("regret", "secure aggregation, what is missed comes later")
    )
    ratio, error = curves.quotient(safe.y[list(safe.x).index(0.2)], safe.y[0])
    assert f"{ratio:.2f} ± {error:.2f} times" in page
    assert ratio < 1.3


def test_the_page_quotes_what_a_world_that_moves_costs(curves):
    """All numbers of the table in docs/federation.md, and that forgetting helps, private or not, all certified."""
    kept = curves.parsed((FIGURES / "beyond_drift.csv").read_text(encoding="utf-8"))
    page = (PAGES.parent / "federation.md").read_text(encoding="utf-8").replace("**", "")
    by_noise = curves.pick(kept, "jump, by discount")
    rows = {}
    for i, decay in enumerate(by_noise[0].x):
        what = "discount " + f"{decay:g}" if decay < 1 else "nothing forgotten"
        rows["greedy", what] = [(one.mean[i], one.error[i]) for one in by_noise]
    for one in curves.pick(kept, "jump, by policy"):
        for i, policy in enumerate(("UCB", "Thompson"), 1):
            rows.setdefault((policy, one.label.partition(", ")[2]), []).append((one.mean[i], one.error[i]))
    for (policy, what), cells in rows.items():
        shown = " | ".join(f"{mean:,.0f} ± {error:,.0f}" for mean, error in cells)
        assert f"| {policy}, {what} | {shown} |" in page
    for one in by_noise:
        assert one.n_seeds == 16
        late = one.y[list(one.x).index(1.0)] - one.y[list(one.x).index(0.8)]
        assert late.mean() > 5 * late.std(ddof=1) / 4
        assert one.note == ("not private" if one.label == "no noise" else "certified")


def test_the_page_quotes_what_privacy_costs_on_real_logs(curves):
    """Row by row of the table in docs/your-data.md, and where the log agrees with the model and differs from itself."""
    kept = curves.parsed((FIGURES / "real_silos.csv").read_text(encoding="utf-8"))
    page = (PAGES.parent / "your-data.md").read_text(encoding="utf-8")
    for one in kept:
        if one.style:
            shown = " | ".join(f"{mean:.2f} ± {error:.2f}" for mean, error in zip(one.mean, one.error))
            assert f"| {one.panel.split(':')[0]}: {one.label} | {shown} |" in page
    logged, *world = curves.pick(kept, "schools: in the world")
    assert f"the mean of the log, {logged.mean[0]:.4f}" in page
    values = {one.label: one.mean for one in world}
    assert len(values) == 7
    assert all(low < model < high for model, low, _, high in values.values())
    apart = {label for label, (_, low, _, high) in values.items() if not low < logged.mean[0] < high}
    secure = {f"secure aggregation, one visit, ε = {epsilon}" for epsilon in (2, 8)}
    assert apart == secure


def test_the_page_quotes_what_liars_cost(curves):
    """Row by row of the table in docs/federation.md, and the goal: twice the regret at 20 % of flipped signs."""
    kept = curves.parsed((FIGURES / "beyond_liars.csv").read_text(encoding="utf-8"))
    page = (PAGES.parent / "federation.md").read_text(encoding="utf-8")
    attacks = ("minus its sums", "as if θ* were e₁", "random messages", "minus 1,000 × its sums")
    for epsilon in ("ε = 1", "ε = 5", "not private"):
        found = {(one.label, one.panel.split(", ")[1]): one for one in kept if one.panel.startswith(f"{epsilon}, ")}
        honest = found["sum", attacks[0]].y[0]
        for rule in ("sum", "median", "geometric_median", "trimmed_mean"):
            words = rule.replace("_", " ")
            cells = [(found[words, attacks[0]], 0), *((found[words, attack], 3) for attack in attacks)]
            shown = " | ".join(f"{one.mean[i]:,.0f} ± {one.error[i]:,.0f}" for one, i in cells)
            assert f"| {epsilon} | `{rule}` | {shown} |" in page
        ratios = [curves.quotient(found["geometric median", attack].y[3], honest) for attack in attacks]
        assert all(f"{ratio:.2f} ± {error:.2f}" in page for ratio, error in ratios[:2])
        assert ratios[0][0] < 2
        assert {one.note for one in found.values()} == {"not private" if epsilon == "not private" else "certified"}


@pytest.mark.parametrize(("picture", "labels"), QUOTED_REGRETS)
def test_pages_quote_the_regrets_of_their_pictures(curves, picture, labels):
    """The label, and its mean regret at T with the standard error, are in the page as in the CSV of the picture."""
    kept = curves.parsed((FIGURES / f"{picture}.csv").read_text(encoding="utf-8"))
    page = (PAGES / f"{picture.split('_')[0]}.md").read_text(encoding="utf-8")
    ends = {each.label: each for each in kept if each.panel == "regret"}
    shown = [f"{label} {ends[label].mean[-1]:,.0f} ± {ends[label].error[-1]:,.0f}" for label in labels]
    assert [one for one in shown if one not in page] == []


def test_the_page_quotes_why_the_private_version_fails(curves):
    """Its table has regret with one cause removed at a time, row by row of epsilon."""
    kept = curves.parsed((FIGURES / "liu2022_why.csv").read_text(encoding="utf-8"))
    page = (PAGES / "liu2022.md").read_text(encoding="utf-8")
    changes = [f"CDP-FCLUB-DC{noise}{one}" for noise in ("", ", recalibrated") for one in CAUSES]
    for panel in dict.fromkeys(each.panel for each in kept):
        bars = {each.label: each for each in curves.pick(kept, panel)}
        row = " | ".join(f"{bars[one].mean[0]:,.0f} ± {bars[one].error[0]:,.0f}" for one in changes)
        assert f"| {row} |" in page


def test_the_page_quotes_how_regret_grows_with_d(curves):
    """Figure 1C of Dubey & Pentland (2020): powers of d of final regret, with 95 % intervals."""
    kept = curves.parsed((FIGURES / "dubey2020_fig1c.csv").read_text(encoding="utf-8"))
    page = (PAGES / "dubey2020.md").read_text(encoding="utf-8")
    for panel in ("M = 100", "M = 2"):
        for algo in ("not private", "ε = 1"):
            ends = [curves.pick(kept, panel, f"d = {d}, {algo}")[0].y[-1] for d in (4, 8, 16)]
            power, half = curves.exponent(curves.Curve("", "", [4, 8, 16], ends))
            assert f"{panel}, {algo} d^{power:.2f} ± {half:.2f}" in page


@pytest.mark.parametrize(
    ("row", "axis", "model"),
    [
        ("M, silo-level LDP", "M", "silo-level LDP"),
        ("M, central", "M", "central"),
        ("T", "T", "silo-level LDP"),
        ("d", "d", "silo-level LDP"),
        ("epsilon, delta = 0.1", "ε, δ = 0.1", "silo-level LDP"),
        ("epsilon, delta = 10^-6", "ε, δ = $10^{-6}$", "silo-level LDP"),
        ("ln(1/delta)", "ln(1/δ)", "silo-level LDP"),
    ],
)
def test_the_page_quotes_the_powers_of_regret_and_of_its_bound(curves, row, axis, model):
    kept = curves.parsed((FIGURES / "zhou2024_rates.csv").read_text(encoding="utf-8"))
    worst = {curve.label: curve for curve in kept if curve.panel == f"worst gap, {axis}"}
    bound = f"{curves.exponent(worst[f'{model}, bound of Lemma C.2'])[0]:.3f}"
    mine = "{:.3f} ± {:.3f}".format(*curves.exponent(worst[model]))
    random = "-" if model == "central" else f"{curves.exponent(worst['random play'])[0]:.3f}"
    (other,) = curves.pick(kept, f"random contexts, {axis}", model)
    contexts = "two points only" if len(other.x) == 2 else "{:.3f} ± {:.3f}".format(*curves.exponent(other))
    page = (PAGES / "zhou2024.md").read_text(encoding="utf-8")
    (quoted,) = [line for line in page.splitlines() if line.startswith(f"| {row} |")]
    assert quoted.strip("| ").split(" | ")[3:] == [bound, mine, curves.steps(worst[model]), random, contexts]


@pytest.mark.parametrize("trust", ["silo_local", "central"])
def test_bounds_have_the_logarithm_by_which_widths_add_up(curves, trust):
    """Lemma C.2, from the noise alone: widths add up to the root of ln(1 + M T / (d lambda_min))."""
    m, d, horizon, batch = 100, 2, 999, 3
    privacy = fb.privacy.Mechanism(fb.privacy.Budget(1.0, 0.1), "tree", trust)
    algo = fb.algos.Federated(policy=fb.algos.UCB(), schedule=batch, privacy=privacy)
    spec = fb.envs.sphere(m, 2, d, rewards="bernoulli").spec
    std, tail = algo.certificate(spec, horizon).server_noise_std, np.sqrt(2 * np.log(2 * (horizon // batch) / 0.01))
    low = std * (np.sqrt(2 * d) + tail)  # lambda_min, if lambda is twice the bound on the noise
    log = np.log(1 + m * horizon / (d * low))
    width = np.sqrt(3 * low) + std * (np.sqrt(d) + tail) / np.sqrt(low) + 0.5 * np.sqrt(2 * np.log(100) + d * log)
    bounds = runpy.run_path(str(EXPERIMENTS / "zhou2024_silos.py"))["bounds"]
    scale = width * np.sqrt(d * m * horizon)
    assert bounds(algo, spec, horizon) == pytest.approx((scale, scale * np.sqrt(log)), rel=1e-4)


def test_the_page_quotes_what_exact_radii_save(curves):
    kept = curves.parsed((FIGURES / "beyond_arms.csv").read_text(encoding="utf-8"))
    page = (PAGES.parent / "arms.md").read_text(encoding="utf-8")
    for label in ("Dist-DP-SE, printed radius", "Dist-DP-SE, exact radius"):
        one = curves.pick(kept, label=label)[0]  # by the ε of the paper
        for epsilon in (0.1, 0.5):
            (i,) = np.flatnonzero(one.x == epsilon)
            assert f"{one.mean[i]:,.0f} ± {one.error[i]:,.0f}" in page


def test_the_gallery_is_as_written_now(curves):
    import gallery  # pyright: ignore[reportMissingImports]

    assert (FIGURES / "README.md").read_text(encoding="utf-8") == gallery.page(), "python experiments/gallery.py"
    assert "$" not in gallery.page()  # the site shows no formulas there


@pytest.mark.parametrize("changed", ["script", "numbers", "picture", "imported"])
def test_stale_sees_what_changed(curves, monkeypatch, tmp_path, changed):
    monkeypatch.setattr(curves, "HERE", tmp_path)
    script, other, picture = tmp_path / "drawn.py", tmp_path / "arms.py", tmp_path / "drawn.png"
    script.write_text("import arms\nimport drawing\n")
    other.write_text("x = 1\n")
    picture.write_bytes(b"picture")
    monkeypatch.setitem(sys.modules, "__main__", type(sys)("__main__"))
    sys.modules["__main__"].__file__ = str(script)
    argv = ["drawn.py", "--full", "--out", str(tmp_path), "--movielens", str(tmp_path), "--redraw"]
    monkeypatch.setattr(sys, "argv", argv)
    table = curves.keep(picture, [curves.Curve("a", "one, two", [1, 2], [[1, 2], [3, 4]])], "It says\nthis")
    assert curves.stale(table) is None
    command = "python experiments/drawn.py --full --movielens DIR"
    assert curves.head(table) == (command, ["It says", "this"])
    monkeypatch.setattr(sys, "argv", ["drawn.py", "--redraw"])
    curves.keep(picture, [curves.Curve("a", "one, two", [1, 2], [[1, 2], [3, 4]])], "It says\nthis")
    assert curves.head(table) == (command, ["It says", "this"])  # of the run that made the numbers
    assert table.read_text().startswith("# python experiments/drawn.py --full --movielens DIR |")
    (tmp_path / "drawing.py").write_text("helpers are in no digest\n")
    assert curves.stale(table) is None
    path = {"script": script, "numbers": table, "picture": picture, "imported": other}[changed]
    path.write_bytes(path.read_bytes() + b"#\n")
    assert "have changed" in curves.stale(table)


def test_numbers_are_read_as_written(curves):
    written = [
        curves.Curve("a, b", "ε = 1\nthen", [1, 20], [[1, 2.5], [3, 40_000]], "#000000 -", "certified"),
        curves.Curve("a, b", "bound", [1, 2], [1, np.nan]),
    ]
    again = curves.parsed("# command\n" + curves.written(written))
    assert [one.label for one in again] == ["ε = 1\nthen", "bound"]
    for one, other in zip(written, again):
        np.testing.assert_array_equal(one.x, other.x)
        np.testing.assert_array_equal(one.y, other.y)
        assert (one.panel, one.style, one.note) == (other.panel, other.style, other.note)


def test_intervals_of_exponents_cover(curves):
    """Of 400 fits with 10 seeds, 95 % of the intervals have the true power, within three standard errors."""
    x, rng = np.array([1.0, 10, 100, 1000]), np.random.default_rng(0)
    drawn = x[:, None] ** 0.75 * rng.gamma(9, 1 / 9, (400, 4, 10))
    fits = [curves.exponent(curves.Curve("", "", x, y)) for y in drawn]
    share = np.mean([abs(power - 0.75) < half for power, half in fits])
    assert abs(share - 0.95) < 3 * np.sqrt(0.95 * 0.05 / 400)


def test_verdicts_need_the_interval_to_exclude_nothing(curves):
    worse = np.array([10.0, 11, 12, 13])
    assert curves.verdict(worse - 5 + np.array([0.1, -0.1, 0, 0]), worse).startswith("holds, by 5")
    assert curves.verdict(worse, worse - 5 + np.array([0.1, -0.1, 0, 0])).startswith("reversed")
    assert curves.verdict(worse + np.array([5.0, -5, 6, -6]), worse).startswith("undecided")


def test_counts_stand_until_the_next_record(curves):
    """A burst after round 7 is not in what stood there, as a line between records would have it."""
    rounds, counts = np.array([2, 6, 8]), np.array([[1, 5, 90], [0, 2, 40]])
    found = curves.standing(rounds, counts, np.array([1.0, 2.0, 7.0, 8.0]))
    np.testing.assert_array_equal(found, [[0, 0], [1, 0], [5, 2], [90, 40]])


def test_random_play_of_arms_is_that_of_the_instances_drawn(curves, key):
    """Elimination pulls all arms equally often at first, and has that regret up to float32."""
    import arms  # pyright: ignore[reportMissingImports]

    env, run = fb.envs.arms(5, instance="hard"), dict(key=key, seeds=3)
    regret = fb.simulate(env, fb.algos.SuccessiveElimination(), horizon=10, stride=10, **run).regret[:, -1]
    np.testing.assert_allclose(regret / 10, arms.random_arms(env, run), rtol=1e-5)
    sys.modules.pop("arms")


def test_rewards_of_the_authors_on_real_data(curves, key):
    """They are <raw features, theta> of the row that was played, whatever its norm, and agents see normalised rows."""
    import silos  # pyright: ignore[reportMissingImports]

    rows = np.array([[3.0, 4.0], [0.3, 0.4], [0.0, 2.0]], np.float32)
    env = silos.raw_rewards(fb.data.Queries(rows, np.array([2, 1]), np.array([10.0, 1.0], np.float32), "toy"), 2)
    offered, world = env.observe(key, env.init(key), 0)
    np.testing.assert_allclose(offered.contexts[0, :2], [[0.6, 0.8]] * 2, rtol=1e-5)
    for arm, paid in ((0, 34.0), (1, 3.4)):
        found = env.pull(key, world, offered, jax.numpy.array([arm, 0]))
        np.testing.assert_allclose(found.reward, [paid, 2.0], rtol=1e-5)
        np.testing.assert_allclose(found.gap, [34.0 - paid, 0.0], rtol=1e-5, atol=1e-5)
    assert not env.spec.rewards_in_unit
    sys.modules.pop("silos")


def test_what_audits_find_is_quoted(curves):
    """Mechanisms that show less than 0.8 of their claim are in the table of the page, with what they show."""
    kept = curves.parsed((FIGURES / "audits.csv").read_text(encoding="utf-8"))
    shipped = [one for one in kept if one.panel.startswith("shipped")]
    assert not any(one.note for one in shipped)
    assert all(one.note for one in kept if one not in shipped)
    page = (PAGES.parent / "privacy.md").read_text(encoding="utf-8")
    assert f"all {len(shipped)} shipped mechanisms passed" in page
    rows = page.partition("| mechanisms | lower bound / claim | why |\n")[2].partition("\n\n")[0]
    quoted = {float(number) for number in re.findall(r"\d\.\d\d", rows)}
    assert quoted == {round(float(one.mean[0] / one.x[0]), 2) for one in shipped if one.mean[0] < 0.8 * one.x[0]}
