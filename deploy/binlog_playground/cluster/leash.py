"""Leash: starts a program that ends with its parent: `python leash.py PARENT_PID PROGRAM ARGUMENT...`.

Run as a file, never imported: it asks the kernel for SIGKILL on the parent's death and becomes the program,
so that even a killed playground leaves no orphan. Where the kernel has no such call (not Linux) the
program runs without the leash.

Tests  tests/deploy/binlog_playground/cluster/test_supervisor.py
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Replace this process with the program, which ends with its parent."""
    parent, argv = int(sys.argv[1]), sys.argv[2:]
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:  # it died before the call above
        sys.exit(1)
    try:
        os.execvp(argv[0], argv)
    except OSError as error:
        sys.exit(f"{argv[0]}: {error.strerror}")


main()
