"""Draws how little silo-level privacy need cost federated linear bandits, one ingredient after the other.

Every silo adds its own noise; all private rows are certified for epsilon = 1. The first is the best of `beyond.py`. An
oracle knows all except theta*: it needs no sum of x x', and all noise is on x y. The last rows are not private.
FedLinUCB is Algorithm 8 of Zhou & Chowdhury (2024). Numbers were chosen on other seeds.
"""

import re
from functools import partial
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from curves import ends, panels, pick, ratio, the, uniform
from drawing import CHANCE, Curve, Panel, Picture, Size, main
from recipes import HALF

import fedbandit_jax as fb

M, K, D, EPSILON = 100, 100, 10, 1.0
FIRST = {0.1: 12, 1e-7: 50}  # delta -> the first round after which greedy agents synchronise
KNOWN = fb.algos.UCB(regularizer="project", confidence="known_noise")
SLIGHT = fb.algos.UCB(regularizer="project", confidence="known_noise", exploration_scale=0.05)
GREEDY = fb.algos.Greedy()
ALMOST_NOTHING = 1e-3  # factor on x x' that leaves all the noise that counts to x y


class Average(NamedTuple):
    """What the oracle believes."""

    gram: Any  # (d, d) the mean of sum x x', given all that was played
    theta: Any  # (d,)
    count: Any  # users in these sums


@fb.pytree
class Oracle(fb.Policy):
    """Greedy play that knows E[x x'] of what it plays, where x = (u, 1) / sqrt 2 and u is uniform on a sphere.

    Of K such u the one with the largest inner product with a unit vector v has E<u, v> = `mean`, E<u, v>^2 = `square`.
    """

    mean: float
    square: float

    def start(self, dim: int) -> Average:
        """Returns nothing."""
        return Average(jnp.zeros((dim, dim)), jnp.zeros(dim), jnp.float32(0))

    def update(self, k: Any, belief: Average, released: Any) -> Average:
        """Adds what x x' was on average since the last release, and estimates theta."""
        n, played = released.dim - 1, jnp.any(belief.theta != 0)  # before the first release any arm is played
        v = belief.theta[:-1] / jnp.maximum(jnp.linalg.norm(belief.theta[:-1]), 1e-9)
        along, square = jnp.where(played, self.mean, 0.0) * v, jnp.where(played, self.square, 1 / n)
        inner = (1 - square) / (n - 1) * (jnp.eye(n) - jnp.outer(v, v)) + square * jnp.outer(v, v)
        inner = jnp.where(played, inner, jnp.eye(n) / n)
        mean = jnp.block([[inner, along[:, None]], [along[None], jnp.ones((1, 1))]]) / 2
        gram = belief.gram + (released.count - belief.count) * mean
        ridge = 1 + 8 * ALMOST_NOTHING * released.std  # 8 standard deviations of the noise on sum x y
        theta = jnp.linalg.solve(gram + ridge * jnp.eye(n + 1), released.bias)
        return Average(gram, theta, released.count)

    def index(self, key: Any, t: Any, belief: Average, contexts: Any) -> Any:
        """Returns <x, theta>."""
        return contexts @ belief.theta


def oracle() -> Oracle:
    """Returns the oracle for K arms of d features, whose two numbers are means over 20,000 draws."""
    u = np.random.default_rng(0).standard_normal((20_000, K, D - 1), np.float32)
    largest = (u[..., 0] / np.linalg.norm(u, axis=-1)).max(1)
    return Oracle(mean=float(largest.mean()), square=float((largest**2).mean()))


