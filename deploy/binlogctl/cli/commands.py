"""Commands: the one table from which the parser, the help and the shell completion are made.

A command is called by its words (`binlogctl config check FILE`) or, where `cmd` is set, as the Go binlogctl
calls it (`binlogctl -cmd pumps`). A Go call takes every flag and prints log lines; the others take the flags
they name and print tables.

Tests  tests/deploy/binlogctl/cli/test_command_line.py
"""

from __future__ import annotations

from typing import Final

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


# Help texts: what `binlogctl COMMAND -h` tells of a command besides its summary and flags.

TEXTS: Final = {
    "status": """\
Reads the registry and the /status of every node that is not offline. Shows the position of each
node, the delay by stage, and below them each problem and what to do about it.
Exit code 0: all is well; 11: something will need you soon; 12: something is wrong.""",
    "top": """\
On a terminal, shows a page and updates it every -interval, until q or Ctrl-C. Keys: s sorts by the
next of name, address, state (nodes with problems first) and behind (the largest lag first), r
reverses the order; up, down, page up, page down, home and end scroll (k, j, b, space, g, G).
Otherwise prints a line for each node every -interval. -once ends after one update, with the exit
code of status.""",
    "nodes": """\
`alive` is yes, no (it was stopped) or dead for a node with a lease. For a Go node, which has no
lease, it is `?` with the age of its entry, which a running node renews within seconds.
Position: up to there a pump has sorted, or a drainer has applied, everything.""",
    "pause": """\
NODE is an id as `binlogctl nodes` shows it, or the beginning of one; -kind where both kinds
have it. Waits until the registry says paused, and shows what the node is waiting for. A paused node
is a stopped process: `binlogctl resume` shows how to start it again. Until then drainers wait for
a paused pump. With -apply, a drainer stops applying rows and DDL, and its process continues.""",
    "resume": """\
NODE is an id as `binlogctl nodes` shows it, or the beginning of one; -kind where both kinds
have it. A drainer that was paused with `pause -apply` continues. A node that was paused without it
is a process that ended. This command cannot start it: it shows how to, and ends with 4.""",
    "close": """\
NODE is an id as `binlogctl nodes` shows it, or the beginning of one; -kind where both kinds
have it. A pump accepts no more prewrites, then waits until every drainer has read everything; the
command shows which drainers, and about how long. The close continues if you stop waiting
(-timeout, Ctrl-C). -force leaves at once: binlogs that no drainer has read are lost. A dead node
cannot close itself: use `binlogctl forget`.""",
    "forget": """\
NODE is an id as `binlogctl nodes` shows it, or the beginning of one; -kind where both kinds
have it. Marks it offline, so that drainers no longer wait for a pump, and pumps no longer keep data
for a drainer; shows what is lost. Refuses a living node, and without -yes a pump that drainers
still need. -delete removes the entry, too.""",
    "decide": """\
OUTCOME is rolled-back, or the commit_ts. For a transaction that TiKV no longer knows: a pump that
was away for longer than TiKV keeps garbage stops before it (`status` and the pump's log show it).
Check upstream whether its rows are there; if they are, use any commit_ts above the pump's
watermark at which nothing else was committed. Refused if the upstream can still tell the outcome.
-node-id names one pump; without it the command asks every pump.""",
    "tail": """\
Shows committed changes in the order of their commits, from -from on and then live, until Ctrl-C,
-until or -limit: time, table, kind, key, columns (`a: 1 -> 2`). Does not register, and no node
waits for it. Accepts times like `binlogctl position`; -from oldest is the oldest change that pumps
have. Long values are cut only on a terminal. -output json prints a canal-json message for each row,
with TiCDC's _tidb.
binlogctl tail -tables 'shop.*,!shop.tmp_*' -from -10m -where "price > 100 OR status = 'paid'\"""",
    "ddl list": """\
-node-id names the drainer; not needed if only one is running.""",
    "ddl rewrite": """\
binlogctl ddl rewrite 42 -text 'ALTER TABLE t ADD b INT'""",
    "load": """\
Reads the upstream ([syncer.from] in the Drainer's file) at one timestamp, creates databases and
tables downstream by the Drainer's rules, copies the rows, and stores the timestamp as the
checkpoint. If it was stopped or killed, the same command continues; until it is done, no Drainer
starts on the downstream. Refuses tables that have rows there, except with -replace, which removes
the rows, or -append. Does not copy users and grants. -dry-run shows sizes, chunks and time.
With -to archive, writes an image into -dir instead (Parquet) for binlogctl restore, binlog-spark
image and audit; use the file of the Drainer that writes the archive.
With -tables, tables join a running Drainer, which copies their rows while it replicates other
tables. The command shows the progress until they have caught up; the Drainer continues without it.
-give-up ends such a load: tables that it had begun to write are created again, empty, and get only
later changes, so no part of a copy stays; the others keep what they had.
binlogctl load -drainer-config drainer.toml -rate 50000
binlogctl load -pd-urls http://127.0.0.1:2379 -tables 'shop.*' -rate 5000
binlogctl load -pd-urls http://127.0.0.1:2379 -give-up
binlogctl load -drainer-config archive.toml -to archive -dir /images/monday""",
    "verify": """\
Compares all tables that the Drainer of -drainer-config writes, at one moment on both sides: the
Drainer stops for some milliseconds while snapshots are opened. Servers compute sums of chunks;
chunks that differ are read, and compared again (-retries) at a later moment before they are
reported. If it was stopped or killed, the same command continues: -state FILE keeps what was equal.
-at-rest is for a stopped Drainer and an upstream without writes. -image DIR compares with an image
instead of the upstream, -mirror delta://PLACE (iceberg://) a mirror instead of the downstream: both
without -rate, -retries and -state, because they are read once. -archive DIR shows when a row was
last changed. -report FILE writes a page; -repair FILE writes SQL that corrects the downstream;
-repair-now corrects it while the Drainer runs, each row as it is then on both sides.
Exit code 0: equal; 14: it differs; 15: not everything could be compared.""",
    "restore": """\
Writes -image into the downstream of the Drainer's file, applies the -archive up to -until (without
it: to its end), and compares the result with both. Without -image, the downstream already has a
backup of the moment -backup: a time, a timestamp, or the directory of Dumpling or BR. The same
command continues where it stopped. Refuses tables with other rows. Exit code 14: the rows differ
from the expected ones. -dry-run counts. docs/restore.md
binlogctl restore -drainer-config to.toml -image /images/monday -archive /archive -until -1h""",
    "savepoint now": """\
Draws a timestamp and writes -data-dir/savepoint, at which a drainer without a checkpoint begins.
Replaces an existing file only with -yes.""",
    "savepoint at": """\
Accepts TIME like `binlogctl position`, but no future time. `binlogctl doctor` shows whether pumps
still have the binlogs after it. Replaces an existing file only with -yes.""",
    "savepoint from-dumpling": """\
DIR is a dump of a TiDB by Dumpling; its file metadata contains the timestamp. Import it first (TiDB
Lightning, myloader, mysql). With -drainer-config, stores the timestamp as the checkpoint of that
drainer, also in a database; without it, as the file -data-dir/savepoint, which a drainer of a
database does not read: set its initial-commit-ts. docs/terabytes.md""",
    "savepoint from-br": """\
DIR is a backup by `br backup full`, with its file backupmeta. Restore it first (br restore full).
With -drainer-config, stores the timestamp as the checkpoint of that drainer, also in a database;
without it, as the file -data-dir/savepoint, which a drainer of a database does not read: set its
initial-commit-ts. docs/terabytes.md""",
    "position": """\
TIME is a timestamp of the upstream (18 digits), now, a duration ago (-2h, -1h30m), seconds since
1970 (@1556443799), RFC 3339 (2019-04-28T09:29:59Z) or 'YYYY-MM-DD HH:MM:SS' in -time-zone, by
default in the zone of this host.""",
    "advance": """\
For a standalone cluster that was off for a long time and whose etcd shows no time or a wrong one:
its nodes then continue from its last time, and log this. Accepts TIME like `binlogctl position`.
You cannot undo it, because every later timestamp is larger: it needs -yes, and refuses a time after
this host's clock.""",
    "doctor": """\
Examines PD, TiKV, every pump and drainer, TiDB servers, the hosts' clocks, and with -drainer-config
the downstream and its checkpoint. Each finding shows the problem, why it matters and the command
that fixes it. -time-zone: the zone of the upstream's users. Exit code 0: nothing worse than a
remark; 11: a warning; 12: an error.""",
    "encrypt": """\
Asks for the text without showing it, or reads one line of standard input; prints only the
encrypted form. The key is BINLOG_SECRET_KEY; without it a built-in one, which protects nothing.""",
    "config check": """\
Prints every wrong key with its line and a suggestion, and ends with 1.""",
    "config show": """\
Shows the settings from the file, this environment (PUMP_..., BINLOG_SERVER_...) and the defaults;
secrets are masked.""",
    "config new": """\
binlogctl config new drainer > drainer.toml""",
    "config docs": """\
Prints the page of the documentation, in Markdown.""",
    "config schema": """\
binlogctl config schema drainer > drainer.schema.json
and #:schema drainer.schema.json as the first line of drainer.toml.""",
    "completion": """\
bash: eval "$(binlogctl completion bash)"
zsh: eval "$(binlogctl completion zsh)"
fish: binlogctl completion fish | source""",
}
