"""A node as a process that measures itself."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.attacks.measured.__main__ import measured
from tests.forked import Forked
from tests.pump.support.process import PumpProcess

CALLBACK_S_MAX: Final = 0.1
"""CPU of one callback of the event loop: all others wait for it."""


class MeasuredNode(PumpProcess):
    """`program` is `pump` or `drainer`."""

    def __init__(
        self, program: str, directory: Path, etcd: str, free_port: Callable[[], int], *flags: str
    ) -> None:
        super().__init__(directory / program, etcd, free_port, *flags)
        self._program = program
        self._before_mib = 0.0

    def start(self, *flags: str) -> None:
        self.child = Forked("tests.attacks.measured", [self._program, *self.arguments, *flags], self.log)

    def begin(self) -> None:
        """What is measured begins here."""
        assert self.child is not None
        self._before_mib = self.memory_mib("VmRSS")
        os.kill(self.child.pid, signal.SIGUSR1)

    @property
    def grown_mib(self) -> float:
        """At most, since then."""
        return self.memory_mib("VmHWM") - self._before_mib

    def check_stop(self) -> None:
        """It ends in order, and no callback was long."""
        assert self.stop() == 0
        said = measured(self.log)
        print(said)
        assert said.callbacks > 1000
        assert said.longest_s < CALLBACK_S_MAX, said
