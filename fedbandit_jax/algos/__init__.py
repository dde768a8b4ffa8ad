"""Algorithms, one family a file. Each factory returns a recipe; `simulate` binds it to an environment and a horizon."""

from fedbandit_jax.algos.arms.elimination import ELIMINATION as ELIMINATION
from fedbandit_jax.algos.arms.elimination import SuccessiveElimination as SuccessiveElimination
from fedbandit_jax.algos.arms.elimination import successive_elimination as successive_elimination
from fedbandit_jax.algos.clusters.club import CLUB as CLUB
from fedbandit_jax.algos.clusters.club import club as club
from fedbandit_jax.algos.clusters.fclub import FCLUB as FCLUB
from fedbandit_jax.algos.clusters.fclub import fclub as fclub
from fedbandit_jax.algos.clusters.fclub import homo as homo
from fedbandit_jax.algos.clusters.fclub import homo_dc as homo_dc
from fedbandit_jax.algos.clusters.sclub import SCLUB as SCLUB
from fedbandit_jax.algos.clusters.sclub import sclub as sclub
from fedbandit_jax.algos.linear.fed_lin_ucb import FedLinUCB as FedLinUCB
from fedbandit_jax.algos.linear.fed_lin_ucb import fed_lin_ucb as fed_lin_ucb
from fedbandit_jax.algos.linear.fed_lin_ucb import private_fed_lin_ucb as private_fed_lin_ucb
from fedbandit_jax.algos.linear.fed_ucb import FedUCB as FedUCB
from fedbandit_jax.algos.linear.fed_ucb import fed_ucb as fed_ucb
from fedbandit_jax.algos.linear.gossip_fed_ucb import GossipFedUCB as GossipFedUCB
from fedbandit_jax.algos.linear.gossip_fed_ucb import gossip_fed_ucb as gossip_fed_ucb
from fedbandit_jax.algos.linear.lin_ucb import LinUCB as LinUCB
from fedbandit_jax.algos.linear.lin_ucb import lin_ucb as lin_ucb

ALGORITHMS = {
    "lin_ucb": lin_ucb,
    "fed_lin_ucb": fed_lin_ucb,
    "private_fed_lin_ucb": private_fed_lin_ucb,
    "fed_ucb": fed_ucb,
    "gossip_fed_ucb": gossip_fed_ucb,
    "successive_elimination": successive_elimination,
    "fclub": fclub,
    "homo": homo,
    "homo_dc": homo_dc,
    "club": club,
    "sclub": sclub,
}
