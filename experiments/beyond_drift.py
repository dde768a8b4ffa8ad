"""Draws a world that changes: regret of algorithms that forget, private and not, and how much to forget.

python experiments/beyond_drift.py [--smoke | --full]

Half-way there is a new theta*, or theta* turns all the time, from one world to the next in half the rounds. Policies
act in batches of 25 rounds, on sums of all batches ("blt"), or on discounted ones (the release of the discount),
without privacy and at epsilon 8 and 1 for noise of every silo, at delta = 1 / (10 M T). (a) Regret in a batch, of
greedy play. (b) That of three policies after the change. (c), (d) Regret of greedy play against the discount, after the
change and where theta* turns. Held-out seeds; all private runs are certified.
"""

from typing import Any

import numpy as np
from curves import Curve, claimed, pick, random_play, the
from drawing import CHANCE, Panel, Picture, main
from options import Size

import fedbandit_jax as fb

M, K, D, T, BATCH, DECAY = 50, 10, 6, 1_000, 25, 0.8
A, P = fb.algos, fb.privacy
EPSILONS = {"no noise": None, "ε = 8": 8.0, "ε = 1": 1.0}
DECAYS = (1.0, 0.9, DECAY, 0.6, 0.4)  # 1: nothing is forgotten
COLOURS = dict(zip(EPSILONS, ("#555555", "#0072B2", "#D55E00")))
PALE = dict(zip(EPSILONS, ("#AAAAAA", "#7FB9DD", "#F0A868")))  # where nothing is forgotten
LOOKS = {"jump": "-o", "slide": "-s"}


def recipe(name: str, epsilon: float | None, decay: float, spec: fb.Spec, horizon: int) -> fb.algos.Federated:
    """Returns a policy that forgets with this discount, and nothing at 1; Thompson's ridge is as large as the noise."""
    memory, privacy = P.Discounted(decay) if decay < 1 else None, None
    if epsilon is not None:
        budget = P.Budget(epsilon, 1 / (10 * spec.n_agents * horizon))
        privacy = P.Mechanism(budget, memory or "blt", statistic=P.Linear(centred=True, gram_scale=0.5))

    def made(policy: fb.Policy) -> fb.algos.Federated:
        shown = policy if memory is None else A.Forgetting(policy=policy, memory=memory)
        return A.Federated(policy=shown, schedule=BATCH, privacy=privacy)

    if name == "greedy":
        return made(A.Greedy())
    if name == "UCB":
        return made(A.UCB(regularizer="project", confidence="known_noise"))
    bound: Any = made(A.Thompson()).bind(spec, horizon)
    std = float(np.max(bound.stds if memory is None else bound.policy.stds))
    return made(A.Thompson(regularization=max(1.0, std * spec.dim**0.5)))


def measure(options: Size) -> list[Curve]:
    """Returns the regret of every batch, and that of the rounds that count, against the discount and by policy."""
    run = options.run(4 * BATCH, T, 2 * T, seeds=(2, 16, 16), fresh=1000, stride=BATCH, store=options.store)
    m, k, d = options.pick((4, 4, 3), (M, K, D), (2 * M, 2 * K, 10))
    half, still, found = run["horizon"] // 2, fb.envs.sphere(m, k, d, rewards="bernoulli"), []
    for how, style in LOOKS.items():
        env = fb.envs.drift(still, when=(half,) if how == "jump" else half, how=how)
        asked = [("greedy", decay) for decay in options.pick((1.0, DECAY), DECAYS, DECAYS)]
        if how == "jump" and not options.smoke:
            asked += [(name, decay) for name in ("UCB", "Thompson") for decay in (1.0, DECAY)]
        algos = {
            f"{name} {decay:g}, {noise}": recipe(name, epsilon, decay, env.spec, run["horizon"])
            for name, decay in asked
            for noise, epsilon in EPSILONS.items()
        }
        result = options.sweep(env, algos, title=how, **run)
        steps = {label: np.diff(result[label].regret, axis=1, prepend=0) for label in result}
        counts = slice(half // BATCH if how == "jump" else 0, None)
        for noise, colour in COLOURS.items():
            claim, decays = claimed(result[f"greedy 1, {noise}"]), [d for name, d in asked if name == "greedy"]
            y = [steps[f"greedy {decay:g}, {noise}"][:, counts].sum(1) for decay in decays]
            found.append(Curve(f"{how}, by discount", noise, decays, y, f"{colour} {style}", claim))
            for decay, look in ((1.0, f"{PALE[noise]} -s"), (DECAY, f"{colour} -o")):
                one, names = steps[f"greedy {decay:g}, {noise}"], list(dict.fromkeys(name for name, _ in asked))
                label = f"{noise}, " + (f"discount {decay:g}" if decay < 1 else "nothing forgotten")
                x = np.arange(1, one.shape[1] + 1) * BATCH
                found.append(Curve(how, label, x, one.T / (m * BATCH), look, claim))
                y = [steps[f"{name} {decay:g}, {noise}"][:, counts].sum(1) for name in names]
                found.append(Curve(f"{how}, by policy", label, np.arange(len(names)), y, look, claim))
    return [*found, Curve(CHANCE, CHANCE, [0], [random_play(still)], "#999999 :", "not private")]  # in a round


def picture(curves: list[Curve]) -> Picture:
    bars, found = (pick(curves, f"jump, by {what}") for what in ("policy", "discount"))
    chance = the(curves, CHANCE).mean[0]
    after, names = "group regret after the change", dict(enumerate(("greedy", "UCB", "Thompson")[: len(bars[0].x)]))
    decay: Any = dict(yscale="log", ylim=(400, 20_000), label="(c), (d): {label}", look=dict(capsize=3))
    decay["xlabel"] = "discount of a batch; 1: nothing is forgotten"
    none, some = ([one.said(list(one.x).index(x)) for one in found] for x in (1.0, DECAY))
    shown = [
        Panel(pick(curves, "jump"), "greedy, a new θ* half-way", "rounds", "regret of a user in a round", kind="lines"),
        Panel(bars, "policies, a new θ* half-way", "", after, kind="bars", spread=0.13, xticks=names),
        Panel(found, "greedy, a new θ* half-way", ylabel=after, **decay),
        Panel(pick(curves, "slide, by discount"), "greedy, θ* turns all the time", ylabel="group regret at T", **decay),
    ]
    shown[0].axes |= dict(yscale="log", ylim=(None, 0.8))
    for panel, rounds in zip(shown, (1 / M, T / 2, T / 2, T)):  # of all users that a panel counts
        panel.level = {CHANCE: chance * rounds}
    return Picture(
        shown,
        "Greedy play that forgets recovers, with noise too",
        f"M = {M}, K = {K}, d = {D}, T = {T:,}, δ = 1/(10 M T), batches of {BATCH} rounds. Mean of {curves[0].n_seeds} "
        "seeds ± one standard error. All private runs are certified. In (a) the three that forget nothing are one",
        f"After the change greedy play that forgets nothing has {none[0]} without noise, {none[1]} at ε = 8 and "
        f"{none[2]} at ε = 1. With discount {DECAY:g} it has {some[0]}, {some[1]} and {some[2]}. Uniform play has "
        f"{round(chance * T / 2, -2):,.0f}. UCB gains nothing by forgetting at ε = 1.",
        shape=(2, 2),
        height=5.8,
        ncols=5,
    )


if __name__ == "__main__":
    main(measure, picture, __doc__)
