"""Protocols P = (R, S, A): who adds which noise to a release, and what the server is shown.

At synchronisation k = 1..S every silo holds a message (P, D): the P parts of its release (see `releases`), each a sum
of its users' packed statistics (see `encoding`). R randomises it at the silo; S is the third party between silos and
server: nobody, a shuffler, or a secure aggregator; A is the server's estimate of the sum over silos. All a simulation
needs, unless somebody looks at the messages, is the law of A(S(R(messages))) given that sum: `noise` where noise is
added to real numbers, `noisy_sum` where both are integers (`on_grid`).

Reference: Zhou & Chowdhury (2024), Section 4 and Algorithms 2, 4, 5-7; secure aggregation as in Chowdhury & Zhou
(2023).
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from fedbandit_jax.core import struct
from fedbandit_jax.privacy.noise import centred_binomial, discrete_gaussian
from fedbandit_jax.privacy.statistic import pack_users, packed_size


class Protocol:
    """A protocol. Subclass it, decorate with `@fb.pytree`, define `sum_std`, `noise` or `noisy_sum`, and R, S, A."""

    needs_users = False  # R works on the users in the node, not on their sum
    shows_sum = False  # whoever is not trusted sees A's output and nothing else
    on_grid = False  # messages and noise are integers
    width = 0  # most bits that a user sends for an entry, with `needs_users`

    def init(self, size: int) -> Any:
        """State before the first release of vectors of D = `size` entries."""
        del size
        return ()

    def noise(self, key: Array, k: Array, state: Any, x: Array, y: Array) -> tuple[Array, Any]:
        """Noise (D,) of the sum over silos, and the next state; the batch's users are x (B, d, M), y (B, M)."""
        raise NotImplementedError(f"{type(self).__name__}.noise")

    def noisy_sum(self, key: Array, k: Array, state: Any, total: Array, x: Array, y: Array) -> tuple[Array, Any]:
        """A(S(R(messages))) from the sum `total` (P, D) of all silos' messages, and the next state."""
        raise NotImplementedError(f"{type(self).__name__}.noisy_sum")

    def randomize(self, key: Array, silo: Array, k: Array, message: Any) -> Array:
        """R of one silo: (P, D) to what it sends; with `needs_users`, of the node's users (N, D) and a mask (N,)."""
        raise NotImplementedError(f"{type(self).__name__}.randomize")

    def third_party(self, key: Array, messages: Array) -> Array:
        """S: what all silos sent, leading axis M, to what the server is shown."""
        del key
        return messages

    def analyze(self, key: Array, k: Array, shown: Array) -> Array:
        """A: an estimate of the sum over silos, (P, D)."""
        del key, k
        return shown.sum(0)

    def uplink(self, k: Array, numbers: Array, size: int) -> tuple[Array | int, Array | int]:
        """Numbers that all silos send together at release k, and bits of each; `numbers` if each sends its message."""
        del k, size
        return numbers, 32

    def sum_std(self) -> float:
        """Standard deviation of an entry of `noise`, or a bound on it. On the host."""
        raise NotImplementedError(f"{type(self).__name__}.sum_std")


@struct.pytree
class SiloLocal(Protocol):
    """Each silo adds N(0, std_i^2) to its own messages; nobody else is trusted."""

    std: struct.Number  # (M,)

    def noise(self, key: Array, k: Array, state: Any, x: Array, y: Array) -> tuple[Array, Any]:
        """M independent Gaussians add up to one."""
        del k, y
        return jnp.linalg.norm(self.std) * jax.random.normal(key, (_size(x),)), state

    def randomize(self, key: Array, silo: Array, k: Array, message: Array) -> Array:
        """Algorithm 2, line 9."""
        del k
        return message + jnp.asarray(self.std)[silo] * jax.random.normal(key, message.shape)

    def sum_std(self) -> float:
        """Root of the sum of squares."""
        return float(np.linalg.norm(np.asarray(self.std, float)))


@struct.pytree
class SiloLocalMatrix(SiloLocal):
    """Each silo adds (N + N') / sqrt 2, N iid N(0, std_i^2), to the joint matrix of [x y]'[x y], whose y^2 nobody
    sends.

    On packed entries (see `encoding`): std on the bias, sqrt 2 std on all of the covariance.

    Reference: PRIVATIZER, Algorithm 2 of Dubey & Pentland (2020), lines 5-6.
    """

    def noise(self, key: Array, k: Array, state: Any, x: Array, y: Array) -> tuple[Array, Any]:
        """M independent Gaussians add up to one."""
        draw, state = SiloLocal.noise(self, key, k, state, x, y)
        return draw * matrix_weights(draw.shape[-1]), state

    def randomize(self, key: Array, silo: Array, k: Array, message: Array) -> Array:
        """Of one silo."""
        noise = SiloLocal.randomize(self, key, silo, k, jnp.zeros_like(message))
        return message + noise * matrix_weights(message.shape[-1])

    def sum_std(self) -> float:
        """Of the diagonal, the largest."""
        return math.sqrt(2) * SiloLocal.sum_std(self)


