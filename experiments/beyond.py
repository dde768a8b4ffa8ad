"""Shows what certified privacy costs when every part of Private-FedLinUCB is as good as we know how.

(a) Regret against epsilon, on the synthetic instance of Zhou & Chowdhury (2024). All have the same widths.
(b), (c) One ingredient after the other, for delta = 0.1 and 10^-7 (there are 10^6 users). The width "from known noise"
is narrower even without noise, so the last but two has it at epsilon = 10^4.
"""

from typing import Any

from curves import against, ends, panels, pick, uniform
from drawing import CHANCE, Curve, Panel, Picture, Size, level, main, uncertified

import fedbandit_jax as fb

BEST: dict[str, Any] = dict(release="blt", regularizer="project", confidence="known_noise")
DELTAS = (0.1, 1e-7)


def private(name: str, delta: float = 0.1, **parameters) -> fb.Algorithm:
    budget = fb.privacy.Budget(parameters.pop("epsilon", 1.0), delta)
    return fb.algos.private_fed_lin_ucb(budget, name=name).replace(**parameters)


ACROSS = [
    fb.algos.fed_lin_ucb(name="not private"),
    private("binary tree, as printed (Theorem 5.1)", std="theorem_5_1", learns_in_batch=True),
    private("buffered linear Toeplitz noise", release="blt"),
    private("the same, projected, widths from the law of the noise", **BEST),
    private("the same under secure aggregation", trust="secagg", **BEST),
]
STEPS: dict[str, dict] = {  # + is added to all before it
    "binary tree, as printed (Theorem 5.1)": dict(std="theorem_5_1", learns_in_batch=True),
    "+ agents act on released sums only": dict(std="theorem_5_1"),
    "+ exact accounting": {},
    "+ buffered linear Toeplitz noise, not a tree": dict(release="blt"),
    "+ projection of the Gram matrix": dict(release="blt", regularizer="project"),
    "+ confidence widths from the law of the noise": BEST,
    "+ batches of 50, not 25": dict(schedule=50, **BEST),
    "secure aggregation, projected, batches of 25": dict(release="blt", regularizer="project", trust="secagg"),
    "secure aggregation, + widths from that law": dict(trust="secagg", **BEST),
    "those widths, batches of 25, ε = 10⁴": dict(epsilon=1e4, **BEST),
}
PLAIN = ("not private, acts on synchronised sums only", "not private")


def measure(options: Size) -> list[Curve]:
    env = fb.envs.sphere(*options.shape(100, 100, 10), rewards="bernoulli")
    run = options.run(50, 10_000, 10_000)
    epsilons = options.pick((1.0,), (0.2, 1.0, 5.0), (0.2, 0.5, 1.0, 2.0, 5.0))
    across = options.sweep(env, ACROSS[:: options.pick(3, 1, 1)], grid={"epsilon": epsilons}, **run)
    algos = [private(f"{name}, δ = {delta:g}", delta, **parts) for name, parts in STEPS.items() for delta in DELTAS]
    algos += [fb.algos.fed_lin_ucb(name=PLAIN[0], learns_in_batch=False), ACROSS[0]]
    title = f"T = {run['horizon']:,}"
    steps = ends(options.sweep(env, algos, **run), f"one ingredient after the other, {title}")
    return [*against(across, "epsilon", f"against ε, {title}"), uniform(env, run["horizon"]), *steps]


def picture(curves: list[Curve]) -> Picture:
    first, _, last = panels(curves)
    lines = [one.but(label=one.label.replace("not private", "FedLinUCB")) for one in pick(curves, first)]
    steps = {one.label: one for one in pick(curves, last)}
    looks = ("--" if uncertified(one) else "-" for one in lines)
    lines = [one.but(style=f"{one.style} {look} {mark}") for one, look, mark in zip(lines, looks, "oos^D")]
    left = Panel(lines, "against ε, at δ = 0.1", "ε", "group regret at T", label="{label}: {promise}", xscale="log")
    left.xticks, left.axes["yscale"] = lines[0].x, "log"
    shown = [left]
    for delta, title in zip(DELTAS, ("ε = 1, δ = 0.1", "ε = 1, $δ = 10^{-7}$")):
        named = {name: steps[f"{name}, δ = {delta:g}"] for name in STEPS} | {name: steps[name] for name in PLAIN}
        rows = [one.but(label=name, style=f"{one.style} o") for name, one in named.items()]
        shown.append(Panel(rows, title, "group regret at T", kind="rows", numbers="{mean:,.0f}"))
        shown[-1].axes |= dict(xscale="log", xlim=(500, 6e5))
    for panel in shown:
        panel.level, panel.open = level(curves), uncertified
    shown[2].label = ""

    places = (*(f"{list(STEPS)[i]}, δ = 0.1" for i in (0, 6, 8)), PLAIN[0])
    values = (*(steps[name].mean[0] for name in places), left.level[CHANCE])
    printed, best, secure, plain, chance = (f"{float(f'{value:.3g}'):,.0f}" for value in values)
    return Picture(
        shown,
        "What certified privacy costs, ingredient by ingredient",
        f"M = 100, K = 100, d = 10, {first.partition(', ')[2]}. Mean of {lines[0].n_seeds} seeds ± one standard error. "
        "Open markers: not certified. What rows with + have is added to all above",
        f"At ε = 1 and δ = 0.1 the printed algorithm has {printed}, and its certificate is weaker than stated. The "
        f"certified one with all ingredients has {best}, and with secure aggregation {secure}. The one without privacy "
        f"that acts on synchronised sums only has {plain}, and uniform play {chance}.",
        grid=dict(width_ratios=(1.1, 1, 1)),
    )


if __name__ == "__main__":
    main(measure, picture, __doc__)
