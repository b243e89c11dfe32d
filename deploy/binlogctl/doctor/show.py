"""Show: the report for people and for programs, and what is being looked at meanwhile.

Out   the report on standard output, progress on standard error: a line that moves on a terminal, plain lines
      elsewhere
Tests  tests/deploy/binlogctl/doctor/test_examination.py
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections import Counter
from collections.abc import Iterator
from typing import IO, Final

from rich.console import Console
from rich.markup import escape

from binlogctl.doctor.examination import DoctorOptions, Progress, examine
from binlogctl.doctor.findings import Finding, Report, Severity
from tidb_binlog.observe.printable import one_line, printable
from tidb_binlog.observe.show import json_text

_STYLES: Final = {
    Severity.OK: "green",
    Severity.INFO: "blue",
    Severity.UNCHECKED: "magenta",
    Severity.WARNING: "yellow",
    Severity.ERROR: "bold red",
}


def main(options: DoctorOptions) -> int:
    """Examine, print, and return the exit code. Raises `ConfigError` for options that cannot be meant."""
    return asyncio.run(run(options))


async def run(options: DoctorOptions) -> int:
    """As `main`, in a loop that runs already."""
    with progress_on(sys.stderr) as progress:
        report = await examine(options, progress=progress)
    show(report, options.output, sys.stdout)
    return report.exit_code


def show(report: Report, output: str, file: IO[str]) -> None:
    """`output`: table or json. On a terminal what is fine is one line."""
    if output == "json":
        file.write(json_text(report.to_json()))
        return
    console = Console(file=file, highlight=False, soft_wrap=not file.isatty())
    fine = Counter(finding.check for finding in report.findings if finding.severity is Severity.OK)
    for finding in report.findings:
        if finding.severity is not Severity.OK or not file.isatty():
            _print(console, finding)
    if fine and file.isatty():
        checks = ", ".join(f"{check} ({number})" if number > 1 else check for check, number in fine.items())
        console.print(f"[{_STYLES[Severity.OK]}]OK[/] {_plain(checks)}")
    counts = ", ".join(f"{report.count(severity)} {severity}" for severity in reversed(Severity))
    console.print(f"{counts}", style=_STYLES[report.worst])


def _print(console: Console, finding: Finding) -> None:
    style = _STYLES[finding.severity]
    console.print(
        f"[{style}]{finding.severity.upper()}[/] [bold]{_plain(finding.subject)}[/]: {_plain(finding.seen)}"
        f" ({finding.check})"
    )
    if finding.why:
        console.print(f"  why:  {_plain(finding.why)}")
    if finding.mend:
        console.print(f"  mend: {_plain(finding.mend)}")


def _plain(text: str) -> str:
    return escape(printable(text))


@contextlib.contextmanager
def progress_on(file: IO[str]) -> Iterator[Progress]:
    """Tells what is being looked at."""
    if not file.isatty():
        yield lambda name: print(f"examining {one_line(name)}", file=file, flush=True)
        return
    with Console(file=file).status("examining") as status:
        yield lambda name: status.update(f"examining {_plain(name)}")
