"""Compiles what every family runs most for an H100, on a machine without a GPU, and counts what a GPU would do.

    python tests/gpu_programs.py                every program, in some minutes
    python tests/gpu_programs.py feducb club    those whose name contains one of these words
    python tests/gpu_programs.py --keep out     and their HLO and PTX in a folder

It needs the CUDA wheels, `pip install "jax[cuda12]"` (about 7 GB, in an environment of their own), but no driver: XLA
compiles ahead of time for the device that tests/h100.txtpb describes. Every program is compiled in a process of its
own, which is stopped when it takes far too long. Nothing is tuned, as it would be on the device itself, so that other
matrix products may be chosen there. The columns:

    compile      seconds of processor time that XLA takes, tracing apart
    kernels      operations that a GPU starts in one turn of the loop that is named beside. Those of a loop inside it
                 count once, if its length is known. A call of a library, such as a Cholesky factor, counts as one
    rare         the same in loops of unknown length, which most turns skip, and in branches but the shortest
    waits        conditionals, and loops of unknown length, inside that turn: the host reads a number before it goes on
    registers    of a thread, in kernels of our own
    spills       bytes of a thread that these kernels could not keep in registers
    temporaries  MB beside arguments and results
    tf32         matrix products whose factors would be rounded to 10 bits: lines of PTX, and calls of cuBLAS
    host         calls of the host

A number above `LIMITS` is an error, unless `KNOWN` says how far; then it must not be worse than said there.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import dataclasses
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve()
TARGET = HERE.with_name("h100.txtpb")  # a description of the device, as XLA writes it
PATIENCE = 600  # seconds after which the process of one program is stopped
MANY = 10_000  # agents of the large programs
SEEDS = 25
BATCH = 25  # rounds between two synchronisations
KERNELS = ("choose", "solve")  # of our own
STEPS = 7  # steps in a compiled loop: by this number it is found among others

LIMITS = {
    "compile": 60.0,
    "kernels": 20.0,
    "waits": 0.0,
    "registers": 128.0,  # so that a multiprocessor holds four blocks of 128 threads
    "spills": 0.0,
    "temporaries": 100.0,
    "tf32": 0.0,
    "host": 0.0,
}
# What a program may do beyond these limits, and why.
SYNCHRONISES = dict(kernels=36)  # a synchronisation is computed in every round and selected: nothing waits for the host
KNOWN: dict[str, dict[str, float]] = {
    "linear fresh 10000": dict(temporaries=109),  # what every agent knows, 65 numbers, is 65 MB
    "linear fresh d=16": dict(registers=255),  # a thread keeps what its agent knows, 152 numbers
    # 230 numbers, sums over 20 features that are unrolled, and 75 spilled of 4,200 instructions for two arms
    "linear fresh d=20": dict(registers=255, spills=320),
    # Ties are broken by a lot of every arm and agent, which takes two words that are drawn every round.
    "linear fixed": dict(kernels=22),
    "linear fixed 10000": dict(kernels=26, temporaries=164),  # estimates of every arm of every agent are kept
    "linear thompson": dict(kernels=24),
    "linear logdet": SYNCHRONISES,
    "linear private logdet": dict(kernels=40),
    "linear feducb": SYNCHRONISES,
    "linear private feducb": dict(kernels=46),
    "linear gossip": dict(kernels=71),
    # What one user changes is a chain of steps too different in shape for XLA to fuse them. Components are searched
    # after cuts, clusters merge, and phases begin, in branches and in loops of unknown length.
    "clusters club": dict(kernels=39, waits=1),
    # Sizes of clusters, members not yet seen and the bound of an upload are computed, not kept: one kernel more.
    "clusters sclub": dict(kernels=45, waits=2),
    "clusters fclub": dict(kernels=41, waits=7),
    "clusters cdp-fclub": dict(kernels=40, waits=8),
}


class Program(NamedTuple):
    """What is compiled: an environment and an algorithm, and the loop in which its time goes."""

    env: Any
    algo: Any
    turn: str  # what one turn of that loop is
    trip: int | None = BATCH  # its length, by which it is found; None: the outermost loop of unknown length
    horizon: int = 1000


def programs() -> dict[str, Program]:
    """Returns all programs by name."""
    import fedbandit_jax as fb

    algos, budget = fb.algos, fb.privacy.Budget(1.0, 0.1)
    plain, logdet = algos.fed_lin_ucb(), fb.schedules.LogDet(30.0)
    blt = algos.private_fed_lin_ucb(fb.privacy.Mechanism(budget, release="blt", trust="secagg"))
    tested = algos.private_fed_lin_ucb(budget, schedule=fb.schedules.PrivateLogDet(30.0, max_syncs=64))
    feducb = algos.fed_ucb(schedule=logdet, policy=algos.LogDetUCB(regularization=0.01))
    private_feducb = algos.fed_ucb(budget, schedule=fb.schedules.LogDet(30.0, "dp20"))
    gossip = algos.GossipFedUCB(graph=fb.networks.make("ring", 100), gamma=2, schedule=logdet)

    def batch(algo: Any, m: int = 100, **given: Any) -> Program:
        return Program(fb.envs.sphere(n_agents=m, n_arms=100, **{"dim": 10} | given), algo, "a round")

    def every_round(algo: Any, **given: Any) -> Program:
        return batch(algo, **given)._replace(turn="a round and its synchronisation", trip=STEPS)

    def arms(algo: Any) -> Program:
        return Program(fb.envs.arms(10), algo, "16 blocks of 4096 users", None, 10**6)

    def clustered(algo: Any) -> Program:
        return Program(fb.envs.clustered(100, 5, 2), algo, "a user", None, 4096)

    return {
        "linear fresh": batch(plain),
        f"linear fresh {MANY}": batch(plain, MANY),
        "linear fresh d=16": batch(plain, dim=16),
        "linear fresh d=20": batch(plain, dim=20),
        "linear fixed": batch(plain, contexts="fixed"),
        f"linear fixed {MANY}": batch(plain, MANY, contexts="fixed"),
        "linear lazy blt": batch(blt, rewards="bernoulli"),
        "linear thompson": batch(algos.Federated(policy=algos.Thompson())),
        "linear alone": batch(algos.LinUCB())._replace(trip=100),  # in which agents compute no inverse anew
        "linear logdet": every_round(algos.fed_lin_ucb(schedule=logdet)),
        "linear private logdet": every_round(tested, rewards="bernoulli"),
        "linear feducb": every_round(feducb),
        "linear private feducb": every_round(private_feducb, rewards="bernoulli"),
        "linear gossip": every_round(gossip)._replace(turn="two rounds, one written, and a synchronisation"),
        "arms discrete laplace": arms(algos.DistDPSE(0.5)),
        "arms skellam": arms(algos.DistRDPSE(0.5)),
        "clusters club": clustered(algos.CLUB()),
        "clusters sclub": clustered(algos.SCLUB()),
        "clusters fclub": clustered(algos.FCLUB()),
        "clusters cdp-fclub": clustered(algos.FCLUB(budget)),
    }


def drawn(runner: Any, keys: Any, n: int) -> Any:
    """Returns the noise of n steps for seeds of these keys, which is drawn before the loop."""
    import jax

    start = runner.algo.source.release.init((runner.algo.source.row_size,))
    return jax.vmap(lambda key: runner.algo.source.rows(key, start, 0, n, n)[0])(keys)


def hot_loop(runners: Sequence[Any], n_seeds: int, n_steps: int) -> tuple[Any, tuple[Any, ...]]:
    """Returns the driver's jitted loop for runners that run side by side, and its abstract arguments."""
    import jax
    import jax.numpy as jnp

    from fedbandit_jax.engine import batching

    runners = [runner.sharing(len(runners)) for runner in runners]
    leaves, treedef, axes = batching._stack([runner.played for runner in runners])
    leaves = [jax.ShapeDtypeStruct(jnp.shape(leaf), jnp.result_type(leaf)) for leaf in leaves]
    placed = batching.Layout(treedef, axes, len(runners), n_seeds, runners[0].hints.emitters, None)
    keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), n_seeds))
    worlds, states = batching._init(placed).eval_shape(leaves, keys)
    steps = batching._steps(range(n_steps), n_steps)
    rows = [jax.eval_shape(lambda keys, one=one: drawn(one, keys, n_steps), keys) for one in runners if one.algo.source]
    return batching._advance(placed), (leaves, keys, worlds, states, *steps, rows)


