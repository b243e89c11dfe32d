"""binlog-spark --metrics: what a job did is in a file or at a Pushgateway, and neither can fail it."""

from __future__ import annotations

import http.server
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from drainer.spark import program as program
from drainer.spark.replay import job_metrics
from drainer.spark.replay.stream_jobs import Batch
from tests.drainer.reading.archive.support import corpus
from tests.drainer.support.relay_world import items
from tidb_binlog.clock import ManualClock
from tidb_binlog.errors import ConfigError, Corruption, FlagError
from tidb_binlog.observe import metrics


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> str:
    return corpus.our_archive(items("basic"), tmp_path_factory.mktemp("jobs") / "archive", 64 << 10).uri


def values(text: str, name: str) -> dict[str, float]:
    """By name: of what the jobs of a metric are at."""
    return {
        found[1]: float(found[2]) for found in re.finditer(rf'^{name}{{.*name="(.*?)"}} (.*)$', text, re.M)
    }


def test_a_job_leaves_a_file_that_says_how_it_ended(archive: str, tmp_path: Path) -> None:
    file = tmp_path / "nightly.prom"
    assert program.run(["files", "--archive", archive, "--metrics", str(file)]) == 0
    text = file.read_text()
    assert values(text, "binlog_spark_job_exit_code")["nightly"] == 0
    assert values(text, "binlog_spark_job_running_count")["nightly"] == 0
    began, ended = (
        values(text, f"binlog_spark_job_{name}_seconds")["nightly"] for name in ("start", "last_success")
    )
    assert 0 < began <= ended
    assert 'command="files"' in text
    assert "process_" not in text, "node_exporter has its own"
    assert file.stat().st_mode & 0o444 == 0o444
    assert [path.name for path in tmp_path.iterdir()] == ["nightly.prom"]


def test_a_job_that_fails_says_so_and_has_had_no_success(tmp_path: Path) -> None:
    file = tmp_path / "broken.prom"
    with pytest.raises(ConfigError):
        program.run(["files", "--archive", str(tmp_path / "nowhere"), "--metrics", str(file)])
    assert values(file.read_text(), "binlog_spark_job_exit_code")["broken"] == ConfigError.exit_code
    assert "broken" not in values(file.read_text(), "binlog_spark_job_last_success_seconds")


def test_a_second_job_of_a_process_says_nothing_of_the_first(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), job_metrics.published(str(tmp_path / "first.prom"), "replay"):
        raise RuntimeError("x")
    with job_metrics.published(str(tmp_path / "second.prom"), "replay") as job:
        job.exit_code = 0
    text = (tmp_path / "second.prom").read_text()
    assert values(text, "binlog_spark_job_exit_code") == {"second": 0}


def test_every_metric_of_jobs_begins_anew_with_a_job() -> None:
    declared = {
        name.removesuffix("_total") for name in metrics.declared() if name.startswith("binlog_spark_")
    }
    assert {family.name for metric in job_metrics._ALL for family in metric.collect()} == declared


def test_what_an_error_without_a_code_ends_is_a_failure_of_the_program(tmp_path: Path) -> None:
    for name, error, code in (("a", Corruption("x"), 6), ("b", RuntimeError("x"), 2)):
        file = tmp_path / f"{name}.prom"
        with pytest.raises(type(error)), job_metrics.published(str(file), "replay"):
            raise error
        assert values(file.read_text(), "binlog_spark_job_exit_code")[name] == code


def test_a_stream_says_how_far_it_is(tmp_path: Path) -> None:
    file = tmp_path / "orders.prom"
    with job_metrics.published(str(file), "stream", ManualClock()) as job:
        for number in (1, 2):
            job.note_batch(Batch(number, 1, 90_000 << 18, rows=10, ddl=1, drift=0, seconds=0.5, lag_s=-1.0))
        job.exit_code = 0
    text = file.read_text()
    assert values(text, "binlog_spark_stream_batches_total") == {"orders": 2}
    assert values(text, "binlog_spark_stream_rows_total") == {"orders": 20}
    assert values(text, "binlog_spark_stream_lag_seconds") == {"orders": 0}
    assert values(text, "binlog_spark_stream_position_milliseconds") == {"orders": 90_000}


class Gateway(http.server.BaseHTTPRequestHandler):
    """Takes what is added, and keeps it."""

    taken: list[tuple[str, str]]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.taken.append((self.path, body))
        self.send_response(202)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Not on standard error."""


@pytest.fixture
def gateway() -> Iterator[tuple[str, list[tuple[str, str]]]]:
    taken: list[tuple[str, str]] = []
    handler = type("Kept", (Gateway,), {"taken": taken})
    with http.server.HTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}", taken
        finally:
            server.shutdown()
            thread.join()


def test_a_pushgateway_gets_it_too(archive: str, gateway: tuple[str, list[tuple[str, str]]]) -> None:
    address, taken = gateway
    assert program.run(["files", "--archive", archive, "--metrics", address]) == 0
    path, text = taken[-1]
    assert path.startswith("/metrics/job/binlog/instance/files")
    assert values(text, "binlog_spark_job_exit_code")["files"] == 0


def test_a_place_that_takes_nothing_fails_no_job(
    archive: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for where in (str(tmp_path / "none" / "x.prom"), "127.0.0.1:1"):
        assert program.run(["files", "--archive", archive, "--metrics", where]) == 0
    assert sum("metrics cannot be written" in record.message for record in caplog.records) == 2


@pytest.mark.parametrize("where", ["metrics.txt", "gateway", "http://gateway/path"])
def test_a_place_of_another_kind_is_refused(where: str) -> None:
    with pytest.raises(FlagError, match=r"neither FILE\.prom nor HOST:PORT"):
        program.run(["files", "--archive", "x", "--metrics", where])
