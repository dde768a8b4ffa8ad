"""The tasks of suite v1 never change, and what they refuse is what they say."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from four_arms import PRIVATE, algorithm
from helpers import refused

import fedbandit_jax as fb
from fedbandit_jax.interfaces import certify
from fedbandit_jax.planning.demands import PARTIES, silos_away
from fedbandit_jax.privacy.trust import TRUST

TASKS = fb.benchmark.TASKS
FROZEN = {  # never change: a flaw in a task makes a suite v1.1. Digest, and what uniform play loses at first
    "sphere-silo": ("f9f1ad3bb1df7f90", 1855.84, 1847.74),
    "sphere-secagg": ("44ac37b7f809e1a8", 1855.84, 1847.74),
    "sphere-shuffle": ("db98f30360b1592d", 3661.51, 3635.44),
    "sphere-local": ("e0f8317566b37262", 18278.5, 18231.1),
    "fixed-arms": ("a43601730d21aa8d", 698.981, 826.793),
    "gap-worst": ("f2f776657b0deeea", 897.469, 894.895),
    "returning": ("9f6c7afb4c02d069", 953.315, 943.325),
    "arms-hard": ("c4d35c4ea20f1724", 31.2518, 35.2798),
    "async-zipf": ("34334c1ae76e62e7", 11.9694, 13.5793),
    "ring": ("4ab883de8ca3c1b8", 414.351, 411.63),
    "clusters-4": ("c78285acdf4ac871", 12.3446, 12.657),
    "insteval": ("76f54149b6fd9304", 34.6465, 35.1269),
    "dropout": ("e250381a750e585f", 953.315, 943.325),
    "drift": ("90b92a88cbe90e72", 929.893, 964.172),
}


def test_tasks_are_frozen():
    assert {name: task.digest[:16] for name, task in TASKS.items()} == {name: one[0] for name, one in FROZEN.items()}


@pytest.mark.parametrize("name", TASKS)
def test_a_task_is_what_it_says(name):
    task = TASKS[name]
    spec = task.spec
    assert task.sizes == (spec.n_agents, spec.n_arms, spec.dim)
    assert task.delta < 1 / spec.visits(task.horizon)  # otherwise some users may be exposed
    assert (task.unit is None) == (spec.n_users == 0)
    assert (task.arms is not None) == (name in ("fixed-arms", "arms-hard"))
    reference = task.reference(task)
    bound = reference.bind(spec, task.horizon)
    assert certify(bound).claim == "none"
    assert task.max_syncs is None or task.family == "clusters" or int(bound.n_syncs) <= task.max_syncs
    assert task.max_syncs is None or task.horizon // task.batch <= task.max_syncs + 1


@pytest.mark.slow
@pytest.mark.parametrize("name", TASKS)
def test_draws_are_frozen(name):
    """What uniform play loses in the first rounds, and so who comes and what is offered, is what it was."""
    task, seeds = TASKS[name], [0, 5]
    horizon = 1000 if task.family == "arms" else 50
    result = fb.simulate(task.env, task.uniform, horizon=horizon, key=jax.random.key(7), seeds=seeds, stride=horizon)
    np.testing.assert_allclose(result.regret[:, -1], FROZEN[name][1:], rtol=1e-4)


def test_what_was_fitted_to_a_log_says_nothing_of_its_task():
    """The arm that is best by it is an arm drawn at random, in every row: within four standard errors over seeds."""
    env, keys = TASKS["insteval"].env, jax.random.split(jax.random.key(0), 400)
    world = jax.vmap(env.init)(keys)
    offered = env.offer(np.arange(0, len(env.rows), 3001)).contexts

    @jax.jit
    @jax.vmap
    def gains(theta):
        means = env.rewards.mean(jnp.matmul(offered, theta, precision="highest"))
        known = jnp.argmax(jnp.matmul(offered, env.theta, precision="highest"), 1)
        played = jnp.take_along_axis(means, known[:, None], 1)[:, 0]
        return (played - means.mean(1)).mean(), means.max(1) - means.mean(1)

    gain, most = (np.asarray(x) for x in gains(world.theta))
    assert abs(gain.mean()) < 4 * gain.std(ddof=1) / np.sqrt(len(gain))
    np.testing.assert_allclose(most, np.broadcast_to(most[0], most.shape), atol=1e-6)  # the same effects


def certificate(**changes):
    made = fb.benchmark.TASKS["returning"]
    algo = fb.algos.Federated(policy=fb.algos.Greedy(), schedule=made.batch, privacy=made.mechanism(unit=made.unit))
    return dataclasses.replace(algo.certificate(made.spec, made.horizon), **changes)


REFUSED = [  # changes of the certificate, synchronisations, status, and how the reason begins
    (dict(), 100, 0, ""),
    (dict(trust="central: all is told", adjacency="none", unit="nobody", reason="", schedule=""), 0, 0, ""),  # words
    (dict(epsilon_exact=1.0, delta=1e-9), 100, 0, ""),
    (dict(claim="as_printed"), 100, 0, "claim as_printed"),
    (dict(claim="none"), 100, 0, "claim none"),
    (dict(epsilon_exact=2.1), 100, 0, "the noise gives epsilon = 2.1"),
    (dict(epsilon_exact=math.inf), 100, 0, "the noise gives epsilon = inf"),
    (dict(epsilon_exact=2.0, delta=1e-5), 100, 0, "the noise gives epsilon = 2 at delta = 1e-05"),
    (dict(trusted="server"), 100, 0, "users must trust server"),
    (dict(trusted="shuffler"), 100, 0, "users must trust shuffler"),
    (dict(trusted="own"), 100, 0, "users must trust the party of a user-defined"),
    (dict(neighbours="zero_out"), 100, 0, "adjacency is "),
    (dict(whole_user=False), 100, 0, "protected is "),
    (dict(), 101, 0, "it communicates 101 times, the task allows 100"),
    (dict(), 100, 4, "status bits 4"),
]


def answers(task, proof, why, syncs=0, status=0):
    """Whether a task refuses a certificate in words that begin like this, or takes it where they are none."""
    found = task.refusal(proof, syncs, status)
    return found.startswith(why) and bool(found) == bool(why)


@pytest.mark.parametrize(("changes", "syncs", "status", "why"), REFUSED)
def test_what_is_refused(changes, syncs, status, why):
    assert answers(TASKS["returning"], certificate(**changes), why, syncs, status)


def test_the_ring_has_no_server_and_its_noise_is_read():
    """The gate reads the mechanism that draws: a tenth less noise does not pass, whatever was asked for."""
    task = TASKS["ring"]
    algo = fb.algos.Gossip(graph=task.graph, privacy=task.mechanism("tree"), schedule=task.batch)
    bound = algo.bind(task.spec, task.horizon)
    server = fb.algos.Federated(policy=fb.algos.Greedy(), schedule=task.batch, privacy=task.mechanism())
    assert answers(task, certify(bound), "")
    assert answers(task, certify(bound.replace(std=bound.mechanism.trust.std * 0.9)), "claim none")
    asked = algo.replace(epsilon=1.01).certificate(task.spec, task.horizon)
    assert answers(task, asked, "the noise gives epsilon = 1.0")
    assert answers(task, server.certificate(task.spec, task.horizon), "it has a server")


def test_every_trust_model_is_known():
    """Also those of users who are told apart, and of protocols for arms."""
    env, budget = fb.envs.sphere(4, 3, 2, rewards="bernoulli"), fb.privacy.Budget(1.0, 1e-6)
    said = {}
    for name in TRUST:
        release = "input_perturbation" if name == "local" else "tree"
        algo = fb.algos.private_fed_lin_ucb(fb.privacy.Mechanism(budget, release, name))
        said[name] = algo.certificate(env.spec, 100).trusted
    arms = fb.envs.arms(3)
    for name in PRIVATE:
        said[name] = algorithm(name).certificate(arms.spec, 10_000).trusted
    users = fb.envs.clustered(8, 2, 2, n_arms=3, dim=2)
    said["homo_dc"] = fb.algos.homo_dc(budget, trigger="count").certificate(users.spec, 100).trusted
    assert said == {
        **dict.fromkeys(("silo_local", "silo_local_matrix", "homo_dc"), "silo"),
        **dict.fromkeys(("shuffle_amplified", "shuffle_vector_sum", "Shuffle-DP-SE"), "shuffler"),
        **dict.fromkeys(("secagg", "Dist-DP-SE", "Dist-RDP-SE", "Dist-CDP-SE"), "secagg"),
        **dict.fromkeys(("central", "DP-SE", "CDP-SE"), "server"),
        **dict.fromkeys(("local", "LDP-SE"), "nobody"),
    }
    for party in ("nobody", *PARTIES):
        assert said[dataclasses.replace(TASKS["sphere-silo"], trusted=(party,)).trust] == party


def test_shares_of_noise_are_for_silos_that_are_away():
    """That budget, unit and trust of a mechanism are the task's is asked of all tasks in test_shipped.py."""
    shares = {name: task.mechanism().dropouts for name, task in TASKS.items() if task.family == "linear"}
    away = silos_away(TASKS["dropout"].env)
    assert shares == dict.fromkeys(shares, 0) | {"dropout": away}
    assert away > 5


def test_releases_and_tasks_must_exist():
    """A trust model may be given by its class, and decides the release."""
    shuffle = TASKS["sphere-shuffle"]
    assert shuffle.mechanism("blt", trust=TRUST["shuffle_vector_sum"]).release == "tree"
    assert shuffle.mechanism("blt", trust=TRUST["local"]).release == "input_perturbation"
    assert TASKS["dropout"].mechanism("blt").release == "input_perturbation"
    with refused("release", "blot"):
        TASKS["dropout"].mechanism("blot")
