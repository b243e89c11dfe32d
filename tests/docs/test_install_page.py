"""docs/install.md: what it names is there. Its program and commands run in tests/deploy/test_packages.py."""

from __future__ import annotations

import re
import shlex
import tomllib

import pytest
from packaging.requirements import Requirement

from binlogctl.cli import command_line
from binlogctl.doctor.checks.upstream import LEAST_TEXT
from tests.architecture.source import ROOT
from tidb_binlog.errors import ConfigError

PAGE = (ROOT / "docs" / "install.md").read_text()
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]
COPIED = PYPROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"].values()
SCRIPT = (ROOT / "deploy" / "install.sh").read_text()
COMMANDS = [
    line for block in re.findall(r"^```sh\n(.*?)^```$", PAGE, re.M | re.S) for line in block.splitlines()
]


@pytest.mark.parametrize("command", COMMANDS)
def test_commands(command: str) -> None:
    program, *arguments = shlex.split(command)
    name = program.rpartition("/")[2]
    if name == "pip" and arguments[0] == "install":
        requirement = Requirement(arguments[1])
        assert requirement.name == PROJECT["name"]
        assert requirement.extras <= set(PROJECT["optional-dependencies"])
    elif name == "pip":
        assert arguments == ["wheel", "--no-deps", "--wheel-dir", "build", "."]
    elif name == "apt-get":
        assert arguments[0] == "install"
        assert re.sub(r"-\d+-", "-$major-", arguments[1]) in SCRIPT
    elif name == "make":
        target, *variables = arguments
        assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.M)
        assert all(variable.startswith("PYTHON=") for variable in variables)
    elif name == "binlogctl" and arguments != ["--version"]:
        assert isinstance(command_line.parse(arguments, {}), command_line.Call)
    elif name == "python":
        assert arguments == ["-c", 'import binlogctl; print(binlogctl.__path__[0] + "/deploy")']
        assert all(path.startswith("binlogctl/deploy/") for path in COPIED)
    elif name == "python3":
        assert arguments[:2] == ["-m", "venv"]
    else:
        assert name in PROJECT["scripts"]
        assert arguments == ["--version"]


def test_a_wrong_flag_would_be_found() -> None:
    with pytest.raises(ConfigError):
        command_line.parse(["doctor", "-no-such-flag"], {})


def test_all_extras_but_the_developers_are_told() -> None:
    told = set(re.findall(r"^\| .* \| `tidb-binlog\[([\w-]+)\]` \|$", PAGE, re.M))
    assert told == set(PROJECT["optional-dependencies"]) - {"dev", "docs"}


def test_the_core_is_told() -> None:
    names = [Requirement(one).name for one in PROJECT["dependencies"]]
    told = re.search(r"installs `pumpclient` and its dependencies: (.*?) \(", PAGE, re.S)
    assert told is not None
    assert re.findall(r"`(\w+)`", told[1]) == names


def test_versions_of_python_and_etcd() -> None:
    supported = re.search(r'^SUPPORTED="(.*)"$', SCRIPT, re.M)
    assert supported is not None
    newest, *others = supported[1].split()
    assert f"Python {', '.join(reversed(others))} or {newest}" in PAGE
    assert f"the newest of {newest}, {', '.join(others[:-1])} and {others[-1]}" in PAGE
    assert f"**{LEAST_TEXT} or newer**" in PAGE
