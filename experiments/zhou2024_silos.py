"""Measures how regret grows with the number M of silos: Corollary 5.2 and Theorem 5.5 of Zhou & Chowdhury (2024).

Batches have B = sqrt(T / M) rounds. Regret is of order M^(3/4) T^(1/2) under silo-level local privacy. It is of order
M^(1/2) T^(1/2) with shuffled vector sums, as with a trusted server. Bounds are about the worst instance, so in (a) and
(b) each algorithm meets its own worst gap. In (c) contexts are random, which takes no exploration.
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

LOCAL, VECTOR_SUM, SECAGG = "silo-level local, Thm 5.1", "shuffled vector sum, Thm 5.5", "secure aggregation"
TRUST = {  # name -> release and trust model, and the powers of M in the bound for T fixed and for M T fixed
    "not private": (None, (0.5, 0.0)),
    LOCAL: (("tree", "silo_local"), (0.75, 0.25)),
    VECTOR_SUM: (("tree", "shuffle_vector_sum"), (0.5, 0.0)),
    SECAGG: (("tree", "secagg"), (0.5, 0.0)),
    "central": (("tree", "central"), (0.5, 0.0)),
    "local, user by user": (("input_perturbation", "local"), (0.75, 0.0)),
}
WORST, RANDOM = "worst gap", "random contexts"
PANELS = ((WORST, False, 4), (WORST, True, 4), (RANDOM, False, 3))  # whether M T is fixed and not T; how many M
WIDTHS = {WORST: fb.algos.UCB(), RANDOM: fb.algos.UCB(confidence="known_noise", regularizer="project")}
LARGEST = 0.5  # gap of the fixed arms
WHOLE = slice(3)  # numbers of silos M <= T: with more, batches of sqrt(T / M) would be shorter than a round
PARTS = (0.6, 1)  # gaps that are tried, as parts of beta sqrt(d / (M T))
CLAIM = "silo-level local privacy has regret of order M^(3/4), M^(1/4) more than shuffled vector sums or central"


@fb.pytree
class FixedArms:
    """Offers everybody the d unit vectors as arms; the second has mean 1/4 + gap, and the others 1/4."""

    gap: float
    spec: fb.Spec = fb.static()

    def init(self, key: jax.Array) -> tuple[()]:
        return ()

    def observe(self, key: jax.Array, world: tuple[()], t: jax.Array) -> tuple[fb.Round, tuple[()]]:
        d = self.spec.dim
        return fb.Round(jnp.broadcast_to(jnp.eye(d), (self.spec.n_agents, d, d))), world

    def pull(self, key: jax.Array, world: tuple[()], offered: fb.Round, arms: jax.Array) -> fb.Feedback:
        lost = jnp.where(arms == 1, 0.0, self.gap)
        return fb.Feedback(jax.random.bernoulli(key, 0.25 + self.gap - lost).astype(jnp.float32), lost)


def bounds(algo: fb.algos.Federated, spec: fb.Spec, horizon: int) -> tuple[float, float]:
    """Returns beta sqrt(d M T), near M T times the worst gap, and the leading term of Lemma C.2 of the paper.

    That has the root of ln(1 + M T / (d lambda_min)) more, by which squared widths add up (the elliptical potential).
    """
    policy: Any = algo.bind(spec, horizon).policy
    scale = float(policy.width(horizon)) * math.sqrt(spec.dim * spec.n_agents * horizon)
    return scale, scale * math.sqrt(math.log1p(float(policy.width.growth) * horizon))


def regret(
    instance: str, policy: Any, privacy: Any, shape: tuple[int, int, int], horizon: int, seeds: int, key: jax.Array
) -> tuple[np.ndarray, float, Any, int]:
    """Returns the final regret (S,), the bound of Lemma C.2, the environment and T, a multiple of the batch.

    At the worst gap all d arms but one are worse by about beta sqrt(d / (M T)). Here beta is the width of the bounds of
    the algorithm. The worse of two gaps counts. Random contexts have no bound. `shape` is (M, K, d).
    """
    batch = max(1, round(math.sqrt(horizon / shape[0])))
    horizon -= horizon % batch
    algo = fb.algos.Federated(policy=policy, schedule=batch, privacy=privacy)
    envs, bound, (m, _, d) = [fb.envs.sphere(*shape, rewards="bernoulli")], math.nan, shape
    if instance == WORST:
        spec = fb.Spec(n_agents=m, n_arms=d, dim=d, fixed_contexts=True, max_norm=1.0, rewards_in_unit=True)
        scale, bound = bounds(algo, spec, horizon)
        envs = [FixedArms(gap=min(LARGEST, part * scale / m / horizon), spec=spec) for part in PARTS]
    run: dict[str, Any] = dict(horizon=horizon, key=key, seeds=seeds, stride=horizon, throw=False)
    found = [final(fb.simulate(env, algo, **run)) for env in envs]
    print(f"{instance}, {privacy}, {shape}, T={horizon}, B={batch}: {np.round(np.mean(found, 1))}", flush=True)
    return max(found, key=np.mean), bound, envs[-1], horizon


def measure(options: Size) -> list[Curve]:
    rounds, users = options.pick((64, 128), (1_000, 1_000_000), (10_000, 10_000_000))
    k, d = options.pick((4, 3), (10, 10), (10, 10))
    agents, key, curves = options.pick([2, 4], *[[10, 100, 1_000, 10_000]] * 2), jax.random.key(options.seed), []
    for instance, split, few in PANELS:
        panel = f"{instance}, M T = {users:,} users" if split else f"{instance}, T = {rounds:,} rounds"
        for name, (model, _) in list(TRUST.items())[: options.pick(2, 6, 6)]:  # fewer programs to compile
            privacy = model and fb.privacy.Mechanism(fb.privacy.Budget(1.0, 0.1), *model)
            of = instance, WIDTHS[instance], privacy
            seeds, shapes = options.pick(2, 6, 25), [(m, k, 2 if instance == WORST else d) for m in agents[:few]]
            found = [regret(*of, shape, users // shape[0] if split else rounds, seeds, key) for shape in shapes]
            colour = fb.plotting.colour(fb.algos.Federated(policy=of[1], schedule=1, privacy=privacy))
            curves.append(Curve(panel, name, agents[:few], [one[0] for one in found], f"{colour} -"))
            if instance == WORST:
                bound = [one[1] for one in found]
                curves.append(Curve(panel, f"{name}, its bound", agents[:few], bound, f"{colour} :"))
        if instance == RANDOM:
            lost = random_play(fb.envs.sphere(10, 10, 10, rewards="bernoulli")) / 10 * rounds * np.array(agents[:few])
            curves.append(Curve(panel, CHANCE, agents[:few], lost, "#999999 -."))
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
    for letter, title, (_, split, _) in zip("abc", panels(curves), PANELS):
        panel = {one.label: one for one in pick(curves, title)}
        ones = [panel[name].but(style=f"{panel[name].style} o") for name in TRUST if name in panel]
        local, central = panel[LOCAL], panel.get("central", panel["not private"])
        sums = [panel[name] for name in (VECTOR_SUM, SECAGG) if name in panel]  # like central, the paper says
        apart = f"within {max((np.abs(one.mean / central.mean - 1).max() for one in sums), default=0.0):.0%} of central"

        def also(ax: Axes, both: Any = (local, central), split: bool = split) -> None:
            for one, order in zip(both, (0.75 - 0.5 * split, 0.5 - 0.5 * split)):
                slope(ax, order, one.x, one.mean[0], "powers of the paper, through the first points")
                end = (one.x[-1], one.mean[0] * (one.x[-1] / one.x[0]) ** order)
                place: Any = dict(xytext=(7, 0), textcoords="offset points", va="center", size="small")
                ax.annotate(f"$M^{{{order:g}}}$", end, **place)

        words = f"{title.rpartition(' ')[0]}\nsums {apart}", "silos M"
        axes: Any = dict(xscale="log", yscale="log", xlim=(local.x[0] / 1.5, 8 * local.x[-1]))
        shown.append(Panel([*ones, *pick(curves, title, CHANCE)], *words, spread=0.04, also=also, **axes))
        power = exponent(local.but(y=local.y / central.y), WHOLE)
        found = f"power of M (M <= T, 95 % intervals): {powers(panel, split)}; silo-level local over central grows as "
        found += f"M^({pm(*power, 3)}); shuffled vector sums and secure aggregation are {apart}"
        size = f"no experiment in the paper; here ({letter}) {title}"
        says.append(Says("Corollary 5.2 and Theorem 5.5", CLAIM, size, found))
    setting = f"""$B=\\sqrt{{T/M}}$ but at least 1, ε = 1 and δ = 0.1. All but the black curve are certified. Mean of
        {pick(curves, label="not private")[0].n_seeds} seeds ± one standard error. Worst gap: K = d = 2, each algorithm
        at the worse of two gaps near $\\beta\\sqrt{{d/(MT)}}$ with the paper's β. Random contexts: K = d = 10, widths
        from the law of the noise"""
    title = "Silo-local noise costs more, the more silos"
    return Picture(shown, title, setting, says, ylabel="group regret at T")


if __name__ == "__main__":
    main(measure, picture, __doc__)
