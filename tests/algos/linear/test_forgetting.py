"""Policies that forget: what the policy within is shown, D-LinUCB by NumPy, limits, claims and refusals."""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import deep, silent, workload
from test_limits import regrets

import fedbandit_jax as fb
from fedbandit_jax.interfaces import NoiseLaw, Released, certify
from fedbandit_jax.privacy.releases import RELEASES, make

S = fb.schedules
Forgetting, UCB, Discounted, Window = fb.algos.Forgetting, fb.algos.UCB, fb.privacy.Discounted, fb.privacy.Window
BUDGET = fb.privacy.Budget(1.0, 0.1)
LITTLE = fb.privacy.Budget(0.01, 1e-6)  # noise drowns all users
MEMORIES = {"discounted": Discounted(0.7), "window": Window(3)}
SILOS = fb.envs.sphere(4, 2, 3, rewards="bernoulli")
SEEDS, T = 1000, 12


@fb.pytree
class Told(fb.Policy):
    """Believes what it is shown: k, the count, the std, that of the last release as announced, W and U."""

    last: Any = 0.0

    def bind(self, law):
        return dataclasses.replace(self, last=np.float32(law.stds[-1] if len(law.stds) else 0))

    def start(self, dim):
        return jnp.zeros(4 + dim * (dim + 1))

    def update(self, k, belief, released):
        told = jnp.stack([jnp.float32(k), released.count, released.std, jnp.asarray(self.last, jnp.float32)])
        return jnp.concatenate([told, released.gram.ravel(), released.bias])

    def index(self, key, t, belief, contexts):
        return contexts[:, 0] + 0 * t


@pytest.mark.parametrize("name", MEMORIES)
def test_the_policy_within_is_shown_weighted_sums(name):
    """Of releases that anybody may make up, with its own count, for k = 0, 1, ..."""
    memory, n, d = MEMORIES[name], 8, 3
    rng = np.random.default_rng(0)
    batches, counts = rng.normal(size=(n, d, d + 1)), rng.integers(1, 9, n).astype(float)
    policy = Forgetting(policy=Told(), memory=memory).bind(NoiseLaw(2, d, np.zeros(n)))
    belief = policy.start(d)
    for k in range(n):
        sums = batches[: k + 1].sum(0).astype(np.float32)
        released = Released(sums[:, :-1], sums[:, -1], jnp.float32(counts[: k + 1].sum()), jnp.float32(0))
        belief = policy.update(jnp.int32(k), belief, released)
        a = workload(memory, n)[k]
        w = np.tensordot(a, batches, 1)
        np.testing.assert_allclose(belief.within[4:], [*w[:, :-1].ravel(), *w[:, -1]], atol=1e-5)
        np.testing.assert_allclose(belief.within[:2], [k, a @ counts], rtol=1e-5)
        assert int(belief.rounds) == math.ceil(round(a @ counts / 2, 4))  # of two agents


ASKED = {
    "discounted": ("silo_local", Discounted(0.7)),
    "window": ("secagg", Window(3)),
    "tree": ("silo_local", "tree"),
    "blt": ("central", "blt"),
    "single": ("local", "input_perturbation"),
}


@pytest.mark.parametrize("name", deep(ASKED, keep={0}))
def test_it_is_told_the_truth(name, key):
    """The weighted count, and the noise in a run: five standard errors; a std that is 7 % off would be seen."""
    memory, (trust, release) = MEMORIES.get(name, Discounted(0.5)), ASKED[name]
    mechanism = fb.privacy.Mechanism(LITTLE, release, trust)
    algo = fb.algos.Federated(policy=Forgetting(policy=Told(), memory=memory), schedule=3, privacy=mechanism)
    record = {"belief": fb.record.final(lambda moment: moment.state.belief.within)}
    run = fb.simulate(SILOS, algo, horizon=T, key=key, seeds=SEEDS, record=record, stride=T)
    belief = run.records["belief"].reshape(SEEDS, -1)
    a = workload(memory, 4)[-1]
    np.testing.assert_allclose(belief[:, 1], 4 * 3 * a.sum(), rtol=1e-6)
    np.testing.assert_allclose(belief[:, 2], belief[:, 3], rtol=1e-6)
    noise = belief[:, 4:13:4] / belief[:, 2:3]  # the diagonal of W
    assert noise.std() == pytest.approx(1, abs=5 / math.sqrt(2 * noise.size))
    assert run.certificate.claim == "certified"


