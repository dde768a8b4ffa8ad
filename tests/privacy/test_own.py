"""User-defined releases, trust models and policies: what becomes of them, and that it has the law they say."""

import doctest
from pathlib import Path

import numpy as np
import pytest
from helpers import Bias, Prefixes, refused
from honest import of

import fedbandit_jax as fb
from fedbandit_jax.algos.policies.ucb import BoundUCB
from fedbandit_jax.interfaces import certify
from fedbandit_jax.privacy.releases import make
from fedbandit_jax.privacy.trust.own import BoundGaussian

DOCS = Path(__file__).parents[2] / "docs" / "extending.md"
BUDGET = fb.privacy.Budget(1.0, 0.1)
HORIZON = 12


def from_the_docs(name):
    """A class of docs/extending.md, made by running the page down to it."""
    found: dict = {}
    for example in doctest.DocTestParser().get_examples(DOCS.read_text()):
        if example.source.startswith(("import ", "from ", "@", "class ")):
            exec(example.source, found)
        if name in found:
            return found[name]
    raise AssertionError(f"no class {name} in {DOCS}")


@pytest.fixture(scope="module")
def world():
    return fb.envs.sphere(n_agents=4, n_arms=5, dim=3, rewards="bernoulli")


PAIRS = fb.privacy.GaussianTrust(  # silos 2i and 2i + 1 trust each other
    "pairs: silos 2i and 2i + 1 trust each other, and add one noise to their common sum",
    sources=lambda sizes: (sizes.n_agents + 1) // 2,
    whose="of the sum of two silos",
    assumes=("a silo that tells what its partner sent",),
)


# ---------------------------------------------------------------------------------------------------------------------
# Releases.


def test_blocks():
    """The release of docs/extending.md: blocks of batches, and batches. By hand at S = 7, blocks of 3."""
    blocks = from_the_docs("Blocks")
    own = type("Small", (blocks,), {"size": 3})
    made = make(own, 7)
    assert made.sensitivity_sq() == pytest.approx(2)
    np.testing.assert_allclose(made.prefix_variance(), [1, 2, 1, 2, 3, 2, 3], rtol=1e-6)
    sums = {1: [1], 2: [2], 3: [1, 2, 3], 4: [4], 5: [5], 6: [4, 5, 6], 7: [7]}
    np.testing.assert_array_equal(made.encoder(), [[float(j in sums[k]) for j in range(1, 8)] for k in sums])
    with refused("n_syncs", 2049):
        make(Prefixes, 2049)


# ---------------------------------------------------------------------------------------------------------------------
# Trust models.


def test_a_trust_model_becomes_its_numbers_and_words():
    found = fb.privacy.calibrate(BUDGET, n_syncs=8, trust=PAIRS, n_agents=5)
    assert type(found.model) is BoundGaussian
    assert (float(found.model.sources), found.model.sentence) == (3, PAIRS.sentence)
    assert found.epsilon_exact == pytest.approx(1, rel=1e-6)
    assert found.sigma == pytest.approx(fb.privacy.calibrate(BUDGET, n_syncs=8).sigma)


# ---------------------------------------------------------------------------------------------------------------------
# A user-defined policy, under everything that there is.


def gossip(policy, env):
    ring = fb.networks.make("ring", env.spec.n_agents)
    return fb.algos.Gossip(graph=ring, policy=policy, schedule=3, privacy=BUDGET).bind(env.spec, HORIZON)


@fb.pytree
class Wide(BoundUCB):
    """Inherits `indices`, which Gossip runs for all agents at once."""


def test_a_user_defined_policy_in_gossip(world):
    """It acts on releases alone, agent by agent; what does more, or might, is refused or proves nothing."""
    asking = fb.pytree(type("Asking", (Bias,), {"calls_host": True}))()
    together = fb.pytree(type("Together", (Bias,), {"indices": lambda self, key, t, prepared, offered: prepared}))()
    claims = [certify(gossip(policy, world)).claim for policy in (Bias(), asking, together)]
    assert claims == ["certified", "none", "none"]
    ucb = gossip(fb.algos.UCB(), world)
    assert (certify(ucb).claim, certify(ucb.replace(policy=of(Wide, ucb.policy))).claim) == ("certified", "none")


def test_a_list_of_rounds_whose_schedule_is_another(world):
    """What goes with secure aggregation is the list that runs, not the class that makes it."""

    class Swapped(fb.schedules.Fixed):
        def rounds(self, horizon):
            return np.arange(3, horizon + 1, 3)

        def bind(self, setting):
            return Eager()

    @fb.pytree
    class Eager(fb.schedules.BoundSchedule):
        def requests(self, key, t, memory, gained, since):
            return t == 11

    privacy = fb.privacy.Mechanism(BUDGET, "blt", "secagg")
    algo = fb.algos.Federated(policy=Bias(), schedule=Swapped(), privacy=privacy)
    found = algo.certificate(world.spec, HORIZON)
    assert (found.claim, "its noise is for sizes fixed in advance" in found.reason) == ("none", True)
