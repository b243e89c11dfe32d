"""Terminal line: one line on standard error that is written over.

Apart from `progress_line`, because rich costs a start a tenth of a second, and few drainers are started on
a terminal.
"""

from __future__ import annotations

from rich.console import Console
from rich.live import Live
from rich.text import Text

from common.observe.printable import one_line


class TerminalLine:
    """There from `show` until `clear`."""

    def __init__(self) -> None:
        self._live: Live | None = None

    def show(self, text: str) -> None:
        if self._live is None:
            self._live = Live(console=Console(stderr=True), auto_refresh=False, transient=True)
            self._live.start()
        self._live.update(Text(one_line(text), overflow="ellipsis", no_wrap=True), refresh=True)

    def clear(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None
