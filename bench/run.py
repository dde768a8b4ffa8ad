"""Measures everything that has a target, with all baselines in the same run, and says which targets are met.

Parts, by the number of their target:
  1-3  agent-rounds per second of FedLinUCB, fresh (A) and fixed (B) contexts: over NumPy, JAX and C; one seed over many
  4    the rate from M = 10 to 100,000 agents, and memory
  5    the time of a round with d = 20 and d = 57 features over d = 16
  6    one host device, and two, over one core, for every family
  7    multi-armed bandits: nanoseconds per user of a whole call
  8    clusters of users: steps per second
  9    what a first run costs from an empty cache, and whether another horizon compiles
  10   programs for a GPU are looked at by tests/gpu_programs.py, 11 is measured by bench/gpu.py
  12   memory does not grow with T, nor with the number of calls in one process
  13   sweeps of 1,000 small configurations: the host's time, and with 24 seeds end to end

A whole run writes RESULTS.md. All but 1-3, 7, 8 and 13 run in processes of their own, so that nobody's caches and peaks
are another's. Where sizes are compared, their processes stay and take turns. A part that fails is a target that is not
met, with the error as cause.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import arms
import clustering
import linear
import measure
import numpy as np
import sweeps
import tyro
import workloads
from isolated import Played, Worker, environment
from measure import Row, verdict

RESULTS = Path(__file__).parent / "RESULTS.md"
HEAD = """# Speed

`python bench/run.py` wrote this page. It has every number with a target, baselines of the same run, and the reason for
each target that is missed. Machines differ by a factor of two, so compare ratios of one run only. Other scripts have
[their own page](OTHERS.md).

