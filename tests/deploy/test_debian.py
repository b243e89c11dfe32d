"""The Debian package, built by `dpkg-buildpackage` and installed below a directory: the host is left alone.

What it depends on is not downloaded: the package holds our own code alone, and runs with the packages of this
environment.
"""

from __future__ import annotations

import configparser
import os
import re
import shlex
import shutil
import signal
import socket
import stat
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.waiting import PATIENCE_S
from tidb_binlog.version import VERSION

ROOT = Path(__file__).parents[2]
TOOLS = ("dpkg-buildpackage", "dh", "systemd-analyze", "systemd-sysusers", "systemd-tmpfiles")
MISSING = [tool for tool in TOOLS if shutil.which(tool) is None]
if os.geteuid() != 0 and shutil.which("fakeroot") is None:
    MISSING.append("fakeroot")
pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(bool(MISSING), reason=f"not on this machine: {', '.join(MISSING)}"),
]

AS_ROOT = () if os.geteuid() == 0 else ("fakeroot",)
ENVIRONMENT = {
    **os.environ,
    "LC_ALL": "C.UTF-8",
    "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin",
    "PYTHON": sys.executable,
    "PIP": f"{sys.executable} -m pip",
    "INSTALL_FLAGS": "--no-deps --no-index --no-build-isolation",
    "PYTHONPATH": sysconfig.get_paths()["purelib"],
    "DPKG_DEB_COMPRESSOR_TYPE": "none",
}


