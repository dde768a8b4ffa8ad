"""The cases of `fedbandit audit`: the claims of all shipped mechanisms, on neighbours that are far apart.

A case runs a whole algorithm on a script, from users to synchronisations. The auditor sees the adversary's view in the
trust model: releases, their rounds, and the arms of all other users. So noise lost anywhere is noticed. One pair of
neighbours attains the sensitivity. In others another user differs, data are out of range, or a decision is close.
"""

from fedbandit_jax.audits.arms import arms as arms
from fedbandit_jax.audits.arms import shipped_arms as _shipped_arms
from fedbandit_jax.audits.arrivals import shipped_asynchronous as _shipped_asynchronous
from fedbandit_jax.audits.arrivals import shipped_streams as _shipped_streams
from fedbandit_jax.audits.arrivals import turns as turns
from fedbandit_jax.audits.black_box import audit as audit
from fedbandit_jax.audits.case import Case as Case
from fedbandit_jax.audits.case import load as load
from fedbandit_jax.audits.case import run as run
from fedbandit_jax.audits.clusters import clusters as clusters
from fedbandit_jax.audits.clusters import shipped_clusters as _shipped_clusters
from fedbandit_jax.audits.linear import BUDGET as BUDGET
from fedbandit_jax.audits.linear import claimed as claimed
from fedbandit_jax.audits.linear import linear as linear
from fedbandit_jax.audits.linear import shipped_linear as _shipped_linear
from fedbandit_jax.audits.messages import by_message as by_message
from fedbandit_jax.audits.schedules import shipped_schedules as _shipped_schedules
from fedbandit_jax.core import validate
from fedbandit_jax.report.findings import Audit as Audit

FAMILIES = {
    "linear": _shipped_linear,
    "schedules": lambda: _shipped_schedules() + _shipped_asynchronous(),
    "arms": _shipped_arms,
    "clusters": lambda: _shipped_clusters() + _shipped_streams(),
}


def shipped(*families: str) -> list[Case]:
    """Returns the cases of these keys of `FAMILIES`, by default of all."""
    chosen = [validate.one_of("families", family, FAMILIES) for family in families or FAMILIES]
    return [case for family in chosen for case in FAMILIES[family]()]
