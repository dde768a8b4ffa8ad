"""Padding of arrays with a row for every synchronisation, so that one compiled program serves other horizons, too."""

import numpy as np


def room(n: int) -> int:
    """The least power of two above n, as the number of rows that n rows are padded to.

    >>> room(255), room(256)
    (256, 512)
    """
    return 1 << int(n).bit_length()


def padded(rows: np.ndarray, least: int = 1) -> np.ndarray:
    """An array (n, ...) with its last row repeated up to `room` (n) rows, or `least`; an empty one as it is.

    >>> padded(np.array([3, 2, 1])).tolist()
    [3, 2, 1, 1]
    """
    more = max(room(len(rows)), least) - len(rows)
    return np.concatenate([rows, np.repeat(rows[-1:], more, axis=0)]) if len(rows) else rows
