"""Which words the command line takes, and how it refuses others."""

import inspect
import re
import shlex
import subprocess
import sys

import pytest
from command_line import choices

import fedbandit_jax as fb
from fedbandit_jax import audits, cli, privacy
from fedbandit_jax.cli import FAMILIES, main, parse
from fedbandit_jax.cli.simulate import PRESETS
from fedbandit_jax.privacy.budget import ADJACENCY
from fedbandit_jax.privacy.trust import METHODS

COMMANDS = [["simulate", family] for family in FAMILIES]
COMMANDS += [["sweep"], ["plan"], ["calibrate"], ["audit"], ["benchmark"], ["show"], ["report"], ["data"]]
TABLES = ("features", "query_sizes", "theta", "items", "thetas", "clusters")  # parameters that are data


@pytest.mark.parametrize("words", [[], ["--seeds", "2", "--horizon", "100"], ["--env=digits"]])
def test_simulate_alone_is_linear(words):
    command = parse(["simulate", *words])
    assert (type(command), command.family) == (cli.SimulateCommand, "linear")
    assert command == parse(["simulate", "linear", *words])


@pytest.mark.parametrize("word", ["10000", "1e4", "10_000", "1.0e4"])
def test_whole_numbers_may_be_powers_of_ten(word):
    assert parse(["simulate", "--horizon", word]).horizon == 10_000


@pytest.mark.parametrize("word", ["1.5", "1e-3", "1e400", "many", "0x10"])
def test_other_words_are_no_whole_numbers(capsys, word):
    with pytest.raises(SystemExit):
        parse(["simulate", "--horizon", word])
    assert f"must be a whole number, such as 10000 or 1e4, got '{word}'" in capsys.readouterr().err


def test_families_are_the_same_everywhere():
    assert [parse(["simulate", family]).family for family in FAMILIES] == list(FAMILIES)
    assert list(FAMILIES) == list(audits.FAMILIES)
    assert choices(cli.AuditCommand, "family") == {"all", *FAMILIES}
    assert {path.stem for path in PRESETS.iterdir()} == set(FAMILIES)


@pytest.mark.parametrize(
    ("command", "flag", "registry"),
    [
        (cli.CalibrateCommand, "release", privacy.RELEASES),
        (cli.CalibrateCommand, "trust", privacy.TRUST),
        (cli.CalibrateCommand, "adjacency", ADJACENCY),
    ],
)
def test_help_lists_all_that_there_is(command, flag, registry):
    assert choices(command, flag) == set(registry)


def test_help_of_calibrate_lists_all_methods():
    text = inspect.cleandoc(cli.CalibrateCommand.__doc__)
    assert set(re.findall(r"^  ([a-z]+)  +\S", text, re.MULTILINE)) == set(METHODS)


@pytest.mark.parametrize("command", [[], ["simulate"], *COMMANDS], ids=" ".join)
def test_help_teaches(capsys, command):
    with pytest.raises(SystemExit) as stop:
        main([*command, "--help"])
    assert stop.value.code == 0
    text = capsys.readouterr().out
    assert "{None}" not in text
    assert f"For example:\n  {' '.join(['fedbandit', *command[:1]])}" in text
    for family in FAMILIES if command == ["simulate"] else ():
        assert f"• {family}" in text


@pytest.mark.parametrize("family", FAMILIES)
def test_help_of_a_family_lists_its_parameters(capsys, family):
    """With the values that they have, from the recipes and environments themselves; and its examples are understood."""
    with pytest.raises(SystemExit):
        main(["simulate", family, "--help"])
    text = capsys.readouterr().out
    asked = FAMILIES[family].asked()
    contents = FAMILIES[family].contents()
    for name in (*contents["algorithms"], *contents.get("environments", {})):
        assert f"\n  {name}\n" in text
    paths = {path for algo in asked.arguments["algos"].values() for path in algo.parameters()} - {"name"}
    leaves = {path for path in paths if not any(other.startswith(f"{path}.") for other in paths)}
    for path in (*leaves, *(name for name in inspect.signature(asked.world).parameters if name not in TABLES)):
        assert f"\n    {path} = " in text
    assert f"horizon = {contents['horizon']:,}, seeds = {contents['seeds']}" in text
    for example in re.findall(r"^  (fedbandit .*)$", text, re.M):
        command = parse(shlex.split(example)[1:])
        if not re.search(r"DIR|\.csv", example):  # what is not there
            assert command.asked().arguments["algos"]


