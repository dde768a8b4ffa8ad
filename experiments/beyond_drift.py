"""Draws a world that changes: regret of algorithms that forget, private and not, and how much to forget.

python experiments/beyond_drift.py [--smoke | --full]

Half-way there is a new theta*, or theta* turns all the time, from one world to the next in half the rounds. Policies
act in batches of 25 rounds, on sums of all batches ("blt"), or on discounted ones (the release of the discount),
without privacy and at epsilon 8 and 1 for noise of every silo, at delta = 1 / (10 M T). (a) Regret in a batch, of
greedy play. (b) That of three policies after the change. (c), (d) Regret of greedy play against the discount, after the
change and where theta* turns. Held-out seeds; all private runs are certified.
"""

import dataclasses
from typing import Any

import jax
import matplotlib.pyplot as plt
import numpy as np
import tyro
from curves import Curve, claimed, pick, random_play
from drawing import legend_of_all, remark, save
from options import Size

import fedbandit_jax as fb

M, K, D, T, BATCH, DECAY = 50, 10, 6, 1_000, 25, 0.8
A, P = fb.algos, fb.privacy
EPSILONS = {"no noise": None, "ε = 8": 8.0, "ε = 1": 1.0}
DECAYS = {"jump": (1.0, 0.9, DECAY, 0.6, 0.4), "slide": (1.0, 0.9, DECAY, 0.6, 0.4)}  # 1: nothing is forgotten
COLOURS = dict(zip(EPSILONS, ("#555555", "#0072B2", "#D55E00")))
PALE = dict(zip(EPSILONS, ("#AAAAAA", "#7FB9DD", "#F0A868")))  # where nothing is forgotten
LOOKS = {"jump": "-o", "slide": "-s"}


@dataclasses.dataclass(frozen=True)
class DriftSize(Size):
    """Draw a world that moves."""


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


