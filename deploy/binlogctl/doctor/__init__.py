"""doctor: examines a cluster from the operator's host: what is wrong, why it matters and what mends it.

    examine(options) -> Report      for programs
    main(options) -> exit code      prints progress to standard error, the report to standard output
    await run(options)              the same in a loop that runs already

Cores check facts (`checks/`); gatherers (`gather/`) bring them, each with a deadline. What cannot be
reached is a finding, and the examination goes on.
"""

from __future__ import annotations

from binlogctl.doctor.examination import DoctorOptions, examine
from binlogctl.doctor.findings import EXIT_ERROR, EXIT_WARNING, Finding, Report, Severity
from binlogctl.doctor.show import main, run

__all__ = [
    "EXIT_ERROR",
    "EXIT_WARNING",
    "DoctorOptions",
    "Finding",
    "Report",
    "Severity",
    "examine",
    "main",
    "run",
]
