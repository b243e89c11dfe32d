"""Configuration, loading: one frozen dataclass per daemon, filled from flags, environment and a TOML file.

Precedence: command line, then environment (`<PREFIX>_<FLAG>`; empty values do not count), then the file,
then the default. A value of the file that Go's shipped file has, too, may count as not set (`go_default`).
Flags take one or two dashes and `-name value` or `-name=value`; a bool may stand alone.
The file is read strictly: an unknown key or a wrong type is an error that names the key, its line and what
is expected. Built in everywhere: `-config FILE`, `-V` or `--version`, `-h` (which adds the class
variables `keys_told`, the command that tells every key, and `usage_notes`). A class may define
`validate(self)`, called last, which raises `ConfigError` when values do not fit together.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from tidb_binlog import version
from tidb_binlog.config import reference
from tidb_binlog.config.declaring import convert, convert_text, defaults, options, variable
from tidb_binlog.errors import ConfigError, FlagError
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.observe import log
from tidb_binlog.similar import similar

C = TypeVar("C")
_BUILT_IN: Final = ("config", "V", "version", "h", "help")
_KEY: Final = re.compile(r"\b\w++(?:[.-]\w++)++")
PROBLEMS_MAX: Final = 100
"""So many are told of a file; to find the line and the neighbours of an unknown key takes a while."""


def _similar(name: str, candidates: Sequence[str], *, prefix: str = "") -> str:
    lowered = {candidate.lower().replace("_", "-"): candidate for candidate in candidates}
    near = similar(name.lower().replace("_", "-"), lowered)
    return f"did you mean {prefix}{lowered[near]}?" if near else ""


@dataclass(frozen=True, slots=True)
class _Given:
    """`is_gos`: the file says what the Go program's file says anyway, and `value` is our default."""

    value: Any
    source: str
    is_gos: bool = False


