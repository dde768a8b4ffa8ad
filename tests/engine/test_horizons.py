"""Another horizon compiles nothing: one program serves all whose synchronisations are padded to the same number.

`test_driver.py` counts what is compiled.
"""

from pathlib import Path

import pytest
from examples import EXAMPLES

import fedbandit_jax as fb
from fedbandit_jax.cli import _configuration
from fedbandit_jax.engine.driver import _chunk
from fedbandit_jax.engine.runners import make_runner, signature

PRESETS = Path(fb.__file__).parent / "cli" / "presets"


def program(env, algo, horizon):
    runner = make_runner(env, algo.bind(env.spec, horizon), horizon, None)
    return signature(runner), runner.hints.seeds, _chunk(runner, 24)[1]


@pytest.mark.parametrize("preset", sorted(path.stem for path in PRESETS.glob("*.toml")))
def test_every_preset(preset):
    given = _configuration.read(PRESETS / f"{preset}.toml", [], "").arguments
    env = next(iter(given["env"].values())) if isinstance(given["env"], dict) else given["env"]
    for algo in given["algos"].values():
        for some, more in ((1_100, 1_200), (20_000, 25_000)):
            assert program(env, algo, some) == program(env, algo, more), algo.name


def test_every_family_and_mechanism():
    for row in EXAMPLES.values():
        assert program(row.env, row.algo, 1_100) == program(row.env, row.algo, 1_200), row.name
