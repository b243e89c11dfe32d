"""Task errors: an error of ours that was raised in a worker of Spark, found again in what Spark makes of it.

In      the exception that a Spark action raised on the driver, with a worker's traceback in its text
Out     the error as it was raised, with its class and exit code; a `BinlogError` for what users can do
        something about; None for all else
Why     workers are other processes: Spark carries their errors as text. What is read is the class's qualified
        name in front of the text, which Python writes; the words of an error decide nothing
"""

from __future__ import annotations

import re
import sys
from typing import Final

from common import errors
from common.errors import BinlogError, ConfigError, Unavailable

_RAISED: Final = re.compile(r"^((?:common|drainer)(?:\.\w+)+)\.(\w+): ", re.M)
_END: Final = re.compile(
    # the next traceback, the JVM's stack, or how pyspark ends a message
    r"\n(?=\s*at [\w.$/]+\(|\nDuring handling|\nThe above exception|Traceback \(most recent|"
    r"Driver stacktrace|JVM stacktrace|SQLSTATE|=== )"
)
_SQLSTATE: Final = re.compile(r"\.? SQLSTATE: \w{5}$")
_IS_THERE: Final = "[PATH_ALREADY_EXISTS] Path "
_EXECUTORS_GONE: Final = re.compile(r"ExecutorLostFailure|All masters are unresponsive|Could not connect to")


def translated(error: BaseException) -> BinlogError | None:
    """What to tell the user for this exception."""
    if isinstance(error, BinlogError):
        return error
    text = str(error)
    found = list(_RAISED.finditer(text))
    if found:
        return _as_raised(found[-1], text)
    if _EXECUTORS_GONE.search(text):
        return Unavailable(
            f"the Spark cluster lost this job: {text.splitlines()[0]}",
            hint="look into the executors' logs (memory is the usual cause), then run the same command again",
        )
    if text.startswith(_IS_THERE):
        path = text.removeprefix(_IS_THERE).partition(" already exists")[0]
        return ConfigError(f"{path} is there already", hint="name another directory")
    return None


def _as_raised(found: re.Match[str], text: str) -> BinlogError:
    """The last one: in a chain of causes Python writes the one that came through last."""
    kind = _kind(found[1], found[2])
    rest = text[found.end() :]
    end = _END.search(rest)
    message = rest[: end.start()] if end else rest
    return kind(_SQLSTATE.sub("", message.strip()).strip())


def _kind(module: str, name: str) -> type[BinlogError]:
    """The class itself, without importing what a text names: what is not loaded is a plain error."""
    kind = getattr(sys.modules.get(module, errors), name, BinlogError)
    return kind if isinstance(kind, type) and issubclass(kind, BinlogError) else BinlogError
