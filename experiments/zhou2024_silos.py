"""Measures how regret grows with the number M of silos: Corollary 5.2 and Theorem 5.5 of Zhou & Chowdhury (2024).

python experiments/zhou2024_silos.py [--smoke | --full] [--redraw]

The paper's main claim: with batches of B = sqrt(T / M) rounds, regret is of order M^(3/4) T^(1/2) under silo-level
local privacy, and M^(1/2) T^(1/2) with shuffled vector sums, as with a trusted server. Bounds are about the worst
instance, so on the left everybody is offered the same two arms, one of which is better by a gap of about beta sqrt(d /
(M T)), where beta is the width of the confidence bounds. First T is fixed, then M T, so that the same users are split
over more silos. On the right contexts are random, which takes no exploration, so that regret grows more slowly than the
bound. A label has the power of M, with a 95 % interval over seeds; that of the paper's bound; and, for the gap, that
of beta sqrt(d M T), which is that bound with its logarithms.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import tyro
from curves import Curve, exponent, pick, random_play
from drawing import Says, caption, save, slope
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


def regret(instance: str, name: str, m: int, horizon: int, options: Size) -> np.ndarray:
    """Returns the final regret (S,) at the worse of two gaps, and then beta sqrt(d M T), which is nan without gaps."""
    batch = max(1, round(math.sqrt(horizon / m)))
    horizon -= horizon % batch
    algo = recipe(instance, name, batch)
    envs, bound = [fb.envs.sphere(m, *options.pick((4, 3), (10, 10), (10, 10)), rewards="bernoulli")], math.nan
    if instance == "worst gap":
        spec = fb.Spec(n_agents=m, n_arms=2, dim=2, fixed_contexts=True, max_norm=1.0, rewards_in_unit=True)
        policy: Any = algo.bind(spec, horizon).policy
        bound = float(policy.width(horizon)) * math.sqrt(spec.dim * m * horizon)
        envs = [FixedArms(gap=min(LARGEST, part * bound / m / horizon), spec=spec) for part in PARTS]
    seeds, key = options.pick(2, 6, 25), jax.random.key(options.seed)
    run: dict[str, Any] = dict(horizon=horizon, key=key, seeds=seeds, stride=horizon, throw=False)
    found = [fb.simulate(env, algo, **run).regret[:, -1] for env in envs]
    print(f"{instance}, {name}, M={m}, T={horizon}, B={batch}: {np.round(np.mean(found, 1))}", flush=True)
    return np.append(max(found, key=np.mean), bound)


def measure(options: Size) -> list[Curve]:
    """Returns regret against M for every panel and model, its bound with logarithms, and random play."""
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
            curves.append(Curve(panel, "random play", x, each * rounds * x, "#999999 :"))
    return curves


def main(options: Size) -> None:
    curves = options.numbers("zhou2024_silos", lambda: measure(options))
    figure, axes = plt.subplots(1, 3, figsize=(11.0, 6.8), layout="constrained")
    says, apart, powers, handles = [], [], {name: [] for name in TRUST}, {}
    for ax, title, (_, split, _) in zip(axes, dict.fromkeys(one.panel for one in curves), PANELS):
        panel, seen = {one.label: one for one in pick(curves, title)}, []
        for name in (name for name in TRUST if name in panel):
            one, bound = panel[name], TRUST[name][1][split]
            seen.append("{}: {:.3f} ± {:.3f}, bound {:g}".format(name, *exponent(one), bound))
            logs = panel.get(f"{name}, its bound")
            seen[-1] += f", with logarithms {exponent(logs)[0]:.2f}" if logs else ""
            own = f"{bound:g}; {exponent(logs)[0]:.2f}" if logs else f"{bound:g}"
            powers[name].append("{:.2f} ± {:.2f} ({})".format(*exponent(one), own))
            handles[name] = ax.errorbar(
                one.x, one.mean, one.error, fmt="o-", markersize=4, color=one.style[:7], capsize=2
            )
        if one := panel.get("random play"):
            (handles[one.label],) = ax.plot(one.x, one.mean, ":", color="#999999")
        lowest = min(one.mean[0] for one in panel.values() if one.n_seeds > 1)
        x = panel["not private"].x
        for order in (0.75 - 0.5 * split, 0.5 - 0.5 * split):
            slope(ax, order, x, 0.7 * lowest, "")
            ax.annotate(
                f"$M^{{{order:g}}}$", (x[-1], 0.7 * lowest * (x[-1] / x[0]) ** order), va="center", size="small"
            )
        ax.set(xscale="log", yscale="log", xlabel="silos M", title=title)
        ax.title.set_fontsize("medium")
        ax.grid(alpha=0.3)
        if local := panel.get("silo-level local, Thm 5.1"):
            central = panel.get("central", panel["not private"])
            over = Curve("", "", local.x, local.y / central.y)
            values = ", ".join(f"{value:.2f}" for value in over.mean)
            cost = "silo-level local over central: {:.3f} ± {:.3f}".format(*exponent(over))
            seen.append(f"{cost} ({values} at M = {', '.join(f'{x:,.0f}' for x in over.x)})")
            of_sums = [panel[name].mean / central.mean - 1 for name in SUMS if name in panel]
            apart.append(f"{max((np.abs(one).max() for one in of_sums), default=0):.0%}")
        print(f"{title}: " + "\n  ".join(seen))
        says.append(f"{title}: {seen[-1]}")
    axes[0].set_ylabel("group regret")
    names = [f"{name}: {', '.join(powers[name])}" if name in powers else name for name in handles]
    title = "power of M in the three panels (the paper's; with its logarithms)"
    place: dict[str, Any] = dict(loc="outside lower center", frameon=False, fontsize="small", title_fontsize="small")
    figure.legend(handles.values(), names, title=title, **place)
    n = pick(curves, label="not private")[0].n_seeds
    figure.suptitle(
        f"$B=\\sqrt{{T/M}}$ but at least 1, ε = 1, δ = 0.1; certified; mean of {n} seeds ± one standard error\n"
        "worst gap: K = d = 2, the worse of two gaps near $\\beta\\sqrt{d/(MT)}$, the paper's widths\n"
        "random contexts: K = d = 10, widths from the law of the noise",
        fontsize="medium",
    )
    claim = "silo-level local privacy has regret of order M^(3/4), M^(1/4) more than shuffled vector sums or central"
    found = "powers of M are in the legend, with 95 % intervals; shuffled vector sums and secure aggregation differ "
    found += f"from central by at most {', '.join(apart)} by panel; " + "; ".join(says)
    where = "Corollary 5.2 and Theorem 5.5"
    caption(figure, "Zhou & Chowdhury (2024)", Says(where, claim, "no experiment in the paper", found))
    save("zhou2024_silos", options, figure, curves)


if __name__ == "__main__":
    main(tyro.cli(Size, description=__doc__))
