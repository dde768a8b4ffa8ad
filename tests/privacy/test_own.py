"""User-defined releases, trust models and policies: what becomes of them, and that it has the law they say."""

import doctest
import itertools
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import Bias, Prefixes, deep, refused, released
from honest import of
from scipy import stats

import fedbandit_jax as fb
from fedbandit_jax.algos.policies.ucb import BoundUCB
from fedbandit_jax.interfaces import certify
from fedbandit_jax.privacy import RELEASES, TRUST, trust
from fedbandit_jax.privacy.releases import make
from fedbandit_jax.privacy.releases.matrices import Explicit
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


def copy(name):
    """A built-in release as somebody else's class would be: the same code, and not the package's own."""
    return type(f"My{RELEASES[name].__name__}", (RELEASES[name],), {})


# ---------------------------------------------------------------------------------------------------------------------
# Releases.


@pytest.mark.parametrize("n", deep([1, 2, 13], keep={2}))
@pytest.mark.parametrize("name", RELEASES)
@pytest.mark.slow
def test_copies_become_matrices_of_the_same_law(name, n):
    """C, R, the noise of one draw a synchronisation, and what is read from them."""
    built_in, mine = make(name, n), make(copy(name), n)
    assert type(mine) is Explicit
    assert mine.of == copy(name).__name__
    np.testing.assert_allclose(mine.encoder(), built_in.encoder(), atol=1e-6)
    noise, of_mine = (one.noise_factor() for one in (built_in, mine))
    np.testing.assert_allclose(of_mine @ of_mine.T, noise @ noise.T, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(mine.prefix_variance(), built_in.prefix_variance(), rtol=1e-5)
    assert mine.sensitivity_sq() == pytest.approx(built_in.sensitivity_sq(), rel=1e-5)
    assert (mine.touched(), mine.n_parts) == (built_in.touched(), built_in.n_parts)
    assert mine.message_bound() == pytest.approx(built_in.message_bound(), rel=1e-5)


def test_two_parts(key):
    """The release of docs/extending.md: blocks of batches, and batches. By hand at S = 7, blocks of 3."""
    blocks = from_the_docs("Blocks")
    own = type("Small", (blocks,), {"size": 3})
    made = make(own, 7)
    assert made.n_parts == 2
    assert made.sensitivity_sq() == pytest.approx(2)
    np.testing.assert_allclose(made.prefix_variance(), [1, 2, 1, 2, 3, 2, 3], rtol=1e-6)
    sums = {1: [1], 2: [2], 3: [1, 2, 3], 4: [4], 5: [5], 6: [4, 5, 6], 7: [7]}
    np.testing.assert_array_equal(made.encoder(), [[float(j in sums[k]) for j in range(1, 8)] for k in sums])
    assert np.asarray(jax.jit(jax.vmap(made.live))(np.arange(1, 8))).sum() == 7


def test_a_long_release_is_refused():
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
    with refused("messages", True):
        fb.privacy.Mechanism(BUDGET, trust=PAIRS, messages=True)


@pytest.mark.parametrize("release", ["tree", Prefixes])
def test_its_noise_has_the_law_that_is_certified(release, world, key):
    """Without users a release is its noise: standard deviation by release, normal, fresh for every key and entry."""
    privacy = fb.privacy.Mechanism(BUDGET, release=release, trust=PAIRS)
    bound = fb.algos.Federated(policy=fb.algos.Thompson(), schedule=3, privacy=privacy).bind(world.spec, 9)
    sigma = bound.guarantee().noise_std
    mechanism, nobody = bound.mechanism, jnp.zeros((3, 3, 4))

    def releases_of(key):
        def step(state, k):
            statistics, state = released(mechanism, jax.random.fold_in(key, k), k, state, nobody, nobody[:, 0])
            return state, statistics[:, -1]

        return jax.lax.scan(step, mechanism.init(3), jnp.arange(1, 4))[1]

    draws = np.asarray(jax.jit(jax.vmap(releases_of))(jax.random.split(key, 4000)))  # (4000, S, d)
    variance = {"tree": [1, 1, 2], Prefixes: [1, 1, 1]}[release]
    std = sigma * np.sqrt(2 * np.array(variance))[:, None]  # two pairs of silos
    np.testing.assert_allclose(mechanism.stds(), std[:, 0], rtol=1e-5)
    z = draws / std
    for column in z.reshape(4000, -1).T:
        assert stats.kstest(column, "norm").pvalue > 1e-5
        assert abs((column**2).mean() - 1) < 5 / np.sqrt(2000)
        assert ((0.9 * column) ** 2).mean() - 1 < -5 / np.sqrt(2000)  # ten per cent less would be seen
    entries = np.corrcoef(z[:, 2].T)
    assert abs(entries - np.eye(3)).max() < 5 / np.sqrt(4000)


# ---------------------------------------------------------------------------------------------------------------------
# A user-defined policy, under everything that there is.


def pairs_that_fit():
    for model, release in itertools.product([*TRUST, PAIRS], [*RELEASES, Prefixes]):
        try:
            trust.check(model, release, "tight")
        except ValueError:
            continue
        yield model, release


FIT = list(pairs_that_fit())


@pytest.mark.parametrize(("model", "release"), deep(FIT, keep=range(0, len(FIT), 12)))
def test_the_policy_of_the_docs_is_certified(model, release, world):
    policy = from_the_docs("Thompson")(regularization=20.0)
    privacy = fb.privacy.Mechanism(BUDGET, release=release, trust=model)
    found = fb.algos.Federated(policy=policy, schedule=3, privacy=privacy).certificate(world.spec, HORIZON)
    assert found.claim == "certified"
    assert 0.99 < found.epsilon_exact <= 1 + 1e-6


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
    assert (found.claim, "sizes that are fixed in advance, and a schedule decides" in found.reason) == ("none", True)
