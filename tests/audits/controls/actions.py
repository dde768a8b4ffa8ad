"""What acts on raw data beside the noise, and bounds that are not enforced: the noise itself is right."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
from _damage import all_damaged, changed, honest, override, private, stepping

from fedbandit_jax.audits.linear import Opinion
from fedbandit_jax.audits.transcripts import Transcript


def raw_for_the_policy(honest, self, *given):
    """Shows noisy sums, and hands the policy the exact ones."""
    _, after = honest(*given)
    return after.sums.high, after


def admitting(**changes):
    """What users add is changed after it was bounded: functions of (admitted, raw features, raw reward)."""

    def admit(honest, self, x, y, *given, **named):
        admitted = honest(x, y)
        return admitted._replace(**{name: change(admitted, x, y) for name, change in changes.items()})

    return lambda mechanism: replace(mechanism, statistic=override(mechanism.statistic, admit=admit))


def beside_others(admitted, x, y):
    """What a user adds depends on who else came in her round: she moves their contributions, too."""
    return admitted.v + 0.5 * admitted.v.sum(-1, keepdims=True)


RAW = stepping(raw_for_the_policy)
OPINION = dict(statistic=Opinion())
DAMAGES = {  # change of the mechanism, and its options
    "acts on raw sums": (RAW, {}),
    "acts on raw sums, central": (RAW, dict(n_agents=2, trust="central", release="blt")),
    "unclipped rewards": (admitting(v=lambda admitted, x, y: y), {}),
    "rewards clipped from above only": (admitting(v=lambda admitted, x, y: jnp.minimum(y, 1)), {}),
    "features never scaled": (admitting(x=lambda admitted, x, y: x), {}),
    "features in the wrong norm": (admitting(x=lambda admitted, x, y: x / jnp.maximum(jnp.abs(x).max(0), 1)), {}),
    "unclipped responses": (admitting(v=lambda _, x, y: jnp.stack([jnp.clip(y, 0, 1), 3 * (y - 0.5)])), OPINION),
    "looks at two users": (admitting(v=beside_others), dict(n_agents=2, trust="central", **OPINION)),
}


def broken_bounds():
    return all_damaged(DAMAGES)


def prefers_what_all_are_offered(honest, self, key, t, local, offered):
    wanted = offered.contexts.mean((0, 1))
    return jnp.argmax(offered.contexts @ wanted, 1).astype(jnp.int32)


def broken_actions():
    """Algorithm 1 as printed, whose later users of a batch see what the first one had; and scores of users together."""
    return [
        changed(honest(batch=4), "learns in the batch", lambda bound: replace(bound, learns_in_batch=True)),
        changed(
            honest(n_agents=2), "scores users together", lambda bound: override(bound, act=prefers_what_all_are_offered)
        ),
    ]


def broken_cascade():
    """Learning in the batch, where one user steers what all later ones add: sums move by far more than one user."""
    case, batch = honest(batch=16), 16
    spec, horizon = case.mechanism.spec, case.mechanism.horizon

    def data(user):
        contexts = np.broadcast_to(np.eye(2, dtype=np.float32), (horizon, 1, 2, 2)).copy()
        contexts[0, 0] = user
        return contexts, np.ones((horizon, 1, 2), np.float32)

    greedy = private(batch=batch).replace(learns_in_batch=True, exploration_scale=0.0)
    mechanism = Transcript(algo=greedy.bind(spec, horizon), spec=spec, horizon=horizon)
    one, other = data([1, 0]), data([0, 1])
    return replace(case, name="batch cascade", mechanism=mechanism, data=one, neighbour=other, others={})


def shows_the_last(honest, self, t, local, offered, arms, rewards):
    after, record = honest(t, local, offered, arms, rewards)
    x = jnp.take_along_axis(offered.contexts, arms[:, None, None], 1)[:, 0]
    return after._replace(prepared=x * jnp.clip(rewards, 0, 1)[:, None]), record


def broken_loop():
    """A user-defined loop: the next user's arm tells what the last one of the batch answered."""
    peeking = dict(
        download=lambda honest, self, state, offered: honest(state, offered)._replace(prepared=jnp.zeros((1, 2))),
        act=lambda honest, self, key, t, local, offered: jnp.argmax(offered.contexts @ local.prepared[0], 1),
        learn=shows_the_last,
    )
    return changed(honest(), "own loop peeks", lambda bound: override(bound, **peeking))
