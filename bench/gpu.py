"""Measures the package on a GPU: speed by size and family, against the arithmetic it could do, and whether it is right.

    python bench/gpu.py                          everything, in eight minutes
    python bench/gpu.py --device cpu --smoke     tiny sizes without a GPU, to see that the benchmark works

Every part runs in processes of its own and has a deadline. A part that overruns is stopped, what it had measured is
kept, and the next part starts. One agent that plays one round is one agent-round (ar); a multi-armed or clustering
algorithm plays for one user a round, so that there it is one user. Times are of `fb.simulate`, all its work on the host
included, without compilation: medians of three runs with different keys.

| part | asks |
|---|---|
| device | what it is, which versions and flags |
| inverse | is V^-1 that of float64? |
| first | seconds of the first call of everything that is timed below, with its compilation, beside other processes |
| programs | seconds of compilation; kernels of a round, registers, spills (see tests/gpu_programs.py) |
| agreement | are regrets those of a CPU (z), and two runs equal bit by bit? |
| latency | microseconds of a round of a few agents, milliseconds of a call beside its rounds |
| rates | agent-rounds a second by mode and M S, agents times seeds; peak memory; share of the arithmetic of an H100 |
| stored | contexts drawn in the kernel that scores them, against contexts in memory |
| command buffers | graphs: off, as XLA does by itself (on), and with loops as parts of them (while) |
| host | the same on this machine's CPU: from which size on does the GPU win? |

Modes: A, fresh contexts; A-d20, with 20 features, where registers spill; A-lazy-BLT, agents act on private releases; B,
fixed contexts; FedUCB, an adaptive schedule; arms, by number of users; clusters, by number of users who return.

What comes before `latency` runs beside each other; the rest has the device for itself, and its programs from a cache.
A whole run on a GPU writes GPU.md, beside this script.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import json as json_format
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, TextIO

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from gpu_modes import Mode, modes
from gpu_page import PAGE, page, ratios, shown
from measure import verdicts

import fedbandit_jax as fb
from fedbandit_jax.core import ridge
from fedbandit_jax.engine.runners import synchronous

HERE = Path(__file__).resolve()
# ar/s of mode A if a device did nothing but the arithmetic of drawing and scoring; both have the same processor
ROOF = {"H100": 230e6, "H200": 230e6}
BESIDE = "first", "agreement", "programs"
SHARES = {  # of the time that is left, in seconds of the eight minutes
    "device": 20,
    "beside each other": 130,
    "latency": 15,
    "rates": 8,  # and as much for every pair of agents and seeds
    "stored": 15,
    "command buffers": 15,
    "host": 50,
}
GRAPHS = {"off": "", "on": None, "while": "+WHILE"}


@dataclasses.dataclass(frozen=True)
class Plan:
    """The device, size and deadline of a part."""

    device: str
    smoke: bool
    ends: float  # when the part must have ended, as `time.monotonic` of its process tells it

    def rounds(self, mode: Mode, size: int, n_seeds: int) -> int:
        """Returns T: a run on a GPU takes about a second, and on a CPU some."""
        if mode.target or not mode.agents:
            return mode.target or size
        if self.smoke:
            return 50
        work = 5e7 if self.device == "gpu" else 2e6
        return 25 * int(np.clip(work / (25 * size * n_seeds), 2, 400))

    def seconds(self, mode: Mode, size: int, n_seeds: int, turns: int = 4) -> dict[str, Any]:
        """Returns the seconds of the first run, their median over the others, rates, and the peak of memory so far."""
        env, algo = mode.make(size)
        horizon = self.rounds(mode, size, n_seeds)
        times = []
        for turn in range(turns):
            started = time.perf_counter()
            key = jax.random.key(turn)
            fb.simulate(env, algo, horizon=horizon, key=key, seeds=n_seeds, stride=horizon, progress=False)
            times.append(time.perf_counter() - started)
            if turn and time.monotonic() + times[-1] > self.ends:
                break
        wall = float(np.median(times[1:] or times))
        played = horizon * n_seeds * (size if mode.agents else 1)
        return {
            "rounds": horizon,
            "seconds": wall,
            "first_seconds": times[0],
            "rate": played / wall,
            "round_us": 1e6 * wall / horizon,
            "peak_MB": peak(),
        }


def peak() -> float | None:
    """Returns the peak of device memory of this process, in MB, if the device tells."""
    statistics = jax.devices()[0].memory_stats() or {}
    return statistics["peak_bytes_in_use"] / 1e6 if "peak_bytes_in_use" in statistics else None


# --- The parts, which yield rows -------------------------------------------------------------------------------------

Rows = Iterator[dict[str, Any]]


def device(plan: Plan) -> Rows:
    """Describes the device, the host and the versions."""
    one = jax.devices()[0]
    yield {
        "platform": one.platform,
        "kind": one.device_kind,
        "devices": len(jax.devices()),
        "flags": os.environ.get("XLA_FLAGS", ""),
        "jax": jax.__version__,
        "python": platform.python_version(),
        "cores": os.cpu_count(),
    }


def inverse(plan: Plan) -> Rows:
    """Compares an inverse with float64."""
    yield {"inverse": inverse_error()}


def first(plan: Plan, name: str) -> Rows:
    """Runs everything once that `rates` times, so that its programs are in the cache."""
    mode = modes(plan.smoke)[name]
    for size, n_seeds in pairs(name, mode, plan.smoke):
        taken = plan.seconds(mode, size, n_seeds, turns=1)["first_seconds"]
        yield {"mode": name, "size": size, "seeds": n_seeds, "first_seconds": taken}


def programs(plan: Plan, name: str) -> Rows:
    """Compiles the loop of a mode, as it runs with 25 seeds, and reads what XLA has made of it."""
    sys.path.insert(0, str(HERE.parent.parent / "tests"))
    from gpu_programs import count, hot_loop, written

    from fedbandit_jax.engine.runners import make_runner

    mode = modes(plan.smoke)[name]
    size, n_seeds = mode.sizes[0], 2 if plan.smoke else 25
    env, algo = mode.make(size)
    horizon = 2 * plan.rounds(mode, size, n_seeds)
    bound = dataclasses.replace(
        make_runner(env, algo.bind(env.spec, horizon), horizon), salt=(np.uint32(1), np.uint32(2))
    )
    function, arguments = hot_loop([bound], n_seeds, 7)
    started = time.perf_counter()
    lowered = function.lower(*arguments)
    traced = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        made = lowered.compile(compiler_options={"xla_dump_to": folder})
        compiled = time.perf_counter() - traced
        try:
            kernels: dict[str, Any] = written(folder) if plan.device == "gpu" else {}
            if not kernels.get("registers", 1):  # XLA has written no code of our kernels
                kernels = {}
        except FileNotFoundError:
            kernels = {"spills unknown": "there is no ptxas on the path or among the CUDA wheels"}
    trip = {"FedUCB": 7, "arms": None, "clusters": None}.get(name, 25)
    try:
        turn = count(made.as_text(), trip)._asdict()
    except ValueError:  # XLA has merged the loop with another
        turn = {}
    temporaries = made.memory_analysis().temp_size_in_bytes / 1e6
    took = {"trace_seconds": traced - started, "compile_seconds": compiled}
    yield {"mode": name, "size": size, "seeds": n_seeds, **took, **turn, **kernels, "temporaries_MB": temporaries}


def agreement(plan: Plan, name: str) -> Rows:
    """Compares regrets with those of a CPU and of a second process."""
    yield compared(plan, name)


def compared(plan: Plan, name: str) -> dict[str, Any]:
    """Compares a mode with a CPU and with itself."""
    runs = [plan, dataclasses.replace(plan, device="cpu")] + [plan] * (name == "A")  # in another process, too
    with concurrent.futures.ThreadPoolExecutor(len(runs)) as pool:
        done = [pool.submit(again, one, name) for one in runs]
        try:
            here, there, *others = (one.result() for one in done)
        except RuntimeError as error:
            return {"mode": name, "wrong": str(error)}
    ours, theirs = np.array(here["regret"]), np.array(there["regret"])
    error = float(np.sqrt((ours.var(ddof=1) + theirs.var(ddof=1)) / len(ours)))
    return {
        "mode": name,
        "z": float((ours.mean() - theirs.mean()) / error) if error else 0.0,
        "regret": float(ours.mean()),
        "regret_on_cpu": float(theirs.mean()),
        "seeds_equal_to_cpu": int((ours == theirs).sum()),
        "seeds": len(ours),
        "twice_equal": here["alike"] and all(other["regret"] == here["regret"] for other in others),
    }


def again(plan: Plan, name: str) -> dict[str, Any]:
    """Returns the row of `regrets`, run in a process of its own."""
    rows, wrong = run("regrets", plan.device, plan.smoke, max(5.0, plan.ends - time.monotonic()), mode=name)
    if wrong:
        raise RuntimeError(f"{name} on {plan.device}: {wrong}")
    return rows[0]


def regrets(plan: Plan, name: str) -> Rows:
    """Plays a short run of one mode with 16 seeds, twice, and yields final regrets and whether all curves are alike."""
    mode = modes(plan.smoke)[name]
    size = mode.sizes[0]
    env, algo = mode.make(size)
    horizon = (50 if plan.smoke else 200) if mode.agents else mode.target or size
    options: dict[str, Any] = dict(horizon=horizon, seeds=16, key=jax.random.key(1), progress=False)
    one, two = (fb.simulate(env, algo, stride="log", **options).regret for _ in range(2))
    yield {"regret": np.asarray(one[:, -1], float).tolist(), "alike": bool((one == two).all())}


def inverse_error() -> float:
    """Returns the largest relative error of x' V^-1 x after 1000 rank-one updates of 64 agents, against float64."""
    rng, d, m = np.random.default_rng(0), 10, 64
    rows = rng.normal(size=(1000, d, m)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)

    @jax.jit
    def updated(rows):
        start, *_ = ridge.solve(jnp.broadcast_to(jnp.eye(d), (m, d, d)), jnp.zeros((m, d)))

        def step(posterior, x):
            return ridge.update(posterior, ridge.gain(posterior, x, jnp.zeros(m))), None

        posterior, _ = jax.lax.scan(step, start, rows)
        contexts = jnp.moveaxis(rows[:100], (0, 1, 2), (1, 2, 0))
        return ridge.width_sq(contexts, posterior.inverse)

    found = np.asarray(updated(rows), float)  # (K, M)
    exact = np.linalg.inv(np.eye(d) + np.einsum("tim,tjm->mij", rows.astype(float), rows.astype(float)))
    wanted = np.einsum("kim,mij,kjm->km", rows[:100].astype(float), exact, rows[:100].astype(float))
    return float(np.abs(found / wanted - 1).max())


