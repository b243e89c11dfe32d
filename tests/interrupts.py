"""Interrupts: Ctrl-C in the middle of a call, for tests of what may wait."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

AGAIN_S = 0.2


@contextmanager
def interrupted(when: Callable[[], object]) -> Iterator[None]:
    """The block ends by a `KeyboardInterrupt`, which comes once `when` has returned in another thread.

    It is pressed until it is heard: one that comes after Python looked for signals and before it waits for a
    lock is heard at the end of that wait only.
    """
    heard = threading.Event()
    main = threading.main_thread().ident
    assert main is not None

    def hear(*_: object) -> None:
        if not heard.is_set():
            heard.set()
            raise KeyboardInterrupt

    def press() -> None:
        when()
        while not heard.is_set():
            signal.pthread_kill(main, signal.SIGINT)
            heard.wait(AGAIN_S)

    before = signal.signal(signal.SIGINT, hear)
    other = threading.Thread(target=press)
    other.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            yield
    finally:
        heard.set()
        other.join()
        signal.signal(signal.SIGINT, before)
