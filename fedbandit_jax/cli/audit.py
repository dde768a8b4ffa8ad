"""The command `fedbandit audit`: try to refute the privacy claims of the package by experiments."""

from __future__ import annotations

import dataclasses
import functools
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, Literal

from tqdm import tqdm
from typing_extensions import override

from fedbandit_jax.cli._command import Command, digest, part_of
from fedbandit_jax.core import validate
from fedbandit_jax.core.files import check_free, check_writable
from fedbandit_jax.core.validate import BadValue

SHIPPED, CONTROLS = "shipped mechanisms", "controls"  # groups of cases: what must pass, and what must fail
CONTROL_RUNS = 30_000  # most runs of a control, whose flaw is large
PROCESSES, PART, FEW = 2, 9, 12  # that share the work; cases at a time, which may share programs; too few for that


@dataclasses.dataclass(frozen=True, kw_only=True)
class AuditCommand(Command):
    """Try to refute the privacy claim of every shipped mechanism, by running it on neighbours that differ in one user.

    The audit runs each mechanism many times on two neighbouring data sets. From how well they can be told apart it
    computes a lower bound of epsilon that holds with the stated confidence. It also gives both runs the same
    randomness, and checks that they then differ by no more than the declared sensitivity, and follow the same control
    flow. A bound above the claim refutes it at the stated confidence, for each mechanism separately, and is tried again
    under another key at 99.9 %, which alone counts. A bound below it proves nothing, but 50,000 runs are enough
    to find a noise scale that is wrong by a third. The command prints a table and draws it as a picture into OUT.
    Slow mechanisms are run less often, and controls 30,000 times at most. The exit code is 1 if anything is not as it
    should be. All of it takes half an hour on two cores.

    For example:
      fedbandit audit
      fedbandit audit --family arms
      fedbandit audit --family schedules    what do the times of synchronisation tell?
      fedbandit audit --family clusters     what do all phases of certified FCLUB tell together?
      fedbandit audit --only blt secagg --runs 1000000
      fedbandit audit --controls tests/audits/controls     mechanisms with known flaws must be caught
      fedbandit audit --part 0/4            a quarter of the mechanisms

    Args:
        family: family of algorithms whose mechanisms are audited; arms (and all), without --only, also prints the
            exact log-ratios of the probabilities of noisy sums modulo m.
        only: audit only mechanisms whose name contains one of these words.
        runs: number of runs of each of the two neighbours, at least 1000.
        confidence: confidence of each lower bound by itself, in (0, 1), before it is tried again.
        controls: Python file, or folder of files, whose functions `broken_*()` return cases with known flaws; these
            must fail.
        part: I/N, where 0 <= I < N: audit every N-th mechanism, and control, beginning with the I-th.
        random_seed: seed of the random number generator.
        out: folder for the picture.
    """

    family: Literal["all", "linear", "schedules", "arms", "clusters"] = "all"
    only: tuple[str, ...] = ()
    runs: int = 50_000
    confidence: float = 0.95
    controls: Path | None = None
    part: str | None = None
    random_seed: int = 0
    out: Path = Path("results")

    @override
    def run(self) -> int:
        import fedbandit_jax as fb
        from fedbandit_jax.engine.cache import keep_by_default
        from fedbandit_jax.report.findings import table

        check_writable("out", self.out)
        validate.integer("runs", self.runs, at_least=1000)
        validate.probability("confidence", self.confidence)
        validate.integer("random_seed", self.random_seed, at_least=0, at_most=2**32 - 1)
        request = [(name, value) for name, value in vars(self).items() if name not in ("given", "out")]
        picture = self.out / f"{digest(f'audit-{self.family}', request)}.png"
        check_free("out", picture)
        keep_by_default()
        found: dict[str, list[Any]] = {}
        wrong, groups = [], self.cases()
        for group, cases in groups.items():
            if not cases:
                continue
            result = self.audit_all(group, cases)
            print("these have known flaws and must fail:" if group == CONTROLS else "", table(result), sep="\n")
            found[group] = result
            wrong += [one for one in result if one.passed != (group == SHIPPED)]
            if group == SHIPPED:
                for one in result:
                    for reason in one.reasons:
                        print(f"{one.name}: {reason}")
        if self.family in ("all", "arms") and not self.only:
            wrong += _exact_log_ratios(fb.audits.log_ratios())
        fb.plotting.save(fb.plotting.audits(found.get(SHIPPED, []), found.get(CONTROLS, [])), picture)
        holds = f"epsilon >= holds with confidence {self.confidence:g} each, sensitivity is measured / declared"
        print(f"\nwrote {picture}; {holds}")
        counts = ", ".join(f"{len(cases)} {group}" for group, cases in groups.items())
        verdict = f"NOT as they should be: {', '.join(one.name for one in wrong)}" if wrong else "all as they should be"
        print(f"{counts}: {verdict}")
        return 1 if wrong else 0

    def audit_all(self, group: str, cases: list[Any]) -> list[Any]:
        """Audits these cases of a group, several at a time if there are many."""
        if len(cases) <= FEW:
            return self.audit_some(group, cases)
        parts = [range(first, min(first + PART, len(cases))) for first in range(0, len(cases), PART)]
        with ProcessPoolExecutor(PROCESSES, multiprocessing.get_context("spawn")) as pool:
            found = pool.map(functools.partial(_audit_part, self, group), parts)
            return [one for part in tqdm(found, "audit", len(parts), leave=False) for one in part]

    def audit_some(self, group: str, cases: list[Any]) -> list[Any]:
        """Audits these cases of a group."""
        import jax

        from fedbandit_jax import audits

        runs = self.runs if group == SHIPPED else min(self.runs, CONTROL_RUNS)
        key, alone = jax.random.key(self.random_seed), multiprocessing.parent_process() is None
        return audits.run(cases, key=key, n_runs=runs, confidence=self.confidence, progress=alone)

    def cases(self) -> dict[str, list[Any]]:
        """The cases that must pass and those that must fail, by group."""
        from fedbandit_jax import audits

        groups = {SHIPPED: audits.shipped(*([] if self.family == "all" else [self.family]))}
        if self.controls is not None:
            groups[CONTROLS] = audits.load(self.controls)
        if self.part is not None:
            first, n = part_of(self.part)
            groups = {group: cases[first::n] for group, cases in groups.items()}
        if not self.only:
            return groups
        kept = {group: [c for c in cases if any(w in c.name for w in self.only)] for group, cases in groups.items()}
        if not any(kept.values()):
            words = dict.fromkeys(word for case in groups[SHIPPED] for word in case.name.split())
            raise BadValue(
                "only", f"must be in a name made of {', '.join(words)}", " ".join(self.only), got=" ".join(self.only)
            )
        return kept


@functools.cache
def _cases(command: AuditCommand) -> dict[str, list[Any]]:
    return command.cases()


def _audit_part(command: AuditCommand, group: str, part: range) -> list[Any]:
    return command.audit_some(group, [_cases(command)[group][i] for i in part])


def _exact_log_ratios(ratios: list[Any]) -> list[Any]:
    print("\nexact log-ratios of noisy sums modulo m, one user changed, nothing sampled")
    print("(LDP-SE: of every message; Shuffle-DP-SE: half of epsilon is the sum's, and half is charged for its bits):")
    for name in dict.fromkeys(ratio.name for ratio in ratios):
        mine = [ratio for ratio in ratios if ratio.name == name]
        worst = max(mine, key=lambda ratio: ratio.exact)
        sizes = f"{len(mine)} batches of {mine[0].users} to {mine[-1].users:,} users"
        print(f"  {name:<14} {sizes}: at most {worst.exact:.6f} (m = {worst.modulus:,}), claimed {worst.claimed:g}")
    return [ratio for ratio in ratios if not ratio.exact <= ratio.claimed * (1 + 1e-9)]
