"""Programs: starts a command where the packages that it needs are there.

Out  an error of one line and exit status 1 where a package of the extra is missing, or where a module of an
     application hides one of ours
Why  nothing but the standard library and the release is imported here: a module that needs a package which is
     not installed must be able to say so
Tests  tests/deploy/test_programs.py
"""

from __future__ import annotations

import gc
import importlib
import io
import sys
from typing import Final, NoReturn

from tidb_binlog import version
from tidb_binlog.process.garbage import collect_rarely

OWN: Final = frozenset(
    {"tidb_binlog", "pump", "pumpclient", "drainer", "binlogctl", "binlog_playground", "binlog_testing"}
)
WRONG_CONFIGURATION: Final = 1
_VERSION: Final = frozenset({"-V", "--V", "-version", "--version"})


def run(program: str, module: str, extra: str) -> NoReturn:
    """Call `main` of `module`; ends the process where something cannot be imported."""
    asked = set(sys.argv[1:])
    if asked and asked <= _VERSION:  # needs no import at all
        sys.stdout.write(version.text())
        sys.exit(0)
    _use_utf8()
    gc.disable()  # a tenth of the imports' time, and what they make stays
    try:
        main = importlib.import_module(module).main
        collect_rarely()
        gc.enable()
        sys.exit(main())
    except ImportError as error:
        missing = (error.name or "").partition(".")[0]
        if not missing or missing in sys.stdlib_module_names:
            raise
        if missing in OWN:
            why = hidden(missing)
            if not why:
                raise
        elif asked & _VERSION:
            sys.stdout.write(version.text())
            sys.exit(0)
        else:
            why = f"the package {missing} is missing (pip install 'tidb-binlog[{extra}]')"
        sys.stderr.write(f"{program}: error: {why}\n")
        sys.exit(WRONG_CONFIGURATION)


def _use_utf8() -> None:
    """Files and pipes get UTF-8 in any locale, as from the Go programs; a terminal shows its own characters,
    and escapes in place of others."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        encoding = sys.stdout.encoding if sys.stdout.isatty() else "utf-8"
        sys.stdout.reconfigure(encoding=encoding, errors="backslashreplace")


def hidden(package: str) -> str:
    """What hides a package of ours from Python, in words; "": nothing does."""
    from importlib.util import find_spec
    from pathlib import Path

    spec = find_spec(package)
    if spec is None or not spec.origin or Path(spec.origin).with_name("py.typed").exists():
        return ""
    return f"{spec.origin} hides the package `{package}`: rename it, or put it into a package of your own"
