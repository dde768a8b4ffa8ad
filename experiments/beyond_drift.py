"""Draws a world that changes: regret of algorithms that forget, private and not, and how much to forget.

Half-way there is a new theta*, or theta* turns all the time, from one world to the next in half the rounds. Policies
act in batches of 25 rounds, on sums of all batches ("blt") or on discounted ones, with noise of every silo at delta =
1 / (10 M T). (a) Regret in a batch. (b) Three policies. (c), (d) Against the discount. Held-out seeds.
"""

from functools import partial
from typing import Any

import numpy as np
from curves import claimed, pick, the, uniform
from drawing import CHANCE, Curve, Panel, Picture, Size, main
from recipes import GREEDY, HALF

import fedbandit_jax as fb

M, K, D, T, BATCH, DECAY = 50, 10, 6, 1_000, 25, 0.8
EPSILONS = {"no noise": None, "ε = 8": 8.0, "ε = 1": 1.0}
DECAYS = (1.0, 0.9, DECAY, 0.6, 0.4)  # 1: nothing is forgotten
COLOURS = dict(zip(EPSILONS, ("#555555", "#0072B2", "#D55E00")))
PALE = dict(zip(EPSILONS, ("#AAAAAA", "#7FB9DD", "#F0A868")))  # where nothing is forgotten
LOOKS = {"jump": "-o", "slide": "-s"}
UCB = fb.algos.UCB(regularizer="project", confidence="known_noise")
POLICIES: dict[str, fb.Policy] = {"greedy": fb.algos.Greedy(), "UCB": UCB, "Thompson": fb.algos.Thompson()}


def recipe(name: str, epsilon: float | None, decay: float, spec: fb.Spec, horizon: int) -> fb.algos.Federated:
    """Returns a policy that forgets with this discount, and nothing at 1; Thompson's ridge is as large as the noise."""
    memory, plain = fb.privacy.Discounted(decay) if decay < 1 else None, GREEDY.replace(schedule=BATCH)
    if epsilon is not None:
        budget = fb.privacy.Budget(epsilon, 1 / (10 * spec.n_agents * horizon))
        plain = plain.replace(privacy=fb.privacy.Mechanism(budget, memory or "blt", statistic=HALF))

    def made(policy: fb.Policy) -> fb.algos.Federated:
        return plain.replace(policy=fb.algos.Forgetting(policy=policy, memory=memory) if memory else policy)

    algo = made(POLICIES[name])
    if name != "Thompson":
        return algo
    bound: Any = algo.bind(spec, horizon)
    std = float(np.max(bound.policy.stds if memory else bound.stds))
    return made(fb.algos.Thompson(regularization=max(1.0, std * spec.dim**0.5)))


def measure(options: Size) -> list[Curve]:
    run = options.run(4 * BATCH, T, 2 * T, seeds=(2, 16, 16), fresh=1000, stride=BATCH, store=options.store)
    m, k, d = options.pick((4, 4, 3), (M, K, D), (2 * M, 2 * K, 10))
    half, still, found = run["horizon"] // 2, fb.envs.sphere(m, k, d, rewards="bernoulli"), []
    decays = options.pick((1.0, DECAY), DECAYS, DECAYS)
    for how, style in LOOKS.items():
        env = fb.envs.drift(still, when=(half,) if how == "jump" else half, how=how)
        names = list(POLICIES)[: 3 if how == "jump" and not options.smoke else 1]
        asked = [("greedy", decay) for decay in decays] + [(one, decay) for one in names[1:] for decay in (1.0, DECAY)]
        key = "{} {:g}, {}".format
        algos = {
            key(*one, noise): recipe(*one[:1], epsilon, one[1], env.spec, run["horizon"])
            for one in asked
            for noise, epsilon in EPSILONS.items()
        }
        result = options.sweep(env, algos, title=how, **run)
        steps = {label: np.diff(result[label].regret, axis=1, prepend=0) for label in result}
        whole = {label: one[:, half // BATCH if how == "jump" else 0 :].sum(1) for label, one in steps.items()}
        for noise, colour in COLOURS.items():
            make = partial(Curve, note=claimed(result[key("greedy", 1, noise)]))
            y = [whole[key("greedy", decay, noise)] for decay in decays]
            found.append(make(f"{how}, by discount", noise, decays, y, f"{colour} {style}"))
            for decay, look in ((1.0, f"{PALE[noise]} -s"), (DECAY, f"{colour} -o")):
                one = steps[key("greedy", decay, noise)]
                label = f"{noise}, " + (f"discount {decay:g}" if decay < 1 else "nothing forgotten")
                found.append(make(how, label, np.arange(1, one.shape[1] + 1) * BATCH, one.T / (m * BATCH), look))
                y = [whole[key(name, decay, noise)] for name in names]
                found.append(make(f"{how}, by policy", label, np.arange(len(names)), y, look))
    return [*found, uniform(still, 1)]


def picture(curves: list[Curve]) -> Picture:
    bars, found = (pick(curves, f"jump, by {what}") for what in ("policy", "discount"))
    chance, after = the(curves, CHANCE).mean[0], "group regret after the change"
    names = dict(enumerate(list(POLICIES)[: len(bars[0].x)]))
    decay = partial(Panel, yscale="log", ylim=(400, 20_000), label="(c), (d): {label}", look=dict(capsize=3))
    decay = partial(decay, xlabel="discount of a batch; 1: nothing is forgotten")
    none, some = ([one.said(list(one.x).index(x)) for one in found] for x in (1.0, DECAY))
    shown = [
        Panel(pick(curves, "jump"), "greedy, a new θ* half-way", "rounds", "regret of a user in a round", kind="lines"),
        Panel(bars, "policies, a new θ* half-way", "", after, kind="bars", spread=0.13, xticks=names),
        decay(found, "greedy, a new θ* half-way", ylabel=after),
        decay(pick(curves, "slide, by discount"), "greedy, θ* turns all the time", ylabel="group regret at T"),
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
    )


if __name__ == "__main__":
    main(measure, picture, __doc__)
