"""Private multi-armed bandits beyond the papers: least regret, best arms, heavy tails, corrupted users."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from curves import Curve, final, panels, pick
from drawing import LOGS, Experiment, Panel, Picture, dressed
from options import Size
from scipy.stats import binomtest

import fedbandit_jax as fb
from fedbandit_jax.algos import CDPSE, RRSE, TruncatedSE

INSTANCES = {"5 arms": (0.75, 0.625, 0.5, 0.375, 0.25), "10 close arms": (0.55, *[0.45] * 9)}
EPSILONS, HORIZONS = (0.1, 0.3, 1.0, 3.0, 10.0), (10**6, 10**7)
MEANS = "5 arms have means 0.75 to 0.25, and of 10 close arms one has 0.55 and nine have 0.45"
OPTIMAL_LOOKS = {
    "Phased KL-UCB": "#332288 o",
    "Phased IMED": "#332288 v",
    "AdaC-UCB": "#882255 <",
    "CDP-SE, exact radius": "#E69F00 s",
    "CDP-SE": "#E69F00 D",
    "DP-SE": "#0072B2 ^",
}


def of_sums(epsilon: float) -> list[fb.Algorithm]:
    """Returns the algorithms at one epsilon, with noise at a trusted server."""
    sums = fb.algos.CDPSE(epsilon, radius="exact", name="CDP-SE, exact radius")
    one_arm = fb.algos.PhasedKLUCB(sums), fb.algos.PhasedIMED(sums), fb.algos.AdaCUCB(sums)
    return [*one_arm, sums, fb.algos.CDPSE(epsilon), fb.algos.DPSE(epsilon)]


def against_epsilon(
    options: Size, make: Callable[[float], list[fb.Algorithm]], fresh: int, unit: Any, longest: int = 10**6
) -> list[Curve]:
    """Returns regret over a unit (means, epsilon, T) by instance and algorithm, all certified at epsilon."""
    run, curves = options.ends(longest // 50, longest, longest, seeds=(2, 100, 100), fresh=fresh, throw=True), []
    epsilons = EPSILONS[: options.pick(2, 5, 5)]
    for title, means in INSTANCES.items():
        env, found = fb.envs.arms(means=means, rewards="bernoulli"), {}
        for epsilon in epsilons:
            result = fb.sweep(env, make(epsilon), **run)
            for label in result:
                certificate = result[label].certificate
                assert certificate.claim == "certified"
                assert (certificate.epsilon_exact or 0) <= epsilon * (1 + 1e-6)
                found.setdefault(label, []).append(final(result[label], each=unit(means, epsilon, run["horizon"])))
        note = f"T = {run['horizon']:,}"
        curves += [Curve(title, label, epsilons, regret, note=note) for label, regret in found.items()]
    return curves


def optimal_arms(options: Size) -> list[Curve]:
    """Draws the regret of private multi-armed algorithms over the least that any can have as T grows, against epsilon.

    The least regret is the sum over arms of gap log T / d(mean, best mean), with d of Azize et al. (2025) for pure DP
    at a trusted server. At a finite T regret may be smaller. Every sum has discrete Laplace noise. With secure
    aggregation (`DistDPSE`) it has the same law.
    """
    found = (against_epsilon(options, of_sums, 2030, fb.algos.regret_lower_bound, longest) for longest in HORIZONS)
    return [one.but(panel=f"{one.panel}, {one.note}", note="") for curves in found for one in curves]


def by_instance(curves: list[Curve], looks: dict[str, str], **more: Any) -> list[Panel]:
    """Returns a panel of regret against epsilon for every instance."""
    found = ((title, dressed(pick(curves, title), looks)) for title in panels(curves))
    return [Panel(ones, title, "ε", xticks=ones[0].x, **LOGS, **more) for title, ones in found]


def draw_optimal_arms(curves: list[Curve]) -> Picture:
    shown = by_instance(curves, OPTIMAL_LOOKS, level={"lower bound, as T grows": 1})
    setting = f"""Bernoulli arms, {curves[0].n_seeds} seeds, mean ± s.e. All are certified: ε-DP with a trusted
        server. {MEANS}"""
    return Picture(
        shown, "Remembering sums comes near the least regret", setting, shape=(2, 2), ylabel="regret over lower bound"
    )


THOMPSON_LOOKS = {
    "Thompson, constant": "#56B4E9 o",
    "Thompson, factor": "#0072B2 s",
    "Phased Thompson": "#CC79A7 ^",
    "AdaC-UCB": "#882255 <",
    "Phased KL-UCB": "#332288 v",
    "Phased IMED": "#332288 o",
    "Thompson, not private": "#666666 -- D",
}


def of_samples(epsilon: float) -> list[fb.Algorithm]:
    """Returns the algorithms at one epsilon, with a trusted server."""
    thompson = fb.algos.ThompsonArms(epsilon, delta=1e-6)
    sums = fb.algos.CDPSE(epsilon, radius="exact")
    return [
        thompson.replace(first=max(100, round(30 / epsilon)), name="Thompson, constant"),
        thompson.replace(first=max(100, round(100 / epsilon)), inflate="factor", name="Thompson, factor"),
        fb.algos.PhasedThompson(sums),
        fb.algos.AdaCUCB(sums),
        fb.algos.PhasedKLUCB(sums),
        fb.algos.PhasedIMED(sums),
    ]


def private_thompson(options: Size) -> list[Curve]:
    """Compares Thompson sampling that is private by its own samples with algorithms that add noise to sums once.

    Ours, after Ou, Avella Medina & Cummings (2024): every sample of a posterior is a Gaussian mechanism. The variance
    of samples grows by a constant (ours) or by a factor (theirs) until the budget holds. An arm starts with 100 users
    or more for Thompson sampling, which was chosen on other seeds.
    """
    curves = against_epsilon(options, of_samples, 2060, lambda *_: 1.0)
    run = options.ends(20_000, 10**6, 10**6, seeds=(2, 100, 100), fresh=2060, throw=True)
    plain = fb.algos.ThompsonArms(1e6, growth=1.2, name=list(THOMPSON_LOOKS)[-1])
    for title, means in INSTANCES.items():
        env, first = fb.envs.arms(means=means, rewards="bernoulli"), next(one for one in curves if one.panel == title)
        free = final(fb.simulate(env, plain, **run))
        curves.append(first.but(label=plain.name, y=[free] * len(first.x)))
    return sorted(curves, key=lambda one: list(INSTANCES).index(one.panel))


def draw_private_thompson(curves: list[Curve]) -> Picture:
    setting = f"""Bernoulli arms, {curves[0].note}, {curves[0].n_seeds} seeds, mean ± s.e. Solid curves are
        certified with a trusted server: (ε, 10⁻⁶)-DP for constant and factor, and ε-DP for the others. {MEANS}"""
    return Picture(
        by_instance(curves, THOMPSON_LOOKS), "A sample pays every time, a sum once", setting, ylabel="regret"
    )


BEST_ARM_EPSILONS = (0.1, 1.0, 10.0)
FAILURE = 0.05
BUDGETS = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)  # of users, in units of T*
RECORD = {"recommended": fb.record.final(fb.record.recommended)}
USERS, ERRORS, ROUNDS, TOP = "users", "errors", "rounds", "Top Two"
BEST_LOOKS = {TOP: "#332288 o", "elimination": "#E69F00 s"}
BEST_LOOKS |= {"ε = 0.1": "#0072B2 o", "ε = 1": "#009E73 s", "ε = 10": "#D55E00 ^"}


def eliminated(env: Any, epsilon: float, **run: Any) -> tuple[np.ndarray, np.ndarray]:
    """Returns when each seed has one active arm, at most T, and rounds of communication by then."""
    algo = fb.algos.CDPSE(epsilon, radius="exact", failure=FAILURE / 3)  # the same promise as the others
    result = fb.simulate(env, algo, stride="log", **run)
    done = result.counts["eliminations"] == env.spec.n_arms - 1
    first = np.where(done.any(1), result.rounds[done.argmax(1)], run["horizon"])
    return first, result.communication["rounds"][:, -1]


def best_arm(options: Size) -> list[Curve]:
    """Draws how many users private searches for the best arm need, and how often they are wrong, against epsilon.

    In the limit of rare errors an epsilon-DP algorithm of a trusted server needs T* log(1 / delta) users or more on
    average, with the characteristic time T* by Jourdan & Azize (2025). Elimination is from Chowdhury & Zhou (2023); its
    end is read at recorded rounds, up to 4 % late. Every sum has discrete Laplace noise.
    """
    horizon, seeds = options.pick(20_000, 10**6, 10**6), options.pick(2, 200, 2_000)
    run: dict[str, Any] = dict(horizon=horizon, key=jax.random.key(options.seed + 2063), seeds=seeds)
    epsilons, curves = BEST_ARM_EPSILONS[: options.pick(2, 3, 3)], []
    for title, means in INSTANCES.items():
        env, wrong = fb.envs.arms(means=means, rewards="bernoulli"), 0.0
        found: dict[str, list[tuple[np.ndarray, ...]]] = {TOP: [], "elimination": []}
        for epsilon in epsilons:
            sums, unit = fb.algos.CDPSE(epsilon), fb.algos.characteristic_time(means, epsilon)
            result = fb.simulate(env, fb.algos.TopTwo(sums, failure=FAILURE), stride=horizon, record=RECORD, **run)
            assert result.certificate.claim == "certified"
            best = fb.best_arm(result)
            wrong = max(wrong, binomtest(int((best.stopped & ~best.right).sum()), seeds).proportion_ci().high)
            found[TOP].append((best.rounds / unit / -np.log(FAILURE), best.communication))
            until, rounds = eliminated(env, epsilon, **run)
            found["elimination"].append((until / unit / -np.log(FAILURE), rounds))
            errors = []
            for users in (round(budget * unit) for budget in BUDGETS):
                once: dict[str, Any] = run | dict(horizon=users, stride=users, record=RECORD)
                errors.append(~fb.best_arm(fb.simulate(env, fb.algos.SequentialHalving(sums), **once)).right)
            curves.append(Curve(f"{ERRORS}, {title}", f"ε = {epsilon:g}", BUDGETS, errors))
        note = f"wrong in at most {100 * wrong:.1f} % (upper ends of 95 % intervals)"
        for label, values in found.items():
            for kind, y in zip((USERS, ROUNDS), zip(*values)):
                curves.append(Curve(f"{kind}, {title}", label, epsilons, y, note=note if label == TOP else ""))
    return curves


def draw_best_arm(curves: list[Curve]) -> Picture:
    shown = []
    for title in INSTANCES:
        users, errors = (dressed(pick(curves, f"{kind}, {title}"), BEST_LOOKS) for kind in (USERS, ERRORS))
        words = title, "ε", "users over T* log(1 / δ)"
        shown.append(Panel(users, *words, xticks=users[0].x, level={"lower bound, for rare errors": 1}, **LOGS))
        words = f"sequential halving, {title}", "budget over T*", "share of wrong arms"
        shown.append(Panel(errors, *words, xscale="log", xticks=BUDGETS, spread=0.04))
    setting = f"""Bernoulli arms, δ = {FAILURE}, {curves[0].n_seeds} seeds, mean ± s.e. All are certified: ε-DP with
        a trusted server. T* is the characteristic time. 5 arms have means 0.75 to 0.25, and of 10 close arms one
        has 0.55"""
    return Picture(shown, "Evidence stops early; halving needs few rounds", setting, shape=(2, 2))


TAILS = fb.envs.arms(means=[1.0, 0.82, 0.5], rewards="pareto", shape=[2.2, 10.0, 10.0])  # E X^2 <= 3.3
PAIR = fb.envs.arms(means=[1.0, 0.2], rewards="pareto", shape=3.0)  # E X^2 <= 1.34
STAGES, SHARES = ("rewards", "messages"), (0.003, 0.01, 0.03, 0.06, 0.1, 0.2, 0.3)
LEVELS = {"fixed level 4": 4.0, "fixed level 16": 16.0, "growing level": None}
ROBUST_LOOKS = dict(zip(["clipped to [0, 1]", *LEVELS], ("#0072B2 s", "#E69F00 D", "#009E73 ^", "#882255 o")))
ROBUST_LOOKS |= {"nobody corrupted": "#332288 P", "rewards corrupted": "#56B4E9 <", "messages corrupted": "#D55E00 v"}
PANELS = {"heavy tails": "ε", "1 % corrupted, in radii": "ε", "corrupted, not in radii": "share of users"}


def robust_arms(options: Size) -> list[Curve]:
    """Draws the regret of private arms with heavy tails, and with users who are corrupted before or after
    privatisation.

    Truncation, radii and this setting are ours, after the abstracts of Wu et al. (2023) and Zhou & Zhang (2024).
    """
    found: dict[tuple[str, str], dict[float, Any]] = {}
    tails, known, unknown = PANELS

    def play(panel: str, x: float, env: fb.Environment, algos: Sequence[Any], horizon: int) -> None:
        horizon, key = options.pick(2_000, horizon, horizon), jax.random.key(options.seed + 2302)
        result = fb.sweep(env, algos, horizon=horizon, stride=horizon, key=key, seeds=options.pick(2, 32, 100))
        for label in result:
            assert result[label].certificate.claim == "certified"
            found.setdefault((panel, label), {})[x] = final(result[label])

    for epsilon in (0.25, 0.5, 1.0, 2.0, 4.0)[: options.pick(2, 5, 5)]:
        sums, bits = CDPSE(epsilon, name="clipped to [0, 1]"), RRSE(epsilon)
        cut = [TruncatedSE(sums, moment=3.3, level=level, name=name) for name, level in LEVELS.items()]
        play(tails, epsilon, TAILS, [sums, *cut], 10**6)
        robust = TruncatedSE(bits, moment=1.34, name="nobody corrupted")
        play(known, epsilon, PAIR, [robust], 10**7)
        one = robust.replace(corruption=0.01)
        both = [one.replace(sums=bits.replace(corrupted=what), name=f"{what} corrupted") for what in STAGES]
        play(known, epsilon, fb.envs.contaminate(PAIR, 0.01, favoured=1), both, 10**7)
    for share in SHARES[: options.pick(2, 7, 7)]:
        both = [RRSE(0.5, corrupted=what, name=f"{what} corrupted") for what in STAGES]
        play(unknown, share, fb.envs.contaminate(PAIR, share, favoured=1), both, 10**6)
    return [Curve(*where, list(by), list(by.values())) for where, by in found.items()]


def draw_robust_arms(curves: list[Curve]) -> Picture:
    shown = []
    for title, xlabel in PANELS.items():
        ones = dressed(pick(curves, title), ROBUST_LOOKS)
        shown.append(Panel(ones, title, xlabel, xticks=ones[0].x[:: len(ones[0].x) // 6 + 1], **LOGS))
    about = "(a) has a trusted server, and T = 10^6. In (b, c) users flip bits, with T = 10^7 and 10^6, ε = 0.5 in (c)"
    setting = f"Pareto rewards, {curves[0].n_seeds} seeds, mean ± s.e. All are certified, ε-DP. {about}"
    return Picture(shown, "Corrupted messages hurt more than rewards", setting, ylabel="regret")


FIGURES = {
    "optimal_arms": Experiment(optimal_arms, draw_optimal_arms),
    "private_thompson": Experiment(private_thompson, draw_private_thompson),
    "best_arm": Experiment(best_arm, draw_best_arm),
    "robust_arms": Experiment(robust_arms, draw_robust_arms),
}
