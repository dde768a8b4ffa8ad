"""Measures how regret grows with the number M of silos: Corollary 5.2 and Theorem 5.5 of Zhou & Chowdhury (2024).

python experiments/zhou2024_silos.py [--smoke | --full] [--redraw]

The paper's main claim: with batches of B = sqrt(T / M) rounds, regret is of order M^(3/4) T^(1/2) under silo-level
local privacy, and M^(1/2) T^(1/2) with shuffled vector sums, as with a trusted server. Bounds are about the worst
instance, so on the left everybody is offered the same two arms, one of which is better by a gap of about beta sqrt(d /
(M T)), where beta is the width of the confidence bounds of the algorithm: each has a worst gap of its own. First T is
fixed, then M T, so that the same users are split over more silos. On the right contexts are random, which takes no
exploration, so that regret grows more slowly than the bound. The caption has the powers of M, with 95 % intervals over
seeds; those of the paper's bounds; and, for the gap, those of the leading term of Lemma C.2, which has all logarithms.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from curves import Curve, exponent, final, panels, pick, pm, random_play, steps
from drawing import CHANCE, Panel, Picture, Says, main, slope
from matplotlib.axes import Axes
from options import Size

import fedbandit_jax as fb

TRUST = {  # name -> trust model and release, and the powers of M in the bound for T fixed and for M T fixed
    "not private": (None, (0.5, 0.0)),
    "silo-level local, Thm 5.1": (("silo_local", "tree"), (0.75, 0.25)),
    "shuffled vector sum, Thm 5.5": (("shuffle_vector_sum", "tree"), (0.5, 0.0)),
    "secure aggregation": (("secagg", "tree"), (0.5, 0.0)),
    "central": (("central", "tree"), (0.5, 0.0)),
    "local, user by user": (("local", "input_perturbation"), (0.75, 0.0)),
}
SUMS = ("shuffled vector sum, Thm 5.5", "secure aggregation")  # of which the paper says that they are like central
WIDTHS = {"random contexts": ("known_noise", "project"), "worst gap": ("theory", "shift")}  # of both instances
PANELS = (  # instance, whether M T is fixed and not T, and which numbers of silos
    ("worst gap", False, slice(None)),
    ("worst gap", True, slice(None)),
    ("random contexts", False, slice(3)),
)
LARGEST = 0.5  # gap of the fixed arms
WHOLE = slice(3)  # numbers of silos M <= T: with more, batches of sqrt(T / M) would be shorter than a round
PARTS = (0.6, 1)  # gaps that are tried, as parts of beta sqrt(d / (M T))
BUDGET = fb.privacy.Budget(1.0, 0.1)


@fb.pytree
class FixedArms:
    """Offers everybody the d unit vectors as arms; the second has mean 1/4 + gap, and the others 1/4."""

    gap: float
    spec: fb.Spec = fb.static()

    def init(self, key: jax.Array) -> tuple[()]:
        """Returns nothing: all seeds have the same arms."""
        return ()

    def observe(self, key: jax.Array, world: tuple[()], t: jax.Array) -> tuple[fb.Round, tuple[()]]:
        """Offers all arms to every user."""
        d = self.spec.dim
        return fb.Round(jnp.broadcast_to(jnp.eye(d), (self.spec.n_agents, d, d))), world

    def pull(self, key: jax.Array, world: tuple[()], offered: fb.Round, arms: jax.Array) -> fb.Feedback:
        """Draws rewards of 0 or 1."""
        lost = jnp.where(arms == 1, 0.0, self.gap)
        return fb.Feedback(jax.random.bernoulli(key, 0.25 + self.gap - lost).astype(jnp.float32), lost)


def recipe(instance: str, name: str, batch: int) -> fb.algos.Federated:
    """Returns the algorithm with this trust model."""
    ucb, private = fb.algos.UCB(confidence=WIDTHS[instance][0], regularizer=WIDTHS[instance][1]), TRUST[name][0]
    privacy = private and fb.privacy.Mechanism(BUDGET, private[1], private[0])
    return fb.algos.Federated(policy=ucb, schedule=batch, privacy=privacy)


def bounds(algo: fb.algos.Federated, spec: fb.Spec, horizon: int) -> tuple[float, float]:
    """Returns beta sqrt(d M T), near M T times the worst gap, and the leading term of Lemma C.2 of the paper.

    That has the root of ln(1 + M T / (d lambda_min)) more, by which squared widths add up (the elliptical potential).
    """
    policy: Any = algo.bind(spec, horizon).policy
    scale = float(policy.width(horizon)) * math.sqrt(spec.dim * spec.n_agents * horizon)
    return scale, scale * math.sqrt(math.log1p(float(policy.width.growth) * horizon))


def regret(instance: str, name: str, m: int, horizon: int, options: Size) -> np.ndarray:
    """Returns the final regret (S,) at the worse of two gaps, and then the bound of Lemma C.2, nan without gaps."""
    batch = max(1, round(math.sqrt(horizon / m)))
    horizon -= horizon % batch
    algo = recipe(instance, name, batch)
    envs, bound = [fb.envs.sphere(m, *options.pick((4, 3), (10, 10), (10, 10)), rewards="bernoulli")], math.nan
    if instance == "worst gap":
        spec = fb.Spec(n_agents=m, n_arms=2, dim=2, fixed_contexts=True, max_norm=1.0, rewards_in_unit=True)
        scale, bound = bounds(algo, spec, horizon)
        envs = [FixedArms(gap=min(LARGEST, part * scale / m / horizon), spec=spec) for part in PARTS]
    seeds, key = options.pick(2, 6, 25), jax.random.key(options.seed)
    run: dict[str, Any] = dict(horizon=horizon, key=key, seeds=seeds, stride=horizon, throw=False)
    found = [final(fb.simulate(env, algo, **run)) for env in envs]
    print(f"{instance}, {name}, M={m}, T={horizon}, B={batch}: {np.round(np.mean(found, 1))}", flush=True)
    return np.append(max(found, key=np.mean), bound)


def measure(options: Size) -> list[Curve]:
    """Returns regret against M for every panel and model, its bound by Lemma C.2, and uniform play."""
    rounds, users = options.pick((64, 128), (1_000, 1_000_000), (10_000, 10_000_000))
    agents, curves = options.pick([2, 4], *[[10, 100, 1_000, 10_000]] * 2), []
    for instance, split, kept in PANELS:
        x = np.array(agents if options.smoke else agents[kept])
        panel = f"{instance}, M T = {users:,} users" if split else f"{instance}, T = {rounds:,} rounds"
        for name in list(TRUST)[: options.pick(2, 6, 6)]:  # fewer programs to compile
            colour = fb.plotting.colour(recipe(instance, name, 1))
            found = np.stack([regret(instance, name, m, users // m if split else rounds, options) for m in x.tolist()])
            curves.append(Curve(panel, name, x, found[:, :-1], f"{colour} -"))
            if instance == "worst gap":
                curves.append(Curve(panel, f"{name}, its bound", x, found[:, -1], f"{colour} :"))
        if instance == "random contexts":
            each = random_play(fb.envs.sphere(10, 10, 10, rewards="bernoulli")) / 10
            curves.append(Curve(panel, "uniform play", x, each * rounds * x, "#999999 -."))
    return curves


def powers(panel: dict[str, Curve], split: bool) -> str:
    """Returns the power of M of every model, with the paper's, and with that of its bound by Lemma C.2."""
    found = []
    for name in (name for name in TRUST if name in panel):
        own = [f", of Lemma C.2 {exponent(panel[one], WHOLE)[0]:.3f}" for one in [f"{name}, its bound"] if one in panel]
        power = f"{name} {pm(*exponent(panel[name], WHOLE), 3)} (from point to point {steps(panel[name])}"
        found.append(f"{power}; the paper's {TRUST[name][1][split]:g}{''.join(own)})")
    return ", ".join(found)


