"""docs/kafka.md: its configurations pass the check, its keys and values are those that there are."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from binlogctl.commands.config import examine
from drainer.config import sink_options as kafka_options
from drainer.config.options import ENV_PREFIX, DrainerConfig
from drainer.sink.kafka import position
from drainer.sink.kafka.destinations import NAME
from drainer.sink.kafka.feed import CLAIM_HEADER
from drainer.sink.kafka.messages import KIND, LAST
from tidb_binlog.config import declaring

ROOT = Path(__file__).resolve().parents[4]
PAGE = (ROOT / "docs" / "kafka.md").read_text()
FILES = re.findall(r"^```toml\n(.*?)^```$", PAGE, re.M | re.S)
BLOCKS = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.M | re.S)
COMMANDS = [line for block in BLOCKS for line in block.splitlines()]


@pytest.mark.parametrize("number", range(len(FILES)))
def test_each_configuration_passes_the_check(number: int, tmp_path: Path) -> None:
    """As `binlogctl config check drainer.toml` reads it; files that it names are there."""
    text = FILES[number]
    for name in re.findall(r'"(/etc/[^"]*|/var/[^"]*)"', text):
        file = tmp_path / Path(name).name
        file.write_text("x")
        file.chmod(0o600)
        text = text.replace(name, str(file))
    path = tmp_path / "drainer.toml"
    path.write_text(text)
    path.chmod(0o600)
    assert examine(str(path), "drainer", {}).problems == ()


def test_every_command_is_known_here() -> None:
    """The check is above, the drainer's starts in `test_kafka_process` and `test_snapshot_first`; `pip` names
    an extra that there is."""
    assert COMMANDS == [
        "pip install 'tidb-binlog[kafka]'",
        "binlogctl config check drainer.toml",
        "drainer --config drainer.toml",
        "drainer --config drainer.toml --load",
    ]
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert "kafka" in extras
    assert ENV_PREFIX


def test_every_key_of_kafka_is_on_the_page() -> None:
    own = set(declaring.options(kafka_options.KafkaOptions)) - set(
        declaring.options(kafka_options.ArchiveOptions)
    )
    keys = {str(declaring.options(DrainerConfig)[name].key).removeprefix("syncer.to.") for name in own}
    assert {key for key in keys if f"`{key}`" not in PAGE and f"`{key} = " not in PAGE} == set()


def test_values_and_headers_are_those_that_there_are() -> None:
    for known in (
        kafka_options.KAFKA_FORMATS,
        kafka_options.MESSAGES,
        kafka_options.OVERSIZE,
        kafka_options.COMPRESSIONS,
        kafka_options.MECHANISMS,
        kafka_options.PARTITIONS,
        (position.COMMIT_TS, position.SEQ, position.MORE, LAST, KIND, CLAIM_HEADER),
    ):
        assert [value for value in known if value and f"`{value}`" not in PAGE] == []
    assert f"data-dir/{NAME}" in PAGE
