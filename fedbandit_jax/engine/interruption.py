"""Ctrl-C and SIGTERM, held back while something is done that must be finished, such as writing a checkpoint."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Any

STOPS = (signal.SIGINT, signal.SIGTERM)


class Interruption:
    """A block in which signals take effect only inside `allowed`, and only once.

    A signal that comes elsewhere waits for the next such stretch, or for the end of the block. Once one has ended a
    stretch, by raising an exception, others are ignored to the end of the block, which can finish what it was doing.

    What a signal does is what it did before: `KeyboardInterrupt` after Ctrl-C, or what a handler of the user's does.
    SIGTERM, if it would end the process on the spot, raises `SystemExit` with the customary code 143. Python has
    handlers of signals in its main thread only; in others nothing changes.

    Args:
        signals: which ones; none of them changes nothing.
    """

    def __init__(self, signals: Sequence[signal.Signals] = STOPS):
        self._signals = signals
        self._before: dict[int, Any] = {}  # handlers
        self._open, self._waiting = False, 0  # 0: none

    def __enter__(self) -> Interruption:
        if threading.current_thread() is threading.main_thread():
            found = {number: signal.getsignal(number) for number in self._signals}
            self._before = {n: handler for n, handler in found.items() if handler not in (signal.SIG_IGN, None)}
        for number in self._before:
            signal.signal(number, self._arrived)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: Any) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self._waiting and not (kind and issubclass(kind, (KeyboardInterrupt, SystemExit))):
            self._take_effect(self._waiting, None)

    @contextlib.contextmanager
    def allowed(self) -> Iterator[None]:
        """A stretch of the block in which signals take effect, those that have been waiting as well."""
        try:
            self._open = True
            if self._waiting:
                number, self._waiting = self._waiting, 0
                self._arrived(number, None)
            yield
        finally:
            self._open = False

    def _arrived(self, number: int, frame: FrameType | None) -> None:
        if not self._open:
            self._waiting = self._waiting or number
            return
        self._open = False  # before anything is raised, so that no other one disturbs what this one leads to
        self._take_effect(number, frame)
        self._open = True  # a handler of the user's took note, and goes on

    def _take_effect(self, number: int, frame: FrameType | None) -> None:
        handler = self._before[number]
        if callable(handler):
            handler(number, frame)
        else:
            raise SystemExit(128 + number)
