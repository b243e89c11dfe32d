"""Audit, kinds of archives: relay logs, archives of a Go drainer and value logs give no false finding."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from drainer.mysql.connection import Target
from drainer.places.place import Place
from drainer.reading.archive.decode.definitions import Definitions
from drainer.spark.audit.auditing import audit
from drainer.spark.audit.checks.findings import CHAINS, COVERAGE, exit_code
from drainer.spark.audit.document import document
from drainer.spark.audit.report import html
from tests.drainer.reading.archive.support import corpus
from tests.drainer.support import recorded
from tests.drainer.support.relay_world import items
from tests.spark.support.audit_world import coverage, walk_records
from tidb_binlog.errors import ConfigError

NOBODY: Any = None
NOW_S = 1_800_000_000.0
# What Go wrote under another table's name breaks chains: these are real findings, of its archive.
WRONG_NAMES = {"ddl-swap": 2, "ddl-rename-db": 1}


def wrong(location: Place, known: Definitions | None = None) -> int:
    """Findings of an archive whose records are in order."""
    found = coverage(Path(location.uri))
    assert (found.listed, found.notes) == ([], [])
    walked = walk_records(corpus.records(location, known, damage="report"))
    assert walked.steps
    return len(walked.wrong())


@pytest.mark.parametrize("scenario", recorded.VARIED)
def test_our_relay_log_is_clean(tmp_path: Path, scenario: str) -> None:
    assert wrong(corpus.our_relay(items(scenario), tmp_path, 32 << 10)) == 0


@pytest.mark.parametrize("kind", ["relay", "events"])
@pytest.mark.parametrize("scenario", recorded.VARIED)
def test_of_what_a_go_drainer_wrote_only_its_wrong_names_are_found(
    tmp_path: Path, scenario: str, kind: str
) -> None:
    location = corpus.unpacked(scenario, kind, tmp_path)
    # A relay log has keys itself. An archive has not: definitions are given to its audit.
    known = corpus.of_history(scenario) if kind == "events" else None
    assert wrong(location, known) == WRONG_NAMES.get(scenario, 0)


@pytest.mark.parametrize("scenario", ["basic", "multi-pump", "ddl"])
def test_a_value_log_is_read_and_what_it_cannot_tell_is_noted(tmp_path: Path, scenario: str) -> None:
    outcome = audit(NOBODY, corpus.pumps(scenario, tmp_path)[0].uri)
    assert exit_code(outcome.findings) == 0
    (note,) = outcome.findings[CHAINS].notes
    assert "audit what a drainer wrote" in note.text
    assert document(outcome, NOW_S)["rows"] > 50
    assert "not checked" in html(outcome, NOW_S)
    with pytest.raises(ConfigError, match="only a part of the changes"):
        audit(NOBODY, corpus.pumps(scenario, tmp_path)[0].uri, target=Target("localhost", 1, "root", ""))


def test_damage_in_a_value_log_is_found(tmp_path: Path) -> None:
    location = corpus.pumps("basic", tmp_path)[0]
    path = next((Path(location.uri) / "value").iterdir())
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x20
    path.write_bytes(data)
    (one,) = audit(NOBODY, location.uri).findings[COVERAGE].listed
    assert (one.kind, one.file) == ("damaged bytes", path.name)
