"""`fedbandit simulate arms`: multi-armed bandits (Chowdhury & Zhou 2023)."""

from __future__ import annotations

import dataclasses
from typing import Literal

from fedbandit_jax.cli._run import Comparison, Files, Output, Simulation, check_values

Algorithm = Literal[
    "SE", "DP-SE", "CDP-SE", "LDP-SE", "Dist-DP-SE", "Dist-RDP-SE", "Dist-CDP-SE", "Shuffle-DP-SE"
]  # fmt: skip
SCALED = ("Dist-RDP-SE", "Dist-CDP-SE")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ArmsSimulation(Simulation):
    """Compare successive elimination of arms under pure, Renyi and concentrated DP, by who is trusted.

    Each of T users pulls one arm and sends its reward in [0, 1], rounded and noised to an integer modulo m (Chowdhury &
    Zhou 2023). All algorithms see the same instances and rewards. Prints regrets, paired differences, certificates and
    how many sums wrapped around the ring; writes OUT/NAME.npz, .json and .png. Stopped by Ctrl-C or SIGTERM, the same
    command continues where it was.

    Note what epsilon means: pure DP, but for Dist-RDP-SE a Renyi curve of about alpha epsilon^2 / 2 and for Dist-CDP-SE
    zCDP of epsilon^2 / 2. The last columns of the table convert.

    For example:
      fedbandit simulate arms
      fedbandit simulate arms --radius exact --epsilon 0.1 0.5 1
      fedbandit simulate arms --algorithms SE Dist-DP-SE --means 0.4 0.5 0.6 --rewards bernoulli
      fedbandit simulate arms --instance hard --horizon 10000000

    Args:
        instance: means drawn uniformly, for every seed: easy in [0.25, 0.75], hard in [0.45, 0.55].
        means: given ones in [0, 1] instead.
        rewards: gaussian is N(mean, 0.1^2) clipped to [0, 1].
        arms: K; auto is 10, or the number of means.
        algorithms: which; DP-SE is Sajed & Sheffet's, Shuffle-DP-SE sends very many bits.
        epsilon: privacy parameters, each > 0; not with SE alone.
        delta: at which the certificates also state (epsilon, delta); not with SE alone.
        horizon: T, users.
        radius: theory is Lemma 2 of the paper; exact comes from the law of the noise. DP-SE keeps its own.
        scale: s >= 1 of Skellam and discrete Gaussian noise (Dist-RDP-SE, Dist-CDP-SE): finer steps, more bits.
        growth: factor between batch sizes. DP-SE keeps its own.
        failure: p, probability parameter of radii and ring.
        seeds: random instances, run together.
        random_seed: of the random number generator.
    """

    instance: Literal["easy", "hard"] = "easy"
    means: tuple[float, ...] = ()
    rewards: Literal["gaussian", "bernoulli", "beta"] = "gaussian"
    arms: int | Literal["auto"] = "auto"
    algorithms: tuple[Algorithm, ...] = (
        *("SE", "DP-SE", "CDP-SE", "LDP-SE", "Dist-DP-SE", "Dist-RDP-SE", "Dist-CDP-SE"),
    )
    epsilon: tuple[float, ...] = (0.5,)
    delta: float = 1e-6
    horizon: int = 1_000_000
    radius: Literal["theory", "exact"] = "theory"
    scale: float = 10.0
    growth: int = 2
    failure: float = 0.1
    seeds: int = 20
    random_seed: int = 0
    output: Files = dataclasses.field(default_factory=Output)

    def comparison(self) -> Comparison:
        """One algorithm for each name."""
        import fedbandit_jax as fb

        check_values("algorithms", self.algorithms)
        chosen = set(self.algorithms)
        private = chosen != {"SE"}
        self.applies_to("private algorithms", private, "epsilon", "delta")
        self.applies_to(" and ".join(SCALED), bool(chosen & set(SCALED)), "scale")
        self.applies_to("algorithms other than DP-SE", chosen != {"DP-SE"}, "radius", "growth")
        self.applies_to("means that are drawn, not to --means", not self.means, "instance")
        arms = None if self.arms == "auto" else self.arms
        world = fb.envs.arms(arms, instance=self.instance, means=self.means or None, rewards=self.rewards)
        algos = []
        for name in self.algorithms:
            mechanism, trust = fb.algos.ELIMINATION[name]
            algo = fb.algos.SuccessiveElimination(
                epsilon=None if mechanism == "none" else self.epsilon[0],
                mechanism=mechanism,
                trust=trust,
                radius="theory" if mechanism == "laplace" else self.radius,
                growth=self.growth,
                scale=self.scale,
                failure=self.failure,
                delta=self.delta,
            )
            algos.append(algo)
        which = f"{len(self.means)} given means" if self.means else f"{self.instance} instances"
        return Comparison(
            world,
            algos,
            name="arms",
            title=f"{which}, {self.radius} radii: K={world.spec.n_arms}",
            epsilon=self.epsilon if private else (),
            stride="log",
        )
