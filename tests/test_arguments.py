"""Bad input ends in one clear sentence, or not at all: every public factory, every argument, some forty values.

`CASES` says for every argument which kind of value is legitimate. Any other value must be refused by a `BadArgument`
that names the argument; a legitimate one may be refused too, because of another argument. Nothing is compiled, and no
data set is read. A public factory that `CASES` cannot give all its arguments is an error at once.
"""

import contextlib
import importlib
import math
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import pytest
from argument_cases import CASES, NAMES, OWN, RESULT, short

import fedbandit_jax as fb
from fedbandit_jax.audits import runs
from fedbandit_jax.core.validate import BadArgument
from fedbandit_jax.engine import driver
from fedbandit_jax.planning import recommend

NAN, INF = math.nan, math.inf
VALUES = (
    *(None, True, False, -1, 0, 1, 3, 2**40, 10**20, 10**400, 10**5000),
    *(0.5, 2.5, -0.5, 1e-300, 1e300, NAN, INF, -INF, np.float64(NAN), np.float32(0.5), np.int64(3), 1 + 2j),
    *("", "1", "nonsense", "a\0b", b"x", [], [1], [[1, 2], [3]], list(range(300)), (), {}, {"a": 1}),
    *(np.array([1, 2]), np.array([[NAN]]), np.array([1e300]), np.array(["x"]), np.array("x"), np.zeros((0, 2, 2, 2))),
    *(jnp.array(2.0), jax.random.key(0), lambda x: x, int, object(), Path(".")),
)


class Reached(Exception):
    """Raised where arguments have been checked, and work would begin."""


@pytest.fixture
def harmless(monkeypatch, tmp_path):
    """Files go to a folder of their own, and nothing is loaded, run or compiled."""

    def reached(*args, **options):
        raise Reached

    monkeypatch.chdir(tmp_path)
    for name in ("ratings.csv", "item_context.csv", "train.txt", "vali.txt", "test.txt"):
        (tmp_path / name).touch()
    RESULT.save("saved")
    (tmp_path / "controls.py").write_text("from argument_cases import CASE\ndef broken_case():\n    return CASE\n")
    monkeypatch.setattr(driver, "_compiled", reached)
    monkeypatch.setattr(importlib.import_module("fedbandit_jax.engine.simulation"), "_play", reached)
    monkeypatch.setattr(runs, "_program", reached)
    monkeypatch.setattr(recommend, "candidates", reached)
    monkeypatch.setitem(fb.audits.FAMILIES, "arms", reached)
    audited_arms = importlib.import_module("fedbandit_jax.audits.arms")
    monkeypatch.setattr(audited_arms, "CDPSE", type("Reached", (), {"law": reached}))
    for loader, name in dict(
        classification="require", datasets="require", movielens="_read", mslr="_parse", examples="_frame"
    ).items():
        monkeypatch.setattr(importlib.import_module(f"fedbandit_jax.data.{loader}"), name, reached)
    yield
    plt.close("all")


def fault(case, given, argument, value, legitimate):
    """Returns what is wrong with the answer to a value, in words, or an empty string."""
    try:
        case(**{**given, argument: value})
    except Reached:
        error = None
    except (TypeError, ValueError, FileNotFoundError) as refused:
        error = refused
    except Exception as crash:
        return f"CRASHES: {type(crash).__name__}: {str(crash)[:100]}"
    else:
        error = None
    if error is None:
        return "" if legitimate else "ACCEPTED"
    message, names = str(error), set(given) if legitimate else {argument}
    if isinstance(error, FileNotFoundError):
        named = {message.partition(" ")[0]} & names
    elif isinstance(error, BadArgument):
        named = {*re.findall(r"\w+", error.argument), *error.others} & names
    else:
        return f"NO FIELDS: {message[:200]!r}"
    return "" if named and "\n" not in message and len(message) < 400 else f"UNCLEAR: {message[:200]!r}"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", CASES, ids=NAMES.get)
def test_every_value_of_every_argument(case, harmless):
    given = {argument: value for argument, (value, _) in CASES[case].items()}
    with contextlib.suppress(Reached):
        case(**given)
    faults = []
    for argument, (_, kind) in CASES[case].items():
        for value in VALUES:
            found = fault(case, given, argument, value, bool(kind(value)))
            faults += [f"{argument} = {short(value)}: {found}"] if found else []
    assert not faults, f"{NAMES[case]}\n" + "\n".join(faults)


def test_rows_name_arguments_that_there_are():
    for case, own in OWN.items():
        assert set(own) <= set(CASES[case]), NAMES[case]