def matrix_weights(size: int) -> np.ndarray:
    """sqrt 2 on the d (d + 1) / 2 packed entries of the covariance, 1 on the d of the bias."""
    dim = (math.isqrt(8 * size + 9) - 3) // 2
    return np.where(np.arange(size) < size - dim, np.float32(math.sqrt(2)), np.float32(1))


@struct.pytree
class Shuffled(SiloLocal):
    """As `SiloLocal`, and a shuffler hides which silo sent which message (Theorem 5.3)."""

    def third_party(self, key: Array, messages: Array) -> Array:
        """A uniform permutation of the silos."""
        return jax.random.permutation(key, messages)


@struct.pytree
class Central(Protocol):
    """The server is trusted with the silos' sums and adds N(0, std^2) once (Shariff & Sheffet 2018)."""

    shows_sum = True

    std: struct.Number

    def noise(self, key: Array, k: Array, state: Any, x: Array, y: Array) -> tuple[Array, Any]:
        """One Gaussian."""
        del k, y
        return self.std * jax.random.normal(key, (_size(x),)), state

    def randomize(self, key: Array, silo: Array, k: Array, message: Array) -> Array:
        """Nothing is hidden from the server."""
        del key, silo, k
        return message

    def analyze(self, key: Array, k: Array, shown: Array) -> Array:
        """The noisy sum."""
        del k
        return shown.sum(0) + self.std * jax.random.normal(key, shown.shape[1:])

    def sum_std(self) -> float:
        """The server's."""
        return float(self.std)


@struct.pytree
class Local(Protocol):
    """Every user adds N(0, std^2) to her own statistics; not even her silo is trusted (Zheng et al. 2020)."""

    std: struct.Number
    batch: int = struct.static()
    n_agents: int = struct.static()

    def noise(self, key: Array, k: Array, state: Any, x: Array, y: Array) -> tuple[Array, Any]:
        """M B independent Gaussians add up to one."""
        del k, y
        return self.std * np.sqrt(self.n_agents * self.batch) * jax.random.normal(key, (_size(x),)), state

    def randomize(self, key: Array, silo: Array, k: Array, message: Array) -> Array:
        """The silo adds up what its B users sent."""
        del silo, k
        return message + self.std * jax.random.normal(key, (self.batch, *message.shape)).sum(0)

    def uplink(self, k: Array, numbers: Array, size: int) -> tuple[Array | int, Array | int]:
        """Every user sends."""
        del k, size
        return numbers * self.batch, 32

    def sum_std(self) -> float:
        """Of all users of a batch."""
        return float(self.std) * (self.n_agents * self.batch) ** 0.5


@struct.pytree
class SecAgg(Protocol):
    """Secure aggregation: the server sees the sum of the silos' messages modulo 2^32 and nothing else.

    Each silo rounds scale * message at random to an integer next to it and adds a discrete Gaussian with 1/M of the
    variance that the sum needs. Ours, beyond the papers: the noise of the central model without a trusted server.
    """

    shows_sum = True
    on_grid = True

    share: struct.Number  # parameter sigma of one silo's discrete Gaussian, in units of 1 / scale
    scale: struct.Number  # steps per unit
    n_agents: int = struct.static()

    def noisy_sum(self, key: Array, k: Array, state: Any, total: Array, x: Array, y: Array) -> tuple[Array, Any]:
        """M discrete Gaussians add up to one of M times the variance, up to a factor e^xi (see `quantised`).

        The sum is rounded once instead of M times, which leaves out at most M/4 of a variance of M share^2.
        """
        del k, x, y
        rounding, noise = jax.random.split(key)
        draws = discrete_gaussian(noise, self.share * np.sqrt(self.n_agents), total.shape)
        return (_round(rounding, total * self.scale) + draws) / self.scale, state

    def randomize(self, key: Array, silo: Array, k: Array, message: Array) -> Array:
        """Integers modulo 2^32, (P, D) uint32."""
        del silo, k
        rounding, noise = jax.random.split(key)
        encoded = _round(rounding, message * self.scale).astype(jnp.int32)
        return (encoded + discrete_gaussian(noise, self.share, message.shape)).astype(jnp.uint32)

    def third_party(self, key: Array, messages: Array) -> Array:
        """The sum modulo 2^32 is all that leaves the aggregator, (P, D) uint32."""
        del key
        return messages.sum(0, dtype=jnp.uint32)

    def analyze(self, key: Array, k: Array, shown: Array) -> Array:
        """Residues of 2^31 and more are negative numbers."""
        del key, k
        return lax.bitcast_convert_type(shown, jnp.int32) / self.scale

    def sum_std(self) -> float:
        """Of the sum, with M roundings at their worst."""
        return float(np.sqrt(self.n_agents * (float(self.share) ** 2 + 1 / 4)) / float(self.scale))


