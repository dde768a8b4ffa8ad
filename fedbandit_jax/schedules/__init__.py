"""Schedules decide when silos synchronise: every B rounds, ever more rarely, or when an agent has learned enough.

A schedule is a recipe, hashable and on the host. It is bound to an environment and a horizon. The bound schedule
decides in every round. Letters: M agents, d features, T rounds. V is the regularised Gram matrix that all agents share
since the last synchronisation. With the Gram matrix U_i of agent i's own rows, V_i = V + U_i and g_i = log det V_i -
log det V. D is the threshold. Dt >= 1 rounds have passed since the last synchronisation.

`Every`, `Geometric` and other `Fixed` schedules reveal nothing. `LogDet` reads raw statistics. Whether agent i asks in
round t is a noiseless function of its users' data. Noise on later releases cannot hide it (Zhou & Chowdhury 2024,
Example 3.1). `PrivateLogDet` asks by the sparse vector technique and spends budget. A bound schedule gets only the
statistic that it `reads`. A user-defined schedule is certified if it reads nothing. Otherwise it accesses raw data
(`LEAKS`), and the claim is `none`.
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
from fedbandit_jax.schedules.schedule import LEAKS as LEAKS
from fedbandit_jax.schedules.schedule import BoundSchedule as BoundSchedule
from fedbandit_jax.schedules.schedule import Schedule as Schedule
from fedbandit_jax.schedules.schedule import Setting as Setting
from fedbandit_jax.schedules.schedule import check as check
from fedbandit_jax.schedules.schedule import leaks as leaks
from fedbandit_jax.schedules.schedule import timing as timing
