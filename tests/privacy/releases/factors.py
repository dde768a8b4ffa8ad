"""Every release there is, and its factors from its recurrences alone, without the closed forms of its class."""

import functools

from fedbandit_jax.privacy import BISR, BandMF, Decaying, Discounted, Users, Window
from fedbandit_jax.privacy.releases import RELEASES, Release, make

APART = Users(16, 1, 5)
OTHERS = {"BandMF": BandMF(4, Users(3, 1, 2)), "BISR": BISR(4), "Discounted": Discounted(0.7), "Window": Window(3)}
ALL = {**RELEASES, **OTHERS, "Decaying": Decaying(1.5)}  # the last one keeps matrices, in float32
# Of matrices in several tests, so that they are made once: 1 to 3 nodes in a prefix, 1 to 8 batches in a node.
SIZE = 13


@functools.cache
def matrices(name, n):
    """(release, C, R), by the recurrences."""
    release = make(ALL[name], n)
    return release, Release.encoder(release), Release.decoder(release)
