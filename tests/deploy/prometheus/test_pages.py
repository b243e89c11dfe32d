"""Pages for operators who were paged: commands are understood, codes, keys and series are those there are.

Commands that ask running nodes are tried beside them in tests/deploy/prometheus/test_prometheus.py.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path

import msgspec
import pytest
import yaml

from binlogctl.cli import commands
from binlogctl.cli.command_line import Call, parse
from drainer.spark import program as binlog_spark
from tests.deploy.prometheus import exported
from tests.deploy.prometheus.pages import ALERTS, MONITORING, TROUBLES, shell_lines
from tests.deploy.prometheus.rules import DASHBOARDS, DIRECTORY, ROOT, alerts, promtool
from tidb_binlog import errors
from tidb_binlog.process import daemon
from tidb_binlog.status.drainer import DrainerDocument
from tidb_binlog.status.pump import PumpStatus

LINES = sorted(set(shell_lines(ALERTS) + shell_lines(TROUBLES) + shell_lines(MONITORING)))
OF_THE_SYSTEM = {
    "curl",
    "df",
    "dmesg",
    "iostat",
    "journalctl",
    "openssl",
    "prometheus",
    "promtool",
    "pump",
    "sed",
    "systemctl",
}
"""Programs that the pages use beside binlogctl."""
CODES = {
    int(code): row
    for first, last, row in re.findall(r"^\| (\d+)(?: to (\d+))? \|(.*)$", TROUBLES, re.MULTILINE)
    for code in range(int(first), int(last or first) + 1)
}


@pytest.mark.parametrize("line", [line for line in LINES if line.startswith("binlogctl ")])
def test_binlogctl_understands_the_command(line: str) -> None:
    assert isinstance(parse(shlex.split(line)[1:], {}), Call)


def test_other_commands_are_those_of_any_system() -> None:
    assert {line.split()[0] for line in LINES} - {"binlogctl", "binlog-spark"} == OF_THE_SYSTEM


def test_the_example_of_prometheus_is_one() -> None:
    (line,) = [line for line in LINES if line.startswith("promtool ")]
    done = promtool(*shlex.split(line.replace("deploy/prometheus", str(DIRECTORY)))[1:])
    assert done.returncode == 0, done.stdout + done.stderr


def test_runbooks_can_be_led_to_where_the_page_is_served(tmp_path: Path) -> None:
    for path in DIRECTORY.glob("*.yml"):
        shutil.copy(path, tmp_path)
    (line,) = [line for line in LINES if line.startswith("sed ")]
    subprocess.run(line, shell=True, cwd=tmp_path, check=True)
    texts = [path.read_text() for path in tmp_path.glob("*-rules.yml")]
    urls = re.findall(r'runbook_url: "(.*)"', "\n".join(texts))
    assert len(urls) > 30
    assert all(re.fullmatch(r"https://docs\.example\.com/alerts\.html#binlog\w+", url) for url in urls)


def test_every_alert_says_what_it_means_what_to_look_at_and_what_to_do() -> None:
    parts = re.split(r"^### ", ALERTS, flags=re.MULTILINE)[1:]
    assert len(parts) > 30
    for part in parts:
        for word in ("**Means**", "**Look**", "**Do**"):
            assert word in part or "**Look** and **do** as at" in part, part.split("\n")[0]


def test_every_exit_code_of_a_program_is_in_the_table() -> None:
    declared = {kind.exit_code for kind in vars(errors).values() if _is_error(kind)}
    told = {int(code) for code in re.findall(r"^ +(\d+) ", commands.EXIT_CODES, re.MULTILINE)}
    assert declared <= CODES.keys()
    assert told <= CODES.keys()
    assert daemon.EXIT_FORCED in CODES


def _is_error(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, errors.BinlogError)


def test_codes_after_which_a_node_is_not_started_again_are_those_of_the_units() -> None:
    sentence = TROUBLES[TROUBLES.index("do not restart a node") :].partition(".")[0]
    both, pump, drainer = re.findall(
        r"codes ([\d, and]+), a Pump after\s+(\d+) or a Drainer after\s+(\d+)", sentence
    )[0]
    shared = set(re.findall(r"\d+", both))
    for name, more in (("pump", pump), ("drainer", drainer)):
        unit = (ROOT / "deploy" / "systemd" / f"{name}.service").read_text()
        (stops,) = re.findall(r"^RestartPreventExitStatus=(.*)$", unit, re.MULTILINE)
        assert set(stops.split()) == shared | {more}


def test_keys_of_a_status_that_the_pages_name_exist() -> None:
    of_pump = {one.encode_name for one in msgspec.structs.fields(PumpStatus)}
    of_drainer = {one.encode_name for one in msgspec.structs.fields(DrainerDocument)}
    text = ALERTS + TROUBLES
    for key in ("writer_error", "index_error", "oldest_open", "resolver", "stages", "leaving"):
        assert f"`{key}`" in text
        assert key in of_pump
    for key in ("Lag", "Lanes", "WentBack", "Drift", "Verify", "Standby"):
        assert re.search(rf"`{key}[`.]", text), key
        assert key in of_drainer


@pytest.mark.parametrize("line", [line for line in LINES if line.startswith("binlog-spark ")])
def test_binlog_spark_understands_the_command(line: str) -> None:
    words = shlex.split(line)[1:]
    assert binlog_spark.parser(words[0]).parse_args(words).metrics in words


def test_series_and_alerts_that_the_page_names_exist() -> None:
    before, _, after = MONITORING.partition("alerts replace those of the Go system:")
    mapping, _, rest = after.partition("\nTwo counters")
    names = exported.series().keys()
    named = set(re.findall(r"`(binlog_\w+)", before + rest))
    assert len(named) > 20
    assert {name for name in named if not any(one.startswith(name) for one in names)} == set()
    assert set(re.findall(r"\[(Binlog\w+)\]", mapping)) <= alerts().keys()
    assert mapping.count("| `binlog_") == 7, "alerts of the Go system"


def test_files_and_snippets_of_the_page_are_those_there_are() -> None:
    rules = {path.name for path in DIRECTORY.glob("*.yml")}
    assert set(re.findall(r"`(\w+(?:-rules)?\.yml)`", MONITORING)) == rules
    assert set(re.findall(r"`(\w+)\.json`", MONITORING)) == DASHBOARDS.keys()
    blocks = [yaml.safe_load(block) for block in re.findall(r"^```yaml\n(.*?)^```$", MONITORING, re.M | re.S)]
    assert [set(block) for block in blocks] == [{"scheme", "tls_config"}, {"apiVersion", "providers"}]
    (block,) = re.findall(r"^```toml\n(.*?)^```$", MONITORING, re.MULTILINE | re.DOTALL)
    for daemon_ in ("pump", "drainer"):
        file = (ROOT / "docs" / f"config-{daemon_}.md").read_text()
        for key in tomllib.loads(block):
            assert re.search(rf"\b{key}\b", file), key
