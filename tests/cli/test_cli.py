"""The command line: what it parses, refuses, names and writes. Only two tests of the default suite simulate."""

import dataclasses
import importlib
import os
import re
import signal
import subprocess
import sys
import typing
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest

import fedbandit_jax as fb
from fedbandit_jax import audits, cli, networks, privacy
from fedbandit_jax.certificate import no_privacy
from fedbandit_jax.cli import FAMILIES, main, parse
from fedbandit_jax.core import archive
from fedbandit_jax.core.lock import locked
from fedbandit_jax.engine import recording, simulation
from fedbandit_jax.engine.provenance import describe
from fedbandit_jax.envs._rewards import LAWS
from fedbandit_jax.privacy.budget import ADJACENCY
from fedbandit_jax.report.results import Result

COMMANDS = [["simulate", family] for family in FAMILIES]
COMMANDS += [["sweep"], ["plan"], ["calibrate"], ["audit"], ["show"], ["data"]]
ARMS = importlib.import_module("fedbandit_jax.envs.arms")
SMALL = ["--agents", "3", "--arms", "4", "--dim", "3", "--horizon", "50", "--seeds", "2"]
BROKEN = Path(__file__).parents[1] / "audits" / "controls"


def files(folder):
    return sorted(path.name for path in folder.iterdir())


# What is parsed.


@pytest.mark.parametrize("words", [[], ["--seeds", "2", "--horizon", "100"], ["--env=digits"]])
def test_simulate_alone_is_linear(words):
    command = parse(["simulate", *words])
    assert type(command) is cli.LinearSimulation
    assert command == parse(["simulate", "linear", *words])


def test_families_are_the_same_everywhere():
    classes = [type(parse(["simulate", family])).__name__ for family in FAMILIES]
    assert classes == [f"{family.capitalize()}Simulation" for family in FAMILIES]
    assert list(FAMILIES) == list(audits.FAMILIES)
    assert choices(cli.AuditCommand, "family") == {"all", *FAMILIES}


def choices(command, flag):
    """Of a Literal, also inside a tuple or a union."""
    kind = typing.get_type_hints(command)[flag]
    parts = [kind, *typing.get_args(kind)]
    return {word for part in parts if typing.get_origin(part) is typing.Literal for word in typing.get_args(part)}


@pytest.mark.parametrize(
    ("command", "flag", "registry"),
    [
        (cli.CalibrateCommand, "release", privacy.RELEASES),
        (cli.CalibrateCommand, "trust", privacy.TRUST),
        (cli.CalibrateCommand, "adjacency", ADJACENCY),
        (cli.LinearSimulation, "adjacency", ADJACENCY),
        (cli.LinearSimulation, "env", ("sphere", "mslr", *fb.data.CLASSIFICATION)),
        (cli.LinearSimulation, "rewards", ("auto", *LAWS)),
        (cli.SchedulesSimulation, "graph", networks.GRAPHS),
        (cli.SchedulesSimulation, "trigger", fb.schedules.TRIGGERS),
        (cli.SchedulesSimulation, "threshold", fb.schedules.THRESHOLDS),
        (cli.ArmsSimulation, "algorithms", ("AdaC-UCB", *fb.algos.ELIMINATION)),
        (cli.ArmsSimulation, "instance", ARMS.INSTANCES),
        (cli.ArmsSimulation, "rewards", ARMS.LAWS),
        (cli.ArmsSimulation, "radius", ("theory", "exact")),
    ],
)
def test_help_lists_all_that_there_is(command, flag, registry):
    assert choices(command, flag) == set(registry)


@pytest.mark.parametrize("command", [[], ["simulate"], *COMMANDS], ids=" ".join)
def test_help_teaches(capsys, command):
    with pytest.raises(SystemExit) as stop:
        main([*command, "--help"])
    assert stop.value.code == 0
    text = capsys.readouterr().out
    assert f"For example:\n  {' '.join(['fedbandit', *command[:1]])}" in text
    for family in FAMILIES if command == ["simulate"] else ():
        assert f"• {family}" in text


def test_help_and_version_are_quick():
    """And need no jax."""
    code = "import sys; from fedbandit_jax.cli import main\ntry: main(['calibrate', '--help'])\n"
    code += "except SystemExit: pass\nassert 'jax' not in sys.modules and 'matplotlib' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
    found = subprocess.run([sys.executable, "-m", "fedbandit_jax", "--version"], check=True, capture_output=True)
    assert found.stdout.decode() == f"fedbandit {fb.__version__}\n"