def compiled(name: str, folder: str) -> dict[str, Any]:
    """Compiles a program for the device, and returns its numbers; everything it writes is left in the folder."""
    os.environ["JAX_PLATFORMS"] = "cpu"
    import jax
    import numpy as np
    from jax.experimental import topologies

    from fedbandit_jax.engine.runners import make_runner

    env, algo, _, trip, horizon = programs()[name]
    bound = make_runner(env, algo.bind(env.spec, horizon), horizon)
    bound = dataclasses.replace(bound, salt=(np.uint32(1), np.uint32(2)))
    device = topologies.get_topology_desc(platform="cuda", target_config=TARGET.read_text(), topology="1x1x1").devices
    there = jax.sharding.NamedSharding(jax.sharding.Mesh(np.array(device), "x"), jax.sharding.PartitionSpec())
    jax.clear_caches()  # of what was traced for a CPU
    jax.default_backend = lambda: "gpu"  # what the package asks, see `core.backend`
    function, arguments = hot_loop([bound], SEEDS, STEPS)
    on_device = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=there), arguments)
    started = processor_time()
    lowered = function.trace(*on_device).lower(lowering_platforms=("cuda",))
    traced = processor_time()
    executable = lowered.compile(compiler_options={"xla_dump_to": folder})
    ended = processor_time()
    text = executable.as_text()
    Path(folder, "hlo.txt").write_text(text)
    ptx = "".join(path.read_text() for path in Path(folder).glob("*.ptx"))
    return {
        "trace": traced - started,
        "compile": ended - traced,
        **count(text, trip)._asdict(),
        **written(folder),
        "temporaries": executable.memory_analysis().temp_size_in_bytes / 1e6,
        "tf32": ptx.count("tf32") + rounded_by_cublas(text),
        "host": len(re.findall(r'custom_call_target="[^"]*callback|\b(?:infeed|outfeed|send|recv)\(', text)),
    }


