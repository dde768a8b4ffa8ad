"""`fedbandit simulate linear`: federated linear bandits, private or not (Zhou & Chowdhury 2024)."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, ClassVar, Literal

from fedbandit_jax.cli._run import Adjacency, Comparison, Files, Output, Simulation
from fedbandit_jax.core import validate


@dataclasses.dataclass(frozen=True, kw_only=True)
class LinearSimulation(Simulation):
    """Compare FedLinUCB with Private-FedLinUCB, as printed in the paper and as certified.

    Five algorithms see the same users and the same reward noise: FedLinUCB without privacy; Private-FedLinUCB as
    printed (Zhou & Chowdhury 2024, Algorithm 1 with the noise of Theorem 5.1); and three that are certified because
    they act on synchronised statistics only (Algorithm 8): with exactly the noise that the budget needs, with less
    noise for the same guarantee (BLT, and confidence widths that know its law), and the same with secure aggregation.
    Prints regrets, paired differences and certificates; writes OUT/NAME.npz, .json and .png. Stopped by Ctrl-C or
    SIGTERM, the same command continues where it was.

    For example:
      fedbandit simulate
      fedbandit simulate linear --env digits
      fedbandit simulate linear --env mslr --mslr DIR
      fedbandit simulate linear --epsilon 0.2 1 5 --seeds 25 --horizon 10000

    Args:
        env: sphere is the paper's synthetic instance; digits and breast_cancer are scikit-learn's data as linear
            bandits; mslr needs --mslr.
        epsilon: privacy budgets, each > 0.
        delta: in (0, 1).
        adjacency: what one user's change means: replaced by any other user, or removed.
        horizon: T, rounds.
        batch: B, rounds between synchronisations; the last T mod B rounds are never synchronised.
        agents: M, silos; auto is 100 on sphere, 10 on real data.
        arms: K, sphere only.
        dim: d, sphere only.
        rewards: auto is bernoulli, but clipped_gaussian on mslr, whose means can be negative; gaussian rewards, the
            paper's, are clipped to [0, 1] inside private statistics.
        exploration_scale: factor on the confidence width.
        seeds: independent repetitions, run together.
        random_seed: of the random number generator.
        mslr: folder of a copy of MSLR-WEB10K, with --env mslr.
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

    def comparison(self) -> Comparison:
        """Five algorithms."""
        import fedbandit_jax as fb

        self.applies_to("--env sphere", self.env == "sphere", "arms", "dim")
        self.applies_to("--env mslr", self.env == "mslr", "mslr")
        batch = validate.integer("batch", self.batch, at_least=1)
        horizon = validate.integer("horizon", self.horizon, at_least=batch)
        budget, *_ = [fb.privacy.Budget(epsilon, self.delta, self.adjacency) for epsilon in self.epsilon]
        world, title = self._world()
        private, mechanism, scale = fb.algos.private_fed_lin_ucb, fb.privacy.Mechanism, self.exploration_scale
        sharp = fb.algos.UCB(regularizer="project", confidence="known_noise", exploration_scale=scale)
        common: dict[str, Any] = dict(schedule=batch, exploration=fb.algos.UCB(exploration_scale=scale))
        best = {**common, "exploration": sharp}
        printed = mechanism(budget, calibration="theorem")
        blt, secagg = mechanism(budget, release="blt"), mechanism(budget, release="blt", trust="secagg")
        late = horizon % batch
        return Comparison(
            world,
            [
                fb.algos.fed_lin_ucb(**common),
                private(printed, learns_in_batch=True, name="Private-FedLinUCB, Alg. 1 + Thm 5.1", **common),
                private(budget, name="Private-FedLinUCB, Alg. 8 + exact noise", **common),
                private(blt, name="Private-FedLinUCB, BLT noise", **best),
                private(secagg, name="Private-FedLinUCB, secure aggregation", **best),
            ],
            name=self.env,
            title=f"{title}: M={world.spec.n_agents}, K={world.spec.n_arms}, d={world.spec.dim}",
            epsilon=self.epsilon,
            delta=self.delta,
            notes=f"The last {late} of {horizon} rounds came after the last synchronisation." if late else "",
        )

    def _world(self) -> tuple[Any, str]:
        """The environment, and what to call it."""
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
