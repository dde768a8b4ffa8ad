"""Which words the command line takes, and how it refuses others."""

import importlib
import subprocess
import sys

import pytest
from command_line import choices

import fedbandit_jax as fb
from fedbandit_jax import audits, cli, networks, privacy
from fedbandit_jax.cli import FAMILIES, main, parse
from fedbandit_jax.envs._shared import LAWS
from fedbandit_jax.privacy.budget import ADJACENCY

COMMANDS = [["simulate", family] for family in FAMILIES]
COMMANDS += [["sweep"], ["plan"], ["calibrate"], ["audit"], ["show"], ["data"]]
ARMS = importlib.import_module("fedbandit_jax.envs.arms")


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
        ("show .", "must be a file, got the folder '.'; see `fedbandit report`"),
        ("simulate --batch 5000", "--batch must be at most the horizon, got 5000 for a horizon of 4000"),
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
        ("simulate --horizon 5", "--batch must be at most the horizon, got 25 for a horizon of 5"),
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
