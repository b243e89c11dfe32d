"""A home of Spark whose processes start with half of the work.

Holds   all of the installed package, by links, and an archive of the classes that a session loads. Where
        Spark puts zips in front of the path of its Python processes (pyspark.zip, py4j), a directory with a
        link to the installed package
Why     a JVM that loads and checks ten thousand classes one by one takes twice the CPU for its first job;
        what is imported from a zip is compiled anew by each Python process
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pyspark

from tests.spark.support import spark_versions
from tests.spark.support.spark_command import DAEMONS
from tidb_binlog.errors import Unavailable

_QUICK: Final = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"  # jobs of seconds
_SESSION: Final = """
from drainer.spark.session import session
spark = session("classes", "local[2]", {"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "2"})
spark.range(1000).selectExpr("id % 7 AS k").groupBy("k").count().orderBy("k").collect()
"""
_CLASSES: Final = "classes.jsa"


def environ(release: str = "") -> dict[str, str]:
    """For the JVMs of commands and clusters, and their Python processes; of the installed package or of
    another release (`spark_versions`). Made once for a checkout; the package as it is where that cannot be:
    the tests that need Java say why."""
    variables = spark_versions.environ(release) if release else {}
    package = Path(variables["SPARK_HOME"]) if release else Path(pyspark.__file__).parent
    try:
        java = os.path.realpath(_java())
        version = release or pyspark.__version__
        given = [version, str(package / "__init__.py"), java, str(os.stat(java).st_mtime_ns)]
        key = hashlib.sha256(" ".join(given).encode()).hexdigest()[:12]
        home = spark_versions.once(f"home-{key}", lambda target: _link(package, target))
        classes = spark_versions.once(f"classes-{key}", lambda target: _dump(variables, home, target))
    except (OSError, Unavailable):
        return variables | _environ(package)
    # Another release of Spark, or what was started in another way, cannot use it, and need not say so.
    return variables | _environ(home, f"-XX:SharedArchiveFile={classes / _CLASSES} -Xlog:cds*=off")


def _java() -> str:
    """The one that Spark takes."""
    home = os.environ.get("JAVA_HOME")
    return os.path.join(home, "bin", "java") if home else shutil.which("java") or "java"


def _environ(home: Path, option: str = "") -> dict[str, str]:
    jvm = f"{_QUICK} {option}".strip()
    return {
        "SPARK_HOME": str(home),
        "SPARK_LAUNCHER_OPTS": _QUICK,
        "SPARK_SUBMIT_OPTS": jvm,
        DAEMONS: jvm,
    }


def _dump(variables: Mapping[str, str], home: Path, target: Path) -> None:
    """A JVM that cannot use the file loads its classes as ever. Raises `Unavailable` where there is none."""
    target.mkdir()
    variables = os.environ | variables | _environ(home, f"-XX:ArchiveClassesAtExit={target / _CLASSES}")
    # It is written when the session's JVM ends, which holds the pipes.
    done = subprocess.run([sys.executable, "-c", _SESSION], env=variables, capture_output=True, check=False)
    if done.returncode or not (target / _CLASSES).exists():
        raise Unavailable(done.stderr.decode(errors="replace")[-2000:])


def _link(package: Path, home: Path) -> None:
    home.mkdir()
    for entry in package.iterdir():
        if entry.name != "python":
            (home / entry.name).symlink_to(entry)
    packages = {"pyspark": package, "py4j": package.parent / "py4j"}
    for archive in (package / "python" / "lib").glob("*.zip"):
        name = archive.name.partition("-")[0].removesuffix(".zip")
        link = home / "python" / "lib" / archive.name / name
        link.parent.mkdir(parents=True)
        link.symlink_to(packages[name])
