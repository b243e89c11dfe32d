"""Arguments of a program that has every group of them."""

from __future__ import annotations

import argparse

from drainer.spark import arguments
from drainer.spark.arguments import Parser


def parsed(*argv: str) -> argparse.Namespace:
    made = Parser(prog="x")
    arguments.add_archive(made)
    arguments.add_range(made)
    arguments.add_database(made, "--to", required=False, purpose="downstream")
    arguments.add_output(made)
    arguments.add_spark(made)
    return made.parse_args(argv)