class _Loader:
    """Raises the first problem, or collects those of the file and the environment in `problems`."""

    def __init__(
        self, cls: type[Any], program: str, env_prefix: str, problems: list[ConfigError] | None = None
    ) -> None:
        self._problems = problems
        self._cls = cls
        self._program = program
        self._env_prefix = env_prefix
        self._options = options(cls)
        self._by_flag = {entry.flag: name for name, entry in self._options.items() if entry.flag}
        self._by_key = {entry.key: name for name, entry in self._options.items() if entry.key}

    def from_argv(self, argv: Sequence[str]) -> tuple[dict[str, _Given], str]:
        """Values given as flags, and the path of the file."""
        given: dict[str, _Given] = {}
        path = ""
        for flag, text in self._split(argv):
            if flag == "config":
                path = text
            elif flag in ("h", "help"):
                sys.stdout.write(usage(self._cls, self._program, self._env_prefix))
                raise SystemExit(0)
            elif flag in ("V", "version"):
                if convert_text("bool", text):
                    sys.stdout.write(version.text())
                    raise SystemExit(0)
            else:
                name = self._by_flag[flag]
                entry = self._options[name]
                try:
                    given[name] = _Given(convert_text(entry.kind, text), f"-{flag}")
                except ValueError as error:
                    shown = log.MASK if entry.secret else repr(text)
                    raise FlagError(
                        f"flag -{flag}: invalid value {shown}: {error}", hint=f"see {self._program} -h"
                    ) from None
        return given, path

    def _split(self, argv: Sequence[str]) -> Iterator[tuple[str, str]]:
        rest = list(argv)
        while rest:
            argument = rest.pop(0)
            if argument == "--" and not rest:
                return
            if not argument.startswith("-") or argument in ("-", "--"):
                raise FlagError(f"{argument!r} is not a valid flag", hint=f"see {self._program} -h")
            flag, has_value, text = argument.lstrip("-").partition("=")
            flags = [*self._by_flag, *_BUILT_IN]
            if flag not in flags or argument.startswith("---"):
                hint = _similar(flag, flags, prefix="-") or f"see {self._program} -h"
                raise FlagError(f"flag provided but not defined: -{flag}", hint=hint)
            if not has_value:
                is_bool = flag in ("V", "version", "h", "help") or (
                    flag != "config" and self._options[self._by_flag[flag]].kind == "bool"
                )
                if is_bool:
                    text = "true"
                elif rest:
                    text = rest.pop(0)
                else:
                    raise FlagError(f"flag needs an argument: -{flag}", hint=f"see {self._program} -h")
            yield flag, text

    def from_environ(self, environ: Mapping[str, str]) -> dict[str, _Given]:
        given: dict[str, _Given] = {}
        for flag, name in self._by_flag.items():
            name_there = variable(self._env_prefix, flag)
            text = environ.get(name_there, "")
            if not text:
                continue
            entry = self._options[name]
            try:
                given[name] = _Given(convert_text(entry.kind, text), name_there)
            except ValueError as error:
                shown = log.MASK if entry.secret else repr(text)
                self._found(
                    ConfigError(
                        f"environment variable {name_there} is {shown}: {error}",
                        hint=f"unset it or set -{flag}",
                    )
                )
        return given

    def _found(self, problem: ConfigError) -> None:
        if self._problems is None:
            raise problem from None
        self._problems.append(problem)

    def from_file(self, path: str, *, again: bool = False) -> dict[str, _Given]:
        import tomllib  # most of a cluster's commands read no file

        try:
            with open(path, "rb") as file:
                text = file.read().decode()
            document = tomllib.loads(text)
        except OSError as error:
            raise ConfigError(
                f"cannot read the config file {path}: {error.strerror}",
                hint="give a file that this user may read",
            ) from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ConfigError(f"config file {path} is not TOML: {error}", hint="correct the file") from None
        if again and not text.strip():
            raise ConfigError(
                f"config file {path} is empty: is it being written, or was the disk full?", hint="write it"
            )
        return {
            name: self._meant(name, value) for name, value in self._take(document, "", path, text).items()
        }

    def _meant(self, name: str, given: _Given) -> _Given:
        """A key that says what Go's shipped file says was hardly chosen by anybody."""
        gos = self._options[name].go_default
        if gos is None or given.value != gos:
            return given
        return _Given(defaults(self._cls)[name], f"{given.source}: Go's default, not set", True)

    def config(self, given: Mapping[str, _Given]) -> Any:
        """The config of what is given; `go_defaults` are its fields that the file sets to Go's default."""
        values = {name: value.value for name, value in given.items()}
        if gos := tuple(name for name, value in given.items() if value.is_gos):
            values["go_defaults"] = gos
        return self._cls(**values)

    @contextmanager
    def located(self, given: Mapping[str, _Given]) -> Iterator[None]:
        """A `ConfigError` that names what was given says where, too; so does one whose hint alone does."""
        try:
            yield
        except ConfigError as error:
            for text in (error.message, error.hint):
                keys = [key for word in _KEY.findall(text) for key in self._called(word, given)]
                if keys:
                    sources = dict.fromkeys(given[self._by_key[key]].source for key in keys)
                    error.message += f" [{', '.join(sources)}]"
                    break
            raise

    def _called(self, word: str, given: Mapping[str, _Given]) -> list[str]:
        """The key that was given and is called so, with its section or without; none if it is not sure."""
        keys = [key for key, name in self._by_key.items() if name in given]
        whole = [key for key in keys if key == word]
        alike = [key for key in keys if key.endswith(f".{word}")]
        return whole or (alike if len(alike) == 1 else [])

    def _take(self, document: dict[str, Any], prefix: str, path: str, text: str) -> dict[str, _Given]:
        given: dict[str, _Given] = {}
        for key, value in document.items():
            if self._problems is not None and len(self._problems) >= PROBLEMS_MAX:
                break
            dotted = f"{prefix}{key}"
            matched = self._known_key(dotted)
            if matched is not None:
                name = self._by_key[matched]
                where = f"{path}:{key_line(text, dotted)}"
                try:
                    given[name] = _Given(convert(self._options[name].kind, value), where)
                except ValueError as error:
                    line = key_line(text, dotted)
                    self._found(
                        ConfigError(
                            f"config file {path} line {line}: {dotted}: {error}",
                            hint=f"correct the value of {dotted}",
                        )
                    )
            elif isinstance(value, dict) and self._is_section(dotted):
                given.update(self._take(value, f"{dotted}.", path, text))
            else:
                self._found(self._unknown_key(dotted, path, text))
        return given

    def _known_key(self, dotted: str) -> str | None:
        if dotted in self._by_key:
            return dotted
        matches = [key for key in self._by_key if key.lower() == dotted.lower()]
        return matches[0] if matches else None

    def _is_section(self, dotted: str) -> bool:
        return any(key.lower().startswith(f"{dotted.lower()}.") for key in self._by_key)

    def _unknown_key(self, dotted: str, path: str, text: str) -> ConfigError:
        sections = {key.rsplit(".", 1)[0] for key in self._by_key if "." in key}
        # keys of one section are alike by its name alone
        name = dotted.rpartition(".")[2]
        keys = [key for key in (*self._by_key, *sections) if _similar(name, [key.rpartition(".")[2]])]
        others = f"see `{_keys_told(self._cls, self._program)}` for the known ones"
        hint = _similar(dotted, keys) or others
        return ConfigError(
            f"component {self._program}'s config file {path} contained unknown configuration options:"
            f" {dotted} (line {key_line(text, dotted)})",
            hint=hint,
        )


