"""Padding of what has a row for every synchronisation, so that one compiled program serves other horizons, too."""

import numpy as np


def room(n: int) -> int:
    """The least power of two above n, as the number of rows that n rows are padded to.

    >>> room(255), room(256)
    (256, 512)
    """
    return 1 << int(n).bit_length()


def padded(rows: np.ndarray) -> np.ndarray:
    """An array (n, ...) with its last row repeated up to `room` (n) rows; one without rows is returned as it is.

    >>> padded(np.array([3, 2, 1])).tolist()
    [3, 2, 1, 1]
    """
    return rows if not len(rows) else np.concatenate([rows, np.repeat(rows[-1:], room(len(rows)) - len(rows), axis=0)])
