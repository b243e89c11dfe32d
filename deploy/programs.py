"""Programs: what the installed commands start, where the packages that they need are there.

In   the name of a command's module and the extra that it needs
Out  an error of one line and exit status 1 where a package of the extra is missing
Why  nothing but the standard library and the release is imported here: a module that needs a package which is
     not installed must be able to say so
"""

from __future__ import annotations

import importlib
import sys
from typing import Any, Final

from common import version

OWN: Final = frozenset({"common", "pump", "pumpclient", "drainer", "deploy"})
WRONG_CONFIGURATION: Final = 1
_VERSION: Final = frozenset({"-V", "--V", "-version", "--version"})


def run(program: str, module: str, extra: str) -> Any:
    """Call `main` of `module`; ends the process where something cannot be imported for want of a package."""
    try:
        return importlib.import_module(module).main()
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if not missing or missing in OWN or missing in sys.stdlib_module_names:
            raise
        if set(sys.argv[1:]) & _VERSION:
            sys.stdout.write(version.text())
            sys.exit(0)
        sys.stderr.write(
            f"{program}: error: the package {missing} is missing (pip install 'tidb-binlog[{extra}]')\n"
        )
        sys.exit(WRONG_CONFIGURATION)


def pump() -> Any:
    return run("pump", "pump.__main__", "server")


def drainer() -> Any:
    return run("drainer", "drainer.__main__", "server")


def binlogctl() -> Any:
    return run("binlogctl", "deploy.ctl.__main__", "server")


def reparo() -> Any:
    return run("reparo", "drainer.reparo.__main__", "server")


def binlog_spark() -> Any:
    return run("binlog-spark", "drainer.spark.__main__", "spark")


def binlog_playground() -> Any:
    return run("binlog-playground", "deploy.playground.__main__", "playground")
