"""Compatibility of parts: they describe themselves by tags, and one table says which tags exclude each other.

Recipes ask the table before they bind, and raise an error that names both arguments. Certificates ask it again about
the bound parts, and claim nothing if two exclude each other. `table` prints it for the documentation.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Any

from fedbandit_jax.core.validate import BadValue, shown

Tags = dict[str, tuple[str, Any]]  # tag -> the argument that it is about, and its value

# A tag, another that it does not support, the reason, and an alternative. Errors refuse the argument of the first.
TABLE = """
release that is no tree | noise for trees | a shuffler amplifies sums over disjoint batches | release='tree'
release of sums over batches | noise of users | users report once | release='input_perturbation'
noise in sums of silos | several budgets | one noise protects the users of all silos | trust='silo_local', or one budget
users at several silos | several budgets | such a user has no single budget | silos=1, or one budget
users counted together | recipe of single senders | each sender counts alone | a number of silos
users counted together | silos that drop out | absent silos do not learn of visits | a number of silos
no privacy unit | users who return | the protected data must be named | unit='visit', or fb.privacy.Users(visits=r)
other statistic | noise for (x y, x x') | the noise is for (x y, x x') only | fb.privacy.Linear(), or trust='silo_local'
centred statistic | no constant feature | without an intercept means do not move by 1/2 | centred=False
noise for equal batches | unequal batches | the noise is for one size | fb.schedules.Every, or trust='silo_local'
noise for fixed batches | adaptive schedule | the noise is for sizes fixed in advance | fb.schedules.Geometric
schedule that spends budget | no privacy | there is no budget to share | fb.schedules.LogDet
weighted statistic | schedule that reads users | the schedule reads x x' without weights | fb.schedules.Geometric
policy without a matrix | schedule that reads users | the schedule reads the policy's matrix | fb.algos.UCB
dp20 trigger | policy without rho_max | the trigger needs it | fb.algos.LogDetUCB, or trigger='he22'
dp20 trigger | agents at their own pace | agents have no common V | trigger='he22'
learning in a batch | noise of users | a silo sees no raw statistics | learns_in_batch=False, or trust='silo_local'
learning in a batch | weighted statistic | policies learn from x and y in a batch | learns_in_batch=False
learning in a batch | silos that drop out | absent silos would lack data that others have | learns_in_batch=False
learning in a batch | server shown silos | silos send sums and no estimates | learns_in_batch=False
policy without a matrix | learning in a batch | agents update the policy's matrix | fb.algos.UCB
long batch | learning in a batch | float32 bears 1,000 updates of rank one | a shorter batch
policy of all users | recipe of single senders | the policy needs releases of all users together | fb.algos.UCB
policy in phases | silos that drop out | rewards may arrive after their phase | fb.algos.UCB
policy in phases | late rewards | rewards may arrive after their phase | fb.algos.UCB
weighted statistic | policy in phases | the widths are for x x' without weights | fb.privacy.Linear()
noise that silos do not add | policy that bounds silos' noise | silos add no noise to bound | trust='silo_local'
weighted statistic | policy that bounds silos' noise | the bounds are for x x' without weights | fb.privacy.Linear()
scaled statistic | policy that bounds silos' noise | the bounds are for equal noise on x x' and x y | gram_scale=1
policy of all users | policy that forgets | the policy needs the sums of all batches | fb.algos.UCB
theta_norm = 0 | width of known noise | the width is for theta of a known norm | theta_norm > 0
width that is not theory's | a model for each user | the width is for sums of all users | confidence='theory'
noise of every silo | silos that drop out | the noise needs the share of every silo | trust='secagg' or 'central'
dropouts > 0 | noise without spare shares | every silo's share is needed | dropouts=0, or trust='secagg'
adaptive schedule | silos that drop out | absent silos cannot ask | fb.schedules.Geometric
batch in several messages | silos that drop out | later sums would lack a message | release='input_perturbation'
algorithm that waits for all silos | silos that drop out | the algorithm would wait for ever | fb.algos.Federated
algorithm that needs rewards at once | late rewards | the algorithm has no place for them | fb.algos.Federated
noise that hides silos | server shown silos | the server must see every message, with equal noise | trust='silo_local'
several budgets | server shown silos | messages must have equal noise | one budget
adaptive schedule | server shown silos | a lying silo may ask at any time | fb.schedules.Geometric
policy of all users | server shown silos | the policy needs plain sums | fb.algos.UCB
server shown silos | silos that drop out | a robust centre needs all messages | aggregate='sum' and liars=None
noise in sums of silos | recipe of single senders | each sender sends alone | trust='silo_local'
several budgets | recipe of single senders | all senders have one mechanism | one budget
several budgets | cliques of agents | all agents have one mechanism | one budget
limited synchronisations | cliques of agents | no agent sees all synchronisations | max_syncs=None
unit of returning users | cliques of agents | no visits are left out | unit='visit'
schedule that reads users | stream of every user | all streams are released at public times | fb.schedules.Geometric
schedule that spends budget | stream of every user | all streams are released at public times | fb.schedules.Geometric
unit of returning users | one arm at a time | the radii count every user of a batch | unit=None
unit of returning users | truncated rewards | a reward that is left out must count as nothing | unit=None
exact radius | truncated rewards | exact radii do not cover truncation | radius='theory'
several visits to a batch | sums of arms | a user is in one sum | fb.privacy.Users(visits=r, per_batch=1)
"""
HEAD = ["this", "does not support", "because", "use"]
ROWS = [row.split(" | ") for row in TABLE.strip().splitlines()]
EXCLUDES = types.MappingProxyType({(one, other): f"{why}. Use {use}." for one, other, why, use in ROWS})
TAGS = frozenset(tag for pair in EXCLUDES for tag in pair)


def tagged(argument: str, value: Any, tags: Mapping[str, Any]) -> Tags:
    """Returns the tags that hold in `tags` (tag -> whether it holds), each with the argument that it is about."""
    if unknown := set(tags) - TAGS:
        raise KeyError(f"no rule has the tags {sorted(unknown)}")
    return {tag: (argument, value) for tag, holds in tags.items() if holds}


def conflict(tags: Tags) -> tuple[str, str] | None:
    """Returns the first two of these tags that exclude each other, or None."""
    return next((pair for pair in EXCLUDES if pair[0] in tags and pair[1] in tags), None)


def objection(tags: Tags) -> str:
    """Returns the sentence of the first two of these tags that exclude each other, or "".

    >>> objection({"dp20 trigger": ("trigger", "dp20"), "policy without rho_max": ("policy", "UCB")})[:50]
    "trigger = 'dp20' does not support policy = 'UCB': "
    """
    return str(refusal(tags) or "")


def check(tags: Tags) -> None:
    """Raises a ValueError, which names both arguments, if two of these tags exclude each other."""
    if error := refusal(tags):
        raise error


def refusal(tags: Tags) -> BadValue | None:
    """Returns the error that names the arguments of the first two of these tags that exclude each other, or None."""
    if not (pair := conflict(tags)):
        return None
    (one, value), (other, its) = map(tags.__getitem__, pair)
    must = f"= {shown(value)} does not support {other} = {shown(its)}: {EXCLUDES[pair]}"
    return BadValue(one, must, value, got="", others=(other,))


def table() -> str:
    """Returns the table in Markdown."""
    return "\n".join(f"| {' | '.join(row)} |" for row in [HEAD, ["---"] * len(HEAD), *ROWS])
