"""Another horizon compiles nothing: one program serves all whose synchronisations are padded to the same number.

`test_driver.py` counts what is compiled.
"""

from pathlib import Path

import pytest
from examples import EXAMPLES
from helpers import BUDGET, ByMessage, Prefixes

import fedbandit_jax as fb
from fedbandit_jax.cli import _configuration
from fedbandit_jax.engine.clocks import make_clock, signature
from fedbandit_jax.engine.driver import _chunk
from fedbandit_jax.privacy.releases import RELEASES

PRESETS = Path(fb.__file__).parent / "cli" / "presets"
GAP = fb.envs.gap(n_agents=4, n_arms=5, dim=3)


def program(env, algo, horizon):
    clock = make_clock(env, algo.bind(env.spec, horizon), horizon, None)
    return signature(clock), clock.seeds_abreast, _chunk(clock, 24)[1]


@pytest.mark.parametrize("preset", sorted(path.stem for path in PRESETS.glob("*.toml")))
def test_every_preset(preset):
    given = _configuration.read(PRESETS / f"{preset}.toml", [], "").arguments
    env = next(iter(given["env"].values())) if isinstance(given["env"], dict) else given["env"]
    for algo in given["algos"].values():
        for some, more in ((1_100, 1_200), (20_000, 25_000)):
            assert program(env, algo, some) == program(env, algo, more), algo.name


def test_every_family():
    for row in (row for row in EXAMPLES.values() if not row.slow):
        assert program(row.env, row.algo, 1_100) == program(row.env, row.algo, 1_200), row.name


RELEASED = (*RELEASES, fb.privacy.Banded(4), fb.privacy.Discounted(0.8), Prefixes)
MECHANISMS = [fb.privacy.Mechanism(BUDGET, release) for release in RELEASED]
MECHANISMS += [fb.privacy.Mechanism(BUDGET, fb.privacy.MultiBlt(fb.privacy.Users(4, 1, 3), 1))]
MECHANISMS += [fb.privacy.Mechanism(BUDGET, trust=f"shuffle_{kind}") for kind in ("amplified", "vector_sum")]


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda one: f"{one.release} {one.trust}"[:40])
def test_every_mechanism(mechanism):
    algo = fb.algos.private_fed_lin_ucb(mechanism, schedule=5)
    assert program(GAP, algo, 100) == program(GAP, algo, 153)


def test_every_message():
    algo = ByMessage(privacy=fb.privacy.Mechanism(BUDGET, trust="shuffle_vector_sum"), schedule=5)
    assert program(GAP, algo, 100) == program(GAP, algo, 153)
