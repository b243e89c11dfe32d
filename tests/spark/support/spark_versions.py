"""PySpark of other releases beside the installed one, for a process of its own.

    environ(release)           variables of a process in which `import pyspark` is that release's; all else
                               comes from this environment
    jars(release, *packages)   settings for these Maven packages and what they need; resolved once, later
                               without the network
    class_path(*packages)      of a JVM that runs them and is no Spark
    prefetch()                 makes all that the whole run of tests asks for

Holds   each is made once for a checkout, below build/spark, however many processes ask; what was cut short
        while it was made is made anew. `Unavailable` where it cannot be downloaded
Why     a directory in front of the path and no environment of its own: what differs is one package
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, TypeVar

import pytest

from tidb_binlog.errors import Unavailable

T = TypeVar("T")
RELEASES: Final = ("4.0", "4.1")
MAKING_S: Final = 800
"""For the mark `timeout` of a test that may be the first one to ask: a release has 400 MB."""
FEW_S: Final = 200
"""For packages of some MB, which a test waits for within its own time."""
FILE_SYSTEMS: Final = {
    "delta": "org.apache.hadoop:hadoop-aws:3.4.2",
    "iceberg": "org.apache.iceberg:iceberg-aws-bundle:1.12.0",
}
"""By which a mirror of this form lies in an object store."""
_FAILED_S: Final = 600
"""So long what could not be downloaded is not tried again: each try may wait for long."""
_STORE: Final = Path(__file__).resolve().parents[3] / "build" / "spark"
_RESOLVE: Final = "from pyspark.sql import SparkSession; SparkSession.builder.getOrCreate().stop()"


def environ(release: str) -> dict[str, str]:
    """Of this process, with that release in front of its path. It is installed first, if it is not yet."""
    directory = once(release, lambda target: _install(release, target))
    path = os.pathsep.join(filter(None, (str(directory), os.environ.get("PYTHONPATH"))))
    return os.environ | {
        "PYTHONPATH": path,
        "SPARK_HOME": str(directory / "pyspark"),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


def jars(release: str, *packages: str) -> dict[str, str]:
    """`packages`: group:artifact:version each."""
    return {"spark.jars": ",".join(map(str, _resolved(environ(release), packages)))}


def class_path(*packages: str) -> str:
    """`packages` as for `jars`. The installed release resolves them, and leaves out Scala, which it has."""
    try:
        import pyspark
    except ImportError:
        raise Unavailable("PySpark is not installed, which fetches them", hint="make setup-spark") from None
    scala = Path(pyspark.__file__).parent.glob("jars/scala-library-*.jar")
    variables = os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"}
    return os.pathsep.join(map(str, [*_resolved(variables, packages, FEW_S), *scala]))


def _resolved(variables: dict[str, str], packages: tuple[str, ...], seconds: float = MAKING_S) -> list[Path]:
    key = hashlib.sha256(" ".join(packages).encode()).hexdigest()[:12]
    directory = once(f"jars-{key}", lambda target: _resolve(variables, packages, target, seconds))
    return sorted((directory / "jars").glob("*.jar"))


def prefetch() -> None:
    """Or four processes would wait for it: 2 GB. What cannot be downloaded the tests say."""
    from drainer.spark.live.mirror import DELTA_CONNECTOR, ICEBERG_CONNECTOR

    with suppress(Unavailable):
        for connector, files in zip((DELTA_CONNECTOR, ICEBERG_CONNECTOR), FILE_SYSTEMS.values(), strict=True):
            jars("4.1", *connector.packages)
            jars("4.1", *connector.packages, files)
        for release in RELEASES:
            environ(release)


def or_skip(make: Callable[[], T]) -> T:
    """For a test: what cannot be downloaded is a program that this machine lacks."""
    try:
        return make()
    except Unavailable as error:
        pytest.skip(error.message.partition(":")[0])


def _install(release: str, target: Path) -> None:
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    package = f"pyspark=={release}.*"
    _download(package, [*pip, "--target", str(target), package], dict(os.environ))


def _resolve(variables: dict[str, str], packages: tuple[str, ...], target: Path, seconds: float) -> None:
    settings = {
        "spark.jars.packages": ",".join(packages),
        "spark.jars.ivy": str(target),
        "spark.master": "local[1]",
        "spark.ui.enabled": "false",
    }
    submit = " ".join(f"--conf {key}={value}" for key, value in settings.items())
    submitted = variables | {"PYSPARK_SUBMIT_ARGS": f"{submit} pyspark-shell"}
    _download(settings["spark.jars.packages"], [sys.executable, "-c", _RESOLVE], submitted, seconds)


def _download(what: str, argv: list[str], variables: dict[str, str], seconds: float = MAKING_S) -> None:
    try:
        done = subprocess.run(
            argv, env=variables, text=True, capture_output=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired:
        said = f"it is not there after {seconds:g} s"
    else:
        if done.returncode == 0:
            return
        said = (done.stdout + done.stderr)[-2000:].strip()
    raise Unavailable(
        f"{what} cannot be downloaded: {said}", hint=f"once it is in {_STORE}, no network is needed"
    )


def once(name: str, make: Callable[[Path], None]) -> Path:
    """The directory of that name; `make` fills one that gets the name when it is whole."""
    directory, half, failed = _STORE / name, _STORE / f"{name}.half", _STORE / f"{name}.failed"
    with _alone(name):
        if not directory.exists():
            if failed.exists() and time.time() - failed.stat().st_mtime < _FAILED_S:
                raise Unavailable(failed.read_text())
            shutil.rmtree(half, ignore_errors=True)
            try:
                make(half)
            except Unavailable as error:
                failed.write_text(error.message)
                raise
            half.rename(directory)
    return directory


@contextmanager
def _alone(name: str) -> Iterator[None]:
    """No other process is in here for that name; one that dies leaves."""
    _STORE.mkdir(parents=True, exist_ok=True)
    with (_STORE / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
