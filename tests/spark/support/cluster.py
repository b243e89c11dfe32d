"""A standalone Spark cluster on this host: a master and workers of the pip package, as processes of ours.

`spark-class` becomes the JVM, so its process id is the daemon's; an executor is a child of its worker and in
its process group.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from binlog_playground.cluster.supervisor import POLL_S, Process
from tests.spark.support.spark_command import executors_start_as
from tests.waiting import PATIENCE_S
from tidb_binlog.errors import Unavailable
from tidb_binlog.net.port import LOOPBACK, free_ports

# A dead worker or executor is to be noticed within seconds. The interval bounds the time-out from below.
SETTINGS = {
    "spark.driver.host": LOOPBACK,
    "spark.driver.bindAddress": LOOPBACK,
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.network.timeout": "12s",
    "spark.network.timeoutInterval": "4s",
    "spark.executor.heartbeatInterval": "2s",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
}
_DAEMON = "-Dspark.worker.timeout=6 -Dspark.master.rest.enabled=false"


class Cluster:
    """One master, workers with one slot each."""

    def __init__(self, directory: Path, workers: int = 2) -> None:
        self._directory = directory
        port, master_ui, *ports = free_ports(2 + 2 * workers)
        self.url = f"spark://{LOOPBACK}:{port}"
        self.master = self._daemon("master", "Master", "--port", str(port), "--webui-port", str(master_ui))
        self.workers = [
            self._daemon(
                *(f"worker{number}", "Worker", "--port", str(ports[2 * number])),
                *("--webui-port", str(ports[2 * number + 1]), "--cores", "1", "--memory", "1g"),
                *("--work-dir", str(directory / f"work{number}"), self.url),
            )
            for number in range(workers)
        ]

    def _daemon(self, name: str, kind: str, *arguments: str) -> Process:
        program = f"org.apache.spark.deploy.{kind.lower()}.{kind}"
        argv = [_program("spark-class"), program, "--host", LOOPBACK, *arguments]
        return Process(name, argv, self._directory / f"{name}.log", self.environ())

    def environ(self) -> dict[str, str]:
        return os.environ | {
            "SPARK_LOCAL_IP": LOOPBACK,
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": f"{os.environ['SPARK_DAEMON_JAVA_OPTS']} {_DAEMON}",
            "SPARK_LOCAL_DIRS": str(self._directory / "local"),
            "TZ": "UTC",
        }

    def start(self) -> None:
        """All at once; returns when the workers are registered. Raises `Unavailable`."""
        for process in (self.master, *self.workers):
            process.start()
        end = time.monotonic() + PATIENCE_S
        while self.master.log.read_text().count("Registering worker") < len(self.workers):
            dead = [one for one in (self.master, *self.workers) if one.died]
            if dead or time.monotonic() > end:
                raise Unavailable(f"the cluster does not come up: {(dead or [self.master])[0].tail()}")
            time.sleep(POLL_S)

    def executors(self, worker: Process) -> list[int]:
        """Process ids of a worker's executors: its children that run as such by now."""
        found = []
        for task in Path(f"/proc/{worker.pid}/task").glob("*/children"):
            found += [int(text) for text in task.read_text().split() if _is_executor(text)]
        return found

    def kill_executor(self, worker: Process) -> None:
        (victim,) = self.executors(worker)
        os.kill(victim, signal.SIGKILL)

    def submit(
        self, script: Path, package: Path, arguments: Sequence[str], environ: Mapping[str, str]
    ) -> Process:
        """`spark-submit` of a script with a package, started."""
        jvms = executors_start_as(os.environ)
        settings = [part for key, value in (SETTINGS | jvms).items() for part in ("--conf", f"{key}={value}")]
        argv = [
            *(
                _program("spark-submit"),
                "--master",
                self.url,
                "--py-files",
                str(package),
            ),
            *("--driver-memory", "512m", "--executor-memory", "512m", *settings, str(script), *arguments),
        ]
        log = self._directory / "submit.log"
        # From another directory and without this checkout's path: what is not in the package is not there.
        process = Process("spark-submit", argv, log, self.environ() | dict(environ))
        process.start()
        return process

    def stop(self) -> None:
        for process in (*self.workers, self.master):
            process.kill()


def _program(name: str) -> str:
    return str(Path(os.environ["SPARK_HOME"], "bin", name))


def _is_executor(pid: str) -> bool:
    try:
        return b"CoarseGrainedExecutorBackend" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False
