"""The modes that `gpu.py` times: kinds of run by their size."""

from collections.abc import Callable
from typing import Any, NamedTuple

import fedbandit_jax as fb

BUDGET = fb.privacy.Budget(1.0, 0.1)


class Mode(NamedTuple):
    """A kind of run, by its size: agents, users who return, or for arms the number of users."""

    make: Callable[[int], tuple[Any, Any]]  # environment and recipe
    sizes: tuple[int, ...]
    agents: bool = True  # whether the size is the number of agents who play in every round
    target: int = 0  # rounds of a run; 0: as many as make about a second


def feducb() -> Any:
    return fb.algos.fed_ucb(schedule=fb.schedules.LogDet(30.0), policy=fb.algos.LogDetUCB(regularization=0.01))


def blt() -> Any:
    return fb.algos.private_fed_lin_ucb(fb.privacy.Mechanism(BUDGET, release="blt", trust="secagg"))


def sphere(m: int, dim: int = 10, **given: Any) -> Any:
    return fb.envs.sphere(n_agents=m, n_arms=100, dim=dim, **given)


def modes(smoke: bool) -> dict[str, Mode]:
    """Returns the modes that are timed, by name."""
    agents = (10,) if smoke else (100, 1000, 10_000, 100_000)
    users = (8,) if smoke else (100, 1000, 10_000)
    played = (10**4,) if smoke else (10**5, 10**6, 10**7, 10**8)

    def arms(_: int) -> tuple[Any, Any]:
        return fb.envs.arms(10), fb.algos.DistDPSE(0.5)

    return {
        "A": Mode(lambda m: (sphere(m), fb.algos.fed_lin_ucb()), agents),
        "A-d20": Mode(lambda m: (sphere(m, dim=20), fb.algos.fed_lin_ucb()), agents[:1] if smoke else agents[1:2]),
        "A-lazy-BLT": Mode(lambda m: (sphere(m, rewards="bernoulli"), blt()), agents),
        "B": Mode(lambda m: (sphere(m, contexts="fixed"), fb.algos.fed_lin_ucb()), agents),
        "FedUCB": Mode(lambda m: (sphere(m), feducb()), agents),
        "arms": Mode(arms, played, agents=False),
        "clusters": Mode(
            lambda n: (fb.envs.clustered(n, 2), fb.algos.FCLUB(BUDGET)), users, False, 256 if smoke else 4096
        ),
    }