# What is refused.


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("plan --trusted nobody", "'shuffler'"),
        ("calibrate --release bush", "'prefix_tree'"),
        ("calibrate --trust blind", "'silo_local_matrix'"),
        ("simulate graphs", "linear, schedules, arms, clusters"),
        ("simulate --family arms", "--family"),
        ("simulate --seed 3", "--random-seed"),
        ("simulate linear --env mars", "'sphere'"),
        ("simulate schedules --threshold abc", "M log T"),
        ("", "simulate, sweep, plan, calibrate, audit, show, report, data"),
    ],
)
def test_choices_are_listed(capsys, command, words):
    with pytest.raises(SystemExit) as stop:
        main(command.split())
    assert stop.value.code == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("plan --users 0", "--users must be >= 1, got 0"),
        ("plan --users 5 --visits 2", "--visits applies only to users who come as often as it says, not with --users"),
        ("plan --horizon 5", "--horizon must be >= 8, got 5"),
        ("plan --max-bits -1", "--max-bits must be finite and > 0, got -1"),
        ("plan --max-syncs 0", "--max-syncs must be >= 1, got 0"),
        ("plan --rounds 20000", "--rounds must be <= 10000, got 20000"),
        ("plan --delta 2", "--delta must be in (0, 1), got 2.0"),
        ("plan --seeds 1", "--seeds must be >= 2, got 1"),
        ("plan --random-seed -1", "--random-seed must be"),
        ("calibrate --trust local", "--release must be 'input_perturbation' with trust='local'"),
        ("calibrate --trust secagg --sigma 3", "--sigma applies only to --trust silo_local, central, local"),
        ("calibrate --sigma 3 --epsilon 1", "--epsilon applies only to noise that is calibrated"),
        ("calibrate --dim 7", "--dim applies only to --trust shuffle_vector_sum, secagg, got 7"),
        ("calibrate --trust central --agents 7", "--agents applies only to noise that several silos add, got 7"),
        ("calibrate --sigma 3 --agents 7", "--agents applies only to noise that is calibrated"),
        ("calibrate --sigma 0", "--sigma must be finite and > 0, got 0.0"),
        ("calibrate --sigma 1e-300", "--sigma must be at least"),
        ("calibrate --delta 0", "--delta must be in (0, 1), got 0.0"),
        ("calibrate --delta nan", "--delta must be in (0, 1), got nan"),
        ("calibrate --epsilon inf", "--epsilon must be finite and > 0, got inf"),
        ("calibrate --epsilon nan", "--epsilon must be finite and > 0, got nan"),
        ("calibrate --epsilon", "--epsilon must have at least one value, each only once, got none"),
        ("calibrate --horizon 10", "--horizon must be >= 25, got 10"),
        ("calibrate --batch 0", "--batch must be >= 1, got 0"),
        ("calibrate --visits 0", "--visits must be >= 1, got 0"),
        ("calibrate --dim 0 --trust secagg", "--dim must be >= 1, got 0"),
        ("audit --runs 10", "--runs must be >= 1000, got 10"),
        ("audit --random-seed -1", "--random-seed must be in [0, 4.29497e+09], got -1"),
        ("audit --only unicorn", "--only must name a part of silo_local tree, "),
        ("audit --controls nowhere.py", "--controls must be a Python file, got 'nowhere.py'"),
        ("simulate --epsilon -1", "--epsilon must be finite and > 0, got -1.0"),
        ("simulate --epsilon 1 1", "--epsilon must have at least one value, each only once, got 1.0 1.0"),
        ("simulate --delta 1", "--delta must be in (0, 1), got 1.0"),
        ("simulate --seeds 0", "--seeds must be >= 1, got 0"),
        ("simulate --arms 0", "--arms must be >= 1, got 0"),
        ("simulate --exploration-scale -1", "--exploration-scale must be finite and >= 0, got -1.0"),
        ("simulate --env mslr", "--mslr must be the folder of a copy of MSLR-WEB10K"),
        ("simulate --env mslr --mslr nowhere", "--mslr must hold Fold1"),
        ("simulate --mslr nowhere", "--mslr applies only to --env mslr, got nowhere"),
        ("simulate --env digits --dim 5", "--dim applies only to --env sphere, got 5"),
        ("simulate --env digits --arms=100", "--arms applies only to --env sphere, got 100"),
        ("simulate --out /proc/none", "--out must be a folder that can be written to, got '/proc/none'"),
        ("simulate --name a/b", "--name must be a name for files in the folder --out, got 'a/b'"),
        ("simulate --horizon 5", "--horizon must be >= 25, got 5"),
        ("simulate --random-seed 4294967296", "--random-seed must be in [0, 4.29497e+09], got 4294967296"),
        ("simulate schedules --graph ring --gamma 0", "--gamma must be >= 1, got 0"),
        ("simulate schedules --gamma 2", "--gamma applies only to a --graph, got 2"),
        ("simulate schedules --agents 1", "--agents must be at least two for FedUCB"),
        ("simulate schedules --threshold 0", "--threshold must be finite and > 0, got 0.0"),
        ("simulate schedules --share 1", "--share must be in (0, 1)"),
        ("simulate schedules --arms 100", "--arms must be <= dim^2 = 25"),
        ("simulate arms --means 0.5 1.5", "--means must be in [0, 1], got 1.5 of arm 1"),
        ("simulate arms --means 0.5 0.6 --instance easy", "--instance applies only to means that are drawn"),
        ("simulate arms --arms 1", "--arms must be >= 2, got 1"),
        ("simulate arms --horizon 3", "--horizon must be at least the number of arms 10, got 3"),
        ("simulate arms --epsilon 0", "--epsilon must be finite and > 0, got 0.0"),
        ("simulate arms --scale 0.5", "--scale must be in [1, 1.67772e+07], got 0.5"),
        ("simulate arms --horizon 2147480000", "--horizon must be at most 2,147,467,263 users"),
        (
            "simulate arms --algorithms SE SE",
            "--algorithms must have at least one value, each only once, got SE SE",
        ),
        ("simulate arms --algorithms SE --epsilon 1", "--epsilon applies only to private algorithms, got 1.0"),
        ("simulate arms --algorithms SE CDP-SE --scale 3", "--scale applies only to Dist-RDP-SE and Dist-CDP-SE"),
        ("simulate arms --algorithms DP-SE --radius exact", "--radius applies only to algorithms other than DP-SE"),
        ("simulate clusters --users 3 --clusters 4 --servers 1", "--clusters must be at most the 3 users, got 4"),
        ("simulate clusters --users 3 --servers 4", "--servers must be at most the 3 users, got 4"),
        ("simulate clusters --upload 0.5", "--upload must be >= 1, got 0.5"),
        ("simulate clusters --gap 0", "--gap must be in [0.001, 1], got 0"),
        ("simulate clusters --algorithms", "--algorithms must have at least one value, each only once, got none"),
        ("simulate clusters --users 2000000", "--users must be at most 1,000,000, got 2,000,000"),
        ("simulate clusters --movielens nowhere", "--movielens must be one of ratings.csv"),
        ("simulate clusters --movielens nowhere --gap 0.5", "--gap applies only to synthetic users"),
        ("simulate clusters --algorithms CLUB --epsilon 1", "--epsilon applies only to algorithms with CDP, got 1.0"),
        ("simulate clusters --algorithms FCLUB --trigger count", "--trigger applies only to algorithms with DC"),
        ("simulate clusters --algorithms Homo --alpha-1 1", "--alpha-1 applies only to FCLUB, got 1.0"),
        ("data movielens --path . --features body", "--features applies only to mslr, got body"),
        ("data mslr --path nowhere", "--path must hold Fold1"),
        ("show nowhere.npz", "path must be a saved result, got 'nowhere.npz'"),
    ],
)
def test_errors_are_one_sentence_and_name_the_flag(command, words, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(command.split()) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.startswith("fedbandit: ")
    assert error.count("\n") == 1
    assert [path for path in tmp_path.rglob("*") if not path.is_dir()] == []


# What the flags do: each changes what is run.

OTHER = {float: lambda value: value * 1.5 + 0.001, int: lambda value: value + 1}
GIVEN = {  # where one and a half times the default will not do
    "epsilon": (3.0, 4.0),
    "share": 0.3,
    "growth": 3,
    "means": (0.1, 0.2),
    "threshold": "M log T",
    "graph": "ring",
    "gap": 0.2,
    "agents": 7,
    "arms": 9,
    "delta": 0.05,
}
NEEDS = {"gamma": {"graph": "ring"}}
APART = {"output", "given", "movielens", "mslr", "seeds", "random_seed", "horizon"}  # have tests of their own
FLAGS = [
    (family, field.name)
    for family, command in FAMILIES.items()
    for field in dataclasses.fields(command)
    if field.name not in APART
]


def shown(plan):
    """All that is run."""
    world = {name: value if name == "spec" else np.asarray(value).tolist() for name, value in vars(plan.world).items()}
    return repr((type(plan.world), world, describe(plan.algos), plan.epsilon))


@pytest.mark.parametrize(("family", "flag"), FLAGS)
def test_no_flag_is_ignored(family, flag):
    base = dataclasses.replace(FAMILIES[family](), **NEEDS.get(flag, {}))
    value = getattr(base, flag)
    options = sorted(choices(type(base), flag) - {value, "auto", "mslr"})
    if flag == "algorithms":
        new = value[:1]
    elif flag in GIVEN:
        new = GIVEN[flag]
    else:
        new = options[-1] if options else OTHER[type(value)](value)
    assert shown(dataclasses.replace(base, **{flag: new}).comparison()) != shown(base.comparison())


def test_what_the_linear_family_compares():
    """Without privacy; as printed, certified, with less noise, greedy, and with a server that adds up."""
    algos = cli.LinearSimulation(exploration_scale=0.3).comparison().algos
    greedy = algos.pop(4)
    assert isinstance(greedy.policy, fb.algos.Greedy)
    assert (greedy.schedule.first, greedy.privacy.centred, greedy.privacy.gram_scale) == (12, True, 0.5)
    assert [(algo.learns_in_batch, algo.policy.confidence, algo.policy.exploration_scale) for algo in algos] == [
        (True, "theory", 0.3),
        (True, "theory", 0.3),
        (False, "theory", 0.3),
        (False, "known_noise", 0.3),
        (False, "known_noise", 0.3),
    ]
    assert algos[0].privacy is None
    assert [(algo.privacy.calibration, algo.privacy.release, algo.privacy.trust) for algo in algos[1:]] == [
        ("theorem", "tree", "silo_local"),
        ("tight", "tree", "silo_local"),
        ("tight", "blt", "silo_local"),
        ("tight", "blt", "secagg"),
    ]


@pytest.mark.parametrize(
    "words",
    [
        *("--epsilon 2", "--delta 0.05", "--adjacency add_remove", "--horizon 5000", "--batch 50", "--release honaker"),
        *("--trust central", "--visits 3", "--sigma 3", "--sigma 3 --delta 0.05", "--sigma 3 --adjacency add_remove"),
        *("--sigma 3 --release blt", "--sigma 3 --batch 50", "--sigma 3 --visits 3", "--agents 7"),
        *("--trust secagg --dim 3", "--trust secagg --batch 50", "--trust secagg --visits 2"),
    ],
)
def test_no_flag_of_calibrate_is_ignored(capsys, words):
    """The numbers change when the last flag does."""
    *base, flag, value = words.split()

    def numbers(*more):
        assert main(["calibrate", *base, *more]) == 0
        return re.findall(r"epsilon = [^ ]*|[\d.]*\d", capsys.readouterr().out.partition("\n")[2])

    assert numbers() != numbers(flag, value)


def test_flags_of_plan_are_used(monkeypatch, capsys):
    """And what is printed below the plan is code that runs what it recommends."""
    from fedbandit_jax.planning.candidates import Candidate
    from fedbandit_jax.planning.recommend import Recommendation

    seen = []
    best = Candidate(label="x", group="x", algo=fb.algos.Federated(schedule=3), certificate=no_privacy("nothing"))

    def plan(env, budget, **options):
        seen.append((env, budget, options))
        return Recommendation(candidates=(), best=best, reference=(), spec=env.spec, horizon=40, seconds=1.0)

    monkeypatch.setattr(fb.planning.recommend, "plan", plan)
    words = "--epsilon 2 --delta 0.01 --adjacency add_remove --agents 3 --arms 4 --dim 5 --horizon 40 --users 7"
    more = "--trusted secagg server --max-syncs 9 --max-bits 99 --seeds 2 --rounds 20 --random-seed 5"
    assert main(["plan", *words.split(), *more.split()]) == 0
    ((env, budget, options),) = seen
    assert (env.spec.n_agents, env.spec.n_arms, env.spec.dim) == (3, 4, 5)
    assert budget == privacy.Budget(2.0, 0.01, "add_remove")
    assert (jax.random.key_data(options.pop("key")) == jax.random.key_data(jax.random.key(5))).all()
    assert options == dict(
        **dict(horizon=40, trusted=("secagg", "server"), visits=6, max_syncs=9, max_bits=99.0, seeds=2, rounds=20)
    )
    code = capsys.readouterr().out.partition("import jax\n")[2]
    simulated, nothing = [], SimpleNamespace(summary=str)
    monkeypatch.setattr(simulation, "simulate", lambda *given, **how: simulated.append((given, how)) or nothing)
    exec(code, {"jax": jax})
    ((world, algo), how) = simulated[0]
    assert (world.spec, algo, how["horizon"]) == (env.spec, best.algo, 40)
    assert (jax.random.key_data(how["key"]) == jax.random.key_data(jax.random.key(6))).all()


@pytest.mark.slow
def test_a_plan_that_finds_nothing_says_so(monkeypatch, capsys):
    assert main(["plan", "--agents", "2", "--arms", "3", "--dim", "2", "--horizon", "50", "--max-bits", "9"]) == 1
    assert "Nothing meets these demands." in capsys.readouterr().out


def test_flags_of_audit_are_used(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(audits, "run", lambda cases, **options: seen.append((cases, options)) or [])
    monkeypatch.setattr(fb.plotting, "audits", lambda *found: None)
    monkeypatch.setattr(fb.plotting, "save", lambda figure, path: (path,))
    words = [
        "--family",
        "clusters",
        "--runs",
        "2000",
        "--confidence",
        "0.9",
        "--random-seed",
        "3",
        "--out",
        str(tmp_path),
    ]
    assert main(["audit", *words]) == 0
    assert main(["audit", *words, "--only", "mixture"]) == 0
    (cases, options), (fewer, _) = seen
    assert [case.name for case in cases] == [case.name for case in audits.shipped("clusters")]
    assert {case.name for case in fewer} == {case.name for case in cases if "mixture" in case.name} != set()
    assert (options["n_runs"], options["confidence"]) == (2000, 0.9)
    assert int(fb_key_data(options["key"])[-1]) == 3


def fb_key_data(key):
    import jax

    return np.asarray(jax.random.key_data(key))


@pytest.fixture
def swept(monkeypatch):
    """Calls of `fb.sweep`, which returns at once."""
    calls = []

    def sweep(world, algos, **options):
        calls.append((world, algos, options))
        seeds, horizon = options["seeds"], options["horizon"]
        curve = np.ones((1, seeds, 2))
        spec = dict(n_agents=1, n_arms=2, dim=1)
        return Result(
            rounds=np.array([1, horizon]),
            regret=curve,
            communication={name: curve for name in ("rounds", "floats", "bits")},
            gauges={"adjusted Rand index": curve},
            status=np.zeros((1, seeds), int),
            certificates={"one": no_privacy("the algorithm adds no noise")},
            config={
                "environments": {"one": {"type": "Test", "spec": spec}},
                "algorithms": {"one": {}},
                "coordinates": {"one": {"algorithm": "one"}},
                **dict(horizon=horizon, seeds=[[0, seeds]], stride=None, key=[0, 1]),
            },
            provenance={},
        )

    monkeypatch.setattr(simulation, "sweep", sweep)
    return calls


def test_what_a_simulation_is_asked(swept, tmp_path, capsys):
    common = ["--out", str(tmp_path), "--seeds", "3", "--random-seed", "5"]
    assert main(["simulate", "arms", "--horizon", "700", "--epsilon", "1", "2", *common]) == 0
    _, algos, options = swept[0]
    assert [algo.name for algo in algos] == list(cli.ArmsSimulation.algorithms)
    assert options["grid"] == {"epsilon": (1.0, 2.0)}
    assert (options["horizon"], options["seeds"], options["stride"]) == (700, 3, "log")
    assert int(fb_key_data(options["key"])[-1]) == 5
    assert main(["simulate", "arms", "--algorithms", "SE", *common]) == 0
    assert swept[1][2]["grid"] == {}
    assert "wrote" in capsys.readouterr().out


def test_epsilon_is_in_the_title_of_private_runs(swept, tmp_path, monkeypatch):
    titles = []
    monkeypatch.setattr(fb.plotting, "regret", lambda result, title: titles.append(title))
    monkeypatch.setattr(fb.plotting, "gauge", lambda result, name, title: titles.append(title))
    monkeypatch.setattr(fb.plotting, "save", lambda figure, path: (path,))
    for words in (
        "arms --epsilon 1 5",
        "arms --algorithms SE",
        "clusters --epsilon 1 5",
        "clusters --algorithms CLUB",
        "schedules --epsilon 1 5",
        "linear --epsilon 1 5 --adjacency add_remove",
    ):
        assert main(["simulate", *words.split(), "--out", str(tmp_path)]) == 0
    assert titles == [
        "easy instances, theory radii: K=10; ε = 1, 5",
        "easy instances, theory radii: K=10",
        *["n=40, L=5, m=2, K=10, d=10; ε = 1, 5; δ = 0.1"] * 2,
        *["n=40, L=5, m=2, K=10, d=10"] * 2,
        "gap 0.1: M=20, K=20, d=5; ε = 1, 5; δ = 0.1",
        "sphere: M=100, K=100, d=10; ε = 1, 5; δ = 0.1",
    ]


def test_every_request_has_files_of_its_own(swept, tmp_path):
    arms = ["simulate", "arms", "--algorithms", "SE", "--out", str(tmp_path)]
    for words in ([], [], ["--failure", "0.2"], ["--random-seed", "1"], ["--name", "mine"]):
        assert main([*arms, *words]) == 0
    stems = {name.partition(".")[0] for name in files(tmp_path)}
    assert len(stems) == 4
    assert "mine" in stems
    assert all(stem.startswith("arms-") and len(stem) == 13 for stem in stems - {"mine"})
    assert {name.partition(".")[2] for name in files(tmp_path)} == {"npz", "png", "pdf"}
    assert {options["checkpoint"].name for *_, options in swept} == {f".{stem}.checkpoint" for stem in stems}


def test_a_full_disk_does_not_swallow_what_was_found(swept, tmp_path, monkeypatch, capsys):
    def full(path, write, **options):
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(archive, "write_atomic", full)
    assert main(["simulate", "arms", "--algorithms", "SE", "--name", "mine", "--out", str(tmp_path)]) == 2
    printed = capsys.readouterr()
    assert "regret at T" in printed.out
    assert printed.err == f"fedbandit: [Errno 28] No space left on device: '{tmp_path / 'mine.npz'}'\n"
    assert files(tmp_path) == []


def test_two_processes_do_not_run_the_same(swept, tmp_path, capsys):
    command = ["simulate", "arms", "--algorithms", "SE", "--name", "mine", "--out", str(tmp_path)]
    with locked(tmp_path / ".mine.lock", "", otherwise=""):
        assert main(command) == 2
    error = capsys.readouterr().err
    assert (
        f"--name must be that of one run at a time, got 'mine', which is being written by process {os.getpid()}"
        in error
    )
    assert error.endswith(": wait until it ends, or give another name\n")
    assert not swept
    assert main(command) == 0
    assert files(tmp_path) == ["mine.npz", "mine.pdf", "mine.png"]


def test_sigterm_is_like_ctrl_c(tmp_path):
    code = "import time, fedbandit_jax.cli as cli\ndef wait(self): print('begun', flush=True); time.sleep(60)\n"
    code += "cli.LinearSimulation.run = wait\ncli.entry()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, "simulate"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    process.send_signal(signal.SIGTERM)
    _, error = process.communicate(timeout=20)
    assert process.returncode == 143
    assert error == "\nfedbandit: stopped; the same command continues where it was\n"


def test_who_presses_ctrl_c_twice_waits_for_nothing(tmp_path):
    """Not for the computation of another thread, nor for what it was about to do; and sees no traceback."""
    code = "import time, fedbandit_jax.cli as cli\ndef wait(self):\n try: print('begun', flush=True); time.sleep(60)\n"
    code += " finally: print('stopping', flush=True); time.sleep(60)\ncli.LinearSimulation.run = wait\ncli.entry()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, "simulate"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    for words in ("begun\n", "stopping\n"):
        assert process.stdout.readline() == words
        process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=20)
    assert process.returncode == 130
    assert error == "\nfedbandit: stopped at once\n"


# Whole runs.


@pytest.mark.slow
def test_simulate(tmp_path, monkeypatch, capsys):
    """Interrupted, continued, repeated, shown; with two of the six algorithms."""
    comparison, add = cli.LinearSimulation.comparison, recording.RoundRecord.add

    def two(self):
        made = comparison(self)
        return made._replace(algos=[made.algos[0], made.algos[2]])

    def interrupted(self, *arguments):
        if self.played:
            raise KeyboardInterrupt
        return add(self, *arguments)

    command = ["simulate", *SMALL, "--out", str(tmp_path), "--epsilon", "1", "5"]
    monkeypatch.setattr(cli.LinearSimulation, "comparison", two)
    monkeypatch.setattr(recording.RoundRecord, "add", interrupted)
    monkeypatch.setattr("fedbandit_jax.engine.driver.CHUNK_WORK", 0)
    assert main(command) == 130
    assert "the same command continues" in capsys.readouterr().err
    assert [name.split(".")[-2:] for name in files(tmp_path)] == [["checkpoint", "0"]]
    monkeypatch.setattr(recording.RoundRecord, "add", add)
    assert main(command) == 0
    text = capsys.readouterr().out
    for words in ("FedLinUCB", "Alg. 8 + exact noise(epsilon=5.0)", "claim", "certified", "wrote"):
        assert words in text
    written = files(tmp_path)
    stem = written[0].removesuffix(".npz")
    assert written == [f"{stem}.npz", f"{stem}.pdf", f"{stem}.png"]
    assert stem.startswith("sphere-")
    first = fb.Result.load(tmp_path / stem).regret
    assert first.shape == (3, 2, 50)
    assert main(command) == 0
    np.testing.assert_array_equal(fb.Result.load(tmp_path / stem).regret, first)
    capsys.readouterr()
    assert main(["show", str(tmp_path / f"{stem}.npz")]) == 0
    assert files(tmp_path) == [f"{stem}.npz", f"{stem}.pdf", f"{stem}.png"]
    assert main(["show", str(tmp_path / f"{stem}.npz"), "--picture", str(tmp_path / "again.png")]) == 0
    assert (tmp_path / "again.png").exists()
    assert "certified" in capsys.readouterr().out


@pytest.mark.slow
def test_simulate_linear(tmp_path, capsys):
    assert main(["simulate", "linear", *SMALL, "--name", "run", "--out", str(tmp_path), "--epsilon", "1", "5"]) == 0
    text = capsys.readouterr().out
    for words in ("Alg. 1 + Thm 5.1(epsilon=1.0)", "BLT noise(epsilon=5.0)", "secure aggregation(epsilon=1.0)"):
        assert words in text
    claims = [certificate.claim for certificate in fb.Result.load(tmp_path / "run").certificates.values()]
    assert claims == ["none", *["as_printed"] * 2, *["certified"] * 8]


ARMS_RUN = ["simulate", "arms", "--horizon", "3000", "--seeds", "2", "--arms", "3", "--name", "run"]


@pytest.mark.slow
@pytest.mark.parametrize("algorithms", ["Dist-RDP-SE --epsilon 1", "SE Dist-RDP-SE --epsilon 0.5 1 --radius exact"])
def test_simulate_arms(tmp_path, capsys, algorithms):
    assert main([*ARMS_RUN, "--out", str(tmp_path), "--algorithms", *algorithms.split()]) == 0
    text = capsys.readouterr().out
    for words in ("Dist-RDP-SE", "decoding failures", "Renyi DP with epsilon = 1", "a user sends"):
        assert words in text
    assert files(tmp_path) == ["run.npz", "run.pdf", "run.png"]
    loaded = fb.Result.load(tmp_path / "run")
    assert loaded.regret.shape[:2] == (3 if "SE D" in algorithms else 1, 2)
    assert loaded.rounds[[0, -1]].tolist() == [1, 3000]
    assert set(loaded.counts) == {"decodings", "decoding failures", "eliminations"}
    assert main(["show", str(tmp_path / "run.npz")]) == 0


@pytest.mark.slow
@pytest.mark.parametrize("graph", [(), ("--graph", "ring", "--gamma", "2")])
def test_simulate_schedules(tmp_path, capsys, graph):
    command = ["simulate", "schedules", "--agents", "4", "--arms", "4", "--dim", "3", "--horizon", "40"]
    command += ["--seeds", "2", "--max-syncs", "8", "--threshold", "2", "--name", "run", *graph]
    assert main([*command, "--out", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    for words in (
        "Private-FedUCB, leaky",
        "the schedule leaks",
        "sparse vector test",
        *(("Gossip-FedUCB", "hops") if graph else ()),
    ):
        assert words in text
    assert "allowed per decoding" not in text  # nothing can wrap
    assert files(tmp_path) == ["run.npz", "run.pdf", "run.png"]


@pytest.mark.slow
def test_simulate_clusters(tmp_path, capsys):
    small = ["--users", "6", "--servers", "2", "--arms", "3", "--dim", "3", "--horizon", "300", "--seeds", "2"]
    which = ["--algorithms", "CDP-Homo-DC", "LinUCB", "--trigger", "count", "--epsilon", "1", "100", "--name", "run"]
    assert main(["simulate", "clusters", *small, *which, "--out", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    for words in ("6 users on 2 servers", "CDP-Homo-DC(epsilon=100.0)", "adjusted Rand index", "certified", "uploads"):
        assert words in text
    pictures = [f"run{gauge}.{kind}" for gauge in ("", "_adjusted_rand_index") for kind in ("pdf", "png")]
    assert files(tmp_path) == ["run.npz", *pictures]


@pytest.mark.slow
def test_simulate_real_data(tmp_path):
    pytest.importorskip("sklearn")
    command = ["simulate", "--env", "breast_cancer", "--horizon", "30", "--seeds", "1", "--name", "run"]
    assert main([*command, "--out", str(tmp_path)]) == 0
    assert fb.Result.load(tmp_path / "run").spec["n_agents"] > 0


def test_calibrate(capsys):
    assert main(["calibrate", "--epsilon", "5"]) == 0
    text = capsys.readouterr().out
    assert "S = 400" in text
    for number in ("7.3167", "23.028", "2.6289", "11.877", "NO"):
        assert number in text
    assert " 135.73 " in text  # sqrt 23.028, of 100 silos, in a sum of at most 8 nodes
    assert "\ntree: at most 3.25 times the least std of any release" in text  # sqrt 72 / 2.612


def test_calibrate_every_trust_model(capsys):
    for trust in set(privacy.TRUST) - {"local"}:
        assert main(["calibrate", "--epsilon", "1", "--trust", trust]) == 0
    assert main(["calibrate", "--epsilon", "1", "--trust", "local", "--release", "input_perturbation"]) == 0
    assert capsys.readouterr().out.count("tight") == len(privacy.TRUST)
    assert main(["calibrate", "--epsilon", "1", "--release", "blt"]) == 0
    text = capsys.readouterr().out
    assert "15.759" in text
    assert "\nblt: at most 1.14 times" in text


TABLE = fb.data.Table(np.ones((2, 1), np.float32), np.array([2]), np.ones(1, np.float32), "two rows")


def test_epsilon_of_a_sigma(capsys):
    assert main(["calibrate", "--sigma", "5.4516", "--delta", "0.1"]) == 0
    assert "gives epsilon = 1.52" in capsys.readouterr().out


@pytest.mark.slow
def test_audit(tmp_path, capsys):
    command = ["audit", "--runs", "2000", "--only", "silo_local blt", "noise never", "--out", str(tmp_path)]
    assert main([*command, "--controls", str(BROKEN)]) == 0
    text = capsys.readouterr().out
    assert "1 shipped mechanisms, 1 controls: all as they should be" in text
    assert "FAIL" in text
    (picture,) = tmp_path.iterdir()
    assert picture.name.startswith("audit-all-")


def test_audit_that_finds_something(tmp_path, monkeypatch, capsys):
    """A broken mechanism among the shipped ones: named, with the reason, and exit code 1."""
    case = audits.Case(
        name="noise never added",
        mechanism=lambda key, sums: sums,
        data=np.zeros(2, np.float32),
        neighbour=np.ones(2, np.float32),
        epsilon=1.0,
        delta=1e-5,
    )
    monkeypatch.setattr(audits, "shipped", lambda *families: [case])
    assert main(["audit", "--family", "linear", "--runs", "1000", "--out", str(tmp_path)]) == 1
    text = capsys.readouterr().out
    assert "noise never added: epsilon is at least" in text
    assert "1 shipped mechanisms: NOT as they should be: noise never added" in text


def test_a_control_that_passes_is_told(tmp_path, monkeypatch, capsys):
    honest = audits.Case(name="constant", mechanism=lambda key, x: 0 * x, data=0.0, neighbour=1.0, epsilon=1, delta=0.0)
    monkeypatch.setattr(audits, "shipped", lambda *families: [])
    monkeypatch.setattr(audits, "load", lambda path: [honest])
    command = ["audit", "--family", "linear", "--runs", "1000", "--out", str(tmp_path), "--controls", "any.py"]
    assert main(command) == 1
    assert "0 shipped mechanisms, 1 controls: NOT as they should be: constant" in capsys.readouterr().out


def test_flags_of_data_are_used(monkeypatch):
    seen = []
    monkeypatch.setattr(fb.data, "mslr", lambda path, **options: seen.append((path, options)) or TABLE)
    assert main(["data", "mslr", "--path", "here", "--features", "body"]) == 0
    assert seen == [(Path("here"), {"features": "body"})]
