"""What every loop tells its policy of a release: whose users are in it, and how much noise."""

import dataclasses
import math
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import fedbandit_jax as fb

S = fb.schedules
DOUBLING = S.Geometric(2.0, first=3)  # after rounds 3, 6, 12
LITTLE = fb.privacy.Mechanism(
    fb.privacy.Budget(0.01, 1e-6), unit="visit", statistic=fb.privacy.Linear(gram_scale=0.5)
)  # noise drowns all users
SEEDS, T = 1000, 12
SILOS = fb.envs.sphere(4, 2, 3, rewards="bernoulli")
USERS = fb.envs.clustered(4, 2, 1, n_arms=2, dim=3)


@fb.pytree
class Told(fb.Policy):
    """Believes what it is told: the count, the std, that of the last release as announced, and the diagonal of W."""

    last: Any = 0.0

    def bind(self, law):
        return dataclasses.replace(self, last=np.float32(law.stds[-1]))

    def update(self, k, belief, released):
        told = jnp.stack([released.count, released.std, jnp.asarray(self.last)])
        return jnp.concatenate([told, jnp.diag(released.gram)])

    def index(self, key, t, belief, contexts):
        return contexts[:, 0]


@fb.pytree
class Everybody(fb.algos.Grouping):
    """One group of all users."""

    def group(self, key, released, last):
        return jnp.zeros_like(last)


LINE = fb.networks.make("line", 4)
LOOPS = {  # environment, algorithm, users in the last sums of an agent of theirs, and which one (None: who came last)
    "batches": (SILOS, fb.algos.Federated(policy=Told(), schedule=3, privacy=LITTLE), 4 * T, 0),
    "schedule": (SILOS, fb.algos.Federated(policy=Told(), schedule=DOUBLING, privacy=LITTLE), 4 * T, 0),
    "a median": (
        SILOS,
        fb.algos.Federated(policy=Told(), schedule=DOUBLING, privacy=LITTLE, aggregate="median"),
        *(4 * T, 0),
    ),
    "a line": (SILOS, fb.algos.Gossip(graph=LINE, policy=Told(), schedule=DOUBLING, privacy=LITTLE), 3 * T, 1),
    "uploads": (USERS, fb.algos.AsyncFederated(policy=Told(), schedule=1, privacy=LITTLE), T, None),
    "streams": (USERS, fb.algos.Grouped(policy=Told(), grouping=Everybody(), schedule=DOUBLING, privacy=LITTLE), T, 0),
}


def believed(moment):
    return getattr(moment.state, "agents", moment.state).belief


@pytest.mark.parametrize("name", LOOPS)
def test_what_a_policy_is_told(name, key):
    env, algo, users, which = LOOPS[name]
    record = {"belief": fb.record.final(believed)}
    run = fb.simulate(env, algo, horizon=T, key=key, seeds=SEEDS, record=record, stride=T)
    belief = run.records["belief"].reshape(SEEDS, -1, 6)
    if which is None:  # whoever came last has downloaded the sums of all rounds
        which = belief[..., :1].argmax(1, keepdims=True)
    belief = np.take_along_axis(belief, np.broadcast_to(which, (SEEDS, 1, 1)), 1)[:, 0]
    count, std, last = belief[:, :3].T
    np.testing.assert_array_equal(count, users)
    noise = belief[:, 3:] / std[:, None]
    assert noise.std() == pytest.approx(1, abs=5 / math.sqrt(2 * noise.size))  # five standard errors
    if name == "uploads":  # who will have uploaded by then is not known in advance
        assert (std <= last * (1 + 1e-6)).all()
    else:
        np.testing.assert_allclose(std, last, rtol=1e-6)
