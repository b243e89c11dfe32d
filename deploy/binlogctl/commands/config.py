"""Config: a pump's or drainer's file as its daemon would read it, without starting one.

    config check FILE    every wrong key and value, or the first thing that does not fit together
    config show FILE     every setting in force, and where it comes from; secrets masked
    config new KIND      the short file to begin with
    config docs KIND     what every key means
    config schema KIND   a JSON Schema of the file, for editors

Which of the two daemons a file is for shows in its keys, then in its name; else -kind says it.

Tests  tests/deploy/binlogctl/commands/test_forget.py
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, Final

from binlogctl.cli.command_line import Call
from binlogctl.cli.commands import DONE, JSON, WRONG
from binlogctl.cluster import node_lookup
from tidb_binlog.config import loading, reference
from tidb_binlog.config.loading import Setting
from tidb_binlog.errors import ConfigError
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.observe import show


@dataclass(frozen=True, slots=True)
class _Daemon:
    kind: str
    settings: type[Any]
    env_prefix: str
    check: Callable[[Any], object] = lambda config: None


@dataclass(frozen=True, slots=True)
class Examined:
    """`kind`: pump or drainer."""

    kind: str
    problems: tuple[ConfigError, ...]
    settings: tuple[Setting, ...]
    remarks: tuple[str, ...] = ()
    """What the daemon says of it in its log at the start."""


_NAMES: Final = {"pumps": "pump", "drainers": "drainer"}


def _daemons(kind: str) -> list[_Daemon]:
    kinds = [_NAMES[name] for name in node_lookup.kinds(kind)]
    daemons = []
    if "pump" in kinds:
        import pump.config

        daemons.append(_Daemon("pump", pump.config.PumpConfig, pump.config.ENV_PREFIX))
    if "drainer" in kinds:
        from drainer.config import options

        daemons.append(_Daemon("drainer", options.DrainerConfig, options.ENV_PREFIX, _check_rules))
    return daemons


def _check_rules(config: Any) -> None:
    from drainer.ddl import rules
    from drainer.stream.rules.rule_set import read_rules

    read_rules(config)
    rules.parse(config.ddl_rules)


def examine(path: str, kind: str, environ: Mapping[str, str]) -> Examined:
    """Read it as the daemon it fits best. Raises `ConfigError` if it cannot be read or fits both."""
    fits = []
    for daemon in _daemons(kind):
        remarks: list[str] = []

        def check(config: Any, daemon: _Daemon = daemon, remarks: list[str] = remarks) -> None:
            daemon.check(config)
            remarks += getattr(config, "remarks", list)()

        problems, settings = loading.examine(
            daemon.settings, path, environ, program=daemon.kind, env_prefix=daemon.env_prefix, check=check
        )
        of_file = [setting for setting in settings if setting.source.startswith(f"{path}:")]
        fits.append((len(of_file), Examined(daemon.kind, tuple(problems), tuple(settings), tuple(remarks))))
    most = max(number for number, _ in fits)
    best = [examined for number, examined in fits if number == most]
    if len(best) > 1:  # keys that both have: the file's name tells
        name = os.path.basename(path)
        best = [examined for examined in best if examined.kind in name] or best
    if len(best) > 1:
        raise ConfigError(
            f"{path} may be a pump's or a drainer's file", hint="pass -kind pump or -kind drainer"
        )
    return best[0]


async def check(call: Call) -> int:
    """`config check FILE`."""
    path = call.words[0]
    examined = examine(path, call.settings.kind, os.environ)
    if call.output == JSON:
        show.print_json(
            {
                "file": path,
                "kind": examined.kind,
                "problems": [
                    {"message": problem.message, "hint": problem.hint} for problem in examined.problems
                ],
                "remarks": list(examined.remarks),
            }
        )
    elif examined.problems:
        show.print_lines(*map(str, examined.problems))
    else:
        show.print_lines(f"{path} is right for a {examined.kind}", *examined.remarks)
    return WRONG if examined.problems else DONE


async def settings(call: Call) -> int:
    """`config show FILE`."""
    path = call.words[0]
    examined = examine(path, call.settings.kind, os.environ)
    if call.output == JSON:
        rows = [
            {"key": setting.key, "value": setting.value, "source": setting.source}
            for setting in examined.settings
        ]
        show.print_json({"file": path, "kind": examined.kind, "settings": rows})
    else:
        first = sorted(examined.settings, key=lambda setting: setting.source == "default")
        shown = [(setting.key, _shown(setting.value), setting.source) for setting in first]
        show.print_table(f"{examined.kind}: {path}", ("key", "value", "from"), shown)
    for problem in examined.problems:
        show.print_warning(f"binlogctl: warning: {problem}")
    return WRONG if examined.problems else DONE


async def new(call: Call) -> int:
    """`config new KIND`."""
    (daemon,) = _daemons(call.words[0])
    show.print_lines(*reference.starter(daemon.settings, daemon.kind, daemon.env_prefix).splitlines())
    return DONE


async def reference_page(call: Call) -> int:
    """`config docs KIND`."""
    (daemon,) = _daemons(call.words[0])
    show.print_lines(*reference.page(daemon.settings, daemon.kind, daemon.env_prefix).splitlines())
    return DONE


async def schema_of(call: Call) -> int:
    """`config schema KIND`."""
    (daemon,) = _daemons(call.words[0])
    show.print_json(reference.schema(daemon.settings, daemon.kind))
    return DONE


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:g}" if isinstance(value, float) else str(value)