def measure(options: DriftSize) -> list[Curve]:
    """Returns the regret of every batch, and that of the rounds that count, against the discount and by policy."""
    m, k, d = options.pick((4, 4, 3), (M, K, D), (2 * M, 2 * K, 10))
    horizon, found = options.pick(4 * BATCH, T, 2 * T), []
    for how, style in LOOKS.items():
        still = fb.envs.sphere(m, k, d, rewards="bernoulli")
        env = fb.envs.drift(still, when=(horizon // 2,) if how == "jump" else horizon // 2, how=how)
        asked = [("greedy", decay) for decay in options.pick((1.0, DECAY), DECAYS[how], DECAYS[how])]
        if how == "jump":
            asked += [
                (name, decay)
                for name in options.pick((), ("UCB", "Thompson"), ("UCB", "Thompson"))
                for decay in (1.0, DECAY)
            ]
        algos = {
            f"{name} {decay:g}, {noise}": recipe(name, epsilon, decay, env.spec, horizon)
            for name, decay in asked
            for noise, epsilon in EPSILONS.items()
        }
        key = jax.random.key(options.seed + 1000)  # not the seeds on which anything was tried
        run: dict[str, Any] = dict(horizon=horizon, seeds=options.pick(2, 16, 16), key=key, store=options.store)
        result = fb.sweep(env, algos, **run, stride=BATCH, throw=False)
        print(f"{how}\n{result.summary()}", flush=True)
        steps = {label: np.diff(result[label].regret, axis=1, prepend=0) for label in result}
        counts = slice(horizon // 2 // BATCH if how == "jump" else 0, None)
        for noise, colour in COLOURS.items():
            claim = claimed(result[f"greedy 1, {noise}"])
            decays = [decay for name, decay in asked if name == "greedy"]
            y = [steps[f"greedy {decay:g}, {noise}"][:, counts].sum(1) for decay in decays]
            found.append(Curve(f"{how}, by discount", noise, decays, y, f"{colour} {style}", claim))
            for decay, look in ((1.0, f"{PALE[noise]} -s"), (DECAY, f"{colour} -o")):
                one = steps[f"greedy {decay:g}, {noise}"]
                label = f"{noise}, " + (f"discount {decay:g}" if decay < 1 else "nothing forgotten")
                x = np.arange(1, one.shape[1] + 1) * BATCH
                found.append(Curve(how, label, x, one.T / (m * BATCH), look, claim))
                names = list(dict.fromkeys(name for name, _ in asked))
                y = [steps[f"{name} {decay:g}, {noise}"][:, counts].sum(1) for name in names]
                found.append(Curve(f"{how}, by policy", label, np.arange(len(names)), y, look, claim))
    uniform = random_play(fb.envs.sphere(m, k, d, rewards="bernoulli"))  # in a round
    return [*found, Curve("random play", "random play", [0], [uniform], "#999999 :", "not private")]


def main(options: DriftSize) -> None:
    curves = options.numbers("beyond_drift", lambda: measure(options))
    figure, axes = plt.subplots(2, 2, figsize=(10.5, 8.2), layout="constrained")
    (first, second), (third, fourth) = axes
    uniform = pick(curves, "random play")[0].mean[0]
    for one in pick(curves, "jump"):
        colour, look = one.style.split()
        first.plot(one.x, one.mean, look, color=colour, label=one.label, markersize=4, markevery=3)
        first.fill_between(one.x, one.mean - one.error, one.mean + one.error, color=colour, alpha=0.15, linewidth=0)
    first.set(xlabel="rounds", ylabel="regret of a user in a round", yscale="log")
    first.text(T, 0.42, "nothing forgotten: three curves in one", ha="right", fontsize="small")
    first.set_ylim(None, 0.8)
    bars = pick(curves, "jump, by policy")
    names = ("greedy", "UCB", "Thompson")[: len(bars[0].x)]
    for i, one in enumerate(bars):
        at = one.x + 0.13 * (i - 2.5)
        second.bar(at, one.mean, 0.12, yerr=one.error, color=one.style.split()[0], label=one.label, capsize=2)
        shown = ", ".join(f"{name}: {y:,.0f} ± {e:,.0f}" for name, y, e in zip(names, one.mean, one.error))
        print(f"after the change, {one.label}: {shown}; {one.note}")
    second.set_xticks(np.arange(len(names)), names)
    second.set_ylabel("group regret after the change")
    for ax, how, what in ((third, "jump", "group regret after the change"), (fourth, "slide", "group regret at T")):
        for one in pick(curves, f"{how}, by discount"):
            colour, look = one.style.split()
            ax.errorbar(one.x, one.mean, one.error, fmt=look, color=colour, capsize=3, label=f"(c), (d): {one.label}")
            shown = ", ".join(f"{x:g}: {y:,.0f} ± {e:,.0f}" for x, y, e in zip(one.x, one.mean, one.error))
            print(f"greedy, {how}, {one.label}: {shown}; {one.note}")
        ax.set(xlabel="discount of a batch; 1: nothing is forgotten", ylabel=what, yscale="log", ylim=(400, 20_000))
    rounds = (1 / M, T / 2, T / 2, T)  # of all users that a panel counts
    titles = (
        "greedy, a new θ* half-way",
        "policies, a new θ* half-way",
        "greedy, a new θ* half-way",
        "greedy, θ* turns all the time",
    )
    for ax, letter, count, title in zip(axes.flat, "abcd", rounds, titles):
        ax.axhline(uniform * count, color="#999999", linestyle=":", label="random play" if letter == "d" else None)
        ax.set_title(f"({letter}) {title}", fontsize="medium")
        ax.grid(alpha=0.3)
    figure.suptitle(
        f"M = {M}, K = {K}, d = {D}, T = {T:,}, δ = 1/(10 M T), batches of {BATCH} rounds, {curves[0].n_seeds} seeds "
        "± one standard error; all private runs are certified",
        fontsize="medium",
    )
    legend_of_all(figure, ncols=5)
    found = pick(curves, "jump, by discount")
    none, some = (
        [f"{one.mean[i]:,.0f} ± {one.error[i]:,.0f}" for one in found] for i in (0, list(found[0].x).index(DECAY))
    )
    remark(
        figure,
        f"After the change greedy play that forgets nothing has {none[0]} without noise, {none[1]} at ε = 8 and "
        f"{none[2]} at ε = 1; with discount {DECAY:g} it has {some[0]}, {some[1]} and {some[2]}, where random play has "
        f"{round(uniform * T / 2, -2):,.0f}. UCB gains nothing by forgetting at ε = 1.",
    )
    save("beyond_drift", options, figure, curves)


if __name__ == "__main__":
    main(tyro.cli(DriftSize, description=__doc__))
