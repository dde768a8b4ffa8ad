"""Every release there is, and its factors from its recurrences alone, without the closed forms of its class."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from fedbandit_jax.privacy import BISR, BandMF, Decaying, Discounted, Users
from fedbandit_jax.privacy.releases import RELEASES, make

APART = Users(16, 1, 5)
OTHERS = {"BandMF": BandMF(4, Users(3, 1, 2)), "BISR": BISR(4), "Discounted": Discounted(0.7)}
ALL = {**RELEASES, **OTHERS, "Decaying": Decaying(1.5)}  # the last one keeps matrices, in float32
# Of matrices in several tests, so that they are made once: 1 to 3 nodes in a prefix, 1 to 8 batches in a node.
SIZE = 13


def outputs(init, recurrence, *inputs):
    """All outputs of a recurrence from this state, stacked over its inputs. States keep their types."""

    def body(state, given):
        output, new = recurrence(state, *given)
        return jax.tree.map(lambda old, new: jnp.asarray(new, old.dtype), state, new), output

    return jax.lax.scan(body, init, inputs)[1]


@functools.cache
def matrices(name, n):
    """(release, C, R), by the recurrences."""
    release = make(ALL[name], n)
    ks, units = np.arange(1, n + 1, dtype=np.int32), np.eye(n)
    with jax.enable_x64(True):
        pairs = (release.encode_init((n,)), release.encode), (release.init((n,)), release.decode)
        c, r = (np.asarray(jax.jit(lambda *x, s=s, f=f: outputs(s, f, *x))(ks, units)) for s, f in pairs)
    return release, c, r
