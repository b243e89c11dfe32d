"""Which build this is: what `-V` prints and what daemons log at start.

Tests  tests/common/config/test_loading.py
"""

from __future__ import annotations

import functools
import importlib.metadata
import platform

DISTRIBUTION = "tidb-binlog"


@functools.cache  # `/status` says it each time, and the metadata is a file to be read and parsed
def release() -> str:
    """Version of the installed distribution, `unknown` when run from a tree that was never installed."""
    try:
        return f"v{importlib.metadata.version(DISTRIBUTION)}"
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def fields() -> dict[str, str]:
    """Build facts in the order in which they are printed."""
    return {
        "Release Version": release(),
        "Python Version": platform.python_version(),
        "Python OS/Arch": f"{platform.system().lower()}/{platform.machine()}",
    }


def text() -> str:
    """The lines of `-V`; old scripts look for `Release Version: `."""
    return "".join(f"{name}: {value}\n" for name, value in fields().items())
