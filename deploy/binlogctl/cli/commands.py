"""Commands: the one table from which the parser, the help and the shell completion are made.

A command is called by its words (`binlogctl config check FILE`) or, where `cmd` is set, as the Go binlogctl
calls it (`binlogctl -cmd pumps`). A Go call takes every flag and prints log lines; the others take the flags
they name and print tables.

Tests  tests/deploy/binlogctl/cli/test_command_line.py
"""

from __future__ import annotations

from typing import Final

from binlogctl.cli.help_texts import TEXTS
from tidb_binlog.late_dataclass import dataclass

CONNECTION: Final = ("pd-urls", "ssl-ca", "ssl-cert", "ssl-key")
LOG: Final = "log"
TABLE: Final = "table"
JSON: Final = "json"
TEXT: Final = "text"
READABLE: Final = (TABLE, JSON)

DONE: Final = 0
WRONG: Final = 1
SOON: Final = 11
NOT_WELL: Final = 12
STILL_WAITING: Final = 13
DIFFERS: Final = 14
NOT_COMPARABLE: Final = 15

EXIT_CODES: Final = """\
Exit codes:
  0    done; status: everything is well
  1    wrong configuration; config check: a wrong key
  2    wrong flag or unknown command
  3    etcd, PD or a node does not answer
  4    refused: by the node, or because it makes no sense as things are
  5    another process changed it at the same time
  6    something stored is damaged
  7    load: the downstream refused the login, a statement or a row
  11   status, doctor: nothing is wrong, but something will need you
  12   status, doctor: something is wrong: replication is held up, a node is dead or does not answer
  13   the time of -timeout is over; the operation continues
  14   verify: the downstream differs from the upstream; restore: from image and archive
  15   verify: no difference was found, but not everything could be compared
  130  interrupted
"""


@dataclass(frozen=True, slots=True)
class Argument:
    """One word after a command. `choices`: what it may be; `is_file`: a path, for completion."""

    name: str
    choices: tuple[str, ...] = ()
    is_file: bool = False


@dataclass(frozen=True, slots=True)
class Command:
    """`words` "" is a command that only the Go form has. `run` is "module:function" below `binlogctl`.
    `outputs`: what `-output` may be, the default first; empty: one form only."""

    words: str
    summary: str
    run: str
    arguments: tuple[Argument, ...] = ()
    flags: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    cmd: str = ""

    @property
    def usage(self) -> str:
        """How it is called, without flags."""
        if not self.words:
            return f"-cmd {self.cmd}"
        return " ".join((self.words, *(argument.name for argument in self.arguments)))

    @property
    def text(self) -> str:
        """More about it, for its help."""
        return TEXTS.get(self.words, "")

    @property
    def all_flags(self) -> tuple[str, ...]:
        """List the flags, `output` among them."""
        return (*self.flags, *(("output",) if self.outputs else ()))


_NODE: Final = (Argument("NODE"),)
_JOB: Final = (Argument("JOB"),)
_TIME: Final = (Argument("TIME"),)
_FILE: Final = (Argument("FILE", is_file=True),)
_KIND: Final = (Argument("KIND", ("pump", "drainer")),)
_LISTING: Final = (TEXT, TABLE, JSON, LOG)
_DDL: Final = ("node-id", *CONNECTION)

