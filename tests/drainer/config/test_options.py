"""Configuration of the drainer: the Go drainer's spellings, refusals, and what is remarked on."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from drainer.config.options import ENV_PREFIX, DrainerConfig
from drainer.stream.rules.rule_set import read_rules
from tidb_binlog import errors
from tidb_binlog.config import loading
from tidb_binlog.errors import ConfigError
from tidb_binlog.net.port import split_address


def load(*argv: str, **environ: str) -> DrainerConfig:
    return loading.load(DrainerConfig, list(argv), environ, program="drainer", env_prefix=ENV_PREFIX)


def test_go_spellings() -> None:
    settings = load(
        "-c", "3", "-dest-db-type=tidb", "--initial-commit-ts", "0", BINLOG_SERVER_PD_URLS="http://a:1"
    )
    assert (settings.worker_count, settings.db_type, settings.initial_commit_ts) == (3, "tidb", 0)
    assert settings.pd_urls == "http://a:1"


@pytest.mark.parametrize("address", ["", "host", "host:", "host:x", "host:70000"])
def test_addresses(address: str) -> None:
    with pytest.raises(ConfigError, match="addr"):
        split_address("addr", address)


@pytest.mark.parametrize(
    ("argv", "word"),
    [
        (["-c", "0"], "worker-count"),
        (["-txn-batch", "0"], "txn-batch"),
        (["-dest-db-type", "oracle"], "db-type"),
        (["-upstream", "mars"], "upstream"),
        (["-initial-commit-ts", "-2"], "initial-commit-ts"),
        (["-ignore-schemas", "a,,b"], "ignore-schemas"),
        (["-metrics-interval", "-1"], "MetricsInterval is -1"),
    ],
)
def test_impossible_values(argv: list[str], word: str) -> None:
    with pytest.raises(ConfigError, match=word) as raised:
        load(*argv)
    assert raised.value.hint


@pytest.mark.parametrize(
    ("section", "word", "value"),
    [
        ("", "heartbeat-interval", "0s"),
        ("[syncer]", "checkpoint-interval", "0s"),
        ("[syncer]", "checkpoint-interval", "-1s"),
        ("[syncer.to]", "read-timeout", "0s"),
        ("[syncer]", "keep-dropped", "-1s"),
    ],
)
def test_impossible_pauses(tmp_path: Path, section: str, word: str, value: str) -> None:
    """Without a pause a checkpoint would be written after the other, a beat sent after the other."""
    file = tmp_path / "drainer.toml"
    file.write_text(f'{section}\n{word} = "{value}"\n')
    with pytest.raises(ConfigError, match=word):
        load("-config", str(file))


def test_what_becomes_of_conversions_is_one_of_three(tmp_path: Path) -> None:
    file = tmp_path / "drainer.toml"
    for chosen in ("convert", "wait", "downstream"):
        file.write_text(f'[syncer]\nddl-conversions = "{chosen}"\n')
        assert load(f"-config={file}").ddl_conversions == chosen
    assert load().ddl_conversions == "convert"
    file.write_text('[syncer]\nddl-conversions = "both"\n')
    with pytest.raises(ConfigError, match="ddl-conversions is 'both'") as raised:
        load(f"-config={file}")
    assert raised.value.hint == "it must be one of 'convert', 'wait', 'downstream'"


# -- what a Go drainer was started with --------------------------------------------------------------------

GO_FLAGS = """
    L=warn node-id=n addr=127.0.0.1:1 advertise-addr=h:1 data-dir=d detect-interval=5 pd-urls=http://a:1
    log-file=f log-rotate=day metrics-addr=http://g:1 metrics-interval=15 initial-commit-ts=7 compressor=gzip
    synced-check-time=5 cache-binlog-count=8 txn-batch=20 c=16 loopback-control sync-ddl=true channel-id=1
    ignore-schemas=a,b dest-db-type=tidb relay-log-dir=r relay-max-file-size=10485760 enable-dispatch=true
    disable-dispatch=false enable-detect disable-detect=false safe-mode=true load-schema-snapshot
"""
# Every key of the Go drainer's shipped file, with its values; those in comments there are set here.
GO_FILE = """
addr = "127.0.0.1:8249"
advertise-addr = ""
detect-interval = 10
data-dir = "data.drainer"
pd-urls = "http://127.0.0.1:2379"
compressor = ""
log-file = ""
synced-check-time = 5

