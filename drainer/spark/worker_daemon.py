"""Worker daemon: what Spark forks its Python workers from on this host, with all loaded that tasks need.

Drives  pyspark's own daemon, as its main program: `spark.python.daemon.module` (`session`)
Why     a worker that loads it itself takes a second of CPU before its first row: one for each core, and again
        after each minute without work, when Spark ends them
Holds   no thread of Python runs here: what is forked has all that it needs
Never   stands on a cluster's nodes: there the package comes with the job, after the daemon has begun
Tests   tests/spark/test_session.py
"""

from __future__ import annotations

import importlib
import os
from typing import Final

TASKS: Final = (
    "pyspark.worker",
    "pandas",  # pyspark takes it for each batch of Arrow
    "drainer.config.options",
    "drainer.reading.archive.archive_source",
    "drainer.spark.effects.blocks",
    "drainer.spark.engine",
    "drainer.spark.replay.writing_task",
)


def main() -> None:
    """Serve until Spark ends."""
    os.environ.setdefault("JE_ARROW_MALLOC_CONF", "background_thread:false")
    for name in TASKS:
        importlib.import_module(name)
    from pyspark.daemon import manager

    manager()


if __name__ == "__main__":
    main()
