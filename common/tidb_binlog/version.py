"""Which release this is: what `-V` prints, daemons log at start and packages are built as.

Why    the number stands in the code and packaging reads it from here: a tree that was never installed, or the
       zip on a Spark executor, knows its release as an installed one does
Tests  tests/deploy/test_release.py, tests/common/config/test_loading.py
"""

from __future__ import annotations

import platform
from typing import Final

DISTRIBUTION: Final = "tidb-binlog"
VERSION: Final = "1.0.0"
"""By semantic versioning; CHANGELOG.md says what each release brought."""


def release() -> str:
    return f"v{VERSION}"


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
