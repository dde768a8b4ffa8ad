"""The proof of private sums of rewards: the certificate of a protocol, for a user in one sum or in several.

Certificates also state epsilon for a user in n different sums. Visits to the same sum are not covered. All of this is
computed on the host.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np

from fedbandit_jax.certificate import Certificate, no_privacy
from fedbandit_jax.core import struct
from fedbandit_jax.privacy import tails
from fedbandit_jax.privacy.accounting.visits import PureDP, Renyi, returning
from fedbandit_jax.privacy.bound import VISIT_TIMES
from fedbandit_jax.privacy.integers.ring import NOT_COVERED, RingSum
from fedbandit_jax.privacy.users import ONCE, Users, objection_to

ORDERS = (2, 4, 8, 16, 32, 64)  # orders alpha at which a certificate lists the Renyi divergence
VISITS = (10, 100)  # numbers of visits, each in another sum, for which a certificate states epsilon
ROOM = 1e-9  # relative excess of epsilon by rounding in float64


def certificate_of_sums(
    protocol: RingSum, epsilon: float, delta: float, unit: Users | None = None, again: bool = False
) -> Certificate:
    """Returns the certificate of all batches that `admits` lets in, on the host.

    Args:
        protocol: the sums, whose class is sealed.
        epsilon: the epsilon asked for; the claim is `none` if the noise spends more.
        delta: states (epsilon, delta) in addition to the noise's own notion of privacy. The claim is `none` if the
            tails that are never drawn cost more, also for pure DP.
        unit: bounds on the sums that one user is in, of different batches, which share epsilon. None: one sum, and
            the certificate lists what more of them prove.
        again: whether the environment's users return.
    """
    if not struct.is_sealed(protocol.noise):
        own = type(protocol.noise).__name__
        return no_privacy(f"nothing is proved of {own}, a user-defined noise")
    if unit is not None and (wrong := objection_to(unit)):
        return no_privacy(wrong)
    if unit is not None and (unit.most > 1 or unit.counts > 1):
        return no_privacy(f"sums of arms have no proof for users who contribute {unit.sentence}")
    if not any(protocol.noise.width(k) for k in range(len(protocol.users))):
        return no_privacy("the algorithm adds no noise")
    asked = np.flatnonzero(protocol.users).tolist()
    if not asked:
        reason = "nothing is released, because the horizon ends before the first batch of all arms"
        return Certificate(claim="certified", reason=reason, not_covered=NOT_COVERED)
    try:
        return _proved(protocol, asked, epsilon, delta, unit, again)
    except (ValueError, ArithmeticError, IndexError) as error:  # the accountants refuse its numbers
        return no_privacy(f"nothing is proved of this noise: {error}")


def _proved(
    protocol: RingSum, asked: list[int], epsilon: float, delta: float, unit: Users | None, again: bool
) -> Certificate:
    noise, shuffled = protocol.noise, float(protocol.noise.bits_epsilon)
    pure, r = noise.notion == "pure DP", 1 if unit is None else unit.visits
    of_sum, missing = epsilon_of_each(epsilon, r, pure), r * protocol.missing
    sizes, proofs = [protocol.sizes(k) for k in asked], [protocol.proof(k) for k in asked]
    stds, bits = protocol.stds()[asked].tolist(), np.asarray(protocol.bits)[asked]
    zcdp = max((proof.zcdp for proof in proofs if proof.zcdp), default=None)
    spent = max(steps / noise.width(k) for k, (_, steps, _) in zip(asked, sizes)) + shuffled
    exact = max(proof.pure if pure else tails.epsilon(proof.at, delta, 0.0, protocol.missing) for proof in proofs)
    curve = Renyi(functools.cache(lambda alpha: max(proof.renyi(alpha) for proof in proofs)))  # asked at few orders
    known = [curve, PureDP(exact)] if pure else [curve]
    if unit is not None:
        exact = r * exact if pure else of_visits(known, r, delta, protocol.missing)[2]
    smallest, reason = tails.smallest_delta(exact, missing), ""
    if not spent <= of_sum * (1 + ROOM):
        reason = f"the noise is for {noise.notion} with epsilon = {spent:g}, more than the {of_sum:g} asked for"
    elif not smallest < delta:
        ideal = exact if math.isfinite(exact) else min(returning(curve, delta, r))
        reason = tails.sentence(tails.smallest_delta(ideal, missing), ideal, delta)
    sums = "one sum" if unit is None else f"{r} sums at most"
    proved = f"every sum that leaves the protocol has noise of a known distribution, and each user is in {sums}"
    return Certificate(
        claim="none" if reason else "certified",
        reason=reason or proved,
        adjacency="replace (one user's reward replaced by any other in [0, 1])",
        neighbours="replace",
        unit=(unit or ONCE).unit(enforced=again and unit is not None, returning=again)
        + "; the line visits covers more" * (unit is None),
        whole_user=unit is not None or not again,
        trust=noise.trust,
        trusted=noise.trusted,
        notion=noise.notion,
        epsilon=epsilon,
        delta=0.0 if pure else delta,
        epsilon_exact=exact,
        smallest_delta=smallest,
        accountant=f"exact distribution of the noise{' modulo m' if pure else ', smallest of several bounds'}"
        + (f"; {shuffled:g} of epsilon is for the shuffled bits" if shuffled else ""),
        noise_std=max(std / math.sqrt(n) if noise.per_user else std for std, (n, _, _) in zip(stds, sizes)),
        noise_whose="of a user's message" if noise.per_user else "of an arm's sum of rewards",
        server_noise_std=max(stds),
        releases=len(asked),
        releases_per_user=float(r),
        renyi=tuple((float(alpha), r * curve.curve(alpha)) for alpha in ORDERS),
        zcdp=(r * zcdp.rho, r * zcdp.xi) if zcdp else None,
        visits=tuple(of_visits(known, n, delta, protocol.missing) for n in VISITS) if unit is None else (),
        bits_per_user=(float(bits.min()), float(bits.max())),
        wrap_probability=max(map(protocol.failure, asked)),
        not_covered=(*[VISIT_TIMES] * (unit is not None and again), *protocol.not_covered),
    )


def epsilon_of_each(epsilon: float, visits: int, pure: bool) -> float:
    """Returns the epsilon of one of r = `visits` sums that share epsilon: epsilon / r for pure DP.

    Renyi divergences of alpha epsilon^2 / 2, and rho = epsilon^2 / 2, add up to the values for sqrt(r) epsilon.
    """
    return epsilon / (visits if pure else math.sqrt(visits))


def of_visits(
    proofs: Sequence[PureDP | Renyi], n: int, delta: float, missing: float
) -> tuple[int, float, float, float]:
    """Returns n, delta, and the epsilon that any of these proofs of one sum gives for n sums, by both rules.

    The rules are as in `returning`. `missing` is the mass of the tails that are never drawn, for one sum. It
    costs more delta for a larger epsilon.
    """

    @functools.cache  # tails may cost less than a digit
    def known(delta: float) -> tuple[float, float]:
        together, advanced = zip(*(returning(proof, delta, n) for proof in proofs))
        return min(together), min(advanced)

    def least(rule: int) -> float:
        return tails.epsilon(lambda delta: known(delta)[rule], delta, 0.0, n * missing)

    return n, delta, least(0), least(1)