def output(*command: str | Path, **environment: str) -> str:
    done = subprocess.run(
        command, env={**ENVIRONMENT, **environment}, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("deb")
    output("sh", ROOT / "deploy/debian/build.sh", directory, "--no-check-builddeps")
    (built,) = directory.glob("*.deb")
    return built


class System:
    """A Debian that packages are installed in: empty but for its interpreter."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for directory in ("etc", "var/lib/dpkg/info", "var/lib/dpkg/updates"):
            (root / directory).mkdir(parents=True)
        (root / "var/lib/dpkg/status").touch()
        # debhelper makes links below /usr relative: so an environment finds Debian's Python below the root.
        (root / "usr/bin").mkdir(parents=True)
        for python in Path("/usr/bin").glob("python3*"):
            (root / "usr/bin" / python.name).symlink_to(python)

    def dpkg(self, *arguments: str | Path) -> str:
        forced = ("--force-script-chrootless", "--force-depends", "--force-confold")
        return output(*AS_ROOT, "dpkg", f"--root={self.root}", *forced, *arguments)

    def group_of(self, name: str) -> int:
        lines = (self.root / "etc/group").read_text().splitlines()
        return next(int(line.split(":")[2]) for line in lines if line.startswith(f"{name}:"))

    def run_as_unit(self, unit: str) -> list[str]:
        """The command of ExecStart with its paths below the root."""
        parser = configparser.ConfigParser(interpolation=None, strict=False)
        parser.optionxform = str  # type: ignore[assignment,method-assign]
        (file,) = self.root.glob(
            f"**/systemd/system/{unit.partition('@')[0]}{'@' if '@' in unit else ''}.service"
        )
        assert parser.read(file)
        words = shlex.split(parser["Service"]["ExecStart"].replace("%i", unit.partition("@")[2]))
        below = [f"{self.root}{word}" if word.startswith("/") else word for word in words]
        # `#!` is an absolute path.
        return [f"{self.root}/usr/lib/tidb-binlog/bin/python", *below]


def test_what_is_in_it(package: Path) -> None:
    assert package.name.startswith(f"tidb-binlog_{VERSION}_")
    field = lambda name: output("dpkg-deb", "--field", package, name).strip()  # noqa: E731
    major, minor = sys.version_info[:2]
    assert f"python3 (>= {major}.{minor}~), python3 (<< {major}.{minor + 1}~)" in field("Depends")
    listed = {
        line.split()[5].rstrip("/"): line.split()[:2]
        for line in output("dpkg-deb", "-c", package).splitlines()
    }
    for name in ("pump", "drainer"):
        assert listed[f"./etc/tidb-binlog/{name}.toml"] == ["-rw-r-----", "root/root"]
    assert {name for name in listed if name.startswith("./usr/bin/")} == {
        f"./usr/bin/{name}" for name in ("pump", "drainer", "binlogctl", "reparo")
    }
    units = {Path(name).name for name in listed if "/systemd/system/" in name}
    assert units == {"pump.service", "pump@.service", "drainer.service", "drainer@.service"}
    for wanted in (
        "usr/lib/sysusers.d/tidb-binlog.conf",
        "usr/lib/tmpfiles.d/tidb-binlog.conf",
        "usr/share/bash-completion/completions/binlogctl",
        "usr/share/zsh/vendor-completions/_binlogctl",
        "usr/share/fish/vendor_completions.d/binlogctl.fish",
        "usr/share/doc/tidb-binlog/copyright",
        "usr/share/doc/tidb-binlog/docs/config-drainer.md",
        "usr/share/doc/tidb-binlog/examples/prometheus/pump-rules.yml",
    ):
        assert f"./{wanted}" in listed
    assert not any(str(package.parent) in line for line in output("dpkg-deb", "--info", package).splitlines())


def test_the_build_leaves_the_home_of_its_user_where_it_is() -> None:
    """What a makefile assigns to a variable of the environment goes to each command: pip caches in HOME."""
    assigned = re.findall(r"^(\w+) *:=", (ROOT / "deploy/debian/rules").read_text(), re.MULTILINE)
    assert "PROGRAMS" in assigned
    assert not {"HOME", "PATH", "TMPDIR", "USER"} & set(assigned)


def test_instances_have_files_and_directories_of_their_own(package: Path, tmp_path: Path) -> None:
    output("dpkg-deb", "-x", package, tmp_path)
    (units,) = tmp_path.glob("**/systemd/system")
    for name in ("pump", "drainer"):
        plain = (units / f"{name}.service").read_text().splitlines()
        instance = (units / f"{name}@.service").read_text().splitlines()
        changed = dict(zip(plain, instance, strict=True))
        own = {line for line, other in changed.items() if line != other}
        keys = {line.partition("=")[0] for line in own}
        assert keys >= {"Description", "Documentation", "ExecStart", "StateDirectory"}
        assert all("%i" in changed[line] for line in own)
        start = changed[next(line for line in plain if line.startswith("ExecStart="))]
        assert start.split("=", 1)[1].split() == [
            f"/usr/bin/{name}",
            "--config",
            f"/etc/tidb-binlog/{name}-%i.toml",
            "--data-dir",
            f"/var/lib/tidb-binlog/{name}-%i",
        ]
    for unit in units.iterdir():
        unit.write_text(unit.read_text().replace("=/usr/bin/", f"={tmp_path}/usr/bin/"))
    (tmp_path / "usr/bin").rename(tmp_path / "usr/links")
    (tmp_path / "usr/bin").mkdir()
    for name in ("pump", "drainer"):
        (tmp_path / "usr/bin" / name).symlink_to(sys.executable)
    checked = subprocess.run(
        ["systemd-analyze", "verify", units / "pump@a.service", units / "drainer@a.service"],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert "pump@" not in checked.stderr, checked.stderr
    assert "drainer@" not in checked.stderr, checked.stderr


def test_installed_started_upgraded_removed_purged(
    package: Path, tmp_path: Path, etcd_clean: str, free_port: Callable[[], int]
) -> None:
    system = System(tmp_path / "system")
    root = system.root
    users = Path("/etc/passwd").read_bytes()
    system.dpkg("--install", package)
    assert "tidb-binlog:" in (root / "etc/passwd").read_text()
    config, data = root / "etc/tidb-binlog/pump.toml", root / "var/lib/tidb-binlog"
    assert stat.S_IMODE(config.stat().st_mode) == 0o640
    if os.geteuid() == 0:
        assert (config.stat().st_uid, config.stat().st_gid) == (0, system.group_of("tidb-binlog"))
    assert data.is_dir()
    assert not list(root.glob("etc/systemd/system/**/*.service")), "nothing is enabled by installing it"

    # An operator writes where etcd is; the unit's command starts the node.
    text = config.read_text()
    text = text.replace('addr = ""', f'addr = "127.0.0.1:{free_port()}"', 1)
    config.write_text(text.replace("http://127.0.0.1:2379", etcd_clean))
    python, binlogctl = root / "usr/lib/tidb-binlog/bin/python", root / "usr/bin/binlogctl"
    for name in ("pump", "drainer"):
        output(python, binlogctl, "config", "check", root / f"etc/tidb-binlog/{name}.toml")
    (data / "pump").mkdir()
    assert output(python, "-P", "-c", "import pump; print(pump.__file__)").startswith(str(root))
    started_and_ended(system.run_as_unit("pump"), tmp_path / "notify")
    stored = sorted(path.name for path in (data / "pump").iterdir())
    assert stored

    system.dpkg("--install", next_release(package, tmp_path))
    assert "127.0.0.1:2379" not in config.read_text()
    assert "# New." in config.with_name("pump.toml.dpkg-dist").read_text()
    assert "# New." in (root / "etc/tidb-binlog/drainer.toml").read_text()
    assert "# New." not in config.read_text()

    system.dpkg("--remove", "tidb-binlog")
    assert not (root / "usr/bin/pump").is_symlink()
    assert not (root / "usr/lib/tidb-binlog").exists(), "nothing is written there at run time"
    assert config.exists()

    said = system.dpkg("--purge", "tidb-binlog")
    assert not (root / "etc/tidb-binlog").exists()
    assert "/var/lib/tidb-binlog and the user tidb-binlog are kept" in said
    assert sorted(path.name for path in (data / "pump").iterdir()) == stored
    assert Path("/etc/passwd").read_bytes() == users, "this machine's own"


def started_and_ended(command: list[str], notify: Path) -> None:
    """Until it says READY=1 as to systemd; then SIGTERM."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(notify))
        manager.settimeout(60)
        process = subprocess.Popen(
            command,
            env={**ENVIRONMENT, "NOTIFY_SOCKET": str(notify)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            while "READY=1" not in manager.recv(4096).decode():
                pass
            assert output(command[0], "-m", "binlogctl.ready", "pump", *command[2:]) == "pump: ok\n"
            process.send_signal(signal.SIGTERM)
            said, _ = process.communicate(timeout=PATIENCE_S)
        finally:
            process.kill()
        assert process.returncode == 0, said


def next_release(package: Path, directory: Path) -> Path:
    """The same package as a later version, with other files of configuration."""
    unpacked = directory / "next"
    output("dpkg-deb", "-R", package, unpacked)
    control = unpacked / "DEBIAN/control"
    control.write_text(control.read_text().replace(f"Version: {VERSION}", f"Version: {VERSION}+next"))
    for file in (unpacked / "etc/tidb-binlog").iterdir():
        file.write_text(f"# New.\n{file.read_text()}")
    output("dpkg-deb", "-b", unpacked, directory)
    return directory / f"{package.name.replace(VERSION, f'{VERSION}+next', 1)}"
