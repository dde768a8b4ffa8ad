"""What tests of several rooms share."""

from dataclasses import replace

import numpy as np


def silent(bound):
    """The same bound private algorithm, with a trust model that adds no noise."""
    trust = bound.mechanism.trust
    mute = replace(bound.mechanism, trust=replace(trust, std=np.zeros_like(trust.std)))
    return replace(bound, mechanism=mute, stds=np.zeros_like(bound.stds))