def processor_time() -> float:
    """Returns the seconds that this process and its children have used, which other processes hardly change."""
    return sum(os.times()[:4])


def written(folder: str | Path) -> dict[str, int]:
    """Returns the most registers and spilled bytes of a thread in our own kernels, from what XLA wrote there."""
    reports = ""
    for path in Path(folder).glob("*.ptx"):
        code = path.read_text()
        if re.search(rf"\.entry (?:{'|'.join(KERNELS)})\b", code):
            target = re.findall(r"^\.target (\w+)", code, re.MULTILINE)[0]
            command = [assembler(), "-v", "-arch", target, str(path), "-o", os.devnull]
            reports += subprocess.run(command, check=True, capture_output=True, text=True).stderr
    return assembled(reports)


def assembled(reports: str) -> dict[str, int]:
    """Returns what `ptxas -v` tells of kernels."""
    return {
        "registers": max(map(int, re.findall(r"Used (\d+) registers", reports)), default=0),
        "spills": max(map(int, re.findall(r"(\d+) bytes spill loads", reports)), default=0),
    }


def assembler() -> str:
    """Returns the path of `ptxas`, which is among the CUDA wheels."""
    wheels = importlib.util.find_spec("nvidia")
    folders = wheels.submodule_search_locations or () if wheels else ()
    return next((str(path) for folder in folders for path in Path(folder).glob("*/bin/ptxas")), "ptxas")


def rounded_by_cublas(text: str) -> int:
    """Returns how many matrix products cuBLAS computes without the highest precision having been asked for."""
    calls = [line for line in text.splitlines() if re.search(r'custom_call_target="__cublas\$(gemm|lt)', line)]
    return sum("HIGHEST" not in line for line in calls)


# --- XLA's text of a compiled program -------------------------------------------------------------------------------

FREE = {"parameter", "tuple", "get-tuple-element", "bitcast", "constant", "after-all", "opt-barrier"}
INSIDE = re.compile(
    r"(?:body|to_apply|true_computation|false_computation)=%?([\w.\-]+)|branch_computations=\{([^}]*)\}"
)


class Operation(NamedTuple):
    """A line of a computation."""

    kind: str  # "fusion", "while", ...
    line: str

    @property
    def inside(self) -> list[str]:
        """Returns the names of the computations that it runs, without those that are one kernel."""
        if self.kind not in ("while", "conditional", "call"):
            return []
        names = [one or many for one, many in INSIDE.findall(self.line)]
        return [name.strip().lstrip("%") for group in names for name in group.split(",")]

    @property
    def trip(self) -> int | None:
        """Returns how many turns a loop has, or None where XLA does not know."""
        found = re.search(r'known_trip_count"?:\{"?n"?:"?(\d+)', self.line)
        return int(found[1]) if found else None


def computations(text: str) -> tuple[dict[str, list[Operation]], str]:
    """Returns the operations of all computations by name, and the name of the first one."""
    found: dict[str, list[Operation]] = {}
    current: list[Operation] = []
    entry = ""
    for line in text.splitlines():
        head = re.match(r"(ENTRY )?%?([\w.\-]+) .*-> .*\{$", line)
        if head:
            current = found.setdefault(head[2], [])
            entry = head[2] if head[1] else entry
        body = re.match(r"\s+(?:ROOT )?%?[\w.\-]+ = (.*)$", line)
        if body:
            plain = re.sub(r"/\*.*?\*/", "", body[1])
            kind = re.search(r"(?:^|[\s)}\]])([a-z][a-z0-9\-]*)\(", plain)
            current.append(Operation(kind[1] if kind else "?", plain))
    return found, entry