[security]
ssl-ca = "/path/to/ca.pem"
ssl-cert = "/path/to/pump.pem"
ssl-key = "/path/to/pump-key.pem"
cert-allowed-cn = ["binlog"]

[syncer]
sql-mode = "STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION"
txn-batch = 20
sync-ddl = true
loopback-control = false
channel-id = 1
worker-count = 16
enable-dispatch = true
enable-detect = true
safe-mode = false
load-schema-snapshot = false
db-type = "mysql"
ignore-txn-commit-ts = []
ignore-schemas = "INFORMATION_SCHEMA,PERFORMANCE_SCHEMA,mysql"
replicate-do-db = ["~^b.*", "s1"]
case-sensitive = false

[syncer.relay]
log-dir = ""
max-file-size = 10485760

[[syncer.replicate-do-table]]
db-name = "test"
tbl-name = "~^a.*"

[[syncer.ignore-table]]
db-name = "test"
tbl-name = "log"

[[syncer.table-migrate-rule]]
binlog-filter-rule = ["no-drops"]
[syncer.table-migrate-rule.source]
schema = "s*"
table = "t*"
[syncer.table-migrate-rule.target]
schema = "s"
table = "t"

[syncer.binlog-filter-rule.no-drops]
ignore-event = ["drop table"]
ignore-sql = ["^DROP"]

[syncer.to]
host = "127.0.0.1"
user = "root"
password = ""
encrypted_password = ""
port = 3306
read-timeout = "1m"
sync-mode = 1
merge = false
[syncer.to.params]
time_zone = "'+00:00'"
[syncer.to.security]
ssl-ca = "/path/to/ca.pem"
ssl-cert = "/path/to/drainer.pem"
ssl-key = "/path/to/drainer-key.pem"
cert-allowed-cn = ["binlog"]

