"""Names that a console cannot write do not end a command."""

import os
import subprocess
import sys

from fedbandit_jax import cli


def test_letters_that_a_console_has_not(tmp_path):
    rows = [f"{silo},{arm},{i % 2},{i}" for i in range(4) for silo in "xy" for arm in "ab"]
    (tmp_path / "log.csv").write_text("\n".join(["silo,arm,reward,Łódź", *rows]), encoding="utf-8")
    words = [
        "data",
        "log.csv",
        "--silo",
        "silo",
        "--arm",
        "arm",
        "--reward",
        "reward",
        "--features",
        "Łódź",
        "--details",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "fedbandit_jax", *words],
        env=os.environ | {"PYTHONIOENCODING": "cp1252"},
        cwd=tmp_path,
        capture_output=True,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert rb"\u0141" in done.stdout


def test_a_file_that_is_nested_without_end(tmp_path, capsys):
    (tmp_path / "sweep.toml").write_text(f"a = {'[' * 3000}{']' * 3000}")
    assert cli.main(["sweep", str(tmp_path / "sweep.toml"), "--out", str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith("fedbandit: ")


def test_a_device_that_is_not_there(tmp_path):
    """JAX's own error is a traceback of 64 lines."""
    words = ["simulate", "--agents", "2", "--horizon", "9", "--out", str(tmp_path)]
    environment = os.environ | {"JAX_PLATFORMS": "abacus"}
    done = subprocess.run(
        [sys.executable, "-m", "fedbandit_jax", *words], env=environment, capture_output=True, text=True
    )
    error = done.stderr.splitlines()[-1]
    assert (done.returncode, error) == (2, "fedbandit: JAX_PLATFORMS must name a device of this machine, got 'abacus'")
