"""Configuration of the pump: precedence and refusals."""

from __future__ import annotations

from pathlib import Path

import pytest

from pump.config import ENV_PREFIX, PumpConfig
from tidb_binlog.config import loading
from tidb_binlog.errors import ConfigError


def load(*argv: str, environ: dict[str, str] | None = None) -> PumpConfig:
    return loading.load(PumpConfig, list(argv), environ or {}, program="pump", env_prefix=ENV_PREFIX)


def test_flags_win_over_environment_over_file(tmp_path: Path) -> None:
    file = tmp_path / "pump.toml"
    file.write_text('addr = "10.0.0.1:1"\ndata-dir = "from-file"\nlog-level = "warn"\n')
    settings = load(
        "-config",
        str(file),
        "--addr=10.0.0.1:3",
        environ={"PUMP_ADDR": "10.0.0.1:2", "PUMP_DATA_DIR": "from-environment"},
    )
    assert settings.addr == "10.0.0.1:3"
    assert settings.data_dir == "from-environment"
    assert settings.log_level == "warn"


def test_derived_addresses() -> None:
    settings = load("-addr", "127.0.0.1:9000", "-pd-urls", "http://b:2, http://a:1")
    assert settings.advertised == "127.0.0.1:9000"
    assert settings.endpoints == "http://a:1,http://b:2"
    assert settings.default_node_id.endswith(":9000")


def test_a_socket_is_a_path_or_a_url_of_one() -> None:
    assert load().unix_path == ""
    assert load("-socket", "unix:///run/p/p.sock").unix_path == "/run/p/p.sock"
    assert load("-socket", "unix://p.sock").unix_path == "p.sock"
    assert load("-socket", "/run/p.sock").unix_path == "/run/p.sock"


def test_retention_sizes_and_durations(tmp_path: Path) -> None:
    file = tmp_path / "pump.toml"
    file.write_text(
        'gc = 5\nresolve-after = "250ms"\n[storage]\nstop-write-at-available-space = "42 MB"\n'
        "sync-log = false\nkv_chan_cap = 7\n[storage.kv]\nblock-size = 1\n"
    )
    settings = load("-config", str(file))
    assert settings.gc_s == 5 * 86400
    assert settings.resolve_after_s == 0.25
    assert settings.stop_write_at_bytes == 42_000_000
    assert not settings.sync_log
    assert load("-config", str(file), "--gc", "30m").gc_s == 1800


def test_deprecated_flags_of_old_deployments_are_accepted() -> None:
    load("-binlog-file-size", "1", "-enable-binlog-slice", "-log-rotate", "day", "-metrics-addr", "x:1")


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (("-addr", "nonsense"), "addr"),
        (("-addr", "127.0.0.1:99999"), "addr"),
        (("-addr", ":8250"), "advertiseAddr"),
        (("-addr", "0.0.0.0:8250"), "invalid advertiseAddr host"),
        (("-pd-urls", "ftp://a:1"), "URL scheme"),
        (("-pd-urls", "http://a:1/x"), "must not contain a path"),
        (("-pd-urls", "http://a"), "host:port"),
        (("-upstream", "oracle"), "upstream"),
        (("-gc", "0"), "gc"),
        (("-gc", "7d"), "gc"),
        (("-heartbeat-interval", "0"), "heartbeat-interval"),
        (("-resolve-after", "0"), "resolve-after"),
        (("-fake-binlog-interval", "0"), "gen-binlog-interval"),
        (("-accept-loss", "x"), "accept-loss"),
        (("-metrics-interval", "-1"), "MetricsInterval is -1"),
        (("-socket", "http://x/y"), "socket"),
        (("-socket", "unix://"), "socket"),
        (("-socket", "unix:///x/"), "socket"),
        (("-rpc-server", "grpcio"), "rpc-server"),
        (("-start-wait=-1s",), "start-wait"),
    ],
)
def test_refusals_name_the_key_and_the_next_step(argv: tuple[str, ...], text: str) -> None:
    with pytest.raises(ConfigError, match=text) as caught:
        load(*argv)
    assert caught.value.hint
    assert caught.value.exit_code in (1, 2)


def test_unknown_key_is_refused_with_a_suggestion_and_its_line(tmp_path: Path) -> None:
    file = tmp_path / "pump.toml"
    file.write_text('addr = "127.0.0.1:1"\nheartbeat-intervall = 3\n')
    with pytest.raises(ConfigError, match=r"heartbeat-intervall \(line 2\)") as caught:
        load("-config", str(file))
    assert caught.value.hint == "did you mean heartbeat-interval?"


def test_accepted_loss_is_one_place() -> None:
    assert load("-addr", "127.0.0.1:1", "-accept-loss", "000003.vlog:1234").accept_loss == "000003.vlog:1234"
    assert load("-addr", "127.0.0.1:1").accept_loss == ""


@pytest.mark.parametrize(
    "line", ["http-head-size = 0", "keepalive = 0", "streams = 0", "resets-per-second = nan"]
)
def test_limits_of_the_door_that_let_nobody_in_are_refused(tmp_path: Path, line: str) -> None:
    file = tmp_path / "pump.toml"
    file.write_text(f"[door]\n{line}\n")
    with pytest.raises(ConfigError, match=f"door.{line.partition(' ')[0]}"):
        load("-config", str(file))


@pytest.mark.parametrize("text", ["admin-from = [10]", "[security]\ncert-allowed-cn = [5]"])
def test_lists_of_texts_take_no_numbers(tmp_path: Path, text: str) -> None:
    file = tmp_path / "pump.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match="a list of texts is expected"):
        load("-config", str(file))


def test_keys_of_a_go_pump_that_have_no_effect_are_named(tmp_path: Path) -> None:
    file = tmp_path / "pump.toml"
    file.write_text("[storage]\nkv_chan_cap = 1048576\nsync-log = true\n[storage.kv]\nblock-size = 4096\n")
    assert load("-config", str(file), "-log-rotate", "day").remarks() == [
        "storage.kv_chan_cap is accepted for Go's sake and has no effect",
        "-log-rotate is accepted for Go's sake and has no effect",
    ]
    assert load().remarks() == []
