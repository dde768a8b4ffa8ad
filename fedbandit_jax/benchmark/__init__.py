"""A benchmark of private federated bandits in which the machine checks the guarantee.

A task is a frozen environment with a budget, trusted parties and limits on communication. An entry is a function from a
task to a recipe. A row counts in a task only if its certificate proves the budget.
"""

from fedbandit_jax.benchmark.entry import Entry as Entry
from fedbandit_jax.benchmark.play import run as run
from fedbandit_jax.benchmark.row import Cell as Cell
from fedbandit_jax.benchmark.row import Row as Row
from fedbandit_jax.benchmark.suite import TASKS as TASKS
from fedbandit_jax.benchmark.task import Task as Task
from fedbandit_jax.benchmark.verdict import Verdict as Verdict
from fedbandit_jax.benchmark.verdict import verify as verify
