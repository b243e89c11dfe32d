"""Help texts: what `binlogctl COMMAND -h` tells of a command besides its summary and flags.

In     nothing
Out    a text by the command's words
Tests  tests/deploy/binlogctl/cli/test_command_line.py
"""

from __future__ import annotations

from typing import Final

TEXTS: Final = {
    "status": """\
Asks the registry, and every node that is not offline for its /status. Shows where each is, where
the time between upstream and downstream goes, and below it what is wrong and what to do about
it. Exit code 0: all is well; 11: something will need you soon; 12: something is wrong.""",
    "top": """\
On a terminal a page that is drawn again every -interval, until q or Ctrl-C. Keys: s sorts by the
next of name, address, state (what needs somebody first) and behind (the furthest first), r turns
the order round; up, down, page up, page down, home and end scroll (k, j, b, space, g, G).
Elsewhere a line a node every -interval. -once prints one snapshot and ends with the exit code of
status.""",
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
-tables has tables join a Drainer that runs: it copies their rows beside its stream, other tables go
on. This shows how far it is until they are like all others; the Drainer goes on without it, too.
-give-up ends that: tables that were begun to be written are made anew and have only what comes
from then on, so no copy of a part stays; where nothing was written yet they are as they were.
binlogctl load -drainer-config drainer.toml -rate 50000
binlogctl load -pd-urls http://127.0.0.1:2379 -tables 'shop.*' -rate 5000
binlogctl load -pd-urls http://127.0.0.1:2379 -give-up
binlogctl load -drainer-config archive.toml -to archive -dir /images/monday""",
    "verify": """\
Compares all tables that the Drainer of -drainer-config writes, at one moment for both sides: it
stands still for some milliseconds while snapshots are opened, then both go on. Servers sum up
chunks; what differs is read, and looked at again (-retries) at a later moment before it is
reported. The same command goes on after whatever ended it: -state FILE keeps what was equal.
-at-rest is for a Drainer that is stopped and an upstream that nobody writes to; -image DIR has
the rows in place of the upstream, -mirror delta://PLACE (iceberg://) those of a mirror in place
of the downstream: both without -rate, -retries and -state, as they are read once. -archive DIR
says when a row was changed last. -report FILE is a page; -repair FILE: SQL that mends the
downstream; -repair-now mends it while the Drainer runs, each row as it is then on both sides.
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
    "config new": """\
binlogctl config new drainer > drainer.toml""",
    "config docs": """\
Markdown, as the page of the documentation.""",
    "config schema": """\
binlogctl config schema drainer > drainer.schema.json
and #:schema drainer.schema.json as the first line of drainer.toml.""",
    "completion": """\
bash: eval "$(binlogctl completion bash)"    zsh: eval "$(binlogctl completion zsh)"
fish: binlogctl completion fish | source""",
}