def key_line(text: str, dotted: str) -> int:
    """Line (from 1) on which a TOML text sets `dotted`, or opens that table; 0 if that is not known."""
    table = ""
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        header = re.match(r"\[\[?\s*([^\[\]]+?)\s*\]\]?", stripped)
        if header:
            table = _normal_key(header.group(1))
            if table == dotted or table.startswith(f"{dotted}."):
                return number
            continue
        assignment = re.match(r"([A-Za-z0-9_.\"'\s-]+?)\s*=", stripped)
        if assignment:
            key = _normal_key(assignment.group(1))
            full = f"{table}.{key}" if table else key
            # `to = { hots = 1 }`: the key lies inside an inline table on this line
            if full == dotted or full.startswith(f"{dotted}.") or dotted.startswith(f"{full}."):
                return number
    return 0


def _normal_key(key: str) -> str:
    return ".".join(part.strip().strip("\"'") for part in key.split("."))


def load(
    cls: type[C],
    argv: Sequence[str],
    environ: Mapping[str, str],
    *,
    program: str,
    env_prefix: str,
    again: bool = False,
) -> C:
    """Read the configuration of `program`; `argv` without the program's name. `again`: while it runs, where
    an empty file is a mistake: taken for "all defaults" it would end every filter.

    Raises `ConfigError` (of it `FlagError` for the command line), `SystemExit(0)` after `-h` and `-V`.
    """
    loader = _Loader(cls, program, env_prefix)
    flags, path = loader.from_argv(argv)
    given = loader.from_file(path, again=again) if path else {}
    given |= loader.from_environ(environ)
    given |= flags
    config: C = loader.config(given)
    with loader.located(given):
        getattr(config, "validate", lambda: None)()
    return config


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting in force. `source`: "default", an environment variable, or file and line."""

    key: str
    value: Any
    source: str


def examine(
    cls: type[Any],
    path: str,
    environ: Mapping[str, str],
    *,
    program: str,
    env_prefix: str,
    check: Callable[[Any], object] = lambda config: None,
) -> tuple[list[ConfigError], list[Setting]]:
    """What is wrong with a file, all of it, and what would be in force; secrets masked. A problem between
    values, and what `check` raises, are searched for once the values are right. Raises `ConfigError` for a
    file that cannot be read."""
    problems: list[ConfigError] = []
    loader = _Loader(cls, program, env_prefix, problems)
    given = loader.from_file(path)
    given |= loader.from_environ(environ)
    if len(problems) >= PROBLEMS_MAX:
        problems.append(ConfigError("what follows in the file was not looked at", hint="correct these first"))
    if not problems:
        try:
            config = loader.config(given)
            with loader.located(given):
                getattr(config, "validate", lambda: None)()
                check(config)
        except ConfigError as error:
            problems.append(error)
    settings, unset = [], defaults(cls)
    for name, entry in options(cls).items():
        if entry.deprecated and name not in given:
            continue
        value = given.get(name) or _Given(unset[name], "default")
        shown = log.MASK if entry.secret and value.value else log.plain(value.value)
        settings.append(Setting(entry.key or f"-{entry.flag}", shown, value.source))
    return problems, settings


def describe(config: Any) -> dict[str, Any]:
    """Every setting by its key (or flag), secrets masked; for the one line at start."""
    described: dict[str, Any] = {}
    for name, entry in options(type(config)).items():
        if entry.deprecated:
            continue
        value = getattr(config, name)
        key = entry.key or entry.flag or name
        described[key] = log.MASK if entry.secret and value else log.plain(value)
    return described


def _keys_told(cls: type[Any], program: str) -> str:
    """The command that tells every key of the file."""
    told: str = getattr(cls, "keys_told", f"{program} -h")
    return told


def usage(cls: type[Any], program: str, env_prefix: str) -> str:
    """The text of `-h`."""
    lines = [f"Usage of {program}:", "  -config FILE", "        TOML file to read"]
    lines += ["  -V, --version", "        print version"]
    for entry in sorted(options(cls).values(), key=lambda entry: (entry.flag or "").lower()):
        if entry.flag is None or entry.deprecated:
            continue
        is_plain = entry.secret or entry.written in ("", (), None, False)
        shown = "" if is_plain else f" (default {reference.default(entry)})"
        kind = "" if entry.kind == "bool" else f" {entry.kind}"
        unit = f", in {entry.unit}" if entry.unit else ""
        lines += [f"  -{entry.flag}{kind}", f"        {entry.help}{unit}{shown}"]
    lines += ["", f"The environment may have them too, as {variable(env_prefix, 'log-file')}."]
    if hasattr(cls, "keys_told"):
        lines.append(f"`{_keys_told(cls, program)}` tells every key of the file.")
    notes: str = getattr(cls, "usage_notes", "")
    return "\n".join(lines) + "\n" + notes