def latency(plan: Plan) -> Rows:
    """Times short and long runs of one seed of the fewest agents: seconds of a round, and of a call beside them."""
    mode = modes(plan.smoke)["A"]
    env, algo = mode.make(mode.sizes[0])
    few, many = (50, 200) if plan.smoke else (250, 10_000)
    walls = []
    for horizon in (few, many):
        options: dict[str, Any] = dict(horizon=horizon, seeds=1, stride=horizon, progress=False)
        times = []
        for turn in range(6):
            started = time.perf_counter()
            fb.simulate(env, algo, key=jax.random.key(turn), **options)
            times.append(time.perf_counter() - started)
        walls.append(float(np.median(times[1:])))
    of_round = (walls[1] - walls[0]) / (many - few)
    yield {"size": mode.sizes[0], "round_us": 1e6 * of_round, "call_ms": 1e3 * (walls[0] - few * of_round)}


def rates(plan: Plan, name: str) -> Rows:
    """Times one mode by agents and seeds."""
    mode = modes(plan.smoke)[name]
    runs = pairs(name, mode, plan.smoke)
    for size, n_seeds in sorted(runs, key=lambda run: run[0] * run[1]):  # so that the peak is that of the last run
        row = {"mode": name, "size": size, "seeds": n_seeds, "MS": size * n_seeds}
        row |= plan.seconds(mode, size, n_seeds)
        roof = next((roof for kind, roof in ROOF.items() if kind in jax.devices()[0].device_kind), None)
        yield row | {"roofline": row["rate"] / roof if roof and name == "A" else None}


