"""Commands: the one table from which the parser, the help and the shell completion are made.

A command is called by its words (`binlogctl config check FILE`) or, where `cmd` is set, as the Go binlogctl
calls it (`binlogctl -cmd pumps`). A Go call takes every flag and prints log lines; the others take the flags
they name and print tables.

Tests  tests/deploy/ctl/cli/test_command_line.py
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

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
  11   status, doctor: nothing is wrong, but something will need you
  12   status, doctor: something is wrong: replication is held up, a node is dead or does not answer
  13   the time of -timeout is over; what was asked for goes on
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
    """`words` "" is a command that only the Go form has. `run` is "module:function" below `deploy.ctl`.
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
        return _TEXTS.get(self.words, "")

    @property
    def all_flags(self) -> tuple[str, ...]:
        return (*self.flags, *(("output",) if self.outputs else ()))


_NODE: Final = (Argument("NODE"),)
_JOB: Final = (Argument("JOB"),)
_TIME: Final = (Argument("TIME"),)
_FILE: Final = (Argument("FILE", is_file=True),)
_LISTING: Final = (LOG, TABLE, JSON)
_DDL: Final = ("node-id", *CONNECTION)

_TEXTS: Final = {
    "status": """\
Asks the registry, and every node that is not offline for its /status. Shows where each is, where
the time between upstream and downstream goes, and below it what is wrong and what to do about
it. Exit code 0: all is well; 11: something will need you soon; 12: something is wrong.""",
    "top": """\
On a terminal a page that is drawn again every -interval, until q or Ctrl-C. Elsewhere a line a
node every -interval. -once prints one snapshot and ends with the exit code of status.""",
    "nodes": """\
`alive` is yes, no (it left in order) or dead for a node that keeps a lease; it is not known of
a Go node: `?` then, with the age of its entry, which a running node renews within seconds.
Position: up to there a pump has everything sorted, a drainer everything applied.""",
    "pause": """\
NODE is an id as `binlogctl nodes` shows it, or the beginning of one; -kind where both kinds
have it. Waits until the registry says paused, and tells what the node waits for meanwhile. A
paused node is a stopped process: `binlogctl resume` says how it comes back. Until then drainers
wait for a paused pump. With -apply a drainer only holds rows and DDL back and its process goes
on.""",
    "resume": """\
NODE is an id as `binlogctl nodes` shows it, or the beginning of one; -kind where both kinds
have it. A drainer that holds applying back (pause -apply) continues. A node that was paused is a
process that ended: it cannot be started from here, so this says what starts it and ends with 4.""",
    "close": """\
NODE is an id as `binlogctl nodes` shows it, or the beginning of one; -kind where both kinds
have it. A pump takes no more prewrites, then waits until every drainer has read everything;
this shows for whom and about how long. The close continues when you stop waiting (-timeout,
Ctrl-C). -force leaves at once, and what no drainer has read is lost. A dead node cannot close
itself: `binlogctl forget`.""",
    "forget": """\
NODE is an id as `binlogctl nodes` shows it, or the beginning of one; -kind where both kinds
have it. Marks it offline, so that drainers no longer wait for a pump and pumps no longer keep
data for a drainer; says what is lost by it. A node that lives is refused, a pump that drainers
still need is refused without -yes. -delete removes the entry altogether.""",
    "decide": """\
OUTCOME is rolled-back, or the commit_ts. For a transaction of which TiKV has no trace any more: a
pump that was away for longer than garbage is kept stops before it (`status` shows it, its log
names it) and never guesses. Check upstream whether its rows were there; any commit_ts will do that
lies above the pump's watermark and at which nothing else was committed. What the upstream can
still answer for is refused. -node-id names one pump; without it every pump is asked.""",
    "tail": """\
Shows committed changes in the order of their commits, those from -from on and then live, until
Ctrl-C, -until or -limit ends it: time, table, kind, key, columns (`a: 1 -> 2`). Leaves no trace in
the registry and holds nothing back. Times as `binlogctl position` takes them; -from oldest is the
oldest change that pumps have. Long values are cut on a terminal and nowhere else. -output json: a
canal-json message a row, with TiCDC's _tidb.
binlogctl tail -tables 'shop.*,!shop.tmp_*' -from -10m -where "price > 100 OR status = 'paid'\"""",
    "ddl list": """\
-node-id names the drainer; not needed where only one lives.""",
    "ddl rewrite": """\
binlogctl ddl rewrite 42 -text 'ALTER TABLE t ADD b INT'""",
    "load": """\
Reads the upstream ([syncer.from] in the Drainer's file) at one timestamp, makes databases and
tables downstream as the Drainer's rules say, copies the rows, and stores the timestamp as the
checkpoint. After whatever ended it the same command goes on where it stopped; no Drainer starts
on the downstream before its end. Tables that have rows there are refused but with -replace, which
removes them, or -append. Users and grants are not copied. -dry-run says sizes, chunks and time.
-to archive writes an image into -dir instead (Parquet), from which binlogctl restore, binlog-spark
image and audit begin; it takes the rules of the Drainer that writes the archive.
binlogctl load -drainer-config drainer.toml -rate 50000
binlogctl load -drainer-config archive.toml -to archive -dir /images/monday""",
    "verify": """\
Compares all tables that the Drainer of -drainer-config writes, at one moment for both sides: it
stands still for some milliseconds while snapshots are opened, then both go on. Servers sum up
chunks; what differs is read, and looked at again (-retries) at a later moment before it is
reported. The same command goes on after whatever ended it: -state FILE keeps what was equal.
-at-rest is for a Drainer that is stopped and an upstream that nobody writes to. -archive DIR says
when a row was changed last. -report FILE is a page; -repair FILE: SQL that mends the downstream;
-repair-now mends it while the Drainer runs, each row as it is then on both sides.
Exit code 0: equal; 14: it differs; 15: not everything could be compared.""",
    "restore": """\
Puts -image into the downstream of the Drainer's file, applies the -archive after it up to -until
(without it: to its end), and compares what is there with what both come to. Without -image the
downstream already has a backup, which is up to -backup: a time, a timestamp, or the directory of
Dumpling or BR. Goes on where it stopped when it is called again. Tables with other rows are
refused. Exit code 14: the rows are not what they are to be. -dry-run counts. docs/restore.md
binlogctl restore -drainer-config to.toml -image /images/monday -archive /archive -until -1h""",
    "savepoint now": """\
Draws a timestamp and writes -data-dir/savepoint, from which a drainer without a checkpoint
begins. An existing file is replaced with -yes only.""",
    "savepoint at": """\
TIME as `binlogctl position` takes it; one that is still to come is refused. Whether pumps still
have binlogs from there on shows `binlogctl doctor`. An existing file is replaced with -yes
only.""",
    "savepoint from-dumpling": """\
DIR is what Dumpling wrote from a TiDB; its file metadata says the timestamp. Import it first
(TiDB Lightning, myloader, mysql). With -drainer-config the timestamp is stored where that drainer
has its checkpoint, in the database too; without, as the file -data-dir/savepoint, which a drainer
into a database does not read: it begins there with initial-commit-ts. docs/terabytes.md""",
    "savepoint from-br": """\
DIR is what `br backup full` wrote, with its file backupmeta. Restore it first (br restore full).
With -drainer-config the timestamp is stored where that drainer has its checkpoint, in the database
too; without, as the file -data-dir/savepoint, which a drainer into a database does not read: it
begins there with initial-commit-ts. docs/terabytes.md""",
    "position": """\
TIME is a timestamp of the upstream (18 digits), now, a span back (-2h, -1h30m), seconds since
1970 (@1556443799), RFC 3339 (2019-04-28T09:29:59Z) or 'YYYY-MM-DD HH:MM:SS', which is in
-time-zone or else in the zone of this host.""",
    "advance": """\
For a standalone cluster that was off for long and whose etcd tells no time, or a wrong one: its
nodes then go on from where its clock stood, and say so. TIME as `binlogctl position` takes it.
There is no way back: every later timestamp is larger, so -yes is needed, and one beyond this
host's clock is refused.""",
    "doctor": """\
Asks PD, TiKV, every pump and drainer, TiDB servers, the hosts' clocks, and with -drainer-config
the downstream and its checkpoint. Each finding says what was seen, why it matters and the command
that mends it. -time-zone: the zone that users of the upstream have. Exit code 0: nothing worse
than a remark; 11: a warning; 12: an error.""",
    "encrypt": """\
Asks for the text without showing it, or reads one line of standard input; prints the encrypted
form alone. The key is BINLOG_SECRET_KEY; without it the built-in one, which protects nothing.""",
    "config check": """\
Prints every wrong key with its line and what was probably meant, and ends with 1.""",
    "config show": """\
From the file, this environment (PUMP_..., BINLOG_SERVER_...) and the defaults; secrets are
masked.""",
    "completion": """\
bash: eval "$(binlogctl completion bash)"    zsh: eval "$(binlogctl completion zsh)"
fish: binlogctl completion fish | source""",
}

