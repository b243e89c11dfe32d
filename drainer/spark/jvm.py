"""JVM: Spark's, started so that standard error has what concerns the user, and nothing else.

Drives  pyspark's own start of it; a thread that copies what the JVM and its Python workers write on standard
        error, line by line, for as long as they live
Why     Spark asks Java for an incubator module, and Java warns of that at every start. No option silences it
Never   holds back another line
Tests   tests/spark/test_session.py
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway
    from pyspark import SparkConf

_NOISE: Final = b"WARNING: Using incubator modules: "
STDERR: Final = 2
_ENDING_S: Final = 1.0
"""Its sockets are closed before it is gone."""


def start(conf: SparkConf) -> JavaGateway:
    """The connection to it. Raises what pyspark does."""
    from pyspark.java_gateway import launch_gateway

    ours, theirs = os.pipe()
    threading.Thread(target=copy, args=(ours, STDERR), name="jvm-stderr", daemon=True).start()
    try:
        return launch_gateway(conf, {"stderr": theirs})  # type: ignore[no-untyped-call]
    finally:
        os.close(theirs)  # the JVM has its own: the thread ends with the last process that writes


def has_ended(error: BaseException) -> bool:
    """Whether it was started here and has, where this error says that it does not answer."""
    context = getattr(sys.modules.get("pyspark"), "SparkContext", None)
    process = getattr(getattr(context, "_gateway", None), "proc", None)
    if process is None:
        return False
    from py4j.protocol import Py4JError, Py4JJavaError

    if isinstance(error, Py4JJavaError) or not isinstance(error, Py4JError | OSError):
        return False
    try:
        process.wait(_ENDING_S)
    except subprocess.TimeoutExpired:
        return False
    return True


def copy(source: int, target: int) -> None:
    """Lines of one file descriptor, which is closed at the end, to another one."""
    with open(source, "rb") as lines:
        for line in lines:
            if not line.startswith(_NOISE):
                os.write(target, line)