def pairs(name: str, mode: Mode, smoke: bool) -> list[tuple[int, int]]:
    """Returns the agents and seeds that are timed: of mode A all sizes, of the others the smallest and the third."""
    if smoke:
        return [(size, 2) for size in mode.sizes]
    if name == "A":
        return [(mode.sizes[0], 1), *((size, 25) for size in mode.sizes)]
    return [(size, 25) for size in mode.sizes[:3:2]]


def timed(plan: Plan, name: str) -> Rows:
    """Times one run of one mode, with 25 seeds."""
    mode, n_seeds = modes(plan.smoke)[name], 2 if plan.smoke else 25
    size = mode.sizes[0]
    yield {"mode": name, "size": size, "seeds": n_seeds, **plan.seconds(mode, size, n_seeds)}


def stored(plan: Plan, name: str) -> Rows:
    """Does what `timed` does with contexts in memory, as if other configurations had a use for them, too."""
    synchronous.DRAW_AGAIN = 0
    return timed(plan, name)


def host(plan: Plan) -> Rows:
    """Times mode A on the CPU of this machine."""
    mode = modes(plan.smoke)["A"]
    for size in mode.sizes[:3]:
        for n_seeds in (2,) if plan.smoke else (1, 25):
            if size * n_seeds <= 25_000:  # more takes long, and is about as fast
                yield {"mode": "A", "size": size, "seeds": n_seeds, **plan.seconds(mode, size, n_seeds)}


