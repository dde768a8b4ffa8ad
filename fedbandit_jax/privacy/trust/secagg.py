"""Secure aggregation of vectors: the noise of the central model without a trusted server.

It goes beyond the papers. Secure aggregation is as in Chowdhury & Zhou (2023); Bonawitz et al. (2017) have a protocol.
For the sum of shares see Kairouz, Liu & Steinke (2021).
"""

from __future__ import annotations

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from typing_extensions import override

from fedbandit_jax.core import struct
from fedbandit_jax.core.validate import BadValue
from fedbandit_jax.privacy.accounting import gaussian_mu, nearly_gaussian
from fedbandit_jax.privacy.budget import MAX_NORM
from fedbandit_jax.privacy.packing import packed_size
from fedbandit_jax.privacy.samplers import GAUSSIAN_CUT, discrete_gaussian, stochastic_round
from fedbandit_jax.privacy.trust.model import Proof, Trust, least, same_sizes
from fedbandit_jax.privacy.trust.requirement import Requirement


@struct.sealed
@struct.pytree
class SecAgg(Trust):
    """Discrete Gaussian noise in shares of all silos. The server sees only the sum of messages modulo 2^32.

    Each silo multiplies its message by `scale` and rounds it at random to a neighbouring integer. It adds a discrete
    Gaussian with 1/(M - f) of the variance that the sum needs. If at most f are missing, the shares present suffice.
    The excess is independent of them. If more are missing, nothing is released. The aggregator is trusted to show the
    server only sums. Silos are trusted to do nothing that `Proof.assumes` lists. The server is not trusted.

    The privacy unit is one user, with contributions within `Requirement.users`, under the adjacency of the budget. One
    user moves all messages together by at most `Requirement.sensitivity` in l2 norm. Rounding moves each entry by at
    most one step more a visit. Neither depends on the number of users in a batch. But messages must be exact integers
    in float32 and have room in the ring. Both hold for the largest batch. Sizes may differ if fixed in advance.
    """

    sentence = (
        "secure aggregation: each silo adds its share of the noise's variance; users trust their own silo, which sees "
        "their raw data; a trusted aggregator shows the server only sums over all silos; the server is not trusted"
    )
    trusted = "secagg"
    whose = "of the sum over silos"
    needs = ("n_agents", "batch", "dim")
    batches = "fixed"
    away = "few"
    shows_sum = True
    on_grid = True

    share: struct.Number  # parameter sigma of one silo's discrete Gaussian, in steps of the grid
    scale: struct.Number  # steps of the grid per unit of x y and x x'
    n_agents: int = struct.static()  # M, silos
    dropouts: int = struct.static(default=0)  # f, silos that may be missing

    @classmethod
    @override
    def calibrate(cls, need: Requirement, std: float | None = None) -> SecAgg:
        m, entries = need.n_agents, _entries(need)
        largest = need.largest * need.release.message_bound()  # bound on an entry of one silo's message
        there = m - need.dropouts

        def of(std: float) -> SecAgg:
            sigma = std * MAX_NORM**2
            most = sigma * math.sqrt(m / there)  # if no silo is missing
            # With `fine` steps per unit, rounding adds about a thousandth to the sensitivity.
            fine = max(1.0, 1000 * math.sqrt(entries) / need.sensitivity)
            room = min(fine, 2.0**31 / (m * largest + 40 * most), 2.0**24 / largest, 2.0**24 / most)
            scale = 2.0 ** math.floor(math.log2(room)) if room >= 1 else 0.0
            if scale * sigma < math.sqrt(there):
                sizes = f"batch = {need.batch} and n_syncs = {need.release.n_syncs} with {type(need.release).__name__}"
                why = f"entries reach {m * largest:.3g}, noise has std {sigma:.3g}"
                must = f"must leave room in 32 bits for {sizes}: {why}"
                raise BadValue("n_agents", must, m, others=("batch", "release"))
            share = np.float32(sigma * scale / math.sqrt(there))
            return cls(share=share, scale=np.float32(scale), n_agents=m, dropouts=need.dropouts)

        if std is not None:
            return of(std)
        return least(lambda mu: of(need.sensitivity / mu), need, gaussian_mu(need.budget.epsilon, need.budget.delta))

    @override
    def missing(self, need: Requirement) -> float:
        return need.n_agents * need.draws * GAUSSIAN_CUT

    @override
    def proof(self, need: Requirement) -> Proof:
        scale, entries = float(self.scale), _entries(need)
        there = self.n_agents - self.dropouts
        if not 1 <= there <= self.n_agents:
            return Proof(0.0, math.inf, f"none: noise of {there} of {self.n_agents} silos")
        sigma = float(self.share) * math.sqrt(there)
        few = f"more than {self.dropouts} of the " if self.dropouts else ""
        others = f"{few}silos that drop out, collude with the server, or subtract their own share of the noise"
        sensitivity = need.sensitivity * MAX_NORM**2 * scale + need.visits * math.sqrt(entries)
        most = float(self.share) * math.sqrt(self.n_agents)
        drawn = float(self.share) >= 0.5 and most <= 2.0**24 and scale > 0  # the sampler's range
        if not (drawn and sensitivity <= 500 * sigma):  # the accountant's range
            return Proof(sigma / max(abs(scale), 1e-30), math.inf, "none: (almost) no noise is drawn", (others,))

        def proved(silos: int) -> float:
            sigma, n = float(self.share) * math.sqrt(silos), need.visits * entries
            near = nearly_gaussian.discrete_gaussian(sensitivity=sensitivity, sigma=sigma, n_agents=silos, n_entries=n)
            return need.epsilon(near.epsilon, self.missing(need))

        accountant = "Gaussian differential privacy, corrected for integer noise and rounding"
        if there > 1:
            others += f" (without one of {there} shares epsilon is {proved(there - 1):.4g})"
        return Proof(sigma / scale, proved(there), accountant, (others,), sensitivity / scale)

    @override
    def objection(self, need: Requirement) -> str:
        largest = need.largest * need.release.message_bound() * abs(float(self.scale))
        if not (largest <= 2.0**24 and self.n_agents * largest <= 2.0**31):
            return f"there is no room for the messages of batches of {need.batch} rounds, of up to {largest:.3g} steps"
        return same_sizes((self.n_agents,), (need.n_agents,))

    @override
    def among(self, sends: Array) -> SecAgg:
        there = sends.sum() / jnp.float32(self.n_agents)
        return dataclasses.replace(self, share=self.share * jnp.sqrt(there))

    @override
    def noise(self, key: Array, size: int) -> Array:
        """Draws one discrete Gaussian in place of the M silos' own, and the error of one rounding in place of theirs.

        M discrete Gaussians add up to one of M times the variance, up to a factor e^xi of the probabilities (see
        `nearly_gaussian`). The error is as if rounded with a dither: uniform in one step for any input. So no digit of
        a sum shows between the steps. That leaves out at most M/4 of a variance of M share^2.
        """
        rounding, noise = jax.random.split(key)
        draws = discrete_gaussian(noise, self.share * np.sqrt(self.n_agents), (size,))
        return (draws + jax.random.uniform(rounding, (size,), minval=-0.5, maxval=0.5)) / self.scale

    @override
    def randomize(self, key: Array, silo: Array, k: Array, message: Array) -> Array:
        rounding, noise = jax.random.split(key)
        encoded = stochastic_round(rounding, message * self.scale).astype(jnp.int32)
        return (encoded + discrete_gaussian(noise, self.share, message.shape)).astype(jnp.uint32)

    @override
    def third_party(self, key: Array, messages: Array) -> Array:
        return messages.sum(0, dtype=jnp.uint32)  # modulo 2^32

    @override
    def analyze(self, key: Array, k: Array, shown: Array) -> Array:
        return lax.bitcast_convert_type(shown, jnp.int32) / self.scale  # residues from 2^31 on are negative

    @override
    def message_stds(self, n: int) -> np.ndarray:
        return np.full(n, float(self.share) * math.sqrt(self.n_agents) / float(self.scale))

    @override
    def sum_std(self) -> float:
        return float(np.sqrt(self.n_agents * (float(self.share) ** 2 + 1 / 4)) / float(self.scale))


def _entries(need: Requirement) -> int:
    return packed_size(need.dim) * need.release.touched()
