"""Which words the command line takes, and how it refuses others."""

import inspect
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import COLUMNS, SWEEP, choices, commands, refuses, write_log
from handmade import made

import fedbandit_jax as fb
from fedbandit_jax import audits, cli, privacy
from fedbandit_jax.cli import main, parse
from fedbandit_jax.cli.simulate import PRESETS, SimulateCommand
from fedbandit_jax.privacy.budget import ADJACENCY

FAMILIES = [*audits.FAMILIES]
COMMANDS = [*cli.COMMANDS]


def test_families_are_the_same_everywhere():
    """And `fedbandit simulate` alone is linear."""
    assert [parse(["simulate", family]).family for family in FAMILIES] == list(FAMILIES)
    assert choices(SimulateCommand, "family") == {*FAMILIES}
    assert choices(cli.AuditCommand, "family") == {"all", *FAMILIES}
    assert {path.stem for path in PRESETS.iterdir()} == set(FAMILIES)
    for words in ([], ["--seeds", "2", "--horizon", "100"], ["--env=digits"]):
        assert parse(["simulate", *words]) == parse(["simulate", "linear", *words])


def test_help_of_calibrate_lists_all_that_there_is():
    for flag, registry in (("release", privacy.RELEASES), ("trust", privacy.TRUST), ("adjacency", ADJACENCY)):
        assert choices(cli.CalibrateCommand, flag) == set(registry)
    text = inspect.cleandoc(cli.CalibrateCommand.__doc__)
    assert set(re.findall(r"^  ([a-z\d_]+)  +\S", text, re.MULTILINE)) == {"tight", *privacy.PRINTED}


@pytest.mark.parametrize("command", COMMANDS)
def test_help_teaches(capsys, command):
    with pytest.raises(SystemExit) as stop:
        main([command, "--help"])
    assert stop.value.code == 0
    text = capsys.readouterr().out
    assert "{None}" not in text
    assert f"For example:\n  fedbandit {command}" in text


def test_help_lists_commands_and_families(capsys):
    """Examples in the file of a family are understood."""
    for words in ([], *(["simulate", family] for family in FAMILIES)):
        with pytest.raises(SystemExit):
            main([*words, "--help"])
        text = capsys.readouterr().out
        if not words:
            assert all(f"\n  fedbandit {command} " in text for command in COMMANDS)
            continue
        assert (PRESETS / f"{words[1]}.toml").read_text() in text
        for example in re.findall(r"^#   (fedbandit .*)$", text, re.M):
            one = parse(shlex.split(example)[1:])
            if not re.search(r"DIR|\.csv", example):  # which do not exist
                assert one.asked().arguments["algos"]


def test_a_wrong_word_is_one_of_its_own_command(capsys):
    """Others are not looked at, whose flags may have the same names. Choices are listed."""

    def said(words):
        with pytest.raises(SystemExit) as stop:
            main(words.split())
        assert stop.value.code == 2
        return capsys.readouterr().err

    for words in ("simulate --sil a", "plan --epsilom 1"):
        text = said(words)
        assert "Perhaps you meant" in text
        assert len(re.findall(r"^│ +--", text, re.M)) <= 2
        assert text.count(" --help") == 1
    assert "--random-seed" in said("simulate --seed 3")
    known = {"": COMMANDS, "simulate graphs": map(repr, FAMILIES), "plan --trusted nobody": ["'shuffler'"]}
    for words, names in known.items():
        assert ", ".join(names) in " ".join(said(words).split())  # lines end where a terminal ends


def test_help_and_version_are_quick():
    """And need no jax."""
    code = """
import runpy, sys
from fedbandit_jax.cli import main
try: main(["calibrate", "--help"])
except SystemExit: sys.argv[1:] = ["--version"]
try: runpy.run_module("fedbandit_jax", run_name="__main__")
finally: assert not {"jax", "matplotlib"} & set(sys.modules)
"""
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    assert found.stdout.decode().splitlines()[-1] == f"fedbandit {fb.__version__}"


# What is refused.