PARTS: dict[str, Callable[..., Rows]] = {
    part.__name__: part
    for part in (device, inverse, first, programs, agreement, regrets, latency, rates, timed, stored, host)
}


# --- Processes and deadlines ----------------------------------------------------------------------------------------


def run(
    part: str, device: str, smoke: bool, deadline: float, variables: dict[str, str] | None = None, mode: str = ""
) -> tuple[list[dict[str, Any]], str | None]:
    """Runs a part in a process of its own; returns its rows, and the error if it did not end as it should."""
    platforms = {"JAX_PLATFORMS": "cpu"} if device == "cpu" else {}
    settings = {
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",  # so that `peak` tells what a run needs
        "JAX_TRACEBACK_FILTERING": "off",  # so that the last line says what was wrong
    }
    command = [sys.executable, str(HERE), "--part", part, "--mode", mode, "--device", device]
    command += ["--seconds", str(deadline), *(["--smoke"] if smoke else [])]
    with tempfile.TemporaryFile("w+") as rows, tempfile.TemporaryFile("w+") as errors:
        environment = {**os.environ, **platforms, **settings, **(variables or {})}
        process = subprocess.Popen(command, stdout=rows, stderr=errors, env=environment)
        try:
            code, wrong = process.wait(deadline), None
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            code, wrong = 0, f"stopped after {deadline:.0f} s"
        for stream in (rows, errors):
            stream.seek(0)
        if code:
            wrong = (errors.read().strip().splitlines() or [f"exit code {code}"])[-1][:300]
        whole = [line for line in rows.read().splitlines() if line.startswith("{") and line.endswith("}")]
    return [json_format.loads(line) for line in whole], wrong