[syncer.to.checkpoint]
type = "mysql"
schema = "tidb_binlog"
table = "checkpoint"
host = "127.0.0.1"
user = "root"
encrypted_password = ""
password = ""
port = 3306
[syncer.to.checkpoint.security]
ssl-ca = "/path/to/ca.pem"
ssl-cert = "/path/to/drainer.pem"
ssl-key = "/path/to/drainer-key.pem"
cert-allowed-cn = ["binlog"]
"""


def test_a_go_drainers_file_loads_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "drainer.toml"
    file.write_text(GO_FILE)
    settings = load(f"-config={file}")
    assert (settings.worker_count, settings.txn_batch, settings.to_sync_mode) == (4, 3200, 1)
    assert settings.to_cert_allowed_cn == ("binlog",)
    read_rules(settings)
    told = settings.remarks()
    assert [line.partition(" ")[0] for line in told] == [
        "detect-interval",
        "syncer.enable-dispatch",
        "syncer.enable-detect",
        "syncer.txn-batch",
        "syncer.worker-count",
    ]
    assert told[3:] == [
        "syncer.txn-batch = 20 is the Go drainer's default and counts as not set: it is 3200, row changes of "
        "one downstream transaction at most; -txn-batch 20 means it",
        "syncer.worker-count = 16 is the Go drainer's default and counts as not set: it is 4, number of "
        "lanes that write downstream at once; -c 16 means it",
    ]


@pytest.mark.parametrize("syncer", ["", "txn-batch = 20\nworker-count = 16\n"])
def test_go_defaults_count_as_set_where_somebody_chose_them(tmp_path: Path, syncer: str) -> None:
    file = tmp_path / "drainer.toml"
    file.write_text(f"[syncer]\n{syncer}")
    environ = {f"{ENV_PREFIX}_C": "16", f"{ENV_PREFIX}_TXN_BATCH": "20"}
    for chosen in (
        load(f"-config={file}", "-c", "16", "-txn-batch=20"),
        load(f"-config={file}", **environ),
    ):
        assert (chosen.worker_count, chosen.txn_batch, chosen.remarks()) == (16, 20, [])
    half = load(f"-config={file}", "-c", "16")
    assert (half.worker_count, half.txn_batch, len(half.remarks())) == (16, 3200, bool(syncer))


def test_other_values_of_a_file_count_as_they_are(tmp_path: Path) -> None:
    file = tmp_path / "drainer.toml"
    file.write_text("[syncer]\ntxn-batch = 16\nworker-count = 20\n")
    settings = load(f"-config={file}")
    assert (settings.txn_batch, settings.worker_count, settings.remarks()) == (16, 20, [])


def test_every_flag_of_a_go_drainer_is_known_on_the_line_and_in_the_environment() -> None:
    flags = GO_FLAGS.split()
    settings = load(*(f"-{flag}" for flag in flags))
    assert (settings.log_level, settings.channel_id, settings.relay_log_dir) == ("warn", 1, "r")
    pairs = (flag.partition("=") for flag in flags)
    environ = {f"{ENV_PREFIX}_{name.upper().replace('-', '_')}": value or "true" for name, _, value in pairs}
    assert load(**environ) == settings


@pytest.mark.parametrize(
    ("flags", "keys", "off"),
    [
        ("", "", False),
        ("-enable-dispatch=false", "", True),
        ("-enable-dispatch=false", "disable-dispatch = false", False),
        ("-disable-dispatch=false", "disable-dispatch = true\nenable-dispatch = false", False),
        ("-disable-dispatch", "enable-dispatch = true", True),
        ("-enable-dispatch", "disable-dispatch = true", True),
        ("-enable-dispatch", "enable-dispatch = false", False),
        ("", "enable-dispatch = false", True),
    ],
)
def test_of_the_dispatch_switches_the_first_that_is_set_counts(
    tmp_path: Path, flags: str, keys: str, off: bool
) -> None:
    """disable flag, disable key, enable flag, enable key."""
    file = tmp_path / "drainer.toml"
    file.write_text(f"[syncer]\n{keys}\n")
    assert load(f"-config={file}", *flags.split()).dispatch_is_off is off


@pytest.mark.parametrize(
    ("argv", "toml", "text"),
    [
        (["-addr", "nowhere"], "", "invalid addr"),
        (["-advertise-addr", "nowhere"], "", "invalid advertise-addr"),
        (["-compressor", "lz4"], "", "Invalid compressor: lz4, must be one of these: [zstd gzip]"),
        (["-dest-db-type", "flash"], "", "unknown DestDBType: flash"),
        ([], '[syncer.to.checkpoint]\ntype = "file"', "unknown checkpoint type: file"),
        (["-ignore-schemas", "a,,b"], "", "empty schema name in `ignore-schemas` config"),
        ([], "[syncer]\nreplicate-do-db = ['']", "empty schema name in `replicate-do-db` config"),
        (
            [],
            "[[syncer.ignore-table]]\ndb-name = 'a'\ntbl-name = ''",
            "empty table name in `ignore-table` config",
        ),
        (
            [],
            "[[syncer.table-migrate-rule]]\nbinlog-filter-rule = ['x']\nsource = {schema = 's'}",
            "event filter rule name x not found",
        ),
        ([], "[syncer]\nsql-mode = 'NONSENSE'", "invalid config: `sql-mode` must be a valid SQL_MODE"),
        (
            [],
            "[syncer]\nignore-shemas = 'x'",
            "contained unknown configuration options: syncer.ignore-shemas",
        ),
    ],
)
def test_go_texts_for_what_is_wrong(tmp_path: Path, argv: list[str], toml: str, text: str) -> None:
    file = tmp_path / "drainer.toml"
    file.write_text(toml)
    with pytest.raises(ConfigError) as raised:
        read_rules(load(f"-config={file}", *argv))
    assert text in str(raised.value)
    assert raised.value.hint


def test_an_impossible_port_in_the_environment_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MYSQL_PORT", "many")
    with pytest.raises(ConfigError, match="MYSQL_PORT"):
        load()
    monkeypatch.setenv("MYSQL_PORT", "4000")
    assert load().downstream[1] == 4000


def test_the_help_lists_the_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        load("-h")
    assert ended.value.code == 0
    shown = re.findall(r"^  (\d+) ", capsys.readouterr().out, re.MULTILINE)
    own = {
        one.exit_code for one in vars(errors).values() if isinstance(one, type) and hasattr(one, "exit_code")
    }
    assert {int(code) for code in shown} == own | {0, 130}
