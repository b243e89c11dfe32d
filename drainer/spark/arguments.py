"""Arguments: what the commands of `binlog-spark` share on their command lines, and what becomes of it.

Holds   times become timestamps once, here: whatever a command does later, it speaks of one frozen range
Never   takes a password on the command line, where every user of the host could read it

A command takes what it needs: `add_archive`, `add_range`, `add_database`, `add_output`, `add_spark` or
`add_small`.
"""

from __future__ import annotations

import argparse
import os
import re
import urllib.parse
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NoReturn

from drainer.formats.segment_index import UTC
from drainer.mysql.connection import Target
from drainer.places.file_system import EXTRA_HINT
from drainer.places.place import READ, Ability, Place
from drainer.reading.archive import read_options
from drainer.reading.archive.files import selection
from drainer.spark import session
from drainer.spark.engine import SMALL_BYTES
from tidb_binlog import quantities
from tidb_binlog.config import secret_file
from tidb_binlog.errors import ConfigError, FlagError
from tidb_binlog.net.tls import ClientTls, TlsConfig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLE: Final = "table"
JSON: Final = "json"
KINDS: Final = ("auto", "pb", "relay", "pump")
PASSWORD_VARIABLE: Final = "BINLOG_SPARK_PASSWORD"
PUMPS: Final = "pumps://"
PORT: Final = 3306
SCHEMES: Final = ("mysql", "mariadb", "tidb")
_OVER_CONNECT: Final = ("binlog-spark read", "binlog-spark stats")
_PORT_OF_TIDB: Final = 4000
_BOUND: Final = "a commit timestamp (TSO) or a time like '2026-11-22 03:04:05' (UTC)"


class Parser(argparse.ArgumentParser):
    """Raises `FlagError` instead of ending the process; no abbreviations, which break when flags grow."""

    def __init__(self, **options: Any) -> None:
        options.setdefault("allow_abbrev", False)
        options.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(**options)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        parsed, rest = super().parse_known_args(args, namespace)
        for action in self._actions:
            if action.metavar == "FILE" and "://" in str(getattr(parsed, action.dest, "")):
                self.error(f"{action.option_strings[0]} is a URI, and has to be a file of this machine")
        return parsed, rest

    def error(self, message: str) -> NoReturn:
        raise FlagError(message, hint=f"see {self.prog} --help")


# What commands add -----------------------------------------------------------------------------------------


def add_archive(parser: argparse.ArgumentParser, *, required: bool = True, pumps: bool = False) -> None:
    """`--archive` and what tells how to read it. `pumps`: it may be those of a cluster, too."""
    group = parser.add_argument_group("archive")
    group.add_argument(
        "--archive",
        "--from",
        dest="archive",
        required=required,
        default="",
        metavar="DIR",
        help="directory of an archive (db-type = file), a relay log or a Pump's value log; a path or a URI"
        " (s3://, gs://, hdfs://)" + ("; or the Pumps of a cluster: pumps://HOST:2379" if pumps else ""),
    )
    group.add_argument("--kind", choices=KINDS, default="auto", help="what it is (default: found out)")
    group.add_argument(
        "--ddl-history",
        default="",
        metavar="FILE",
        help="for a Pump's value log: the DDL jobs, one JSON object a line, plain or gzip",
    )
    group.add_argument(
        "--time-zone",
        type=_time_zone,
        default=UTC,
        metavar="NAME",
        help="in which a Go Drainer wrote TIMESTAMPs, its local one (Asia/Shanghai; default: UTC)",
    )
    group.add_argument(
        "--damage",
        choices=("fail", "report"),
        default="fail",
        help="at damage in the middle of a file: end with 6 (default), or pass over it; see `files`",
    )
    add_file_system(group)


def add_file_system(parser: argparse._ActionsContainer) -> None:
    """`--fs`; `place` reads it."""
    parser.add_argument(
        "--fs",
        action="append",
        default=[],
        type=_pair,
        metavar="KEY=VALUE",
        help="option of the file system (endpoint_override, region, ...), may be repeated; keys and secrets"
        " better in the environment, as the clouds' own tools have them",
    )


def add_range(parser: argparse.ArgumentParser) -> None:
    """`--start`, `--stop`, `--tables`, `--ops`."""
    group = add_bounds(parser)
    add_tables(group)
    group.add_argument(
        "--ops", type=_ops, default="", metavar="KINDS", help="of insert, update, delete, with commas"
    )


