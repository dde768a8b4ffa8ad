"""Padding of arrays with a row for every synchronisation, so one compiled program serves several horizons."""

import numpy as np


def room(n: int) -> int:
    """Returns the least power of two above n, the padded number of rows.

    >>> room(255), room(256)
    (256, 512)
    """
    return 1 << int(n).bit_length()


def padded(rows: np.ndarray, least: int = 1) -> np.ndarray:
    """Repeats the last row of an array (n, ...) up to `room(n)` rows, or `least`; an empty array is unchanged.

    >>> padded(np.array([3, 2, 1])).tolist()
    [3, 2, 1, 1]
    """
    more = max(room(len(rows)), least) - len(rows)
    return np.pad(rows, [(0, more), *[(0, 0)] * (rows.ndim - 1)], "edge") if len(rows) else rows
