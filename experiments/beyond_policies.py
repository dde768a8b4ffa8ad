"""Draws the policies of others and ours, at equal certified privacy and trust model: regret against epsilon.

Linear bandits with noise at every silo, delta = 0.1 and 10^-6, on the same 20 arms (above) or fresh ones (below). All
sum x (y - 1/2) and half of x x', except Private-FedLinUCB. DP-DPE and AdaC-OFUL release each batch once. (c), (f):
multi-armed bandits under pure DP. Constants were chosen on other instances and seeds, for the two settings apart.
"""

import re
from functools import partial
from typing import Any

import jax
import numpy as np
from curves import final, interval, panels, pick, random_play, uniform
from drawing import CHANCE, LOGS, Curve, Panel, Picture, Size, dressed, main
from recipes import HALF, instance, table

import fedbandit_jax as fb

M, K, D, DELTAS = 50, 20, 6, (0.1, 1e-6)
EPSILONS, PURE = (0.5, 1.0, 2.0, 5.0, 10.0), (0.1, 0.2, 0.5, 1.0, 2.0)
BANDITS = "AdaC-UCB", "Dist-DP-SE, printed radius", "ours: Dist-DP-SE, exact radius"
_, BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY, WINE = fb.plotting.COLOURS
OLIVE, INDIGO = "#999933", "#332288"  # of the palette of Tol (2021), as wine is
LOOKS = {  # a policy's colour and marker, which is filled if the release or the radius is ours
    "Private-FedLinUCB": f"{BLUE} o",
    "epsilon-greedy": f"{PURPLE} s",
    "AdaC-OFUL": f"{OLIVE} ^",
    "DP-DPE": f"{GREEN} D",
    "Thompson": f"{INDIGO} v",
    "ours: UCB": f"{SKY} P",
    "ours: greedy": f"{ORANGE} X",
    "ours: Thompson": f"{INDIGO} v",
    **dict(zip(BANDITS, (f"{WINE} <", f"{VERMILLION} h", f"{VERMILLION} h"))),
}


def policies(delta: float, arms: np.ndarray | None) -> dict[str, fb.Algorithm]:
    """Returns the algorithms for arms that are always these, or fresh (None)."""
    algos, geometric, fixed = fb.algos, fb.schedules.Geometric, arms is not None
    private = partial(fb.privacy.Mechanism, fb.privacy.Budget(1.0, delta), statistic=HALF)
    growing = partial(algos.Federated, schedule=geometric(1.5, first=4))
    ours, tree, once = private(fb.privacy.Decaying(1.5)), private("tree"), private("input_perturbation")
    scale = 0.1 if fixed else 0.05
    slight = algos.UCB(regularizer="project", confidence="known_noise", exploration_scale=scale)
    thompson = algos.Thompson(regularization=200.0, scale=1.0 if fixed else 0.25)
    explores = algos.EpsilonGreedy(explore=5.0 if fixed else 0.5, shrinkage=3.0)
    phased = partial(algos.dp_dpe, arms, once, exploration_scale=0.2, schedule=geometric(2.0, first=16))
    return {
        "Private-FedLinUCB": algos.private_fed_lin_ucb(fb.privacy.Budget(1.0, delta)),
        "epsilon-greedy": growing(policy=explores, privacy=tree),
        "AdaC-OFUL": algos.adac_oful(once, policy=slight, schedule=geometric(2.0, first=4)),
        **({"DP-DPE": phased()} if fixed else {}),
        "Thompson": growing(policy=thompson, privacy=tree),
        "ours: UCB": growing(policy=slight, privacy=ours),
        "ours: greedy": growing(policy=algos.Greedy(), privacy=ours),
        "ours: Thompson": growing(policy=thompson, privacy=ours),
    }


def lines(title: str, note: str, *results: fb.Result, mean: bool = False) -> list[Curve]:
    """Returns regret of every algorithm against epsilon: of all seeds, or means over them, one for each result."""
    found: dict[str, dict[float, list[np.ndarray]]] = {}
    for result in results:
        for label, point in result.coordinates.items():
            assert result[label].certificate.claim == "certified"
            at = found.setdefault(point["algorithm"], {}).setdefault(point["epsilon"], [])
            at.append(final(result[label]).mean() if mean else final(result[label]))
    return [Curve(title, label, list(of), [np.ravel(y) for y in of.values()], note=note) for label, of in found.items()]


