"""Status bits, which say why the results of a seed are unreliable, and what to do.

This module does not import JAX.
"""

import enum


class Status(enum.IntFlag):
    """Status bits of one seed, combined with `|`: each is a reason not to trust its results; `OK` (0): none is set.

    Attributes:
        NO_ESTIMATE: agents kept their previous estimate, since releases gave none.
        NOT_FINITE: a regret was infinite or not a number.
        OUTSIDE_SPEC: an arm, user, arrival, reward or feature vector violated the environment's spec, a gap was below
            0, or a log had no rows left.

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
        """Returns one sentence for every set bit: what happened, and what to do."""
        return [f"{bit.name}: {_MEANING[bit]}" for bit in Status if bit and bit in self]


_MEANING = {
    Status.NO_ESTIMATE: (
        "the regularised matrix V was not positive definite, or the statistics were not finite, and agents kept their "
        "previous estimate: regularise more, or project releases (regularizer='project', or fb.linalg.project in your "
        "own policy)."
    ),
    Status.NOT_FINITE: (
        "a regret was infinite or not a number: check the means of the environment, and what the algorithm computes "
        "from its rewards."
    ),
    Status.OUTSIDE_SPEC: (
        "an arm, user, arrival, reward or feature vector violated the environment's spec, and was clipped, scaled or "
        "dropped, so privacy does not depend on it: correct the environment, its spec, or the algorithm that chose the "
        "arm (an index that is not a number chooses none). Or a gap was below 0: it is the largest mean reward offered "
        "minus that of the played arm. Or a silo had no rows of its log left, since fb.envs.rejection offers each "
        "once: play fewer rounds."
    ),
}
