"""binlog-spark package: what `spark-submit` needs, as two files.

Tests  tests/spark/test_packaging.py
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from drainer.places.place import Place
from drainer.spark import packaging
from tidb_binlog.errors import ConfigError
from tidb_binlog.observe import show

HELP: Final = """\
write the zip and the script that spark-submit takes

    binlog-spark package --to build
    spark-submit --master spark://HOST:7077 --py-files build/binlog_spark.zip build/binlog_spark.py files ...

The zip is pure Python. Every node needs an interpreter (PYSPARK_PYTHON) with what is compiled: `pip install
'tidb-binlog[spark]'`. With `--master` instead of spark-submit no package is needed: it is sent along.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--to", required=True, type=_directory, metavar="DIR", help="made if it is not there")


def _directory(text: str) -> Path:
    path = Place(text).local
    if path is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no directory of this machine")
    return Path(path)


def run(args: argparse.Namespace) -> int:
    try:
        args.to.mkdir(parents=True, exist_ok=True)
        written = (packaging.package(args.to), packaging.script(args.to))
    except OSError as error:
        raise ConfigError(f"{args.to}: {error.strerror}", hint="choose another directory") from None
    show.print_lines(*map(str, written))
    return 0
