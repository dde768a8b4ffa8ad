"""What acts on raw data beside the noise, and bounds that are not enforced: the noise itself is right."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
from _damage import changed, damaged, honest, private, turned

import fedbandit_jax as fb
from fedbandit_jax.audits import transcript
from fedbandit_jax.audits.linear import Opinion
from fedbandit_jax.privacy.admission import BoundStatistic
from fedbandit_jax.privacy.noisy_sums import Aggregated


@fb.pytree
class RawForThePolicy(Aggregated):
    """Shows noisy sums, and hands the policy the exact ones."""

    def step(self, key, k, state, total, x, y):
        _, after = Aggregated.step(self, key, k, state, total, x, y)
        return after.sums.high, after


class NoClip(BoundStatistic):
    """Rewards as they come."""

    def admit(self, x, y, seen=(), each=False):
        return BoundStatistic.admit(self, x, y)._replace(v=y)


class NoFloor(BoundStatistic):
    """Rewards clipped at 1, and not at 0."""

    def admit(self, x, y, seen=(), each=False):
        return BoundStatistic.admit(self, x, y)._replace(v=jnp.minimum(y, 1))


class NoScale(BoundStatistic):
    """Features as long as they come."""

    def admit(self, x, y, seen=(), each=False):
        return BoundStatistic.admit(self, x, y)._replace(x=x)


class LongerFeatures(BoundStatistic):
    """Features scaled in the largest entry, so that vectors are up to sqrt d long."""

    def admit(self, x, y, seen=(), each=False):
        return BoundStatistic.admit(self, x, y)._replace(x=x / jnp.maximum(jnp.abs(x).max(0), 1))


def bounding(kind):
    """A mechanism with other bounds on what enters."""
    return lambda mechanism: replace(mechanism, statistic=turned(kind, mechanism.statistic))


def broken_acts_on_raw_sums():
    """The releases have their noise; the arms that are played follow from the exact sums."""
    return damaged("acts on raw sums", lambda mechanism: turned(RawForThePolicy, mechanism))


def broken_acts_on_raw_sums_of_two():
    """The same with two silos under secure release at the server."""
    change = lambda mechanism: turned(RawForThePolicy, mechanism)  # noqa: E731
    return damaged("acts on raw sums, central", change, n_agents=2, trust="central", release="blt")


def learning(case, name):
    """A case whose agents learn from raw rewards inside the batch."""
    return changed(case, name, lambda bound: replace(bound, learns_in_batch=True))


def broken_learning():
    """Algorithm 1 as printed on the default neighbours: later users of the batch see what the first one had."""
    return learning(honest(batch=4), "learns in the batch")


def broken_cascade():
    """The same, where one user steers what all later ones add: the sums alone tell, by far more than one user."""
    case, batch = learning(honest(batch=16), "batch cascade"), 16
    spec, horizon = case.mechanism.spec, case.mechanism.horizon

    def data(user):
        contexts = np.broadcast_to(np.eye(2, dtype=np.float32), (horizon, 1, 2, 2)).copy()
        contexts[0, 0] = user
        return contexts, np.ones((horizon, 1, 2), np.float32)

    greedy = private(batch=batch).replace(learns_in_batch=True, exploration_scale=0.0)
    mechanism = transcript(greedy.bind(spec, horizon), spec, horizon)
    return replace(case, mechanism=mechanism, data=data([1, 0]), neighbour=data([0, 1]), others={})


def broken_clipping():
    """Rewards that nobody bounds."""
    return damaged("unclipped rewards", bounding(NoClip))


def broken_floor():
    """Rewards that are not bounded from below."""
    return damaged("rewards clipped from above only", bounding(NoFloor))


class Raw(BoundStatistic):
    """Responses as a statistic of one's own returns them."""

    def admit(self, x, y, seen=(), each=False):
        given = BoundStatistic.admit(self, x, y)
        return given._replace(v=jnp.stack([jnp.clip(y, 0, 1), 3 * (y - 0.5)]))


class Averaged(BoundStatistic):
    """Responses in which each user is compared with the others of her round."""

    def admit(self, x, y, seen=(), each=False):
        given = BoundStatistic.admit(self, x, y)
        return given._replace(v=given.v + 0.5 * given.v.sum(-1, keepdims=True))


def broken_bounds_of_a_statistic():
    """A statistic of one's own whose responses are not clipped to what it declares."""
    return damaged("unclipped responses", bounding(Raw), statistic=Opinion())


def broken_statistic_of_two():
    """What a user adds depends on who else came: she moves their contributions, too."""
    return damaged("looks at two users", bounding(Averaged), n_agents=2, trust="central", statistic=Opinion())


def broken_norm():
    """Features that nobody bounds."""
    return damaged("features never scaled", bounding(NoScale))


def broken_other_norm():
    """Features bounded in another norm than the proof's."""
    return damaged("features in the wrong norm", bounding(LongerFeatures))


@fb.pytree
class Neighbourly(fb.Algorithm):
    """Every silo's agent prefers what the users of all silos are offered in this round."""

    algo: fb.Algorithm

    @property
    def batch(self):
        return self.algo.batch

    def init(self, key, spec):
        return self.algo.init(key, spec)

    def download(self, state, offered):
        return self.algo.download(state, offered)

    def act(self, key, t, local, offered):
        wanted = offered.contexts.mean((0, 1))
        return jnp.argmax(offered.contexts @ wanted, 1).astype(jnp.int32)

    def learn(self, t, local, offered, arms, rewards):
        return self.algo.learn(t, local, offered, arms, rewards)

    def sync(self, key, k, state, local, records):
        return self.algo.sync(key, k, state, local, self.algo.gather(records))

    def view(self, state):
        return self.algo.view(state)


def broken_scores_together():
    """What one user is recommended depends on what others are offered in the same round."""
    return changed(honest(n_agents=2), "scores users together", lambda bound: Neighbourly(algo=bound))