def test_d_lin_ucb_by_numpy(script, key):
    """Russac et al. (2019), Algorithm 1, in batches of 3, on the script; widths as the docstring says."""
    env, batch, horizon, d = script, 3, 30, script.spec.dim
    memory, m, n = Discounted(0.8), script.spec.n_agents, 10
    policy = Forgetting(policy=UCB(exploration_scale=0.4), memory=memory)
    algo = fb.algos.Federated(policy=policy, schedule=batch)
    found = regrets(env, algo.bind(env.spec, horizon), horizon, key)
    v, u, expected, rounds = np.zeros((d, d)), np.zeros(d), np.zeros(horizon), 0.0
    new_v, new_u = np.zeros((d, d)), np.zeros(d)
    for t in range(horizon):
        inverse = np.linalg.inv(np.eye(d) + v)
        log_term = 2 * math.log(n / 0.01) + d * math.log1p(m * math.ceil(rounds) / d)
        beta = 0.4 * (1.0 + 0.5 * math.sqrt(log_term))
        for i in range(m):
            x = np.asarray(env.contexts[t, i], float)
            bound = x @ inverse @ u + beta * np.sqrt(((x @ inverse) * x).sum(1))
            arm = int(bound.argmax())
            expected[t] += env.means[t, i].max() - env.means[t, i, arm]
            new_v += np.outer(x[arm], x[arm])
            new_u += x[arm] * env.answers[t, i, arm]
        if t % batch == batch - 1:
            v, u, rounds = 0.8 * v + new_v, 0.8 * u + new_u, 0.8 * rounds + batch
            new_v, new_u = np.zeros((d, d)), np.zeros(d)
    np.testing.assert_allclose(found, expected, atol=2e-5)


def test_arms_are_scored_alike_with_and_without_contexts():
    """`scorer` has the width of `indices`, that of the weighted number of rounds, whatever the round is."""
    policy = Forgetting(policy=UCB(), memory=Discounted(0.5)).bind(NoiseLaw(4, 3, np.zeros(5)))
    belief = policy.start(3)
    for k in range(5):
        released = Released(jnp.eye(3) * (k + 1), jnp.ones(3), jnp.float32(40 * (k + 1)), jnp.float32(0))
        belief = policy.update(jnp.int32(k), belief, released)
    offered = fb.Round(jnp.asarray(np.random.default_rng(0).normal(size=(4, 2, 3)), jnp.float32))
    prepared = policy.prepare(belief, offered, False)
    indices = policy.indices(jax.random.key(0), jnp.int32(50), prepared, offered)
    scorer = policy.scorer(jnp.int32(50), prepared)
    rounds = math.ceil(10 * sum(0.5**j for j in range(5)))
    np.testing.assert_allclose(scorer.width, policy.policy.scorer(jnp.int32(rounds), prepared.within).width)
    np.testing.assert_allclose(indices.T, scorer.worth(list(jnp.moveaxis(offered.contexts, -1, 0))), rtol=1e-5)


def test_a_window_over_everything_forgets_nothing(script, key):
    algo = fb.algos.Federated(policy=fb.algos.Greedy(), schedule=5)
    forgets = algo.replace(policy=Forgetting(policy=fb.algos.Greedy(), memory=Window(6)))
    one, other = (regrets(script, a.bind(script.spec, 30), 30, key) for a in (algo, forgets))
    np.testing.assert_allclose(one, other, atol=2e-5)


@pytest.mark.parametrize("within", deep([UCB(), fb.algos.Thompson()], keep={0}), ids=lambda x: type(x).__name__)
def test_zero_noise_is_the_non_private_run(within, key):
    policy = Forgetting(policy=within, memory=Discounted(0.6))
    algo = fb.algos.Federated(policy=policy, schedule=5, privacy=fb.privacy.Mechanism(BUDGET, Discounted(0.6)))
    plain, private = algo.replace(privacy=None).bind(SILOS.spec, 30), algo.bind(SILOS.spec, 30)
    mute = dataclasses.replace(silent(private), policy=plain.policy)
    np.testing.assert_allclose(regrets(SILOS, mute, 30, key), regrets(SILOS, plain, 30, key), atol=1e-5)
    assert certify(private).claim == "certified"
    assert certify(mute).claim == "none"


def certificate(within=None, trust="silo_local", release=None, **options):
    memory = Discounted(0.7)
    mechanism = fb.privacy.Mechanism(BUDGET, release or memory, trust, **options)
    policy = Forgetting(policy=within or UCB(confidence="known_noise"), memory=memory)
    return fb.algos.Federated(policy=policy, schedule=2, privacy=mechanism).certificate(SILOS.spec, 20)


@pytest.mark.parametrize("within", [UCB(), fb.algos.Greedy(), fb.algos.EpsilonGreedy(), fb.algos.Thompson(), Told()])
def test_any_policy_is_certified_under_it(within):
    found = certificate(within)
    assert (found.claim, found.release) == ("certified", "Discounted")
    assert 0.99 < found.epsilon_exact <= 1.0


@pytest.mark.parametrize("release", [*RELEASES, Discounted(0.5), Window(2), fb.privacy.Decaying(1.5)])
def test_it_knows_the_noise_under_any_release(release):
    memory = Discounted(0.7)
    algo = fb.algos.Federated(
        policy=Forgetting(policy=UCB(), memory=memory), schedule=2, privacy=fb.privacy.Mechanism(BUDGET, release)
    )
    bound, made = algo.bind(SILOS.spec, 20), make(release, 10)
    wanted = bound.stds[:10] * np.sqrt(memory.variance(made) / made.prefix_variance())
    np.testing.assert_allclose(bound.policy.stds[:10], wanted, rtol=1e-5)


