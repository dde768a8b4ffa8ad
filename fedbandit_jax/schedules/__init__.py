"""Schedules decide when silos synchronise: every B rounds, ever more rarely, or when some agent has learned enough.

A schedule is a recipe (hashable, on the host). It is bound to an environment and a horizon, and the bound schedule
decides in every round. Letters: M agents, d features, T rounds; V is the regularised Gram matrix that all agents share
since the last synchronisation; V_i = V + U_i, where U_i is the Gram matrix of what agent i alone has seen since; g_i =
log det V_i - log det V; D is the threshold, and Dt >= 1 the number of rounds since the last synchronisation.

Privacy. `Every`, `Geometric` and whatever else is `Fixed` in advance reveal nothing. `LogDet` reads raw statistics:
whether agent i asks for a synchronisation in round t is a function of its users' data without noise, and no noise on
what is then released can take that back (Zhou & Chowdhury 2024, Example 3.1). `PrivateLogDet` asks the same question by
the sparse vector technique and pays for it from the budget. A bound schedule is handed no more than its `reads` says. A
schedule of your own is certified if it reads nothing; if it reads anything, it goes through the door to raw data
`LEAKS`, and the claim is `none`.
"""

from fedbandit_jax.schedules.adaptive import UNITS as UNITS
from fedbandit_jax.schedules.adaptive import BoundLogDet as BoundLogDet
from fedbandit_jax.schedules.adaptive import BoundPrivateLogDet as BoundPrivateLogDet
from fedbandit_jax.schedules.adaptive import LogDet as LogDet
from fedbandit_jax.schedules.adaptive import PrivateLogDet as PrivateLogDet
from fedbandit_jax.schedules.fixed import Every as Every
from fedbandit_jax.schedules.fixed import Fixed as Fixed
from fedbandit_jax.schedules.fixed import Geometric as Geometric
from fedbandit_jax.schedules.fixed import as_schedule as as_schedule
from fedbandit_jax.schedules.own import LEAKS as LEAKS
from fedbandit_jax.schedules.own import check as check
from fedbandit_jax.schedules.own import doors as doors
from fedbandit_jax.schedules.own import timing as timing
from fedbandit_jax.schedules.schedule import BoundSchedule as BoundSchedule
from fedbandit_jax.schedules.schedule import Schedule as Schedule
from fedbandit_jax.schedules.schedule import Setting as Setting
