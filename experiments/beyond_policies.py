"""Draws the policies of others beside ours, at equal certified privacy and trust model: regret against epsilon.

python experiments/beyond_policies.py [--smoke | --full] [--redraw]

Linear bandits with noise at every silo, delta = 0.1 and 10^-6. Above, every user is offered the same 20 arms; below,
fresh ones. All sum x (y - 1/2) and half of x x', except Private-FedLinUCB (Zhou & Chowdhury 2024). DP-DPE (Li, Zhou &
Ji 2022, for arms that stay the same) and AdaC-OFUL (Azize & Basu 2024) release each batch once. Thompson sampling and
epsilon-greedy act on a binary tree; ours on the matrix mechanism for growing batches. Right: multi-armed bandits with
secure aggregation and pure DP. Constants were chosen on other instances and seeds, for the two settings apart.
"""

import re
from typing import Any

import jax
import numpy as np
from curves import Curve, interval, panels, pick, random_play
from drawing import CHANCE, Panel, Picture, dressed, main
from options import Size

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


def instance(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns arms (K, d) and theta*, vectors (u, 1) / sqrt 2 with u uniform on a sphere, as in `fb.envs.sphere`."""
    u = np.random.default_rng(seed).standard_normal((K + 1, D - 1))
    x = np.hstack([u / np.linalg.norm(u, axis=1, keepdims=True), np.ones((K + 1, 1))]) / np.sqrt(2)
    return x[:K].astype(np.float32), x[K].astype(np.float32)


def policies(delta: float, arms: np.ndarray | None) -> dict[str, fb.Algorithm]:
    """Returns the algorithms for arms that are always these, or fresh (None)."""
    algos, budget, fixed = fb.algos, fb.privacy.Budget(1.0, delta), arms is not None

    def private(release: Any) -> fb.privacy.Mechanism:
        return fb.privacy.Mechanism(budget, release, statistic=fb.privacy.Linear(centred=True, gram_scale=0.5))

    def growing(policy: Any, release: Any) -> fb.Algorithm:
        return algos.Federated(policy=policy, schedule=fb.schedules.Geometric(1.5, first=4), privacy=private(release))

    scale, ours, once = 0.1 if fixed else 0.05, fb.privacy.Decaying(1.5), private("input_perturbation")
    slight = algos.UCB(regularizer="project", confidence="known_noise", exploration_scale=scale)
    thompson = algos.Thompson(regularization=200.0, scale=1.0 if fixed else 0.25)
    first, later = (fb.schedules.Geometric(2.0, first=rounds) for rounds in (4, 16))
    phased = {"DP-DPE": algos.dp_dpe(arms, once, exploration_scale=0.2, schedule=later)} if fixed else {}
    return {
        "Private-FedLinUCB": algos.private_fed_lin_ucb(budget),
        "epsilon-greedy": growing(algos.EpsilonGreedy(explore=5.0 if fixed else 0.5, shrinkage=3.0), "tree"),
        "AdaC-OFUL": algos.adac_oful(once, policy=slight, schedule=first),
        **phased,
        "Thompson": growing(thompson, "tree"),
        "ours: UCB": growing(slight, ours),
        "ours: greedy": growing(algos.Greedy(), ours),
        "ours: Thompson": growing(thompson, ours),
    }


def said(letter: str, ours: Curve, others: Curve) -> str:
    """Returns the regret of the best of others over that of ours, and whether paired runs tell which is less."""
    mean, half = interval(others.y[0] - ours.y[0])
    unsure = "" if abs(mean) > half else ", undecided"
    return f"({letter}) {others.mean[0] / ours.mean[0]:.2f} ({others.label} over {ours.label}{unsure})"


def regrets(result: fb.Result) -> dict[tuple[str, float], np.ndarray]:
    """Returns final regret (S,) by algorithm and epsilon, all certified."""
    assert all(result[label].certificate.claim == "certified" for label in result)
    return {(c["algorithm"], c["epsilon"]): result[label].regret[:, -1] for label, c in result.coordinates.items()}


def lines(title: str, found: dict[tuple[str, float], np.ndarray], of: str) -> list[Curve]:
    """Returns regret by algorithm and epsilon as curves; `of` says what the values are one each of."""
    curves = []
    for label in dict.fromkeys(label for label, _ in found):
        epsilons = [epsilon for name, epsilon in found if name == label]
        curves.append(Curve(title, label, epsilons, [found[label, epsilon] for epsilon in epsilons], note=of))
    return curves


def measure(options: Size) -> list[Curve]:
    """Returns final regret against epsilon of every policy, on fixed arms, fresh ones and multi-armed bandits."""
    horizon, curves = options.pick(40, 1000, 1000), []
    m, few = options.pick(4, M, M), slice(options.pick(1, 5, 5))
    run: dict[str, Any] = dict(horizon=horizon, stride=horizon, key=jax.random.key(options.seed + 2026))
    for delta in DELTAS[: options.pick(1, 2, 2)]:
        seen, chance = [], []
        for seed in range(300, options.pick(301, 312, 325)):
            arms, theta = instance(seed)
            env = fb.envs.replay(np.tile(arms, (m, 1)), np.full(m, K), theta, n_agents=m, rewards="bernoulli")
            chance.append(horizon * random_play(env))
            seen.append(regrets(fb.sweep(env, policies(delta, arms), grid={"epsilon": EPSILONS[few]}, seeds=2, **run)))
        means = {point: np.array([one[point].mean() for one in seen]) for point in seen[0]}
        same, new = f"the same {K} arms, δ = {delta:g}", f"{K} fresh arms, δ = {delta:g}"
        curves += lines(same, means, "instances of 2 seeds")
        curves.append(Curve(same, CHANCE, EPSILONS[:1], [chance], note="instances"))
        env = fb.envs.sphere(n_agents=m, n_arms=K, dim=D, rewards="bernoulli")
        some: dict[str, Any] = dict(grid={"epsilon": EPSILONS[few]}, seeds=options.pick(2, 12, 25))
        fresh = fb.sweep(env, policies(delta, None), **some, **run)
        chance = horizon * random_play(env)
        curves += [*lines(new, regrets(fresh), "seeds"), Curve(new, CHANCE, EPSILONS[:1], [chance], note="worlds")]
    users = options.pick(20_000, 10**6, 10**6)
    run |= dict(horizon=users, stride=users, seeds=options.pick(2, 400, 400))  # rare losses are large
    bandits: list[fb.Algorithm] = [fb.algos.AdaCUCB(fb.algos.DistDPSE(1.0, radius="exact"))]
    for name, radius in zip(BANDITS[1:], ("theory", "exact")):
        bandits.append(fb.algos.DistDPSE(1.0, radius=radius, name=name))
    for kind in ("easy", "hard"):
        env = fb.envs.arms(10, instance=kind)
        result = fb.sweep(env, bandits, grid={"epsilon": PURE[few]}, **run)
        title = f"10 {kind} arms, T = {users:,}, pure ε-DP"
        chance = users * random_play(env)
        curves += [*lines(title, regrets(result), "instances"), Curve(title, CHANCE, PURE[:1], [chance], note="worlds")]
    return curves


def best(panel: list[Curve]) -> list[Curve]:
    """Returns the one of ours and the one of others with the least regret at epsilon = 1, at this epsilon alone."""
    at = np.abs(panel[0].x - 1).argmin()
    kinds = [[one for one in panel if one.label.startswith("ours") == mine] for mine in (True, False)]
    least = [min(kind, key=lambda one: one.mean[at]) for kind in kinds]
    return [Curve("", one.label, one.x[at : at + 1], one.y[at : at + 1]) for one in least]


def picture(curves: list[Curve]) -> Picture:
    shown, found = {}, {}
    for letter, title in zip("adbecf", panels(curves)):
        *ones, chance = pick(curves, title)
        found[letter] = best(ones)
        words, horizon, law = re.fullmatch(r"(.+?)(, T = [\d,]+)?(, pure ε-DP|)", title).groups("")  # pyright: ignore
        words = re.sub(r"1e-0?(\d+)", r"$10^{-\1}$", words) + f"{law}\n{ones[0].n_seeds} {ones[0].note}{horizon}"
        names = [one.label.replace("epsilon", "ε") + (" in (c), (f)" if one.label in BANDITS else "") for one in ones]
        ones = [one.but(label=name) for one, name in zip(dressed(ones, LOOKS), names)]
        panel = Panel(ones, words, "ε", "regret at T" if letter in "ad" else "", xscale="log", yscale="log")
        panel.level, panel.xticks, panel.spread = {CHANCE: chance.mean[0]}, ones[0].x, 0.025
        panel.open, panel.look = lambda one: not one.label.startswith("ours"), dict(linewidth=1.2)
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
        height=5.6,
        ncols=4,
    )


if __name__ == "__main__":
    main(measure, picture, __doc__)