TABLE_OF_COMMANDS: Final[tuple[Command, ...]] = (
    Command(
        "status",
        "one page: every node, how far it is, what holds it up",
        "status:run",
        flags=CONNECTION,
        outputs=READABLE,
    ),
    Command("top", "the same, live", "top:run", flags=("interval", "once", *CONNECTION), outputs=READABLE),
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
        flags=("drainer-config", "rate", "replace", "append", "dry-run", "to", "dir"),
        outputs=READABLE,
    ),
    Command(
        "verify",
        "is the downstream equal to the upstream, while both are written to?",
        "verify:run",
        flags=(
            "drainer-config",
            "tables",
            "rate",
            "retries",
            "workers",
            "state",
            "at-rest",
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
        flags=("drainer-config", "image", "backup", "archive", "until", "rate", "dry-run", "time-zone"),
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
        flags=(
            "data-dir",
            "time-zone",
            "yes",
        ),
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
        "advance:run",
        arguments=_TIME,
        flags=("time-zone", "yes", *CONNECTION),
    ),
    Command(
        "doctor",
        "examine the cluster from here: what is wrong, why it matters, what mends it",
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
        "every setting as it is in force, and where it comes from",
        "config:settings",
        arguments=_FILE,
        flags=("kind",),
        outputs=READABLE,
    ),
    Command(
        "completion",
        "print what a shell needs to complete binlogctl's command line",
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


def by_cmd(cmd: str) -> Command | None:
    """The command that `-cmd` names."""
    return next((command for command in TABLE_OF_COMMANDS if command.cmd == cmd), None)


def cmds() -> list[str]:
    """What `-cmd` may be; what Go knows comes first."""
    return [command.cmd for command in sorted(TABLE_OF_COMMANDS, key=lambda one: one.words) if command.cmd]


def worded() -> list[Command]:
    """The commands that have words."""
    return [command for command in TABLE_OF_COMMANDS if command.words]


def group(word: str) -> list[Command]:
    """The commands that begin with a word: one, several (`ddl`), or none."""
    return [command for command in worded() if command.words.split()[0] == word]
