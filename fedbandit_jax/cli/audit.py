"""The command `fedbandit audit`: tries to refute the privacy claims of the package by experiments."""

from __future__ import annotations

import dataclasses
import functools
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from typing import Any, Literal

from tqdm import tqdm
from typing_extensions import override

from fedbandit_jax.cli._command import Command, File, Words
from fedbandit_jax.core import validate
from fedbandit_jax.core.validate import BadValue

SHIPPED, CONTROLS = "shipped mechanisms", "controls"  # cases that must pass, cases that must fail
CONTROL_RUNS = 30_000  # most runs of a control, which has a large flaw
PROCESSES, PART, FEW = 2, 9, 12  # processes; cases of a process at a time; cases for one process


@dataclasses.dataclass(frozen=True, kw_only=True)
class AuditCommand(Command):
    """Try to refute the privacy claim of every shipped mechanism by experiments.

    The audit runs each mechanism many times on two data sets that differ in one user. How well it tells them apart
    gives a lower bound of epsilon at the stated confidence. With the same randomness in both runs, the audit also
    checks the declared sensitivity and the control flow.

    A bound above the claim is tried again under another key at 99.9 %, and only then refutes the claim. A bound below
    the claim proves nothing. 50,000 runs find a noise scale that is wrong by a third.

    The command prints a table. The exit code is 1 if a mechanism fails or a control passes. Slow mechanisms have fewer
    runs, and controls at most 30,000. All families take half an hour on two cores.

    For example:
      fedbandit audit
      fedbandit audit --family arms
      fedbandit audit --family schedules    what do the times of synchronisation reveal?
      fedbandit audit --family clusters     what do all phases of certified FCLUB reveal together?
      fedbandit audit --only blt secagg --runs 1000000
      fedbandit audit --controls tests/audits/controls     mechanisms with known flaws must fail
    """

    family: Literal["all", "linear", "schedules", "arms", "clusters"] = "all"  # family of the audited mechanisms.
    only: Words = ()  # audit only mechanisms with one of these words in their name.
    runs: int = 50_000  # runs of each of the two neighbours, at least 1000.
    controls: File = None  # Python file, or folder of files, with functions `broken_*()` that return flawed cases.
    random_seed: int = 0  # seed of the random number generator.

    @override
    def run(self) -> int:
        from fedbandit_jax.engine.cache import keep_programs
        from fedbandit_jax.report.findings import table

        validate.integer("runs", self.runs, at_least=1000)
        validate.integer("random_seed", self.random_seed, at_least=0, at_most=2**32 - 1)
        keep_programs()
        found, wrong = {SHIPPED: [], CONTROLS: []}, []
        for group, cases in self.cases().items():
            found[group] = self.audited(group, cases)
            wrong += [one.name for one in found[group] if one.passed != (group == SHIPPED)]
            print("These have known flaws and must fail:" if group == CONTROLS else "", table(found[group]), sep="\n")
        print("".join(f"{one.name}: {reason}\n" for one in found[SHIPPED] for reason in one.reasons), end="")
        print("\nepsilon >=: lower bound at confidence 0.95; sensitivity: measured / declared")
        counts = ", ".join(f"{len(ones)} {group}" for group, ones in found.items() if ones)
        print(f"{counts}: {'NOT as expected: ' if wrong else 'all as expected'}{', '.join(wrong)}")
        return 1 if wrong else 0

    def cases(self) -> dict[str, list[Any]]:
        """Returns the cases that must pass, and those that must fail, unless there are none."""
        from fedbandit_jax import audits

        groups = {SHIPPED: audits.shipped(*([] if self.family == "all" else [self.family]))}
        names = dict.fromkeys(word for case in groups[SHIPPED] for word in case.name.split())
        if self.controls is not None:
            groups[CONTROLS] = audits.load(self.controls)
        if self.only:
            groups = {of: [c for c in cases if any(w in c.name for w in self.only)] for of, cases in groups.items()}
        if not any(groups.values()):
            got = " ".join(self.only)
            raise BadValue("only", f"must be in a name, such as {', '.join(names)}", got, got=got)
        return {group: cases for group, cases in groups.items() if cases}

    def audited(self, group: str, cases: list[Any], progress: bool = True) -> list[Any]:
        """Audits cases of a group, in several processes if there are many."""
        import jax

        from fedbandit_jax import audits

        if len(cases) > FEW:
            with ProcessPoolExecutor(PROCESSES, multiprocessing.get_context("spawn")) as pool:
                found = pool.map(functools.partial(_audited, self, group), range(0, len(cases), PART))
                return [one for part in tqdm(found, "audit", -(-len(cases) // PART), leave=False) for one in part]
        runs = self.runs if group == SHIPPED else min(self.runs, CONTROL_RUNS)
        return audits.run(cases, key=jax.random.key(self.random_seed), n_runs=runs, progress=progress)


_cases = functools.cache(AuditCommand.cases)  # of a process


def _audited(command: AuditCommand, group: str, first: int) -> list[Any]:
    """Audits some cases of a group, which cannot be sent to a process."""
    return command.audited(group, _cases(command)[group][first : first + PART], progress=False)