def picture(curves: list[Curve]) -> Picture:
    shown, says = [], []
    claim = "silo-level local privacy has regret of order M^(3/4), M^(1/4) more than shuffled vector sums or central"
    for letter, title, (_, split, _) in zip("abc", panels(curves), PANELS):
        panel = {one.label: one for one in pick(curves, title)}
        ones = [panel[name].but(style=f"{panel[name].style} o") for name in TRUST if name in panel]
        ones += [panel[CHANCE]] if CHANCE in panel else []
        local, central = panel["silo-level local, Thm 5.1"], panel.get("central", panel["not private"])
        apart = max((np.abs(panel[name].mean / central.mean - 1).max() for name in SUMS if name in panel), default=0.0)

        def also(ax: Axes, both: Any = (local, central), split: bool = split) -> None:
            for one, order in zip(both, (0.75 - 0.5 * split, 0.5 - 0.5 * split)):
                slope(ax, order, one.x, one.mean[0], "powers of the paper, through the first points")
                end = (one.x[-1], one.mean[0] * (one.x[-1] / one.x[0]) ** order)
                place: Any = dict(xytext=(7, 0), textcoords="offset points", va="center", size="small")
                ax.annotate(f"$M^{{{order:g}}}$", end, **place)

        words = f"{title}\nsums within {apart:.0%} of central", "silos M", "group regret at T" * (letter == "a")
        shown.append(Panel(ones, *words, spread=0.04, xscale="log", yscale="log", also=also))
        shown[-1].axes["xlim"] = (local.x[0] / 1.5, 4 * local.x[-1])
        power = exponent(local.but(y=local.y / central.y), WHOLE)
        found = f"power of M (M <= T, 95 % intervals): {powers(panel, split)}; silo-level local over central grows as "
        found += f"M^({pm(*power, 3)}); shuffled vector sums and secure aggregation are within {apart:.0%} of central"
        size = f"no experiment in the paper; here ({letter}) {title}"
        says.append(Says("Corollary 5.2 and Theorem 5.5", claim, size, found))
    return Picture(
        shown,
        "Silo-local noise costs more, the more silos",
        "$B=\\sqrt{T/M}$ but at least 1, ε = 1 and δ = 0.1. All but the black curve are certified. Mean of "
        f"{pick(curves, label='not private')[0].n_seeds} seeds ± one standard error. Worst gap: K = d = 2, each "
        "algorithm at the worse of two gaps near $\\beta\\sqrt{d/(MT)}$ with the paper's β. Random contexts: K = d = "
        "10, widths from the law of the noise",
        says,
        height=4,
        ncols=4,
    )


if __name__ == "__main__":
    main(measure, picture, __doc__)
