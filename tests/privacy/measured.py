"""The privacy of a bound algorithm as it is seen from outside: it runs on two populations that differ in one user."""

import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import fedbandit_jax as fb
from fedbandit_jax.algos.arms.thompson import BoundThompson
from fedbandit_jax.algos.clusters.fclub_loop import BoundFCLUB
from fedbandit_jax.core import wide

KEYS = jax.random.split(jax.random.key(20261129), 256)
HORIZON = 40


class People(NamedTuple):
    """Who comes to M silos in T rounds, and what she adds, whichever arm she plays."""

    user: np.ndarray  # (T, M)
    x: np.ndarray  # (T, M, d)
    y: np.ndarray  # (T, M)


def neighbours(spec, horizon, adjacency, everything):
    """Two populations: the first user of silo 0, who breaks all bounds, is replaced or adds nothing, once or always.

    If users come to several silos, so does she.
    """
    m, d = spec.n_agents, spec.dim
    rng, rounds = np.random.default_rng(0), np.arange(horizon)
    x = rng.standard_normal((horizon, m, d))
    x /= np.linalg.norm(x, axis=-1, keepdims=True)
    y, n = rng.random((horizon, m)), max(2, spec.n_users)
    user = (np.where(rounds % 2, 1 + rounds // 2 % (n - 1), 0)[:, None] + np.arange(m)) % n
    hers = (rounds[:, None] % 2 == 0 if everything else rounds[:, None] == 0) & (np.arange(m) == 0)
    if spec.silos > 1:
        user[::2] = 0  # at all silos
        hers = user == 0
    for features in ((1, 0), (-0.5, 0.75**0.5)):
        new, reward = x.copy(), y.copy()
        absent = adjacency == "zero_out" and features[0] < 0
        new[hers], reward[hers] = 0 if absent else np.multiply(30, features), 7
        yield People(np.int32(user), np.float32(new), np.float32(reward))


@functools.partial(jax.jit, static_argnums=1)
def transcripts(bound, arrivals, keys, people):
    """What is shown to those who are not trusted, after every step of a run under each key."""
    spec, silos = bound.spec, bound.spec.n_agents

    def alone(key, t, state):
        state, _ = bound.begin(key, t, state)
        return bound.serve(key, t, state, people.user[t, 0], people.x[t, 0], people.y[t, 0])[0]

    def offer(t):
        arms = jnp.broadcast_to(people.x[t][:, None], (silos, spec.n_arms, spec.dim))
        present = jnp.zeros(silos, bool) if spec.drops else None
        return fb.Round(arms, user=people.user[t] if spec.n_users else None, away=present)

    def together(key, k, state):
        def learn(local, t):
            return bound.learn(t, local, offer(t), jnp.zeros(silos, jnp.int32), people.y[t])

        rounds = k * bound.batch + jnp.arange(bound.batch)
        local, records = jax.lax.scan(learn, bound.download(state, offer(rounds[0])), rounds)
        return bound.sync(jax.random.fold_in(key, k), k, state, local, bound.gather(records))[0]

    def run(key):
        def step(state, k):
            state = (alone if arrivals else together)(key, k, state)
            return state, bound.view(state)

        return jax.lax.scan(step, bound.init(key, spec), jnp.arange(len(people.x) // bound.batch))[1]

    return jax.lax.map(run, keys, batch_size=256)


@jax.jit
def trees(bound, keys, people):
    """(N, rows, d, d + 1) all that the trees of FCLUB release of the first user, who comes before its first upload."""
    x, y = bound.exchange.noise.admit(people.x[0, 0], people.y[0, 0])
    hers = jnp.outer(x, jnp.append(x, y))
    slot, n = jnp.int32(0), len(x)

    def run(key):
        def grow(noise, at):
            phase, k = at
            change = bound.exchange.noise.change(key, phase, slot, jnp.maximum(k - 1, 0), n)
            noise = jnp.where(k == 0, bound.exchange.noise.first(key, phase, slot, n), noise + change)
            shown = (k < jnp.asarray(bound.exchange.noise.leaves)[phase - 1]) & ((phase > 1) | (k > 0))
            return noise, jnp.where(shown, noise + hers, 0)

        phases, prefixes = jnp.divmod(jnp.arange(5 * 17), 17)
        return jax.lax.scan(grow, jnp.zeros((n, n + 1)), (phases + 1, prefixes))[1]

    return jax.vmap(run)(keys)


def distances(one, other):
    """How many standard deviations of the noise are between means of two transcripts (N, S, ...), by entry."""
    found = {}
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other)):
        a, b = (np.asarray(x, float).reshape(len(KEYS), x.shape[1], -1) for x in (a, b))
        a, b = (np.where(np.isnan(x), 0, x) for x in (a, b))  # which tells nothing
        for i in np.flatnonzero((a != b).any((0, 1))):
            found[a[..., i].tobytes()] = _entry(a[..., i], b[..., i])
    return [*found.values()] or [0.0]


def _entry(one, other):
    new = np.append(True, (np.diff(one, axis=1) != 0).any(0))  # steps after which another number is shown
    move, noise = (other - one)[:, new].mean(0), one[:, new] - one[:, new].mean(0)
    variances, directions = np.linalg.eigh(noise.T @ noise / len(noise))
    along = (move @ directions) ** 2
    still = variances <= 1e-9 * variances.max() + 1e-12
    if along[still].sum() > 1e-4 * along.sum():
        return math.inf
    return math.sqrt(
        (along[~still] / variances[~still]).sum() * (1 - (2 + len(move)) / len(one))
    )  # less what is chance


PULLS = jax.jit(lambda bound, state: bound.pulls(state, jnp.int32(0)).asked)
DRAWS = jax.jit(
    lambda bound, state, sums: jax.vmap(lambda key: bound.conclude(key, jnp.int32(0), state, sums)[0])(KEYS)
)


def samples(bound):
    """The distance along the path of most samples of arm 0, whose first user is replaced: all other arms go first."""
    arms, first = np.arange(bound.spec.n_arms), wide.of([math.ceil(bound.steps), *[0] * (bound.spec.n_arms - 1)])
    pair, squared = [bound.init(KEYS[0], bound.spec)] * 2, 0.0
    for _ in range(500):
        for arm in sorted(arms, key=lambda arm: (arm == 0, int(pair[0].asked[arm]))):
            pair = [one._replace(drawn=jnp.where(arms == arm, 1e9, 0.0)) for one in pair]  # it is next
            if PULLS(bound, pair[0]):
                break
        else:
            return math.sqrt(squared)
        early = pair[0].asked[0] == 0  # arms are first pulled in order
        given = wide.of([0] * len(arms)), first if early else wide.of([0] * len(arms))
        one, other = (DRAWS(bound, state, sums) for state, sums in zip(pair, given))
        pair = [jax.tree.map(lambda x: x[0], after) for after in (one, other)]
        if (pair[0].asked > 0).all():
            squared += float((other.drawn - one.drawn)[:, 0].mean() / one.drawn[:, 0].std()) ** 2
    raise AssertionError("the horizon ends every run")


def measured(bound, found):
    """The distance of two neighbours by the words of a certificate; a schedule that reads users is put aside."""
    bound = jax.tree.map(lambda leaf: np.asarray(leaf, jax.dtypes.canonicalize_dtype(np.asarray(leaf).dtype)), bound)
    if isinstance(bound, BoundThompson):
        return samples(bound)
    if isinstance(bound, fb.ArmAlgorithm):  # whose noise `behaviour` measures: here it is believed
        users = np.asarray(bound.protocol.users)
        stds = bound.protocol.stds()[users > 0] / np.sqrt(users[users > 0] if bound.protocol.noise.per_user else 1)
        return float(np.max(1 / np.maximum(stds, 1e-9), initial=0))
    if getattr(bound, "reads", "nothing") != "nothing":
        bound = bound.replace(schedule=fb.schedules.Every(5).bind(None))
    horizon = HORIZON if bound.spec.n_agents < 100 else 3
    everything = found.unit.startswith("one user: all their contributions")
    both = neighbours(bound.spec, horizon, found.adjacency.split()[0], everything)
    if isinstance(bound, BoundFCLUB):
        return math.hypot(*distances(*(trees(bound, KEYS, one) for one in both)))
    return math.hypot(
        *distances(*(transcripts(bound, isinstance(bound, fb.ArrivalAlgorithm), KEYS, one) for one in both))
    )
