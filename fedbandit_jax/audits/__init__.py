"""What `fedbandit audit` tries to refute: the claims of all shipped mechanisms, on neighbours that are far apart.

A case runs a whole algorithm on a script, from users to synchronisations, and shows the auditor what the trust model
lets an adversary see: releases, their rounds, and the arms of all users but the one who differs. So noise that is lost
anywhere on the way is noticed. One pair of neighbours attains the sensitivity; in others another user differs, or her
data are out of range, or a decision is close.
"""

from fedbandit_jax.audits import _arms, _asynchronous, _clusters, _linear, _schedules, _streams
from fedbandit_jax.audits._arms import arms as arms
from fedbandit_jax.audits._arms import log_ratios as log_ratios
from fedbandit_jax.audits._asynchronous import asynchronous as asynchronous
from fedbandit_jax.audits._case import Case as Case
from fedbandit_jax.audits._case import load as load
from fedbandit_jax.audits._case import run as run
from fedbandit_jax.audits._clusters import clusters as clusters
from fedbandit_jax.audits._clusters import labels as labels
from fedbandit_jax.audits._clusters import uploads as uploads
from fedbandit_jax.audits._linear import BUDGET as BUDGET
from fedbandit_jax.audits._linear import linear as linear
from fedbandit_jax.audits._linear import transcript as transcript
from fedbandit_jax.audits._schedules import above_threshold as above_threshold
from fedbandit_jax.audits._schedules import brink as brink
from fedbandit_jax.audits._schedules import scheduled as scheduled
from fedbandit_jax.audits._schedules import timing as timing
from fedbandit_jax.audits._streams import streams as streams
from fedbandit_jax.audits.black_box import audit as audit
from fedbandit_jax.core import validate
from fedbandit_jax.report.findings import Audit as Audit

FAMILIES = {
    "linear": _linear.shipped_linear,
    "schedules": lambda: _schedules.shipped_schedules() + _asynchronous.shipped_asynchronous(),
    "arms": _arms.shipped_arms,
    "clusters": lambda: [*_clusters.shipped_clusters(), *_streams.shipped_streams()],
}


def shipped(*families: str) -> list[Case]:
    """Returns the cases of these families, which are keys of `FAMILIES`; by default those of all families."""
    chosen = [validate.one_of("families", family, FAMILIES) for family in families or FAMILIES]
    return [case for family in chosen for case in FAMILIES[family]()]
