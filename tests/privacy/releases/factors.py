"""Every release there is, and its factors from its recurrences alone, without the closed forms of its class."""

import functools

import jax
import numpy as np

from fedbandit_jax.privacy import BandMF, Decaying, Discounted, Users, Window
from fedbandit_jax.privacy.releases import RELEASES, Release, make
from fedbandit_jax.privacy.releases.release import in_float64, outputs

APART = Users(16, 1, 5)
OTHERS = {"BandMF": BandMF(4, Users(3, 1, 2)), "Discounted": Discounted(0.7), "Window": Window(3)}
ALL = {**RELEASES, **OTHERS, "Decaying": Decaying(1.5)}  # the last one keeps matrices, in float32
ALPHA = 1e-6  # chance that a correct mechanism fails one law test; keys are fixed
N = 20_000
# Of matrices in several tests, so that they are made once: 1 to 3 nodes in a prefix, 1 to 8 batches in a node.
SIZE = 13


def decoder(release):
    """R: feed the server the messages that are sent, one at a time. What is never sent is NaN."""
    k = np.arange(1, release.n_syncs + 1, dtype=np.int32)
    live = np.asarray(jax.jit(jax.vmap(release.live))(k)) if release.n_parts > 1 else np.ones((len(k), 1), bool)
    number = np.cumsum(live).reshape(live.shape) - 1
    messages = np.where(live[..., None], np.eye(live.sum())[number], np.nan)
    return in_float64(lambda *sent: outputs(release.init((live.sum(),)), release.decode, *sent), k, messages)


@functools.cache
def matrices(name, n):
    """(release, C, R)."""
    release = make(ALL[name], n)
    return release, Release.encoder(release), decoder(release)


def drawn(release, key, way):
    """Noise of all prefixes, (S, N): from one draw per synchronisation, or from messages of noise alone."""
    shape, recurrence = ((N,), release.step) if way == "step" else ((release.n_parts, N), release.decode)

    def step(state, k):
        return recurrence(state, k, jax.random.normal(jax.random.fold_in(key, k), shape))

    return np.asarray(jax.jit(lambda ks: outputs(release.init((N,)), step, ks))(np.arange(1, release.n_syncs + 1)))
