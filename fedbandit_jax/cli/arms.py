"""The command `fedbandit simulate arms`: private multi-armed bandits (Chowdhury & Zhou 2023)."""

from __future__ import annotations

import dataclasses
from typing import Literal

from typing_extensions import override

from fedbandit_jax.cli._run import Comparison, Files, Output, Simulation, check_values

Algorithm = Literal[
    "SE", "DP-SE", "CDP-SE", "LDP-SE", "Dist-DP-SE", "Dist-RDP-SE", "Dist-CDP-SE", "Shuffle-DP-SE", "AdaC-UCB"
]  # fmt: skip
SCALED = ("Dist-RDP-SE", "Dist-CDP-SE")  # algorithms that use `scale`


@dataclasses.dataclass(frozen=True, kw_only=True)
class ArmsSimulation(Simulation):
    """Compare successive elimination of arms under pure, Renyi and concentrated DP, by who is trusted.

    Each of T users pulls one of K arms and has a reward in [0, 1]. Batch by batch, successive elimination (SE) drops
    the arms that are clearly worse than another one. The server learns one noisy sum of rewards per arm and batch.
    Except in SE and DP-SE, rewards are rounded to integers, integer noise is added, and sums are taken modulo m, as in
    Chowdhury & Zhou (2023). The algorithms, who adds the noise, and what epsilon promises:
      SE              nobody adds noise                              no privacy
      DP-SE           a trusted server, Laplace noise on a fine grid epsilon-DP (Sajed & Sheffet 2019)
      CDP-SE          a trusted server                               epsilon-DP
      LDP-SE          every user alone, who trusts nobody            epsilon-DP of every message
      Dist-DP-SE      all users together, by secure aggregation      epsilon-DP
      Dist-RDP-SE     the same, Skellam noise                        Renyi DP, alpha epsilon^2 / 2 in leading order
      Dist-CDP-SE     the same, discrete Gaussian noise              zCDP, rho = epsilon^2 / 2 in leading order
      Shuffle-DP-SE   all users together, through a trusted shuffler that mixes very many bits    epsilon-DP
      AdaC-UCB        as Dist-DP-SE, asks one arm at a time, whose batch doubles (Azize & Basu)   epsilon-DP

    So the same epsilon is a different promise in different algorithms. The columns epsilon and delta of the printed
    table convert all of them to (epsilon, delta)-DP.

    All algorithms see the same instances and rewards. The command prints regrets, paired differences, certificates, and
    how many sums wrapped around the integers modulo m. It writes OUT/NAME.npz, .png and .pdf. If it is stopped
    by Ctrl-C or SIGTERM, the same command continues where it was.

    For example:
      fedbandit simulate arms
      fedbandit simulate arms --radius exact --epsilon 0.1 0.5 1
      fedbandit simulate arms --algorithms SE Dist-DP-SE --means 0.4 0.5 0.6 --rewards bernoulli
      fedbandit simulate arms --instance hard --horizon 10000000

    Args:
        instance: range from which every seed draws the mean rewards of its arms, uniformly: easy is [0.25, 0.75], hard
            is [0.45, 0.55].
        means: mean rewards in [0, 1], one for each arm, which all seeds use instead of random ones.
        rewards: law of a reward, given its mean; gaussian is N(mean, 0.1^2) clipped to [0, 1].
        arms: K, the number of arms; auto is 10, or the number of --means.
        algorithms: the algorithms to compare, see above.
        epsilon: privacy parameters, each > 0; every private algorithm runs with each of them.
        delta: delta in (0, 1) at which the certificates also state an epsilon.
        horizon: T, the number of users.
        radius: how confidence radii are computed: theory is Lemma 2 of the paper; exact uses the law of the noise,
            which makes them narrower. DP-SE and AdaC-UCB always use their own.
        scale: s >= 1, how finely Dist-RDP-SE and Dist-CDP-SE round rewards; larger means less noise and more bits.
        growth: factor between the sizes of successive batches. DP-SE and AdaC-UCB always use their own.
        failure: p, the failure probability of the confidence radii, and of sums that wrap around modulo m.
        seeds: number of random instances (repetitions), which run together.
        random_seed: seed of the random number generator.
    """

    instance: Literal["easy", "hard"] = "easy"
    means: tuple[float, ...] = ()
    rewards: Literal["gaussian", "bernoulli", "beta"] = "gaussian"
    arms: int | Literal["auto"] = "auto"
    algorithms: tuple[Algorithm, ...] = (
        *("SE", "DP-SE", "CDP-SE", "LDP-SE", "Dist-DP-SE", "Dist-RDP-SE", "Dist-CDP-SE", "AdaC-UCB"),
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

    @override
    def comparison(self) -> Comparison:
        import fedbandit_jax as fb

        check_values("algorithms", self.algorithms)
        chosen = set(self.algorithms)
        private = chosen != {"SE"}
        self.applies_to("private algorithms", private, "epsilon", "delta")
        self.applies_to(" and ".join(SCALED), bool(chosen & set(SCALED)), "scale")
        self.applies_to(
            "algorithms other than DP-SE and AdaC-UCB", bool(chosen - {"DP-SE", "AdaC-UCB"}), "radius", "growth"
        )
        self.applies_to("means that are drawn, not to --means", not self.means, "instance")
        arms = None if self.arms == "auto" else self.arms
        world = fb.envs.arms(arms, instance=self.instance, means=self.means or None, rewards=self.rewards)
        algos = []
        for name in self.algorithms:
            if name == "AdaC-UCB":
                noise = {
                    "mechanism": "discrete_laplace",
                    "trust": "secagg",
                    "delta": self.delta,
                    "failure": self.failure,
                }
                algos.append(fb.algos.AdaCUCB(epsilon=self.epsilon[0], **noise, name=name))  # pyright: ignore
                continue
            mechanism, trust = fb.algos.ELIMINATION[name]
            algo = fb.algos.SuccessiveElimination(
                epsilon=None if mechanism == "none" else self.epsilon[0],
                mechanism=mechanism,
                trust=trust,
                radius="theory" if mechanism == "laplace" else self.radius,
                growth=None if mechanism == "laplace" else self.growth,
                scale=self.scale if name in SCALED else None,
                failure=self.failure,
                delta=None if mechanism == "none" else self.delta,
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