def ladder(delta: float) -> dict[str, fb.Algorithm]:
    """Returns the algorithms by what was added last."""
    algos, growing, first = fb.algos, partial(fb.schedules.Geometric, 1.5), FIRST[delta]

    def private(policy: Any, schedule: Any, release: Any = "blt", **options: Any) -> fb.Algorithm:
        privacy = fb.privacy.Mechanism(fb.privacy.Budget(EPSILON, delta), release, **options)
        return algos.Federated(policy=policy, schedule=schedule, privacy=privacy)

    linear, decaying = partial(fb.privacy.Linear, centred=True), fb.privacy.Decaying(1.5)
    knows = private(oracle(), growing(first), decaying, statistic=linear(gram_scale=ALMOST_NOTHING))
    return {
        "optimism, buffered linear Toeplitz noise, batches of 50": private(KNOWN, 50),
        "+ batches that grow by half, confidence width / 20": private(SLIGHT, growing(25)),
        "+ centred rewards, x (y − 1/2)": private(SLIGHT, growing(25), statistic=linear()),
        "+ x x' halved before noise is added": private(SLIGHT, growing(25), statistic=HALF),
        "+ matrix mechanism for growing batches": private(SLIGHT, growing(25), decaying, statistic=HALF),
        f"+ greedy play, first release after round {first}": private(GREEDY, growing(first), decaying, statistic=HALF),
        "oracle: knows the mean of x x'": knows,
        f"not private: greedy, the same rounds ({first})": algos.Federated(policy=GREEDY, schedule=growing(first)),
        "not private: greedy, from round 2 on": algos.Federated(policy=GREEDY, schedule=growing(2)),
        "not private: FedLinUCB, batches of 25": algos.fed_lin_ucb(learns_in_batch=False),
    }


def measure(options: Size) -> list[Curve]:
    run = options.run(50, 10_000, 10_000, seeds=(2, 16, 25), fresh=2024, stride="log", throw=True)
    env, curves = fb.envs.sphere(*options.shape(M, K, D), rewards="bernoulli"), []
    for delta in list(FIRST)[: options.pick(1, 2, 2)]:
        result = options.sweep(env, ladder(delta), title=f"delta = {delta:g}", **run)
        for one in ends(result, f"δ = {delta:g}, T = {run['horizon']:,}"):
            colour = "#555555" if one.note != "certified" else "#56B4E9" if "oracle" in one.label else "#0072B2"
            curves.append(one.but(style=colour))
    return [*curves, uniform(env, run["horizon"], x=run["horizon"])]


def picture(curves: list[Curve]) -> Picture:
    chance, shown, seen = the(curves, CHANCE), [], []
    for title in panels(curves)[:-1]:
        panel = pick(curves, title)
        first, ours, best, same = panel[0], *panel[5:8]
        start = re.findall(r"\d+", ours.label)[0]
        ratios = ", ".join(ratio(ours.y[0], other.y[0]) for other in (first, best, same))
        seen.append(re.sub(r"1e-0?(\d+)", r"10^-\1", f"at {title.partition(',')[0]}: {ratios}"))
        ones = []
        for one in panel:
            ones.append(one.but(label=one.label.replace(f"round {start}", "round n").replace(f"({start})", "(n)")))
        words = re.sub(r"1e-0?(\d+)", r"$10^{-\1}$", f"{title}, n = {start}")
        shown.append(Panel(ones, words, "group regret at T", kind="rows"))
        shown[-1].axes["xlim"] = (0, 1.2 * max(one.mean[0] for one in panel))
    seeds = curves[0].n_seeds
    return Picture(
        shown,
        "What each ingredient saves under silo-local noise",
        f"Silo-local noise, ε = {EPSILON:g}, M = {M}, K = {K}, d = {D}. Mean of {seeds} seeds ± one standard error. "
        "What rows with + have is added to all above. Dark blue: certified; light blue: an oracle that nobody can run; "
        f"grey: not private. n: first release of greedy play. Uniform play has {round(chance.mean[0], -3):,.0f}",
        "Regret of certified greedy play with all ingredients over the first row's, the oracle's, and the same "
        f"play's without privacy: {'; '.join(seen)} ({seeds} seeds, paired). Half of x x' is summed, which leaves x "
        "y less of the noise. The oracle knows the mean of x x', so that all noise is on x y.",
        grid=dict(sharey=True),
    )


if __name__ == "__main__":
    main(measure, picture, __doc__)