def everything(device: str, smoke: bool, seconds: float, told: TextIO) -> list[dict[str, Any]]:
    """Runs all parts, tells of rows as they come, and returns them; every row names its part."""
    ends = time.monotonic() + seconds
    known = modes(smoke)
    todo: list[tuple[str, str, str, dict[str, Any], dict[str, str]]] = []  # part, program, mode, columns, environment
    todo += [(part, part, "", {}, {}) for part in ("device", "beside each other", "latency")]
    todo += [("rates", "rates", name, {}, {}) for name, one in known.items() if pairs(name, one, smoke)]
    todo += [("stored", which, "A", {"fused": which == "timed"}, {}) for which in ("timed", "stored")]
    for mode in ("A", "clusters"):
        for which, value in GRAPHS.items():
            flags = [os.environ.get("XLA_FLAGS"), None if value is None else f"--xla_gpu_enable_command_buffer={value}"]
            columns, variables = {"command_buffers": which}, {"XLA_FLAGS": " ".join(filter(None, flags))}
            todo.append(("command buffers", "timed", mode, columns, variables))
    todo += [("host", "host", "", {}, {})]

    def share(part: str, mode: str) -> float:
        return SHARES[part] * (1 + len(pairs(mode, known[mode], smoke)) if part == "rates" else 1)

    rows: list[dict[str, Any]] = []

    def keep(part: str, mode: str, columns: dict[str, Any], found: list[dict[str, Any]], wrong: str | None) -> None:
        new = [{"part": part, **columns, **row} for row in found]
        if wrong:
            new.append({"part": part, **columns, **({"mode": mode} if mode else {}), "wrong": wrong})
        rows.extend(new)
        print(*map(shown, new), sep="\n", file=told, flush=True)

    for n, (part, program, mode, columns, variables) in enumerate(todo):
        left = ends - time.monotonic()  # what one part leaves over is shared by those after it
        deadline = left * share(part, mode) / sum(share(one[0], one[2]) for one in todo[n:])
        if part == "beside each other":
            by = time.monotonic() + deadline
            both = [(which, name) for which in BESIDE for name in known] + [("inverse", "")]
            with concurrent.futures.ThreadPoolExecutor(max(1, (os.cpu_count() or 1) // 2)) as pool:
                done = [pool.submit(beside, which, name, device, smoke, by) for which, name in both]
            for (which, name), one in zip(both, done):
                keep(which, name, {}, *one.result())
            continue
        keep(part, mode, columns, *run(program, "cpu" if part == "host" else device, smoke, deadline, variables, mode))
        if part == "device" and rows[0].get("platform") not in (device, {"gpu": "cuda"}.get(device)):
            has = rows[0].get("platform", rows[0].get("wrong"))
            works = "--device cpu --smoke shows that the benchmark works"
            raise ValueError(f"device must be one that JAX sees, got {device}: JAX sees {has}; {works}")
    return rows


def beside(part: str, mode: str, device: str, smoke: bool, by: float) -> tuple[list[dict[str, Any]], str | None]:
    """Runs a part beside others until `by`."""
    left = by - time.monotonic()
    return run(part, device, smoke, left, mode=mode) if left > 0 else ([], "there was no time left")


def main(
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
    smoke: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
    seconds: float = 480.0,
    device: Literal["gpu", "cpu"] = "gpu",
    part: Annotated[str, tyro.conf.arg(help_behavior_hint="internal")] = "",
    mode: Annotated[str, tyro.conf.arg(help_behavior_hint="internal")] = "",
) -> None:
    """Measure everything, and print rows and ratios.

    Args:
        json: print JSON only: {"rows": [...], "ratios": {...}}.
        smoke: use tiny sizes, which show that the benchmark works; the rates mean nothing.
        seconds: how long it may take.
        device: where to run.
        part: run one part only in this process, and print its rows as they come.
        mode: of which mode, where a part is of one.
    """
    if part:
        plan = Plan(device, smoke, time.monotonic() + seconds)
        for row in PARTS[part](plan, mode) if mode else PARTS[part](plan):
            print(json_format.dumps(row), flush=True)
        return
    try:
        with tempfile.TemporaryDirectory() as cache:
            os.environ |= {"JAX_COMPILATION_CACHE_DIR": cache, "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
            rows = everything(device, smoke, seconds, sys.stderr if json else sys.stdout)
    except ValueError as error:
        sys.exit(str(error))
    found = ratios(rows, smoke)
    if json:
        print(json_format.dumps({"rows": rows, "ratios": found}, indent=1))
        return
    print("", verdicts(found), sep="\n")
    if device == "gpu" and not smoke:
        PAGE.write_text(page(rows, found, time.strftime("%Y-%m-%d")))


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
