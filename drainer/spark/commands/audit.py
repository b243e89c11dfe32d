"""binlog-spark audit: is an archive whole, do its rows hang together, is a database or an image like it.

Tests  tests/spark/test_readme_spark.py
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from drainer.places.place import READ, Place
from drainer.spark import arguments
from drainer.spark.driver import TaskProgress
from drainer.spark.session import EXTRA_HINT
from tidb_binlog import quantities
from tidb_binlog.clock import SystemClock
from tidb_binlog.errors import ConfigError
from tidb_binlog.filesystem import replace_file
from tidb_binlog.observe import show

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from drainer.spark.audit.auditing import Outcome, Placement

HELP: Final = """\
check an archive, and a database or an image against it: coverage, row chains, contents

    binlog-spark audit --archive DIR [--db mysql://USER@HOST:PORT/] [--image DIR] [--report FILE.html]

Coverage: missing, doubled and damaged files, order of records, counts against the indexes.
Chains:   every change finds the row as the change before it left it.
Contents: with --db, the tables there beside what the archive says that they hold at --stop (its end, by
          default). A TiDB is read as of that timestamp; any other database has to stand still there.
          With --image, what it holds beside what the archive says of the image's timestamp. With both, the
          image is where tables begin whose creation the archive does not have.

The report says what was not checked too. exit status: 0 nothing wrong in what was checked, else 16 and
  1 for coverage, 2 for chains, 4 for contents (17 ... 23); errors of the program as everywhere
"""
_LISTED: Final = 50


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_archive(parser)
    arguments.add_range(parser)
    arguments.add_database(parser, "--db", required=False, purpose="database to compare with")
    parser.add_argument(
        "--image", default="", metavar="DIR", help="image to compare with; with --db: where tables begin"
    )
    group = parser.add_argument_group("report")
    group.add_argument(
        "--report",
        default="",
        metavar="FILE",
        help="page to write; JSON goes beside it",
    )
    group.add_argument(
        "--chunks", type=int, default=64, metavar="N", help="checksums for so many parts of a table (64)"
    )
    arguments.add_output(parser)
    arguments.add_small(parser, "archive, image and database")


def run(args: argparse.Namespace) -> int:
    if args.ops:
        raise ConfigError("an audit of some kinds of changes cannot work", hint="leave out --ops")
    target = arguments.database(args) if args.database else None
    if args.image:
        Place(args.image).require("--image", READ)
    small_bytes = arguments.small_bytes(args)
    if args.report:
        _need_matplotlib()  # it is said before the audit, not after it
    from drainer.spark.audit.auditing import audit
    from drainer.spark.audit.checks.findings import exit_code
    from drainer.spark.audit.document import document

    with TaskProgress("audit") as progress:

        def spark() -> SparkSession:
            session = arguments.start_session(args, "binlog-spark audit")
            progress.follow(session)
            return session

        outcome = audit(
            spark,
            args.archive,
            arguments.source_options(args),
            target=target,
            image=args.image,
            chunks=args.chunks,
            small_bytes=small_bytes,
            announce=_announce,
        )
    now_s = SystemClock().wall_s()
    facts = document(outcome, now_s)
    if args.report:
        from drainer.spark.audit import report

        path = Path(args.report)
        replace_file(str(path), report.html(outcome, now_s).encode())
        replace_file(str(path.with_suffix(".json")), show.json_text(facts).encode())
    if args.output == arguments.JSON:
        show.print_json(facts)
    else:
        _print(outcome, facts, args.report)
    return exit_code(outcome.findings)


def _need_matplotlib() -> None:
    try:
        import matplotlib as _matplotlib  # noqa: F401
    except ModuleNotFoundError as error:
        raise ConfigError(f"a report has plots, and {error.name} is not installed", hint=EXTRA_HINT) from None


def _announce(placement: Placement) -> None:
    size, limit = quantities.size(placement.size), quantities.size(placement.limit)
    if placement.on_driver:
        show.print_warning(f"audit of {size} in this process; above {limit} (--small) in Spark's")
    else:
        show.print_warning(f"audit of {size} in Spark's processes, above {limit} (--small)")


def _print(outcome: Outcome, document: dict[str, Any], page: str) -> None:
    rows = []
    for findings in outcome.findings.values():
        for finding in findings.listed[:_LISTED]:
            where = f"{finding.file} @ {finding.pos}" if finding.pos >= 0 else ""
            place = finding.check, finding.kind, finding.place, finding.key
            rows.append((*place, str(finding.commit_ts or ""), where, finding.text))
    if rows:
        heads = ("check", "what", "where", "key", "commit_ts", "record", "says")
        show.print_table("findings", heads, rows)
    notes = sum(len(findings.notes) for findings in outcome.findings.values())
    facts: list[tuple[str, object]] = [
        ("archive", f"{document['files']} files, {document['transactions']} transactions"),
        *((check, f"{findings.total} findings") for check, findings in outcome.findings.items()),
        ("notes", f"{notes}: what was not checked"),
    ]
    if page:
        facts.append(("report", page))
    show.print_facts(facts)
