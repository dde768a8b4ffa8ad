"""Why a seed must not be trusted: status bits, what each means and what to do about it. No JAX here."""

import enum


class Status(enum.IntFlag):
    """Why a seed must not be trusted; bits are combined.

    >>> print(*(Status.NO_ESTIMATE | Status.NOT_FINITE).sentences(), sep="\\n")  # doctest: +ELLIPSIS
    NO_ESTIMATE: the regularised matrix V was not positive definite, ...
    NOT_FINITE: a regret was infinite or not a number: ...
    """

    OK = 0
    NO_ESTIMATE = 1
    NOT_FINITE = 2
    OUTSIDE_SPEC = 4

    def sentences(self) -> list[str]:
        """One for every bit that is set."""
        return [f"{bit.name}: {_MEANING[bit]}" for bit in Status if bit and bit in self]


_MEANING = {
    Status.NO_ESTIMATE: (
        "the regularised matrix V was not positive definite, or the statistics were not finite, and agents kept their "
        "previous estimate: regularise more, or project what was released (regularizer='project')."
    ),
    Status.NOT_FINITE: (
        "a regret was infinite or not a number: look at the means of the environment, and at what the algorithm "
        "computes from its rewards."
    ),
    Status.OUTSIDE_SPEC: (
        "an arm, a user, a reward or a feature vector was not what the environment's spec declares, and was clipped, "
        "scaled or left out, so that privacy does not depend on it: correct the environment, its spec, or the "
        "algorithm that chose the arm."
    ),
}