@struct.pytree
class VectorSum(Protocol):
    """P_Vec, Algorithms 6 and 7: every user sends, for every entry, a few bits that a shuffler mixes with all others'.

    In a node of level l with n = M B 2^l users an entry w in [-1, 1] becomes floor(z) + Bernoulli(z - floor(z)) ones,
    z = (w + 1) g_l, plus Binomial(b_l, 1/2) ones, in 2 g_l + b_l bits; the server counts ones: (Y - b n / 2) / g - n.

    # DEVIATION zhou2024 Alg. 6: the d(d+1)/2 entries of the matrix above the diagonal are scaled by sqrt 2
    (`encoding`).
    """

    needs_users = True
    on_grid = True

    g: struct.Number  # (L,) steps per unit at each level
    b: struct.Number  # (L,) noise bits at each level
    n_batch: int = struct.static()  # M B, users of a batch
    exact: bool = struct.static()  # is a binomial of these sizes too small for its normal limit?
    width: int = struct.static()  # largest 2 g + b

    def init(self, size: int) -> Array:
        """Variance of the rounding in the live node of every level, in units of 1/g^2, (L, D)."""
        return jnp.zeros((len(self.g), size))

    def noisy_sum(self, key: Array, k: Array, state: Array, total: Array, x: Array, y: Array) -> tuple[Array, Any]:
        """Binomial noise, and the users' roundings in their normal limit, with the variance that these users give."""
        g = jnp.asarray(self.g)
        z = (pack_users(x, y) + 1) * g[:, None, None, None]
        fraction = z - jnp.floor(z)
        rounding = state + (fraction * (1 - fraction)).sum((1, 3))
        level, n = self._node(k)
        binomial, normal, last = jax.random.split(key, 3)
        draws = centred_binomial(binomial, n * jnp.asarray(self.b)[level], total.shape, exact=self.exact)
        spread = jnp.sqrt(jnp.maximum(rounding[level] - 1 / 6, 0))  # 1/6 is that of the last rounding, on average
        counts = _round(last, total * g[level] + spread * jax.random.normal(normal, total.shape)) + draws
        ended = k % (1 << jnp.arange(len(rounding))) == 0
        return counts / g[level], jnp.where(ended[:, None], 0, rounding)

    def randomize(self, key: Array, silo: Array, k: Array, message: tuple[Array, Array]) -> Array:
        """Bits (N, D, width) int8; those that are not sent are -1."""
        del silo
        users, inside = message
        level, _ = self._node(k)
        g, b = jnp.asarray(self.g)[level], jnp.asarray(self.b)[level]
        z = (users + 1) * g
        rounding, noise = jax.random.split(key)
        ones = jnp.floor(z) + jax.random.bernoulli(rounding, z - jnp.floor(z))
        place = jnp.arange(self.width)
        data = place < ones[..., None]
        flips = jax.random.bernoulli(noise, 0.5, (*users.shape, self.width))
        bits = jnp.where(place < 2 * g, data, flips)
        sent = inside[:, None, None] & (place < 2 * g + b)
        return jnp.where(sent, bits, -1).astype(jnp.int8)

    def third_party(self, key: Array, messages: Array) -> Array:
        """The bits of all silos and users, mixed entry by entry: (D, M N width)."""
        m, n, size, width = messages.shape
        bits = jnp.moveaxis(messages, 2, 0).reshape(size, m * n * width)
        return jax.random.permutation(key, bits, axis=1, independent=True)

    def analyze(self, key: Array, k: Array, shown: Array) -> Array:
        """Count the ones."""
        del key
        level, n = self._node(k)
        g, b = jnp.asarray(self.g)[level], jnp.asarray(self.b)[level]
        return (((shown == 1).sum(-1) - b * n / 2) / g - n)[None]

    def uplink(self, k: Array, numbers: Array, size: int) -> tuple[Array | int, Array | int]:
        """Every user of the node sends every entry."""
        del numbers
        level, n = self._node(k)
        return n * size, (2 * jnp.asarray(self.g) + jnp.asarray(self.b))[level]

    def sum_std(self) -> float:
        """The largest over levels, with the rounding at its worst."""
        g, b = np.asarray(self.g, float), np.asarray(self.b, float)
        n = self.n_batch * 2.0 ** np.arange(len(g))
        return float((np.sqrt(n * (b + 1) / 4) / g).max())

    def _node(self, k: Array) -> tuple[Array, Array]:
        """Level of the node that release k completes, and how many users are in it."""
        level = jnp.bitwise_count((k & -k) - 1).astype(jnp.int32)  # it counts in uint8
        return level, self.n_batch * jnp.exp2(level.astype(jnp.float32))  # integers would wrap


def _round(key: Array, x: Array) -> Array:
    """At random to one of the two integers around x, with mean x."""
    return jnp.floor(x + jax.random.uniform(key, x.shape))


def _size(x: Array) -> int:
    return packed_size(x.shape[-2])