@pytest.mark.parametrize("words", ["simulate --sil a", "plan --epsilom 1", "calibrate --horizn 5"])
def test_a_wrong_flag_is_one_of_its_own_command(capsys, words):
    """The others are not looked at, whose flags may have the same names."""
    with pytest.raises(SystemExit) as stop:
        main(words.split())
    assert stop.value.code == 2
    text = capsys.readouterr().err
    assert "Perhaps you meant" in text
    assert len(re.findall(r"^│ +--", text, re.M)) <= 2
    assert text.count(" --help") == 1


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
        ("", "simulate, sweep, plan, calibrate, audit, benchmark, show, report, data"),
    ],
)
def test_choices_are_listed(capsys, command, words):
    with pytest.raises(SystemExit) as stop:
        main(command.split())
    assert stop.value.code == 2
    assert words in " ".join(capsys.readouterr().err.split())  # lines end where a terminal ends


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("plan --users 0", "--users must be >= 1, got 0"),
        ("plan --users 5 --visits 2", "--visits applies only to users who come as often as it says, not with --users"),
        ("plan --horizon 5", "--horizon must be >= 8, got 5"),
        ("plan --max-bits -1", "--max-bits must be finite and > 0, got -1"),
        ("plan --max-syncs 0", "--max-syncs must be >= 1, got 0"),
        ("plan --rounds 20000", "--rounds must be <= 10000, got 20000"),
        ("plan --epsilon 0.5 1", "--epsilon must be one number, as a plan is for one budget, got 0.5 1"),
        ("plan --delta 2", "--delta must be in (0, 1), got 2.0"),
        ("plan --dropouts 1", "--dropouts must be below 1, got 1"),
        ("plan --liars 0.5", "--liars must be at least one and fewer than half of 100 silos, or 0, got 0.5"),
        ("plan --liars 0.1 --dropouts 0.1", "--liars must be 0 where silos drop out"),
        ("plan --delay -1", "--delay must be"),
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
        ("audit --part 4/4", "--part must be I/N with integers 0 <= I < N, got 4/4"),
        ("audit --random-seed -1", "--random-seed must be >= 0, got -1"),
        ("audit --only unicorn", "--only must be in a name made of silo_local, tree, prefix_tree, "),
        ("audit --controls nowhere.py", "--controls must be a Python file, got 'nowhere.py'"),
        ("show .", "must be a file, got the folder '.'; see `fedbandit report`"),
        ("simulate --epsilon -1", "--epsilon must be finite and > 0, got -1.0"),
        ("simulate --epsilon 1 1", "--epsilon must have at least one value, each only once, got 1.0 1.0"),
        ("simulate --epsilon", "--epsilon must have at least one value, each only once, got none"),
        ("simulate --delta 1", "--delta must be in (0, 1), got 1.0"),
        ("simulate --seeds 0", "--seeds must be >= 1, got 0"),
        ("simulate --stride 7", "--stride must divide the horizon 4000, got 7"),
        ("simulate --arms 0", "--arms must be >= 1, got 0"),
        ("simulate --env mars", "--env must be one of 'sphere', 'digits', 'breast_cancer', 'mslr', got 'mars'"),
        ("simulate arms --env sphere", "--env applies only to a family with several environments, got sphere"),
        (
            "simulate --set exploration_scale=-1",
            "--set exploration_scale: exploration_scale must be finite and >= 0",
        ),
        ("simulate --set policy.failure=2", "--set policy.failure: failure must be in (0, 1), got 2"),
        (
            "simulate --set theta_nrom=2",
            "--set theta_nrom: keys must be parameters of [environment] or of an algorithm, "
            "got 'theta_nrom': did you mean 'theta_norm'?",
        ),
        (
            "simulate --set schedule.batch=5000",
            "--set schedule.batch: schedule must be <= 1000 where",
        ),
        ("simulate --set failure", "--set must be KEY=VALUE with a value of TOML, got 'failure'"),
        ("simulate --env mslr", "[environment.data]: path must hold Fold1"),
        (
            "simulate --env mslr --set environment.data.path=nowhere",
            "--set environment.data.path: path must",
        ),
        ("simulate --env digits --dim 5", "--dim applies only to environments and algorithms that have dim, got 5"),
        (
            "simulate --env digits --arms=100",
            "--arms applies only to environments and algorithms that have n_arms, ",
        ),
        ("simulate --out /proc/none", "--out must be a folder that can be written to, got '/proc/none'"),
        ("simulate --name a/b", "--name must be a name for a file, without a folder, got 'a/b'"),
        (f"simulate --name {'x' * 300}", "--name must have at most 200 bytes, got 'xxx"),
        ("simulate --random-seed 4294967296", "--random-seed must be <= 4294967295, got 4294967296"),
        ("simulate schedules --algorithms Gossip-FedUCB --set gamma=0", "--set gamma: gamma must be >= 1, got 0"),
        (
            "simulate schedules --set gamma=2",
            "--set gamma: keys must be parameters of [environment] or of an algorithm that is compared, got 'gamma'",
        ),
        ("simulate schedules --agents 1", "--agents must be at least two for FedUCB"),
        ("simulate schedules --set threshold=0", "--set threshold: threshold must be finite and > 0, got 0"),
        ("simulate schedules --set threshold=abc", "--set threshold: threshold must be"),
        ("simulate schedules --set share=1", "--set share: share must be in (0, 1)"),
        ("simulate schedules --arms 100", "--arms must be <= dim^2 = 25"),
        ("simulate arms --set means=[0.5,1.5]", "--set means: means must be in [0, 1], got 1.5 of arm 1"),
        ("simulate arms --arms 1", "--arms must be >= 2, got 1"),
        ("simulate arms --horizon 3", "--horizon must be at least the number of arms 10, got 3"),
        ("simulate arms --epsilon 0", "--epsilon must be finite and > 0, got 0.0"),
        ("simulate arms --set scale=0.5", "--set scale: scale must be in [1, 16777216], got 0.5"),
        ("simulate arms --horizon 2147480000", "--horizon must be at most 2,147,467,263 users"),
        ("simulate arms --algorithms SE SE", "--algorithms must have at least one value, each only once, got SE SE"),
        ("simulate arms --algorithms", "--algorithms must have at least one value, each only once, got none"),
        ("simulate arms --algorithms DPSE", "--algorithms must name some of SE; DP-SE; CDP-SE; LDP-SE; Dist-DP-SE; "),
        (
            "simulate arms --algorithms SE --epsilon 1",
            "--epsilon applies only to environments and algorithms",
        ),
        (
            "simulate arms --algorithms SE --delta 0.1",
            "--delta applies only to environments and algorithms",
        ),
        (
            "simulate arms --algorithms SE CDP-SE --set scale=3",
            "--set scale: keys must be parameters of",
        ),
        (
            "simulate arms --algorithms DP-SE --set radius=exact",
            "--set radius: keys must be parameters",
        ),
        (
            "simulate clusters --set n_users=3 --set n_clusters=4 --set n_servers=1",
            "--set n_clusters: n_clusters must be at most the 3 users, got 4",
        ),
        ("simulate clusters --set n_users=3 --set n_servers=4", "n_servers must be at most the 3 users, got 4"),
        ("simulate clusters --set upload=0.5", "--set upload: upload must be >= 1, got 0.5"),
        ("simulate clusters --set gap=0", "--set gap: gap must be in [0.001, 1], got 0"),
        ("simulate clusters --set n_users=2000000", "n_users must be at most 1,000,000, got 2,000,000"),
        ("simulate clusters --env movielens", "[environment.data]: path must be one of ratings.csv"),
        (
            "simulate clusters --algorithms CLUB --epsilon 1",
            "--epsilon applies only to environments and algorithms",
        ),
        (
            "simulate clusters --algorithms CLUB --set trigger=count",
            "--set trigger: keys must be",
        ),
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