TABLE_OF_COMMANDS: Final[tuple[Command, ...]] = (
    Command(
        "status",
        "one page: every node, how far it is, what holds it up",
        "status:run",
        flags=CONNECTION,
        outputs=READABLE,
    ),
    Command(
        "top", "the same, live", "top:run", flags=("interval", "sort", "once", *CONNECTION), outputs=READABLE
    ),
    Command(
        "tail",
        "show changes of rows, live, a line each",
        "tail:run",
        flags=("tables", "from", "until", "where", "limit", "time-zone", "upstream", *CONNECTION),
        outputs=(TEXT, JSON),
    ),
    Command(
        "nodes",
        "list pumps and drainers: state, alive or dead, position",
        "nodes:run",
        flags=("kind", "show-offline-nodes", *CONNECTION),
        outputs=READABLE,
    ),
    Command(
        "pause",
        "stop a node for a while; it keeps its data and comes back",
        "leave:pause",
        arguments=_NODE,
        flags=("apply", "kind", "no-wait", "timeout", *CONNECTION),
    ),
    Command("resume", "let a node go on", "leave:resume", arguments=_NODE, flags=("kind", *CONNECTION)),
    Command(
        "close",
        "take a node out of the cluster for good",
        "leave:close",
        arguments=_NODE,
        flags=("force", "kind", "no-wait", "timeout", *CONNECTION),
    ),
    Command(
        "forget",
        "take a dead node out of the cluster",
        "forget:run",
        arguments=_NODE,
        flags=("kind", "yes", "delete", *CONNECTION),
    ),
    Command(
        "decide",
        "say what became of a transaction that the upstream does not know any more",
        "decide:run",
        arguments=(Argument("START_TS"), Argument("OUTCOME")),
        flags=("node-id", *CONNECTION),
    ),
    Command(
        "ddl list",
        "DDL that waits for a decision, and the last decisions",
        "ddl:call",
        flags=_DDL,
        outputs=_LISTING,
        cmd="ddl-list",
    ),
    Command(
        "ddl show",
        "one DDL: statement, tables, why it waits",
        "ddl:call",
        arguments=_JOB,
        flags=_DDL,
        outputs=_LISTING,
        cmd="ddl-show",
    ),
    Command(
        "ddl retry",
        "run it again, after the downstream was corrected",
        "ddl:call",
        arguments=_JOB,
        flags=_DDL,
        outputs=_LISTING,
        cmd="ddl-retry",
    ),
    Command(
        "ddl skip", "never run it", "ddl:call", arguments=_JOB, flags=_DDL, outputs=_LISTING, cmd="ddl-skip"
    ),
    Command(
        "ddl rewrite",
        "run the statement in -text instead",
        "ddl:call",
        arguments=_JOB,
        flags=("text", "node-id", *CONNECTION),
        outputs=_LISTING,
        cmd="ddl-rewrite",
    ),
    Command(
        "load",
        "copy what the upstream has into a Drainer's downstream, which goes on from there",
        "load:run",
        flags=(
            *("drainer-config", "rate", "replace", "append", "dry-run", "to", "dir"),
            *("tables", "give-up", "node-id", "no-wait", *CONNECTION),
        ),
        outputs=READABLE,
    ),
    Command(
        "verify",
        "compare downstream and upstream while programs write to both",
        "verify:run",
        flags=(
            "drainer-config",
            "tables",
            "rate",
            "retries",
            "workers",
            "state",
            "at-rest",
            "image",
            "mirror",
            "archive",
            "report",
            "repair",
            "repair-now",
        ),
        outputs=READABLE,
    ),
    Command(
        "restore",
        "bring a database to a time: an image or backup, then the archive after it",
        "restore:run",
        flags=(
            *("drainer-config", "image", "backup", "archive", "until", "rate", "dry-run", "time-zone"),
            "beside-drainer",
        ),
        outputs=(TEXT, JSON),
    ),
    Command(
        "savepoint now",
        "write a savepoint of the current time",
        "savepoint:now",
        flags=("data-dir", "time-zone", "yes", *CONNECTION),
        outputs=READABLE,
    ),
    Command(
        "savepoint at",
        "write a savepoint of another time",
        "savepoint:at",
        arguments=_TIME,
        flags=("data-dir", "time-zone", "yes"),
        outputs=READABLE,
    ),
    Command(
        "savepoint from-dumpling",
        "write a savepoint of the timestamp of a dump",
        "savepoint:from_dumpling",
        arguments=(Argument("DIR", is_file=True),),
        flags=("drainer-config", "data-dir", "time-zone", "yes"),
        outputs=READABLE,
    ),
    Command(
        "savepoint from-br",
        "write a savepoint of the timestamp of a backup",
        "savepoint:from_br",
        arguments=(Argument("DIR", is_file=True),),
        flags=("drainer-config", "data-dir", "time-zone", "yes"),
        outputs=READABLE,
    ),
    Command(
        "position",
        "translate a time into a timestamp, or back",
        "position:run",
        arguments=_TIME,
        flags=("time-zone",),
        outputs=READABLE,
    ),
    Command(
        "advance",
        "set the clock of a standalone cluster forward",
        "position:advance",
        arguments=_TIME,
        flags=("time-zone", "yes", *CONNECTION),
    ),
    Command(
        "doctor",
        "examine the cluster from here: problems, why they matter, how to fix them",
        "doctor:run",
        flags=("drainer-config", "pump-config", "tidb", "upstream", "time-zone", *CONNECTION),
        outputs=READABLE,
    ),
    Command("encrypt", "encrypt a password for encrypted_password", "encrypt:run"),
    Command(
        "config check",
        "read a pump's or drainer's file as the daemon would",
        "config:check",
        arguments=_FILE,
        flags=("kind",),
        outputs=READABLE,
    ),
    Command(
        "config show",
        "show every effective setting, and its origin",
        "config:settings",
        arguments=_FILE,
        flags=("kind",),
        outputs=READABLE,
    ),
    Command(
        "config new",
        "print a short file to begin with",
        "config:new",
        arguments=_KIND,
    ),
    Command(
        "config docs", "print the meaning of every key of the file", "config:reference_page", arguments=_KIND
    ),
    Command(
        "config schema",
        "print a JSON Schema of the file, for editors",
        "config:schema_of",
        arguments=_KIND,
    ),
    Command(
        "completion",
        "print a shell's completion of binlogctl's command line",
        "completion:run",
        arguments=(Argument("SHELL", ("bash", "zsh", "fish")),),
    ),
    Command("", "list pumps", "go_compat:listing", outputs=_LISTING, cmd="pumps"),
    Command("", "list drainers", "go_compat:listing", outputs=_LISTING, cmd="drainers"),
    Command(
        "", "write -state into the entry of -node-id, a dead pump", "go_compat:update", cmd="update-pump"
    ),
    Command(
        "",
        "write -state into the entry of -node-id, a dead drainer",
        "go_compat:update",
        cmd="update-drainer",
    ),
    Command("", "tell pump -node-id to pause", "go_compat:action", cmd="pause-pump"),
    Command("", "tell drainer -node-id to pause", "go_compat:action", cmd="pause-drainer"),
    Command("", "tell pump -node-id to leave for good", "go_compat:action", cmd="offline-pump"),
    Command("", "tell drainer -node-id to leave for good", "go_compat:action", cmd="offline-drainer"),
    Command(
        "",
        "write a savepoint of the current time into -data-dir",
        "go_compat:generate_meta",
        cmd="generate_meta",
    ),
    Command("", "encrypt -text", "go_compat:encrypt", cmd="encrypt"),
)


GO_FORM: Final = Command("", "", "", cmd="NAME")
"""Stands for all of the Go form, where one is named."""


def by_cmd(cmd: str) -> Command | None:
    """The command that `-cmd` names."""
    return next((command for command in TABLE_OF_COMMANDS if command.cmd == cmd != ""), None)


def cmds() -> list[str]:
    """What `-cmd` may be; what Go knows comes first."""
    return [
        command.cmd for command in sorted(TABLE_OF_COMMANDS, key=lambda command: command.words) if command.cmd
    ]


def worded() -> list[Command]:
    """The commands that have words."""
    return [command for command in TABLE_OF_COMMANDS if command.words]


def groups() -> dict[str, list[Command]]:
    """The commands by their first word: one, or several (`ddl`)."""
    groups: dict[str, list[Command]] = {}
    for command in worded():
        groups.setdefault(command.words.split()[0], []).append(command)
    return groups