REFUSED = {  # command -> flags, the last of which is refused; first a command that is quick if it runs
    "calibrate": "--trust local --release tree | --trust secagg --sigma 3 | --sigma 3 --epsilon 1 | --dim 7 | "
    "--epsilon | --trust central --agents 7 | --sigma 1e-300 | --visits 0 | --trust secagg --dim 0",
    "plan": "--users 0 | --users 5 --visits 0 | --epsilon 0.5 1 | --at-most 1.2 --epsilon 1 1 | --at-most 0.5 | "
    "--dropouts 0.1 --liars 0.1 | --dropouts 1 | --delay -1 | --delay 20000 | --horizon 100 --delay 100 | "
    "--random-seed -1",
    "audit --family arms": "--runs 10 | --random-seed -1 | --only unicorn | --controls nowhere.py",
    "simulate": "--epsilon 1 1 | --epsilon | --set stride=7 | --env mars | --env digits --dim 5 | "
    "--set exploration_scale=-1 | --set theta_nrom=2 | --set schedule.batch=5000 | "
    f"--env mslr --set environment.data.path=nowhere | --out /proc/none | --name {'x' * 300} | "
    "--random-seed 4294967296",
    "simulate schedules": "--algorithms Gossip-FedUCB --set gamma=0 | --agents 1 | --set threshold=abc",
    "simulate arms": "--env sphere | --set means=[0.5,1.5] | --horizon 3 | --algorithms SE SE | --algorithms | "
    "--algorithms DPSE | --data log.csv | --algorithms SE --epsilon 1 | --algorithms SE CDP-SE --set scale=3 | --dim 5",
    "simulate clusters": "--set n_users=3 --set n_servers=1 --set n_clusters=4 | --agents 5",
    "show": "nowhere.npz | . | log.csv",
    "sweep sweep.toml": "--part 2/2 | --part 1 | --part -1/2 | --part 0/2 --name mine | --name a/b | --name= | "
    "--executor= | --executor magic | --executor processes:0 | --executor dask: | --store= | --store /proc/none | "
    "--out /proc/none",
    "simulate linear": "--silo hospital | --silo a --arm b --reward c --data none.csv | "
    "--data log.csv --silo hospital --reward cured --arm drag",
    f"simulate linear --data log.csv {COLUMNS}": "--env digits | --features age height | --agents 5",
    f"simulate arms {COLUMNS}": "--data log.csv",
    f"plan --data log.csv {COLUMNS}": "--agents 5 | --users 5 | --silo nowhere",
    "data": "none.csv | log.xlsx",
    "benchmark": "--tasks ring | --develop",
    "benchmark mine.py": "--tasks sphere | --trials -1",
    "benchmark verify rows/x.npz": "--track tuned",
    "reproduce zhou2024": "--data .",
    "reproduce zhou2024 fig2b_ours": "--data .",
}


@pytest.mark.parametrize("command", commands(REFUSED))
def test_errors_are_one_sentence_and_name_the_flag(command, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_log()
    Path("sweep.toml").write_text(SWEEP)
    Path("mine.py").write_text("def recipe(task):\n    pass\n")
    assert refuses(command, capsys, tmp_path)


def test_a_file_of_the_package_is_named_where_no_flag_is(capsys):
    assert main(["simulate", "--env", "mslr"]) == 2
    assert capsys.readouterr().err.startswith("fedbandit: linear.toml, [environment.data]: path must")


def test_arguments_have_the_names_of_help(capsys, tmp_path, monkeypatch):
    """A positional one is a word, a change is --set, and other flags have their dashes, also one that is lacking."""
    monkeypatch.chdir(tmp_path)
    write_log()
    Path("mine.py").write_text("def recipe(task):\n    pass\n")
    starts = {
        "show nowhere.npz": "FILE must be a saved result",
        "data nowhere.csv": "TABLE must be a file",
        "data log.csv --silo hospital": "--arm must",
        "simulate linear --data log.csv": "--silo must",
        "simulate linear --data nowhere.csv": "--data must be a file",
        "reproduce bible": "PAPER must be one of",
        "reproduce beyond fig2b_ours": "FIGURE must be one of",
        "reproduce liu2022 fig2b_user_40_1": "--data must be the folder",
        "benchmark mine.py other.py": "entry must be one file",
        "benchmark verify": "entry must be one file",
        "benchmark mine.py --track tuned": "--trials must be > 0",
        "simulate --set theta_nrom=2": "--set must name parameters of env or of an algorithm, got 'theta_nrom': did",
        "plan --epsilon 1 2": "--epsilon must be one without --at-most",
    }
    for words, start in starts.items():
        assert main(words.split()) == 2
        assert capsys.readouterr().err.startswith(f"fedbandit: {start}")


# What a console or a machine lacks.


def run(words, folder, **environment):
    """The end of a command in a process of its own."""
    command = [sys.executable, "-m", "fedbandit_jax", *words.split()]
    return subprocess.run(command, env=os.environ | environment, cwd=folder, capture_output=True)


def test_letters_that_a_console_has_not(tmp_path):
    made(labels=["plain", "Łódź"]).save(tmp_path / "run")
    done = run("show run.npz", tmp_path, PYTHONIOENCODING="cp1252")
    assert (done.returncode, done.stderr) == (0, b"")
    assert rb"\u0141" in done.stdout


def test_a_device_that_is_not_there(tmp_path):
    """JAX's own error is a traceback of 64 lines."""
    done = run("simulate --agents 2 --horizon 9", tmp_path, JAX_PLATFORMS="abacus")
    error = done.stderr.decode().splitlines()[-1]
    assert (done.returncode, error) == (2, "fedbandit: JAX_PLATFORMS must name a device of this machine, got 'abacus'")
