"""The command `fedbandit simulate linear`: federated linear bandits, private or not (Zhou & Chowdhury 2024)."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, ClassVar, Literal

from typing_extensions import override

from fedbandit_jax.cli._run import Adjacency, Comparison, Files, Output, Simulation
from fedbandit_jax.core import validate


@dataclasses.dataclass(frozen=True, kw_only=True)
class LinearSimulation(Simulation):
    """Compare FedLinUCB with Private-FedLinUCB, as printed in the paper and as certified.

    In every round each of M silos serves one user, who comes with K arms (feature vectors of length d). Every B rounds
    the silos synchronise through a server that is not trusted. Six algorithms see the same users and the same reward
    noise:
      1. FedLinUCB, without privacy
      2. Private-FedLinUCB as printed (Zhou & Chowdhury 2024, Algorithm 1 with the noise of Theorem 5.1)
      3. Private-FedLinUCB that acts on synchronised statistics only (Algorithm 8), with exactly the noise it needs
      4. the same with less noise for the same guarantee (release "blt"), and confidence widths that know its law
      5. agents that play greedily, in batches that grow from B / 2, on statistics that one user moves by less
      6. the same as 4 with secure aggregation, where the silos add the noise together

    The last four are certified: what they promise is proved for exactly what was simulated. The command prints
    regrets, paired differences and certificates, and writes OUT/NAME.npz, .png and .pdf. If it is stopped by
    Ctrl-C or SIGTERM, the same command continues where it was.

    For example:
      fedbandit simulate
      fedbandit simulate linear --env digits
      fedbandit simulate linear --env mslr --mslr DIR
      fedbandit simulate linear --epsilon 0.2 1 5 --seeds 25 --horizon 10000

    Args:
        env: environment: sphere is the paper's synthetic instance; digits and breast_cancer are data of scikit-learn,
            turned into linear bandits; mslr is MSLR-WEB10K, which needs --mslr.
        epsilon: epsilons of the budgets, each > 0; every private algorithm runs with each of them.
        delta: delta of all budgets, in (0, 1).
        adjacency: what neighbouring data sets differ in: one user is replaced by any other (replace), or one user's
            contribution is removed (add_remove).
        horizon: T, the number of rounds.
        batch: B, the number of rounds between synchronisations; after the last T mod B rounds there is none.
        agents: M, the number of silos; auto is 100 on sphere and 10 on real data.
        arms: K, the number of arms, on sphere only.
        dim: d, the number of features, on sphere only.
        rewards: law of a reward, given its mean; auto is bernoulli, except on mslr, whose means can be negative: there
            it is clipped_gaussian. The paper has gaussian, which private statistics clip to [0, 1].
        exploration_scale: factor on the confidence width.
        seeds: number of independent repetitions, which run together.
        random_seed: seed of the random number generator.
        mslr: folder of your copy of MSLR-WEB10K, for --env mslr.
    """

    flag_of: ClassVar = {"path": "mslr", "schedule": "batch"}

    env: Literal["sphere", "digits", "breast_cancer", "mslr"] = "sphere"
    epsilon: tuple[float, ...] = (1.0,)
    delta: float = 0.1
    adjacency: Adjacency = "replace"
    horizon: int = 4000
    batch: int = 25
    agents: int | Literal["auto"] = "auto"
    arms: int = 100
    dim: int = 10
    rewards: Literal["auto", "bernoulli", "gaussian", "clipped_gaussian"] = "auto"
    exploration_scale: float = 1.0
    seeds: int = 8
    random_seed: int = 0
    mslr: Path | None = None
    output: Files = dataclasses.field(default_factory=Output)

    @override
    def comparison(self) -> Comparison:
        import fedbandit_jax as fb

        self.applies_to("--env sphere", self.env == "sphere", "arms", "dim")
        self.applies_to("--env mslr", self.env == "mslr", "mslr")
        batch = validate.integer("batch", self.batch, at_least=1)
        horizon = validate.integer("horizon", self.horizon, at_least=1)
        if batch > horizon:
            raise ValueError(f"batch must be at most the horizon, got {batch} for a horizon of {horizon}")
        budget, *_ = [fb.privacy.Budget(epsilon, self.delta, self.adjacency) for epsilon in self.epsilon]
        world, title = self._world()
        private, mechanism, scale = fb.algos.private_fed_lin_ucb, fb.privacy.Mechanism, self.exploration_scale
        sharp = fb.algos.UCB(regularizer="project", confidence="known_noise", exploration_scale=scale)
        common: dict[str, Any] = dict(schedule=batch, policy=fb.algos.UCB(exploration_scale=scale))
        best = {**common, "policy": sharp}
        printed = mechanism(budget, calibration="theorem")
        blt, secagg = mechanism(budget, release="blt"), mechanism(budget, release="blt", trust="secagg")
        constant = world.spec.constant
        least = mechanism(budget, fb.privacy.Decaying(1.5), centred=constant, gram_scale=0.5 if constant else 0.5**0.5)
        growing = fb.schedules.Geometric(1.5, first=max(1, batch // 2))
        late = horizon % batch
        return Comparison(
            world,
            [
                fb.algos.fed_lin_ucb(**common),
                private(printed, learns_in_batch=True, name="Private-FedLinUCB, Alg. 1 + Thm 5.1", **common),
                private(budget, name="Private-FedLinUCB, Alg. 8 + exact noise", **common),
                private(blt, name="Private-FedLinUCB, BLT noise", **best),
                fb.algos.Federated(
                    policy=fb.algos.Greedy(), schedule=growing, privacy=least, name="Private greedy, growing batches"
                ),
                private(secagg, name="Private-FedLinUCB, secure aggregation", **best),
            ],
            name=self.env,
            title=f"{title}: M={world.spec.n_agents}, K={world.spec.n_arms}, d={world.spec.dim}",
            epsilon=self.epsilon,
            delta=self.delta,
            notes=f"The last {late} of {horizon} rounds came after the last synchronisation." if late else "",
        )

    def _world(self) -> tuple[Any, str]:
        import fedbandit_jax as fb

        sphere, mslr = self.env == "sphere", self.env == "mslr"
        agents = self.agents if self.agents != "auto" else 100 if sphere else 10
        rewards = self.rewards if self.rewards != "auto" else "clipped_gaussian" if mslr else "bernoulli"
        if sphere:
            return fb.envs.sphere(agents, self.arms, self.dim, rewards=rewards), "sphere"
        if mslr and self.mslr is None:
            raise ValueError("mslr must be the folder of a copy of MSLR-WEB10K with --env mslr, got none")
        table = fb.data.mslr(self.mslr) if self.mslr else fb.data.classification(self.env)
        return fb.envs.replay(**table.replay_arguments(), n_agents=agents, rewards=rewards), table.title