def add_bounds(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """`--start`, `--stop`."""
    group = parser.add_argument_group("range")
    group.add_argument("--start", type=_start, default=0, metavar="TIME", help=f"from here on: {_BOUND}")
    group.add_argument("--stop", type=_stop, default=0, metavar="TIME", help="up to here, included; the same")
    return group


def add_tables(parser: argparse._ActionsContainer) -> None:
    """`--tables` alone: the text that `selection.Selection.of` takes."""
    parser.add_argument(
        "--tables",
        type=_tables,
        default="",
        metavar="PATTERNS",
        help="db.table, db.* or ~REGEX, with commas (default: all)",
    )


def add_database(parser: argparse.ArgumentParser, flag: str, *, required: bool, purpose: str) -> None:
    """`flag` for the URL of a database (`database` reads it), and its TLS."""
    group = parser.add_argument_group("database")
    group.add_argument(
        flag,
        dest="database",
        required=required,
        default="",
        metavar="URL",
        help=f"{purpose}: mysql://USER@HOST:PORT/, the password in {PASSWORD_VARIABLE} or --password-file;"
        " mysql://USER@/?socket=PATH for a socket",
    )
    group.add_argument("--password-file", default="", metavar="FILE", help="its first line is the password")
    group.add_argument("--ssl-ca", default="", metavar="FILE", help="authority of the database: TLS is on")
    group.add_argument("--ssl-cert", default="", metavar="FILE", help="our certificate")
    group.add_argument("--ssl-key", default="", metavar="FILE", help="and its key")


def add_output(parser: argparse.ArgumentParser) -> None:
    """`--output`."""
    parser.add_argument(
        "--output", choices=(TABLE, JSON), default=TABLE, help="for people (default) or programs"
    )


def add_metrics(parser: argparse.ArgumentParser) -> None:
    """`--metrics`."""
    parser.add_argument(
        "--metrics",
        default="",
        type=_metrics,
        metavar="WHERE",
        help="what the job does, for Prometheus: FILE.prom in the directory of node_exporter's textfile"
        " collector, or HOST:PORT of a Pushgateway",
    )


def _metrics(text: str) -> str:
    is_file = text.endswith(".prom") and "://" not in text
    if not text or is_file or re.fullmatch(r"(https?://)?[^/\s:]+:\d+/?", text):
        return text
    raise argparse.ArgumentTypeError(f"{text!r} is neither FILE.prom nor HOST:PORT")


def add_spark(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """`--master`, `--conf`; the group, for what a command adds."""
    group = parser.add_argument_group("spark")
    group.add_argument(
        "--master",
        default=None,
        metavar="URL",
        help="spark://HOST:PORT, yarn, k8s://..., local[N]; for read and stats sc://HOST:PORT (default: all"
        " cores here, or spark-submit's; read, files, stats, history and small ranges need no Spark without"
        " it)",
    )
    group.add_argument(
        "--conf",
        action="append",
        default=[],
        type=_pair,
        metavar="KEY=VALUE",
        help="a setting of Spark (spark.driver.memory=4g), may be repeated",
    )
    return group


def add_small(parser: argparse.ArgumentParser, what: str) -> None:
    """`add_spark`, and `--small`. `what` is read."""
    add_spark(parser).add_argument(
        "--small",
        type=size_bytes,
        default=None,
        metavar="SIZE",
        help=f"up to so much of {what} is read by this process, without Spark and Java"
        " (64MiB; 0: always Spark, as with --master and --conf)",
    )


def size_bytes(text: str) -> int:
    """For `argparse`."""
    try:
        return quantities.size_bytes(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


# What becomes of it ----------------------------------------------------------------------------------------


def place(args: argparse.Namespace, uri: str, flag: str, needs: Ability) -> Place:
    """What a flag names, with the options of `--fs`. Raises `ConfigError` where it lacks what is needed."""
    return Place(uri, dict(args.fs)).require(flag, needs)


def history_file(name: str) -> str:
    """A file that is here is meant as it is; any other name is one beside the archive."""
    return os.path.abspath(name) if name and os.path.exists(name) else name


def source_options(args: argparse.Namespace, **more: str) -> dict[str, str]:
    """Options of the data source for what was given. `more` is added; a `_` in a name stands for `-`."""
    given = {
        "kind": args.kind if args.kind != "auto" else "",
        "ddl-history": history_file(args.ddl_history),
        "time-zone": args.time_zone if args.time_zone != UTC else "",
        "damage": args.damage if args.damage != "fail" else "",
        "start": _bound(args, "start"),
        "stop": _bound(args, "stop"),
        "tables": getattr(args, "tables", ""),
        "ops": getattr(args, "ops", ""),
        **{f"fs.{key}": value for key, value in args.fs},
        **{name.replace("_", "-"): value for name, value in more.items()},
    }
    return {name: value for name, value in given.items() if value}


def is_here(args: argparse.Namespace) -> bool:
    """Whether this process reads the archive itself: nothing on the command line, and no `spark-submit`, asks
    for Spark. The archive, the range and the tables are checked. Raises `ConfigError`, `NoSuchTable`."""
    try:
        import numpy as _numpy  # noqa: F401
        import pyarrow as _pyarrow  # noqa: F401
    except ModuleNotFoundError as error:
        raise ConfigError(f"{error.name} is not installed", hint=EXTRA_HINT) from None
    check(args)
    return args.master is None and not args.conf and not session.is_submitted()


def small_bytes(args: argparse.Namespace) -> int:
    """Up to how much this process reads itself: nothing where Spark is asked for. Raises `ConfigError`."""
    if not is_here(args):
        return 0
    return SMALL_BYTES if args.small is None else int(args.small)


def check(args: argparse.Namespace, *, tables: bool = True) -> None:
    """What is wrong with the archive, the range and the tables, before a JVM is started, which takes seconds.
    `tables`: all are there that ever will be. Raises `ConfigError`, `NoSuchTable`."""
    selection.Selection(getattr(args, "start", 0), getattr(args, "stop", 0)).asked()
    archive = Place(args.archive).require("--archive", READ)
    if archive.local is not None:
        archive.list()
    patterns = ",".join(filter(None, (getattr(args, name, "") for name in ("tables", "table"))))
    if tables and patterns:
        from drainer.points.image.manifest import Manifest
        from drainer.reading.archive.archive_source import ArchiveSource

        image = getattr(args, "base", "") or getattr(args, "image", "")
        of_image = {(table.schema, table.table) for table in Manifest.load(image).tables} if image else set()
        source = ArchiveSource({**source_options(args, tables=patterns), "path": args.archive})
        source.check_tables(of_image)


def start_session(args: argparse.Namespace, app: str, *, with_format: bool = False) -> SparkSession:
    """The session that the command line asks for. `with_format`: it is to read `format("binlog")`."""
    if session.is_connect(args.master) and app not in _OVER_CONNECT:
        raise FlagError(
            f"{app} needs Spark's own context, which Spark Connect does not give",
            hint=f"only {' and '.join(_OVER_CONNECT)} do without; use --master spark://HOST:PORT",
        )
    make = session.session if with_format else session.without_format
    spark = make(app, args.master, dict(args.conf))
    session.quiet()
    return spark


def database(args: argparse.Namespace, environ: Mapping[str, str] | None = None) -> Target:
    """The downstream or compared database. Raises `ConfigError`, `FlagError`."""
    return target_of(args.database, password(args.password_file, PASSWORD_VARIABLE, environ), _tls(args))


def target_of(address: str, password: str, tls: ClientTls | None = None) -> Target:
    """What a database's URL stands for. Raises `FlagError`."""
    url = urllib.parse.urlsplit(address)
    if url.scheme not in SCHEMES:
        raise FlagError(
            f"the database's URL begins with {url.scheme or 'no scheme'}", hint="use mysql://USER@HOST:PORT/"
        )
    if url.password is not None:
        raise FlagError(
            "a password in a URL can be read by every user of this host",
            hint="put it into the environment or into a file, see --help",
        )
    query = dict(urllib.parse.parse_qsl(url.query))
    socket = query.pop("socket", "")
    if query or url.path not in ("", "/"):
        rest = "&".join(query) or url.path
        raise FlagError(f"the database's URL has {rest!r}", hint="rows carry their schema; leave it away")
    try:
        port = url.port or (_PORT_OF_TIDB if url.scheme == "tidb" else PORT)
    except ValueError:
        raise FlagError(
            "the port in the database's URL is no port", hint="use mysql://USER@HOST:PORT/"
        ) from None
    return Target(
        host=url.hostname or "127.0.0.1",
        port=port,
        user=urllib.parse.unquote(url.username or "root"),
        password=password,
        socket=socket,
        tls=tls,
    )


def password(path: str, variable: str, environ: Mapping[str, str] | None = None) -> str:
    """Of a file, or of the environment. Raises `ConfigError`."""
    environ = os.environ if environ is None else environ
    return secret_file.read("password-file", path) if path else environ.get(variable, "")


def _tls(args: argparse.Namespace) -> ClientTls | None:
    config = TlsConfig.from_paths(args.ssl_ca, args.ssl_cert, args.ssl_key)
    return None if config is None else ClientTls(config, use="database")


def _bound(args: argparse.Namespace, name: str) -> str:
    ts = getattr(args, name, 0)
    return str(ts) if ts else ""


def _start(text: str) -> int:
    return selection.parse_bound(text, end=False)


def _stop(text: str) -> int:
    return selection.parse_bound(text, end=True)


def _tables(text: str) -> str:
    selection.Selection.of(tables=text)  # a pattern that cannot be read is said before Spark is started
    return text


def _time_zone(text: str) -> str:
    return read_options.time_zone(text)


def _ops(text: str) -> str:
    selection.Selection.of(ops=text)
    return text


def _pair(text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not separator or not key:
        raise argparse.ArgumentTypeError("give KEY=VALUE")
    return key, value
