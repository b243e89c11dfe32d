"""Help texts: what `binlogctl COMMAND -h` tells of a command besides its summary and flags.

Out    a text by the command's words
Tests  tests/deploy/binlogctl/cli/test_command_line.py
"""

from __future__ import annotations

from typing import Final

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
