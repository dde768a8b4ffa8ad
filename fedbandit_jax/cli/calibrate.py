"""The command `fedbandit calibrate`: the noise of a budget, and the epsilon of noise."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any, Literal

import tyro
from typing_extensions import override

from fedbandit_jax.cli._command import Adjacency, Command, Option
from fedbandit_jax.core import validate
from fedbandit_jax.core.validate import BadValue

Release = Literal["tree", "sqrt_toeplitz", "blt", "input_perturbation"]
Trust = Literal[
    "silo_local", "silo_local_matrix", "shuffle_amplified", "shuffle_vector_sum", "secagg", "central", "local"
]  # fmt: skip
ONE_GAUSSIAN = ("silo_local", "central", "local")  # their noise has one --sigma
PRINTED = {
    "silo_local": "theorem_5_1",
    "silo_local_matrix": "dubey2020",
    "shuffle_amplified": "theorem_5_3",
    "shuffle_vector_sum": "theorem_5_5",
}  # of the release tree


@dataclasses.dataclass(frozen=True, kw_only=True)
class CalibrateCommand(Command):
    """Print how much noise a privacy budget needs, and which epsilon printed noise gives.

    The noise is for federated linear bandits. A user has features x of norm at most 1 and a reward y in [0, 1]. Silos
    release noisy sums of (x y, x x') S = T / B times. The column "noise" says how sigma was found:
      tight          the least noise with a proof; for returning users or noise that is not Gaussian an upper bound
      theorem_5_1    Zhou & Chowdhury (2024), for silo_local with the release tree
      theorem_5_3    the same paper with Lemma F.2, for shuffle_amplified
      theorem_5_5    the same paper, for shuffle_vector_sum
      dubey2020      Dubey & Pentland (2020), for silo_local_matrix with the release tree

    Each row shows the noise of a message, the largest noise of the server's sums, the proved epsilon, and whether it
    is within the budget.

    For example:
      fedbandit calibrate
      fedbandit calibrate --release blt --delta 1e-5
      fedbandit calibrate --trust secagg --release blt
      fedbandit calibrate --sigma 5.45 --delta 1e-7     which epsilon does this noise give?
    """

    # epsilons of the budgets, each > 0; not with --sigma.
    epsilon: Annotated[tuple[float, ...], tyro.conf.arg(metavar="FLOAT ...")] = (0.2, 1.0, 5.0)
    delta: float = 1e-7  # delta of all budgets, in (0, 1). Choose it far below one over the number of users.
    # difference between neighbouring data sets. replace: one user is replaced by any other; zero_out: one user's
    # contribution is replaced by zero.
    adjacency: Adjacency = "replace"
    horizon: int = 10_000  # T, the number of rounds.
    batch: int = 25  # B, the number of rounds between synchronisations.
    agents: int = 100  # M, the number of silos.
    dim: int = 10  # d, the number of features; only for trust models whose noise depends on it.
    release: Release = "tree"  # continual-release mechanism, which correlates noise over time.
    # trust model: who adds the noise. local needs --release input_perturbation, shuffling needs tree.
    trust: Trust = "silo_local"
    visits: int = 1  # most contributions of a user. All of them are protected together.
    # standard deviation of Gaussian noise on every message. The command prints its epsilon in place of a table.
    sigma: Option[float] = None

    @override
    def run(self) -> int:
        from fedbandit_jax import privacy
        from fedbandit_jax.privacy import compatibility, trust
        from fedbandit_jax.report.tables import aligned

        if not self.epsilon or len(set(self.epsilon)) < len(self.epsilon):
            raise BadValue("epsilon", "must have at least one value, each only once", self.epsilon)
        batch = validate.integer("batch", self.batch, at_least=1)
        n_syncs = validate.integer("horizon", self.horizon, at_least=batch) // batch
        compatibility.check(trust.tags(self.trust, self.release))
        able = [name for name, one in privacy.TRUST.items() if "dim" in one.needs]
        self.applies_to(f"--trust {', '.join(able)}", self.trust in able, "dim")
        self.applies_to("trust models other than central", self.trust != "central", "agents")
        self.applies_to("a budget, without --sigma", self.sigma is None, "epsilon", "agents", "dim")
        self.applies_to(f"--trust {', '.join(ONE_GAUSSIAN)}", self.trust in ONE_GAUSSIAN, "sigma")
        common: dict[str, Any] = dict(n_syncs=n_syncs, release=self.release, users=privacy.Users(self.visits))
        head = f"{self.trust}, {self.release}, S = {n_syncs} releases, {self.adjacency} adjacency"
        if self.sigma is not None:
            validate.within("sigma", validate.positive("sigma", self.sigma), 1e-30, 1e30)
            asked = privacy.Budget(1.0, self.delta, self.adjacency)
            gives = privacy.calibrate(asked, std=self.sigma, trust="central", **common).epsilon_exact
            print(f"{head}\nsigma = {self.sigma:g} gives epsilon = {gives:.6g} at delta = {self.delta:g}")
            return 0
        release = privacy.RELEASES[self.release](n_syncs)
        worst = release.largest_variance()
        common |= dict(trust=self.trust, n_agents=self.agents, batch=batch, dim=self.dim)
        rows: list[tuple[str, ...]] = [
            ("noise", "epsilon", "sigma", "sigma^2", "server std", "proved epsilon", "holds")
        ]
        printed = PRINTED.get(self.trust) if self.release == "tree" else None
        model, notes = None, []
        for budget in [privacy.Budget(epsilon, self.delta, self.adjacency) for epsilon in self.epsilon]:
            for std in dict.fromkeys((None, printed)):
                try:
                    c = privacy.calibrate(budget, std=std, **common)
                except ValueError as error:
                    if std is None:
                        raise
                    notes.append(f"{std} at epsilon = {budget.epsilon:g}: {error}")
                    continue
                model = c.model
                numbers = (c.sigma, c.sigma**2, model.sum_std() * worst**0.5, c.epsilon_exact)
                cells = (std or "tight", f"{budget.epsilon:g}", *(f"{number:.5g}" for number in numbers))
                rows.append((*cells, "yes" if c.sound else "NO"))
        print(f"{head}, delta = {self.delta:g}\n{aligned(rows)}", *notes, sep="\n")
        assert model is not None
        entries = "x y" if model.joint_matrix else "x y and on the diagonal of x x' (sigma / sqrt 2 off it)"
        print(f"\nsigma: standard deviation of the noise {model.whose}, on {entries}")
        print("server std: the largest in the server's sums; proved epsilon: what this noise gives")
        return 0
