"""Draws linear and logistic statistics on clicks, and truncated rewards with heavy tails, all certified.

(a), (b) Users click with probability 1 / (1 + exp(-8 (<x, theta*> - 1/2))). The same greedy recipe sums x (y - 1/2) and
x x' (`Linear`) or what one Newton step of logistic regression needs (`Logistic`). (c) Rewards <x, theta*> with noise,
or times a draw of Pareto's law, clipped to a range around 1/2. Constants were chosen on other seeds.
"""

from functools import partial
from typing import Any

from curves import along, pick, the, uniform
from drawing import CHANCE, LOGS, Axes, Curve, Panel, Picture, Size, dressed, main, styled
from recipes import GREEDY, HALF, with_noise

import fedbandit_jax as fb

M, K, D, DELTA = 100, 100, 10, 0.1
EPSILONS = (1.0, 8.0)
RANGES = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
STATISTICS = {"linear": HALF, "logistic": fb.privacy.Logistic()}
TAILS: dict[str, dict[str, Any]] = {
    "Gaussian, standard deviation 1": dict(rewards="gaussian", noise_std=1.0),
    "Student, 3 degrees of freedom": dict(rewards="student_t", noise_std=1.0, shape=3.0),
    "Student, 2 degrees of freedom": dict(rewards="student_t", noise_std=1.0, shape=2.0),
    "Pareto, tail index 2": dict(rewards="pareto", shape=2.0),
}
LOOKS = dict(zip(TAILS, ("#882255 o", "#E69F00 s", "#56B4E9 D", "#CC79A7 ^")))
LOOKS |= dict(zip(STATISTICS, fb.plotting.COLOURS[1:]))


def clipped(r: float) -> fb.privacy.Linear:
    """Returns the statistic whose rewards are clipped to a range of length r around 1/2."""
    return fb.privacy.Linear(0.5, centred=True, low=0.5 - r / 2, high=0.5 + r / 2)


def measure(options: Size) -> list[Curve]:
    run, curves = options.ends(20, 2000, 2000, seeds=(2, 16, 32), fresh=1000, store=None), []
    instance = partial(fb.envs.sphere, *options.shape(M, K, D))
    studies = [(each, STATISTICS, EPSILONS, dict(contexts=each, rewards="logistic")) for each in ("fresh", "fixed")]
    ranges = options.pick(RANGES[:2], RANGES, RANGES)
    studies += [("tails", {name: None}, ranges, law) for name, law in list(TAILS.items())[options.pick(3, 0, 0) :]]
    for panel, statistics, x, world in studies:
        env, algos = instance(**world), {}
        make = partial(with_noise, GREEDY, env, run["horizon"], release=fb.privacy.Decaying(1.5), delta=DELTA)
        for label, one in statistics.items():
            algos |= {f"{(label, v)}": make(v if one else 1.0, statistic=one or clipped(v)) for v in x}
        result = options.sweep(env, algos | {"no noise": GREEDY}, **run)
        for name in statistics:
            curves.append(along(panel, name, x, (result[f"{(name, v)}"] for v in x)))
        free = along(panel, "no noise", x, [result["no noise"]] * len(x)).but(note="none")
        curves.append(free.but(panel="tails, no noise", label=next(iter(statistics))) if panel == "tails" else free)
    chances = ((CHANCE, "logistic"), (f"{CHANCE}, tails", "gaussian"))
    return [*curves, *(uniform(instance(rewards=rewards), run["horizon"], panel) for panel, rewards in chances)]


def picture(curves: list[Curve]) -> Picture:
    curves, shown = dressed(curves, LOOKS), []
    clicks, chance = (round(the(curves, panel).mean[0], -2) for panel in (CHANCE, f"{CHANCE}, tails"))
    for contexts in ("fresh", "fixed"):
        *private, free = pick(curves, contexts)
        words = dict(enumerate([*(f"ε = {e:g}" for e in free.x), "no\nnoise"]))
        bars = Panel(private, f"clicks, {contexts} arms", "", "regret at T, in clicks", kind="bars", spread=0.4)
        bars.label, bars.places, bars.xticks = "(a), (b): {label}, certified", True, words
        bars.axes |= dict(xlim=(-0.6, len(free.x) + 0.5), ylim=(0, 1_900))
        look: dict[str, Any] = dict(yerr=free.error[0], capsize=2, color="0.6", label="(a), (b): linear, no noise")
        bars.also = lambda ax, free=free, look=look: ax.bar(len(free.x), free.mean[0], 0.38, **look)
        shown.append(bars)
    tails, frees = pick(curves, "tails"), pick(curves, "tails, no noise")
    last = tails[0].x[-1] * 2.5  # where runs without noise and clipping are drawn

    def raw(ax: Axes) -> None:
        for i, free in enumerate(frees):
            look: dict[str, Any] = dict(color=styled(free)[0], fmt=styled(free)[2], mfc="white", capsize=3)
            ax.errorbar(panel.aside(i, last), free.mean[0], free.error[0], **look)

    words = "length R of the range of clipped rewards", "regret at T, in units of reward"
    panel = Panel(tails, "heavy tails, ε = 1, certified", *words, label="(c): {label}", spread=0.06, also=raw)
    panel.xticks = {**{r: f"{r:g}" for r in tails[0].x}, last: "none"}
    panel.axes |= dict(LOGS, xlim=(0.2, 2 * last))
    panel.level, name = {f"(c): {CHANCE}": chance}, list(TAILS)[2] if len(tails) > 2 else tails[0].label
    (linear, logistic), student, free = pick(curves, "fresh")[:2], the(tails, label=name), the(frees, label=name)
    return Picture(
        [*shown, panel],
        "Simple statistics and narrow ranges lose least",
        f"M = {M}, K = {K}, d = {D}, T = 2,000, δ = {DELTA:g}. Mean of {curves[0].n_seeds} seeds ± one standard error. "
        f"Uniform play in (a) and (b) has {clicks:,.0f} clicks. Open markers in (c): no noise, no clipping",
        f"On clicks of fresh arms the linear statistic has {linear.said(0)} at ε = 1 and {linear.said(1)} at ε = 8, "
        f"and the logistic one {logistic.said(0)} and {logistic.said(1)}. The narrowest range has the least regret: "
        f"with Student's law of 2 degrees of freedom it is {student.said(0)}. Sums of raw rewards without noise have "
        f"{free.said(0)}.",
        grid=dict(width_ratios=(1, 1, 2)),
    )


if __name__ == "__main__":
    main(measure, picture, __doc__)
