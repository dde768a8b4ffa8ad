"""Draws how many users private searches for the best arm need, and how often they are wrong, against epsilon.

In the limit of rare errors an epsilon-DP algorithm of a trusted server needs T* log(1 / delta) users or more on
average, with the characteristic time T* by Jourdan & Azize (2025). Elimination is from Chowdhury & Zhou (2023); its
end is read at recorded rounds, up to 4 % late. Every sum has discrete Laplace noise.
"""

from typing import Any

import jax
import numpy as np
from curves import pick, pm
from drawing import LOGS, Curve, Panel, Picture, Size, dressed, main
from optimal_arms import INSTANCES
from scipy.stats import binomtest

import fedbandit_jax as fb

EPSILONS = (0.1, 1.0, 10.0)
DELTA = 0.05
BUDGETS = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)  # of users, in units of T*
RECORD = {"recommended": fb.record.final(fb.record.recommended)}
USERS, ERRORS, ROUNDS, TOP = "users", "errors", "rounds", "Top Two"
LOOKS = {TOP: "#332288 o", "elimination": "#E69F00 s"}
LOOKS |= {"ε = 0.1": "#0072B2 o", "ε = 1": "#009E73 s", "ε = 10": "#D55E00 ^"}


def eliminated(env: Any, epsilon: float, **run: Any) -> tuple[np.ndarray, np.ndarray]:
    """Returns when each seed has one active arm, at most T, and rounds of communication by then."""
    algo = fb.algos.CDPSE(epsilon, radius="exact", failure=DELTA / 3)  # the same promise as the others
    result = fb.simulate(env, algo, stride="log", **run)
    done = result.counts["eliminations"] == env.spec.n_arms - 1
    first = np.where(done.any(1), result.rounds[done.argmax(1)], run["horizon"])
    return first, result.communication["rounds"][:, -1]


def measure(options: Size) -> list[Curve]:
    horizon, seeds = options.pick(20_000, 10**6, 10**6), options.pick(2, 200, 2_000)
    run: dict[str, Any] = dict(horizon=horizon, key=jax.random.key(options.seed + 2063), seeds=seeds)
    epsilons, curves = EPSILONS[: options.pick(2, 3, 3)], []
    for title, means in INSTANCES.items():
        env, wrong = fb.envs.arms(means=means, rewards="bernoulli"), 0.0
        found: dict[str, list[tuple[np.ndarray, ...]]] = {TOP: [], "elimination": []}
        for epsilon in epsilons:
            sums, unit = fb.algos.CDPSE(epsilon), fb.algos.characteristic_time(means, epsilon)
            result = fb.simulate(env, fb.algos.TopTwo(sums, failure=DELTA), stride=horizon, record=RECORD, **run)
            assert result.certificate.claim == "certified"
            best = fb.best_arm(result)
            wrong = max(wrong, binomtest(int((best.stopped & ~best.right).sum()), seeds).proportion_ci().high)
            found[TOP].append((best.rounds / unit / -np.log(DELTA), best.communication))
            until, rounds = eliminated(env, epsilon, **run)
            found["elimination"].append((until / unit / -np.log(DELTA), rounds))
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


def picture(curves: list[Curve]) -> Picture:
    shown, seen = [], []
    for title in INSTANCES:
        users, errors = (dressed(pick(curves, f"{kind}, {title}"), LOOKS) for kind in (USERS, ERRORS))
        words = title, "ε", "users over T* log(1 / δ)"
        shown.append(Panel(users, *words, xticks=users[0].x, level={"lower bound, for rare errors": 1}, **LOGS))
        words = f"sequential halving, {title}", "budget over T*", "share of wrong arms"
        shown.append(Panel(errors, *words, xscale="log", xticks=BUDGETS, spread=0.04))
        for one, many in zip(users, pick(curves, f"{ROUNDS}, {title}")):
            values = ", ".join(f"{pm(y, e, 1)} at ε = {x:g}" for x, y, e in zip(one.x, one.mean, one.error))
            rounds = ", ".join(f"{y:.0f}" for y in many.mean)
            seen.append(f"{title}, {one.label}: {values}; {rounds} rounds of communication. {one.note}".strip())
    return Picture(
        shown,
        "Evidence stops early; halving needs few rounds",
        f"Bernoulli arms, δ = {DELTA}, {curves[0].n_seeds} seeds, mean ± s.e. All are certified: ε-DP with a trusted "
        "server. T* is the characteristic time. 5 arms have means 0.75 to 0.25, and of 10 close arms one has 0.55",
        " ".join(seen),
        shape=(2, 2),
    )


if __name__ == "__main__":
    main(measure, picture, __doc__)
