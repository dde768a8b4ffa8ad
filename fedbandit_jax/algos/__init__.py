"""Federated bandit algorithms: classes are recipes, and functions put recipes together under the names of papers.

`fb.simulate` binds a recipe to an environment and a horizon and runs it. docs/zoo.md has an example of every recipe.
"""

from fedbandit_jax.algos.arms.adac_ucb import AdaCUCB as AdaCUCB
from fedbandit_jax.algos.arms.elimination import CDPSE as CDPSE
from fedbandit_jax.algos.arms.elimination import DPSE as DPSE
from fedbandit_jax.algos.arms.elimination import LDPSE as LDPSE
from fedbandit_jax.algos.arms.elimination import RRSE as RRSE
from fedbandit_jax.algos.arms.elimination import SE as SE
from fedbandit_jax.algos.arms.elimination import DistCDPSE as DistCDPSE
from fedbandit_jax.algos.arms.elimination import DistDPSE as DistDPSE
from fedbandit_jax.algos.arms.elimination import DistRDPSE as DistRDPSE
from fedbandit_jax.algos.arms.elimination import ShuffleDPSE as ShuffleDPSE
from fedbandit_jax.algos.arms.halving import SequentialHalving as SequentialHalving
from fedbandit_jax.algos.arms.phased import PhasedIMED as PhasedIMED
from fedbandit_jax.algos.arms.phased import PhasedKLUCB as PhasedKLUCB
from fedbandit_jax.algos.arms.phased import regret_lower_bound as regret_lower_bound
from fedbandit_jax.algos.arms.thompson import PhasedThompson as PhasedThompson
from fedbandit_jax.algos.arms.thompson import ThompsonArms as ThompsonArms
from fedbandit_jax.algos.arms.top_two import TopTwo as TopTwo
from fedbandit_jax.algos.arms.top_two import characteristic_time as characteristic_time
from fedbandit_jax.algos.arms.truncated import TruncatedSE as TruncatedSE
from fedbandit_jax.algos.clusters.club import CLUB as CLUB
from fedbandit_jax.algos.clusters.fclub import FCLUB as FCLUB
from fedbandit_jax.algos.clusters.grouped import Grouped as Grouped
from fedbandit_jax.algos.clusters.grouping import Alone as Alone
from fedbandit_jax.algos.clusters.grouping import Mixture as Mixture
from fedbandit_jax.algos.clusters.grouping import Together as Together
from fedbandit_jax.algos.clusters.lin_ucb import LinUCB as LinUCB
from fedbandit_jax.algos.clusters.sclub import SCLUB as SCLUB
from fedbandit_jax.algos.federated import AsyncFederated as AsyncFederated
from fedbandit_jax.algos.federated import Federated as Federated
from fedbandit_jax.algos.gossip import Gossip as Gossip
from fedbandit_jax.algos.gossip import GossipFedUCB as GossipFedUCB
from fedbandit_jax.algos.papers import adac_oful as adac_oful
from fedbandit_jax.algos.papers import async_fed_lin_ucb as async_fed_lin_ucb
from fedbandit_jax.algos.papers import dp_dpe as dp_dpe
from fedbandit_jax.algos.papers import fed_lin_ucb as fed_lin_ucb
from fedbandit_jax.algos.papers import fed_ucb as fed_ucb
from fedbandit_jax.algos.papers import homo as homo
from fedbandit_jax.algos.papers import homo_dc as homo_dc
from fedbandit_jax.algos.papers import private_fed_lin_ucb as private_fed_lin_ucb
from fedbandit_jax.algos.policies.forgetting import Forgetting as Forgetting
from fedbandit_jax.algos.policies.greedy import EpsilonGreedy as EpsilonGreedy
from fedbandit_jax.algos.policies.greedy import Greedy as Greedy
from fedbandit_jax.algos.policies.greedy import Thompson as Thompson
from fedbandit_jax.algos.policies.log_det_ucb import LogDetUCB as LogDetUCB
from fedbandit_jax.algos.policies.phased_elimination import PhasedElimination as PhasedElimination
from fedbandit_jax.algos.policies.ucb import UCB as UCB
from fedbandit_jax.algos.uniform import Uniform as Uniform
from fedbandit_jax.algos.uniform import UniformArms as UniformArms

# Name -> recipe, or function that makes one.
ALGORITHMS = {
    make.__name__: make
    for make in (
        *(LinUCB, Federated, fed_lin_ucb, private_fed_lin_ucb, adac_oful, dp_dpe, fed_ucb, GossipFedUCB),
        *(AsyncFederated, async_fed_lin_ucb, Gossip, SE, DPSE, CDPSE, LDPSE, RRSE, DistDPSE, DistRDPSE, DistCDPSE),
        *(ShuffleDPSE, TruncatedSE, AdaCUCB, PhasedKLUCB, PhasedIMED, ThompsonArms, TopTwo, SequentialHalving),
        *(PhasedThompson, FCLUB, homo, homo_dc, CLUB, SCLUB, Grouped, Uniform, UniformArms),
    )
}
