"""Status bits, which say why the results of a seed must not be trusted, and what to do about it.

This module does not import JAX.
"""

import enum


class Status(enum.IntFlag):
    """Status bits of one seed, combined with `|`: each is a reason not to trust its results; `OK` (0): none is set.

    Attributes:
        NO_ESTIMATE: agents kept their previous estimate, as none could be computed from what was released.
        NOT_FINITE: a regret was infinite or not a number.
        OUTSIDE_SPEC: an arm, user, arrival, reward or feature vector was outside what the environment's spec declares,
            a gap was below 0, or a log had no rows left.

    Example:
        >>> print(*(Status.NO_ESTIMATE | Status.NOT_FINITE).sentences(), sep="\\n")  # doctest: +ELLIPSIS
        NO_ESTIMATE: the regularised matrix V was not positive definite, ...
        NOT_FINITE: a regret was infinite or not a number: ...
    """

    OK = 0
    NO_ESTIMATE = 1
    NOT_FINITE = 2
    OUTSIDE_SPEC = 4

    def sentences(self) -> list[str]:
        """One sentence for every bit that is set: what happened, and what to do about it."""
        return [f"{bit.name}: {_MEANING[bit]}" for bit in Status if bit and bit in self]


_MEANING = {
    Status.NO_ESTIMATE: (
        "the regularised matrix V was not positive definite, or the statistics were not finite, and agents kept their "
        "previous estimate: regularise more, or project what was released (regularizer='project', or fb.linalg.project "
        "in a policy of your own)."
    ),
    Status.NOT_FINITE: (
        "a regret was infinite or not a number: look at the means of the environment, and at what the algorithm "
        "computes from its rewards."
    ),
    Status.OUTSIDE_SPEC: (
        "an arm, a user, an arrival, a reward or a feature vector was not what the environment's spec declares, and "
        "was clipped, scaled or left out, so that privacy does not depend on it: correct the environment, its spec, or "
        "the algorithm that chose the arm (an index that is not a number chooses none). Or a gap was below 0: it is "
        "the largest mean reward offered, less that of the arm played. Or a silo had no rows of its log left, as "
        "fb.envs.rejection offers each once: play fewer rounds."
    ),
}