def measure(options: Size) -> list[Curve]:
    horizon, curves = options.pick(40, 1000, 1000), []
    m, few = options.pick(4, M, M), slice(options.pick(1, 5, 5))
    run: dict[str, Any] = dict(horizon=horizon, stride=horizon, key=jax.random.key(options.seed + 2026))
    run["grid"] = {"epsilon": EPSILONS[few]}
    for delta in DELTAS[: options.pick(1, 2, 2)]:
        same, new = f"the same {K} arms, δ = {delta:g}", f"{K} fresh arms, δ = {delta:g}"
        worlds = [instance(K, D, seed) for seed in range(300, options.pick(301, 312, 325))]
        envs = [table(m, *world) for world in worlds]
        each = [fb.sweep(env, policies(delta, arms), seeds=2, **run) for env, (arms, _) in zip(envs, worlds)]
        chance = [horizon * random_play(env) for env in envs]
        curves += lines(same, "instances of 2 seeds", *each, mean=True)
        curves.append(Curve(same, CHANCE, EPSILONS[:1], [chance], note="instances"))
        env = fb.envs.sphere(n_agents=m, n_arms=K, dim=D, rewards="bernoulli")
        curves += lines(new, "seeds", fb.sweep(env, policies(delta, None), seeds=options.pick(2, 12, 25), **run))
        curves.append(uniform(env, horizon, new, EPSILONS[0]).but(note="worlds"))
    users = options.pick(20_000, 10**6, 10**6)
    run |= dict(horizon=users, stride=users, seeds=options.pick(2, 400, 400), grid={"epsilon": PURE[few]})
    bandits: list[fb.Algorithm] = [fb.algos.AdaCUCB(fb.algos.DistDPSE(1.0, radius="exact"))]
    bandits += [fb.algos.DistDPSE(1.0, radius=how, name=name) for name, how in zip(BANDITS[1:], ("theory", "exact"))]
    for kind in ("easy", "hard"):  # with many seeds, as rare losses are large
        env, title = fb.envs.arms(10, instance=kind), f"10 {kind} arms, T = {users:,}, pure ε-DP"
        curves += lines(title, "instances", fb.sweep(env, bandits, **run))
        curves.append(uniform(env, users, title, PURE[0]).but(note="worlds"))
    return curves


def best(panel: list[Curve]) -> list[Curve]:
    """Returns the one of ours and the one of others with the least regret at epsilon = 1, at this epsilon alone."""
    at = np.abs(panel[0].x - 1).argmin()
    kinds = [[one for one in panel if one.label.startswith("ours") == mine] for mine in (True, False)]
    least = [min(kind, key=lambda one: one.mean[at]) for kind in kinds]
    return [Curve("", one.label, one.x[at : at + 1], one.y[at : at + 1]) for one in least]


def said(letter: str, ours: Curve, others: Curve) -> str:
    """Returns the regret of the best of others over ours, and whether paired runs tell which is less."""
    mean, half = interval(others.y[0] - ours.y[0])
    unsure = "" if abs(mean) > half else ", undecided"
    return f"({letter}) {others.mean[0] / ours.mean[0]:.2f} ({others.label} over {ours.label}{unsure})"


def picture(curves: list[Curve]) -> Picture:
    shown, found = {}, {}
    for letter, title in zip("adbecf", panels(curves)):
        *ones, chance = pick(curves, title)
        found[letter] = best(ones)
        words, horizon, law = re.fullmatch(r"(.+?)(, T = [\d,]+)?(, pure ε-DP|)", title).groups("")  # pyright: ignore
        words = re.sub(r"1e-0?(\d+)", r"$10^{-\1}$", words) + f"{law}\n{ones[0].n_seeds} {ones[0].note}{horizon}"
        names = [one.label.replace("epsilon", "ε") + (" in (c), (f)" if one.label in BANDITS else "") for one in ones]
        ones = [one.but(label=name) for one, name in zip(dressed(ones, LOOKS), names)]
        panel = Panel(ones, words, "ε", spread=0.025, look=dict(linewidth=1.2), **LOGS)
        panel.level, panel.xticks = {CHANCE: chance.mean[0]}, ones[0].x
        panel.open = lambda one: not one.label.startswith("ours")
        shown[letter] = panel
    ours, others = ([at for at in sorted(found) if found[at][i].mean[0] < found[at][1 - i].mean[0]] for i in (0, 1))
    parts = [
        f"one of {words} has the least mean regret in {len(letters)} of {len(found)} settings"
        for words, letters in (("ours", ours), ("others", others))
        if letters
    ]
    return Picture(
        [shown[letter] for letter in sorted(shown)],
        "Regret of policies at equal privacy",
        f"All are certified for the same ε. (a), (b), (d), (e): M = {M} silos with noise of their own, d = {D}, T = "
        "1,000. (c), (f): secure aggregation. Mean ± one standard error. Filled: our release for growing batches, or "
        "our radius. Scales differ",
        f"At ε = 1 {' and '.join(parts)}. Regret of the best of others over the best of ours: "
        f"{'; '.join(said(letter, *found[letter]) for letter in sorted(found))}. Undecided: paired runs do not tell "
        "which is less with 95 % confidence.",
        shape=(2, 3),
        ylabel="regret at T",
    )


if __name__ == "__main__":
    main(measure, picture, __doc__)