def loops(found: dict[str, list[Operation]], name: str, depth: int = 0) -> Iterator[tuple[int, Operation]]:
    """Yields all loops below a computation, and how many loops are around each."""
    for operation in found[name]:
        if operation.kind == "while":
            yield depth, operation
        for inner in operation.inside:
            yield from loops(found, inner, depth + (operation.kind == "while"))


class Turn(NamedTuple):
    """What a GPU does in one turn of a loop."""

    kernels: int  # that are started in every turn
    rare: int  # in branches and loops of unknown length
    waits: int  # for the host to read a number


def count(text: str, trip: int | None) -> Turn:
    """Counts what is in the loop of that length; None: of a length that depends on data.

    Among several it is the one with the most kernels, but only outermost ones count if the length depends on data.
    """
    found, entry = computations(text)

    def within(name: str) -> Turn:
        kernels = rare = waits = 0
        for operation in found[name]:
            if operation.kind in FREE or operation.kind.endswith("-done"):
                continue
            inner = [within(one) for one in operation.inside]
            below, unsure = [one.kernels for one in inner], operation.kind == "conditional"
            least = min(below) if unsure else sum(below) if inner else 1
            if operation.kind == "while" and operation.trip is None:
                least, unsure = 0, True
            kernels += least
            rare += sum(one.rare for one in inner) + sum(below) - least if unsure else sum(one.rare for one in inner)
            waits += unsure + sum(one.waits for one in inner)
        return Turn(kernels, rare, waits)

    fitting = [(depth, loop.inside[0]) for depth, loop in loops(found, entry) if loop.trip == trip]
    if not fitting:
        have = sorted({str(loop.trip) for _, loop in loops(found, entry)})
        raise ValueError(f"trip must be the length of a loop of the program, which are {', '.join(have)}, got {trip}")
    outermost = min(depth for depth, _ in fitting)
    return max(within(body) for depth, body in fitting if trip is not None or depth == outermost)


# --- All programs ---------------------------------------------------------------------------------------------------


def measured(name: str, keep: Path | None) -> dict[str, Any]:
    """Returns the numbers of a program, which a process of its own compiles, or what went wrong."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = scratch if keep is None else str(keep / name.replace(" ", "-"))
        Path(folder).mkdir(parents=True, exist_ok=True)
        command = [sys.executable, str(HERE), "--compile", name, "--keep", folder]
        found = os.pathsep.join([str(HERE.parent.parent), *sys.path[1:]])
        environment = {
            **os.environ,
            "PYTHONPATH": found,
            "JAX_TRACEBACK_FILTERING": "off",  # whose last line tells most
        }
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, env=environment)
        except subprocess.TimeoutExpired:
            return {"error": f"stopped after {PATIENCE} s"}
    if done.returncode:
        return {"error": (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1][:300]}
    return json.loads(done.stdout.splitlines()[-1])


def verdict(name: str, numbers: dict[str, Any]) -> list[str]:
    """Returns what is wrong with a program."""
    if "error" in numbers:
        return [f"{name}: {numbers['error']}"]
    most = LIMITS | KNOWN.get(name, {})
    return [f"{name}: {what} must be <= {most[what]:g}, got {numbers[what]:.4g}"
            for what in LIMITS if numbers[what] > most[what]]  # fmt: skip


def main() -> None:
    """Compiles the programs that are asked for, and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", metavar="FAMILY", help="words in the names of programs; default: all")
    parser.add_argument("--keep", type=Path, help="folder in which HLO and PTX are kept")
    parser.add_argument("--compile", metavar="NAME", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.compile:
        print(json.dumps(compiled(asked.compile, str(asked.keep))))
        return
    everything = programs()
    names = [name for name in everything if not asked.words or any(word in name for word in asked.words)]
    if not names:
        sys.exit(f"FAMILY must be a word in one of {', '.join(everything)}")
    columns = ["trace", "compile", "kernels", "rare", *list(LIMITS)[2:]]
    print(f"{'program':22}", *columns, "in")
    wrong = []
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for name, numbers in zip(names, pool.map(lambda name: measured(name, asked.keep), names)):
            wrong += verdict(name, numbers)
            row = [f"{numbers[what]:.4g}" if what in numbers else "-" for what in columns]
            row = [value.rjust(len(what)) for value, what in zip(row, columns)]
            print(f"{name:22}", *row, everything[name].turn, flush=True)
    sys.exit("\n  ".join(["WRONG:", *wrong]) if wrong else 0)


if __name__ == "__main__":
    main()