def test_any_trust_model_and_unit_is_certified_under_it():
    for trust in ("silo_local_matrix", "secagg", "central"):
        assert certificate(trust=trust).claim == "certified"
    assert certificate(unit=fb.privacy.Users(3, per_batch=1, apart=2)).releases_per_user < 9
    assert certificate(trust="shuffle_amplified", release="tree").claim == "certified"
    with pytest.raises(ValueError, match="release must be 'input_perturbation' with trust='local'"):
        certificate(trust="local")


def test_a_policy_that_is_put_in_after_binding_is_seen():
    memory = Discounted(0.7)
    algo = fb.algos.Federated(policy=Forgetting(policy=UCB(), memory=memory), schedule=2, privacy=BUDGET)
    bound = algo.bind(SILOS.spec, 20)
    assert certify(bound).claim == "certified"

    @fb.pytree
    class Nosy(type(bound.policy.policy)):
        def indices(self, key, t, prepared, offered):
            return offered.contexts.sum() + super().indices(key, t, prepared, offered)

    mine = Nosy(**{f.name: getattr(bound.policy.policy, f.name) for f in dataclasses.fields(bound.policy.policy)})

    class Leaky(Discounted):
        def add(self, state, batch):
            jax.debug.callback(print, batch)
            return super().add(state, batch)

    for name, part in (("policy", mine), ("memory", Leaky(0.7))):
        forged = dataclasses.replace(bound, policy=dataclasses.replace(bound.policy, **{name: part}))
        assert certify(forged).claim == "none"
    with pytest.raises(TypeError, match="memory must be fb.privacy.Discounted"):
        Forgetting(policy=UCB(), memory=Leaky(0.7))


def test_refusals():
    memory, ring = Discounted(0.7), fb.networks.make("ring", 4)
    forgets = Forgetting(policy=UCB(), memory=memory)

    @fb.pytree
    class Together(fb.Policy):
        def update(self, k, belief, released):
            return released.bias

        def indices(self, key, t, prepared, offered):
            return offered.contexts[..., 0].T

    class Calls(Told):
        calls_host = True

    arms = np.eye(2, 3)
    for wrong, error, words in (
        (lambda: Forgetting(policy=3, memory=memory), TypeError, "policy must be an fb.Policy, got 3"),
        (lambda: Forgetting(policy=UCB(), memory=0.7), TypeError, "memory must be fb.privacy.Discounted"),
        (lambda: Forgetting(policy=forgets, memory=memory), ValueError, "policy must act on any sums"),
        (lambda: Forgetting(policy=fb.algos.LogDetUCB(), memory=memory), ValueError, "policy must act on any sums"),
        (lambda: Forgetting(policy=fb.algos.PhasedElimination(arms=arms), memory=memory), ValueError, "any sums"),
        (lambda: Forgetting(policy=UCB(confidence="authors"), memory=memory), ValueError, "policy must act on any"),
        (lambda: Forgetting(policy=Calls(), memory=memory), ValueError, "policy must not call the host to forget"),
        (lambda: fb.algos.Gossip(graph=ring, policy=forgets), ValueError, "policy must not be Forgetting, as there is"),
        (lambda: fb.algos.AsyncFederated(policy=forgets), ValueError, "policy must not be Forgetting, as agents"),
        (
            lambda: fb.algos.Federated(policy=Forgetting(policy=Together(), memory=memory)).bind(SILOS.spec, 50),
            ValueError,
            "policy must define `index`, for one user at a time, got Together",
        ),
        (
            lambda: fb.algos.Federated(policy=forgets, schedule=S.LogDet(1.0)).bind(SILOS.spec, 50),
            ValueError,
            "policy must keep a matrix",
        ),
    ):
        with pytest.raises(error, match=words):
            wrong()


@pytest.mark.slow
def test_after_a_change_it_is_better_to_forget(key):
    """Regret of 32 seeds after the change, paired: less by more than five standard errors."""
    env = fb.envs.drift(fb.envs.sphere(10, 10, 4, rewards="bernoulli"), (400,))
    plain = fb.algos.Federated(policy=UCB(exploration_scale=0.3), schedule=10)
    forgets = plain.replace(policy=Forgetting(policy=UCB(exploration_scale=0.3), memory=Discounted(0.8)))
    options = dict(horizon=800, key=jax.random.key(5), seeds=32)
    one, other = (fb.simulate(env, algo, **options).regret for algo in (plain, forgets))
    late = (one[:, -1] - one[:, 399]) - (other[:, -1] - other[:, 399])
    assert late.mean() > 5 * late.std(ddof=1) / 32**0.5
