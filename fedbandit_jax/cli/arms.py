"""`fedbandit simulate --family arms`: multi-armed bandits."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from fedbandit_jax.cli._run import run_and_save
from fedbandit_jax.core import validate
from fedbandit_jax.core.files import check_writable

Name = Literal[
    "SE", "DP-SE", "CDP-SE", "LDP-SE", "Dist-DP-SE", "Dist-RDP-SE", "Dist-CDP-SE", "Shuffle-DP-SE"
]  # fmt: skip


def simulate(
    family: Literal["linear", "fed_ucb", "arms", "clustered"] = "arms",
    instance: Literal["easy", "hard"] = "easy",
    means: tuple[float, ...] = (),
    rewards: Literal["gaussian", "bernoulli", "beta"] = "gaussian",
    arms: int | None = None,
    algorithms: tuple[Name, ...] = ("SE", "DP-SE", "CDP-SE", "LDP-SE", "Dist-DP-SE", "Dist-RDP-SE", "Dist-CDP-SE"),
    epsilon: tuple[float, ...] = (0.5,),
    delta: float = 1e-6,
    horizon: int = 1_000_000,
    radius: Literal["theory", "exact"] = "theory",
    scale: float = 10.0,
    growth: int = 2,
    failure: float = 0.1,
    seeds: int = 20,
    seed: int = 0,
    out: Path = Path("results"),
) -> None:
    """Compare successive elimination of arms under pure, Renyi and concentrated DP, by who is trusted.

    Each of T users pulls one arm and sends its reward in [0, 1], rounded and noised to an integer modulo m (Chowdhury &
    Zhou 2023). All algorithms see the same instances and rewards. Prints regrets, paired differences, certificates and
    how many sums wrapped around the ring; writes OUT/arms.npz, .json and .png, over those of an earlier run. Stopped by
    Ctrl-C, the same command continues where it was.

    Note what epsilon means: pure DP, but for Dist-RDP-SE a Renyi curve of about alpha epsilon^2 / 2 and for Dist-CDP-SE
    zCDP of epsilon^2 / 2. The last columns of the table convert.

    For example:
      fedbandit simulate --family arms
      fedbandit simulate --family arms --radius exact --epsilon 0.1 0.5 1
      fedbandit simulate --family arms --algorithms SE Dist-DP-SE --means 0.4 0.5 0.6 --rewards bernoulli
      fedbandit simulate --family arms --instance hard --horizon 10000000

    Args:
        family: of algorithms.
        instance: means drawn uniformly, for every seed: easy in [0.25, 0.75], hard in [0.45, 0.55].
        means: given ones in [0, 1] instead.
        rewards: gaussian is N(mean, 0.1^2) clipped to [0, 1].
        arms: K (default: 10, or the number of means).
        algorithms: which; DP-SE is Sajed & Sheffet's, Shuffle-DP-SE sends very many bits.
        epsilon: privacy parameters, each > 0.
        delta: at which the certificates also state (epsilon, delta).
        horizon: T, users.
        radius: theory is Lemma 2 of the paper; exact comes from the law of the noise (DP-SE keeps its own).
        scale: s >= 1 of Skellam and discrete Gaussian noise: finer steps, more bits.
        growth: factor between batch sizes.
        failure: p, probability parameter of radii and ring.
        seeds: random instances, run together.
        seed: of the random number generator.
        out: folder for the results.
    """
    import fedbandit_jax as fb

    del family
    check_writable("out", out)
    horizon = validate.integer("horizon", horizon, at_least=1)
    validate.within("seed", seed, 0, 2**32 - 1)
    if not algorithms or len(set(algorithms)) < len(algorithms):
        raise ValueError(f"algorithms must name at least one, each once, got {' '.join(algorithms) or 'none'}")
    if not epsilon:
        raise ValueError("epsilon must name at least one value, got none")
    if means and instance != "easy":
        raise ValueError(f"instance must not be given with means, got {instance!r}")
    world = fb.envs.arms(arms, instance=instance, means=means or None, rewards=rewards)
    common: dict[str, Any] = dict(growth=growth, scale=scale, failure=failure, delta=delta)
    algos = []
    for name in algorithms:
        mechanism, trust = fb.algos.ELIMINATION[name]
        own = "theory" if name == "DP-SE" else radius
        first = None if mechanism == "none" else epsilon[0]
        algos.append(
            fb.algos.successive_elimination(epsilon=first, mechanism=mechanism, trust=trust, radius=own, **common)
        )
    request = repr((instance, means, rewards, arms, algorithms, epsilon, horizon, radius, *common.values()))
    which = f"{len(means)} given means" if means else f"{instance} instances"
    run_and_save(
        world,
        algos,
        grid={"epsilon": epsilon} if any(algo.epsilon is not None for algo in algos) else {},
        request=request + repr((seeds, seed)),
        out=out,
        name="arms",
        title=f"{which}, {radius} radii, K={world.spec.n_arms}, ε={'/'.join(f'{value:g}' for value in epsilon)}",
        horizon=horizon,
        stride="log",
        n_seeds=seeds,
        seed=seed,
    )