"""
LIMIT = 24 * 60  # seconds after which no part begins
CALLS_LIMIT = 200  # seconds after which no further call of part 12 begins
GROWTH = 1.05  # most memory with four times the horizon, or after many calls, over that before
AUTHORS = "the authors' code was timed on a machine twice as fast"
CAUSES: dict[str, str] = {  # beginning of the name of a ratio that is missed -> why
    "2: mode B, 24 seeds: over c_reference": "a round is 25 thunks of XLA, each with a fixed cost",
    "3: mode A": "XLA cuts a round of 100 agents in two; two parts of 64 agents took 1.3 ms a batch, the whole 1.2",
    "3: mode B": "XLA cuts a round of 100 agents in two, but one core is nearly as fast",
    "4: M = 10: rate": "a run of 1,000 rounds is short for this",
    "6: gossip": "not found",
    "6: LinUCB, users": "not found",
    "7: arms": "half of a call is the host's part: dispatch, curves, certificates",
    "8: n = 40": AUTHORS,
    "8: n = 1,000": "the target was set on a machine twice as fast",
    "8: n = 10,000": "the target was set on a machine twice as fast",
    "9: fedbandit simulate": "XLA compiles programs of six algorithms, a second run reads them",
    "12: memory after": "programs of up to 32 structures are kept",
    "9: tiny": "most of it is XLA's, for two programs",
    "9: FedUCB": "most of it is XLA's, for two programs",
}


@dataclasses.dataclass(frozen=True)
class Plan:
    """Sizes of all parts."""

    linear: linear.Plan  # 1-3
    agents: dict[int, tuple[int, int]]  # 4: M -> rounds, seeds
    dims: dict[int, int]  # 5: d -> rounds
    devices: tuple[str, ...]  # 6: families
    arms: arms.Plan  # 7
    clusters: clustering.Plan  # 8
    main_job: bool  # 9: whether `fedbandit simulate` is run from an empty cache
    again: tuple[str, ...]  # 9: families
    calls: int  # 12
    sweeps: sweeps.Plan  # 13
    turns: int  # timed runs in parts 4 to 6
    seeds: int  # seeds of runs in parts 5 and 6
    shape: dict[str, int]  # sizes that other parts than 1-3, 7 and 8 have


FULL = Plan(
    linear=linear.REFERENCE,
    agents={10: (1000, 24), 100: (200, 24), 10_000: (50, 2), 100_000: (25, 2)},
    dims={16: 100, 20: 100, 57: 50},
    devices=tuple(workloads.FAMILIES),
    arms=arms.REFERENCE,
    clusters=clustering.REFERENCE,
    main_job=True,
    again=tuple(workloads.FAMILIES),
    calls=200,
    sweeps=sweeps.Plan(),
    turns=3,
    seeds=workloads.SEEDS,
    shape={},
)
QUICK = dataclasses.replace(
    FULL,
    linear=dataclasses.replace(linear.REFERENCE, repeats=2, law_horizon=50, law_seeds=8),
    agents={10: (500, 24), 100: (100, 24), 10_000: (25, 1), 100_000: (25, 1)},
    dims={16: 25, 20: 25, 57: 25},
    devices=("FedLinUCB, mode A", "CDP-FCLUB-DC"),
    arms=arms.REFERENCE._replace(turns=1),
    clusters=clustering.REFERENCE._replace(sizes=(clustering.Size(1000, 4096, 1, 1024, 1),)),
    main_job=False,
    again=("FedLinUCB, mode A", "FedUCB"),
    calls=40,
    sweeps=sweeps.Plan(turns=1),
    turns=2,
)
SMOKE = Plan(
    linear=linear.SMOKE,
    agents={8: (50, 2)},
    dims={},
    devices=("FedLinUCB, mode A",),
    arms=arms.SMOKE,
    clusters=clustering.SMOKE,
    main_job=False,
    again=(),
    calls=0,
    sweeps=sweeps.Plan(epsilons=2, seeds=2, horizon=20, turns=1),
    turns=1,
    seeds=2,
    shape=dict(n_agents=8, n_arms=10, dim=4),
)

Found = tuple[list[Row], dict[str, Row]]  # rows and ratios of a part


class Rates(NamedTuple):
    """The rates of one thing by turn, and its peak of memory."""

    by_turn: np.ndarray  # agent-rounds, users or steps per second, (turns,)
    peak: float  # largest resident memory of its process, in MB

    def over(self, other: Rates) -> float:
        """Returns the median of the ratios within a turn."""
        return float(np.median(self.by_turn / other.by_turn))


class Part:
    """Collects the rows and ratios of one part."""

    def __init__(self, plan: Plan):
        self.plan, self.rows, self.ratios = plan, [], {}
        self.judged = plan is not SMOKE

    def holds(self, name: str, value: float | None, **target: float | None) -> None:
        """Enters a ratio; its name begins with the number of the target."""
        self.ratios[name] = verdict(value, **target, judged=self.judged)

    def enter(self, label: str, what: str, played: list[Played], work: float) -> Rates:
        """Enters a row for the timed runs of one thing; `work` is how many agent-rounds, users or steps each had."""
        wall = np.array([one.wall for one in played])
        processors = sum(one.processors for one in played)
        self.rows.append(
            {
                "part": label,
                "what": what,
                "seconds": float(np.median(wall)),
                "per_second": work / float(np.median(wall)),
                "ns": 1e9 * float(np.median(wall)) / work,
                "cores": float(processors / wall.sum()),
                "peak_MB": played[-1].peak,
            }
        )
        return Rates(work / wall, played[-1].peak)


def speeds(part: Part) -> None:
    """1-3: the reference workload."""
    rows, ratios = linear.compare(part.plan.linear, judged=part.judged)
    part.rows += [{"part": "1-3", **row} for row in rows]
    for name, ratio in ratios.items():
        number = "3" if "one seed over" in name else "1" if name.startswith("mode A") else "2"
        part.ratios[f"{number}: {name}"] = ratio
    measure.check_laws(rows)


def turns(part: Part, label: str, runs: Mapping[str, tuple[Worker, dict[str, Any]]]) -> dict[str, Rates]:
    """Plays every run once, to compile, and then in turns; enters a row for each, and returns their rates."""
    for worker, options in runs.values():
        worker.play(seed=0, **options)
    played: dict[str, list[Played]] = {name: [] for name in runs}
    for turn in range(1, 1 + part.plan.turns):
        for name, (worker, options) in runs.items():
            played[name].append(worker.play(seed=turn, **options))
    found = {}
    for name, (_, options) in runs.items():
        work = workloads.work(**{**options, "size": workloads.Size(**options["size"])})
        found[name] = part.enter(label, name, played[name], work)
    return found


def agents(part: Part) -> None:
    """4: the rate by the number of agents, and the memory that most of them need."""
    plan, least = part.plan, {10: 0.75, 10_000: 0.9, 100_000: 0.7}
    with contextlib.ExitStack() as stack:
        runs = {}
        for m, (rounds, n_seeds) in plan.agents.items():
            size = {**plan.shape, "n_agents": m}
            options = dict(family="FedLinUCB, mode A", horizon=rounds, seeds=n_seeds, size=size)
            runs[f"M = {m:,}"] = stack.enter_context(Worker()), options
        found = turns(part, "4", runs)
    usual = f"M = {100 if 100 in plan.agents else max(plan.agents):,}"
    for m in plan.agents:
        if (name := f"M = {m:,}") != usual:
            part.holds(f"4: {name}: rate over {usual}", found[name].over(found[usual]), least=least.get(m))
    largest = list(found)[-1]
    part.holds(f"4: {largest}: peak memory of the process, MB", found[largest].peak, most=600.0)


def dims(part: Part) -> None:
    """5: the time of an agent-round by the number of features."""
    plan, most = part.plan, {20: 1.8, 57: 14.0}
    if not plan.dims:
        return
    with Worker() as worker:
        common: dict[str, Any] = dict(family="FedLinUCB, mode A", seeds=plan.seeds)
        runs = {
            f"d = {d}": (worker, {**common, "horizon": rounds, "size": {**plan.shape, "dim": d}})
            for d, rounds in plan.dims.items()
        }
        found = turns(part, "5", runs)
    usual, *others = plan.dims
    for d in others:
        ratio = found[f"d = {usual}"].over(found[f"d = {d}"])
        part.holds(f"5: d = {d}: time over d = {usual}", ratio, most=most[d])


def devices(part: Part) -> None:
    """6: one host device, and two, over one core; one device may use all cores as well."""
    plan = part.plan
    with Worker() as one, Worker(devices=2) as two, Worker(cores=1) as core:
        for family in plan.devices:
            options = dict(family=family, seeds=plan.seeds, size=plan.shape)
            if plan is SMOKE:
                options["horizon"] = 50
            workers = {"one device": one, "two devices": two, "one device on one core": core}
            rates = turns(part, "6", {f"{family}, {name}": (w, options) for name, w in workers.items()})
            alone, both, bound = rates.values()
            part.holds(f"6: {family}: one device over one core", alone.over(bound), least=1.6)
            part.holds(f"6: {family}: two devices over one core", both.over(bound), least=1.6)


def many_arms(part: Part) -> None:
    """7: nanoseconds per user of a whole call."""
    rows = arms.speed(part.plan.arms, measure.Compilations())
    part.rows += [{"part": "7", **row} for row in rows]
    ns = {row["implementation"]: row["ns"] for row in rows}
    part.holds("7: arms, T = 1e7: ns per user of a whole call", ns["fedbandit_jax"], most=1.5)
    for other in ("numpy_vectorised", "jax_random"):
        part.holds(f"7: arms, T = 1e7: over {other}", ns[other] / ns["fedbandit_jax"])
    measure.check_laws(rows)


def clusters(part: Part) -> None:
    """8: steps per second by the number of users."""
    rows = clustering.table(clustering.Bench(part.plan.clusters))
    part.rows += [{"part": "8", **row} for row in rows]
    found = clustering.judge(rows, judged=part.judged)
    part.ratios |= {f"8: {name}": ratio for name, ratio in found.items()}
    measure.check_laws(rows)


def first_runs(part: Part) -> None:
    """9: the cost of a first run from an empty cache, and the number of programs that a second one compiles."""
    if part.plan.main_job:
        (wall, processors), _ = measure.timed(main_job)
        name = "fedbandit simulate"
        part.rows.append({"part": "9", "what": name, "seconds": float(wall), "processor_seconds": float(processors)})
        part.holds(f"9: {name}: seconds", float(wall), most=20.0)
    if part.plan.again:
        first_calls(part)
    for family in part.plan.again:
        with Worker() as worker:
            _, usual = workloads.FAMILIES[family]
            horizon = min(usual, 10**6)
            first = worker.play(family, 0, horizon=horizon)
            for what, options in {
                "another horizon": dict(horizon=2 * horizon),
                "another number of seeds": dict(horizon=horizon, seeds=8),
            }.items():
                second = worker.play(family, 1, **options)
                part.holds(f"9: {family}: programs compiled for {what}", second.compiled, most=0)
            part.rows.append({"part": "9", "what": f"{family}, first run", "compiled": first.compiled,
                              "processor_seconds": first.processors, "with_imports": first.process})  # fmt: skip


def main_job() -> None:
    """Runs the main job, whose results and caches go into an empty folder."""
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, "-m", "fedbandit_jax", "simulate", "--out", f"{folder}/results"]
        subprocess.run(words, env=environment(folder), check=True, capture_output=True)


def first_calls(part: Part) -> None:
    """9: first calls of the API, in processor seconds of the call and of the process with its imports."""
    tiny = dict(n_agents=5, n_arms=20, dim=4, n_users=20)
    calls = {
        "FedUCB, T = 100": (dict(family="FedUCB", horizon=100), 2.0),
        **{f"tiny {family}": (dict(family=family, horizon=100, seeds=2, size=tiny), 2.0) for family in
           (f for f in part.plan.again if f != "arms")},
    }  # fmt: skip
    for name, (options, most) in calls.items():
        with Worker() as worker:
            played = worker.play(seed=0, **options)
        part.rows.append({"part": "9", "what": f"{name}, first run", "compiled": played.compiled,
                          "processor_seconds": played.processors, "with_imports": played.process})  # fmt: skip
        part.holds(f"9: {name}: processor seconds of the call", played.processors, most=most)


def elsewhere(part: Part) -> None:
    """10, 11: where programs for a GPU are compiled and timed."""
    part.holds("10: see python tests/gpu_programs.py", None)
    part.holds("11: see python bench/gpu.py", None)


def memory(part: Part) -> None:
    """12: memory with four times the horizon, and after many calls of one process that all differ."""
    plan, rounds = part.plan, 250
    if not plan.calls:
        return
    options: dict[str, Any] = dict(family="FedLinUCB, mode A", seeds=2, size=plan.shape)
    peak = {}
    for horizon in (rounds, 4 * rounds):
        with Worker() as worker:
            played = [worker.play(seed=turn, horizon=horizon, **options) for turn in (0, 1)]
            part.enter("12", f"T = {horizon}", played[1:], workloads.work(options["family"], horizon=horizon, seeds=2))
            peak[horizon] = played[-1].peak
    part.holds("12: peak memory at 4 T over T", peak[4 * rounds] / peak[rounds], most=GROWTH)
    held, started = [], time.monotonic()
    with Worker() as worker:
        while len(held) < plan.calls and time.monotonic() - started < CALLS_LIMIT:
            held.append(worker.play(seed=0, **different(len(held))).resident)
    part.rows.append({"part": "12", "calls": len(held), "resident_MB_after_half": held[len(held) // 2],
                      "resident_MB_after_all": held[-1]})  # fmt: skip
    grown = held[-1] / held[len(held) // 2] if len(held) == plan.calls else None
    part.holds(f"12: memory after {plan.calls} different calls over half of them", grown, most=GROWTH)
    if grown is None:
        name = list(part.ratios)[-1]
        part.ratios[name] |= {"met": False, "cause": f"only {len(held)} calls in {CALLS_LIMIT} seconds"}


def many_small(part: Part) -> None:
    """13: seconds of a sweep of small configurations."""
    rows = sweeps.speed(part.plan.sweeps, measure.Compilations())
    part.rows += [{"part": "13", **row} for row in rows]
    part.holds(f"13: {rows[0]['configurations']:,} configurations: seconds of the host", rows[0]["seconds"], most=2.0)


def different(i: int) -> dict[str, Any]:
    """Returns the options of call number i; no two are alike in horizon, seeds, family and size."""
    families = ("FedLinUCB, mode A", "FedLinUCB, mode B", "Private-FedLinUCB, BLT", "FedUCB")
    size = dict(n_agents=4, n_arms=10, dim=3 + i // 4 % 2)
    return dict(family=families[i % 4], horizon=50 + 25 * (i // 8), seeds=1 + i % 3, size=size)


PARTS: dict[Callable[[Part], None], tuple[int, ...]] = {  # part -> numbers of its targets
    speeds: (1, 2, 3),
    agents: (4,),
    dims: (5,),
    devices: (6,),
    many_arms: (7,),
    clusters: (8,),
    first_runs: (9,),
    elsewhere: (10, 11),
    memory: (12,),
    many_small: (13,),
}


def measured(plan: Plan, only: set[int]) -> Found:
    """Runs all parts, or only those with these numbers, and returns their rows and ratios."""
    started, rows, ratios = time.monotonic(), [], {}
    for run, numbers in PARTS.items():
        if not only or only & set(numbers):
            part, label = Part(plan), "-".join(map(str, sorted({numbers[0], numbers[-1]})))
            try:
                if time.monotonic() - started > LIMIT:
                    raise TimeoutError(f"not run, because {LIMIT} seconds were over")
                run(part)
            except (Exception, SystemExit) as error:  # a part that fails is a target that is not met
                failed = verdict(None) | {"met": False, "cause": f"{type(error).__name__}: {error}"}
                part.ratios[f"{label}: {run.__name__} failed"] = failed
            rows, ratios = rows + part.rows, ratios | part.ratios
    return rows, explained(ratios)


def explained(ratios: Mapping[str, Row]) -> dict[str, Row]:
    """Returns the ratios, each with the cause of a miss, or None."""

    def cause(name: str, one: Row) -> str | None:
        known = next((why for start, why in CAUSES.items() if name.startswith(start)), None)
        return one.get("cause") or (known if one["met"] is False else None)

    return {name: {**one, "cause": cause(name, one)} for name, one in ratios.items()}


def numbered(only: str) -> set[int]:
    """Returns the numbers in a list such as 1,4."""
    if only and not re.fullmatch(r"\d+(,\d+)*", only):
        raise SystemExit(f"--only must be numbers of targets such as 1,4, got {only!r}")
    found = {int(number) for number in only.split(",") if number}
    if unknown := found - {number for numbers in PARTS.values() for number in numbers}:
        raise SystemExit(f"--only must be numbers of targets from 1 to 13, got {min(unknown)}")
    return found


def main(quick: measure.Flag = False, json: measure.Flag = False, smoke: measure.Flag = False, only: str = "") -> None:
    """Measure everything that has a target.

    Args:
        quick: smaller sizes and fewer families: at most 4 minutes on two cores, instead of 25.
        json: print JSON only: {"machine": {...}, "rows": [...], "ratios": {...}}.
        smoke: tiny sizes, to see that everything works; the numbers mean nothing, and a part that fails is an error.
        only: numbers of the targets to measure, such as 1,4; all by default.
    """
    numbers, started = numbered(only), time.monotonic()
    rows, ratios = measured(SMOKE if smoke else QUICK if quick else FULL, numbers)
    judged = [one["met"] for one in ratios.values() if one["met"] is not None]
    minutes = math.ceil((time.monotonic() - started) / 60)
    title = f"{sum(judged)} of {len(judged)} targets are met; {minutes} minutes"
    measure.output(title, rows, ratios, json=json)
    if smoke and False in judged:
        sys.exit("a part failed")
    if not (quick or smoke or only):
        text = measure.report(title, rows, ratios)
        RESULTS.write_text(HEAD + "".join(f"    {line}".rstrip() + "\n" for line in text.splitlines()))


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
