"""What can go wrong, as a tree. The text of an error is never inspected; its class decides.

    BinlogError            message says what and where; `hint` says what to do next
    ├── Unavailable        the other side does not answer now: retry with backoff
    ├── Rejected           it answered no: do not retry here
    ├── Conflict           it was changed meanwhile: read again, then decide
    ├── Corruption         stored or received bytes are wrong: stop, an operator decides
    ├── DownstreamError    the downstream refused a statement: stop with the checkpoint before it
    └── ConfigError        the configuration is wrong: nothing was started
        ├── FlagError      a command line that cannot be read
        ├── PortTaken      another process listens on the address already
        ├── DirectoryLocked   another process works in the data directory
        └── ForeignDirectory  the data directory belongs to another cluster

Each class has its own process exit code (`exit_code`), documented in docs/exit-codes.md.
"""

from __future__ import annotations

from typing import ClassVar


class BinlogError(Exception):
    """Root of all errors that an operator may see. `hint` names the next thing to do."""

    exit_code: ClassVar[int] = 2

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class ConfigError(BinlogError):
    """Wrong configuration; the process does not start."""

    exit_code = 1


class FlagError(ConfigError):
    """A command line that cannot be read (the Go programs' exit code for it)."""

    exit_code = 2


class PortTaken(ConfigError):
    """The address to listen on is taken or is not ours."""

    exit_code = 8


class DirectoryLocked(ConfigError):
    """Another process works in the data directory."""

    exit_code = 9


class ForeignDirectory(ConfigError):
    """The data directory holds another cluster's data."""

    exit_code = 10


class Unavailable(BinlogError):
    """The peer does not answer now. Callers retry with backoff."""

    exit_code = 3


class Rejected(BinlogError):
    """The peer answered no. Repeating the same request to it is pointless."""

    exit_code = 4


class Conflict(BinlogError):
    """Compare-and-set lost, or a newer epoch owns the resource."""

    exit_code = 5


class Corruption(BinlogError):
    """Bytes that must not be like this. Nothing after them is trusted until an operator decides."""

    exit_code = 6


class DownstreamError(BinlogError):
    """The downstream refused a statement for good (login, DDL, value)."""

    exit_code = 7
