"""Logging: one line per state change, recovery and refusal, in TiDB's unified format or as JSON.

    [2019/04/28 09:29:59.016 +00:00] [INFO] [file.py:48] ["message text"] [key=value] ["key two"="v v"]

A part is quoted when it holds a byte at or below a space, or one of `\\ " [ ] =`. Values of keys that look
like secrets are masked; passwords inside URLs too; bytes are never shown, only counted (they may be rows). A
message that repeats quickly is cut down and its count is logged.

Built on the standard `logging`, so lines of libraries come out in the same form. Cores do not log.
"""

from __future__ import annotations

import datetime
import json
import logging
import logging.handlers
import os
import re
import sys
import traceback
from collections.abc import Callable
from dataclasses import asdict, is_dataclass
from typing import IO, Any, Final

from tidb_binlog.clock import Clock, SystemClock
from tidb_binlog.errors import BinlogError, ConfigError
from tidb_binlog.observe.printable import in_json, is_printable

MASK: Final = "******"
FILE_BYTES_MAX: Final = 300 * 1024 * 1024
FILES_KEPT: Final = 10
REPEATS_MAX: Final = 30
REPEATS_WINDOW_S: Final = 10.0
REPEATS_KEYS_MAX: Final = 1024

LEVELS: Final = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warn": logging.WARNING,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "fatal": logging.CRITICAL,
}
_LEVEL_NAMES = {"WARNING": "WARN", "CRITICAL": "FATAL"}
_SECRET_KEY = re.compile(r"passw|pswd|secret|token|credential|private.?key", re.IGNORECASE)
# Up to the last @ before a blank or the next URL: passwords hold slashes and @, whatever the standard says.
_URL_PASSWORD = re.compile(
    r"((?:://|^)[^/\s:@]*):(?!//)(?:(?!://)\S)+@"
)  # a text may begin without its scheme
_NEEDS_QUOTES = re.compile(r'[\x00-\x20\x7f\\"\[\]=]')
_ROOT = "tidb_binlog"
_installed: list[logging.Handler] = []


def is_secret_key(key: str) -> bool:
    """Whether a value under this name is a secret."""
    return _SECRET_KEY.search(key) is not None


def _quote(text: str) -> str:
    if text and is_printable(text) and not _NEEDS_QUOTES.search(text):
        return text
    return in_json(json.dumps(text, ensure_ascii=False))


def plain(value: Any, key: str = "") -> Any:
    """`value` as JSON can hold it, secrets masked, bytes counted instead of shown."""
    if key and is_secret_key(key):
        return MASK
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return _URL_PASSWORD.sub(rf"\1:{MASK}@", value)
    if isinstance(value, bytes | bytearray | memoryview):
        return f"<{len(value)} bytes>"
    if isinstance(value, BaseException):
        text = str(value) if isinstance(value, BinlogError) else f"{type(value).__name__}: {value}"
        return plain(text)
    if isinstance(value, dict):
        return {str(name): plain(item, str(name)) for name, item in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value))
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    return plain(str(value))


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


class _Formatter(logging.Formatter):
    def _parts(self, record: logging.LogRecord) -> tuple[str, str, str, str, dict[str, Any]]:
        moment = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
        stamp = f"{moment:%Y/%m/%d %H:%M:%S}.{moment.microsecond // 1000:03d} +00:00"
        level = level_name(record.levelname)
        fields: dict[str, Any] = {
            key: plain(value, key) for key, value in getattr(record, "fields", {}).items()
        }
        if record.exc_info and record.exc_info[0] is not None:
            trace = "".join(traceback.format_exception(*record.exc_info)).rstrip()
            fields["errorVerbose"] = plain(trace)
        return stamp, level, f"{record.filename}:{record.lineno}", plain(record.getMessage()), fields


class TidbFormatter(_Formatter):
    """TiDB's unified log format."""

    def format(self, record: logging.LogRecord) -> str:
        stamp, level, place, message, fields = self._parts(record)
        line = f"[{stamp}] [{level}] [{place}] [{_quote(message)}]"
        for key, value in fields.items():
            line += f" [{_quote(key)}={_quote(_text(value))}]"
        return line


class JsonFormatter(_Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        stamp, level, place, message, fields = self._parts(record)
        document = {"time": stamp, "level": level, "caller": place, "message": message, **fields}
        return in_json(json.dumps(document, ensure_ascii=False, separators=(",", ":")))


class RepeatFilter(logging.Filter):
    """Lets `REPEATS_MAX` lines of one message pass per window; a later one says how many did not."""

    def __init__(self, clock: Clock | None = None) -> None:
        super().__init__()
        self._clock = clock or SystemClock()
        self._windows: dict[tuple[int, str], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        key = (record.levelno, str(record.msg))
        now_s = self._clock.monotonic_s()
        started_s, count = self._windows.get(key, (now_s, 0))
        if now_s - started_s >= REPEATS_WINDOW_S:
            if count > REPEATS_MAX:
                record.fields = {**getattr(record, "fields", {}), "suppressed": count - REPEATS_MAX}
            started_s, count = now_s, 0
        if len(self._windows) >= REPEATS_KEYS_MAX:
            self._windows.clear()
        self._windows[key] = (started_s, count + 1)
        return count < REPEATS_MAX


class Logger:
    """What the daemons log through: a message and named values."""

    __slots__ = ("_logger",)

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger

    def _log(self, level: int, message: str, fields: dict[str, Any]) -> None:
        if self._logger.isEnabledFor(level):
            self._logger.log(level, message, extra={"fields": fields}, stacklevel=3)

    def debug(self, message: str, **fields: Any) -> None:
        self._log(logging.DEBUG, message, fields)

    def info(self, message: str, **fields: Any) -> None:
        self._log(logging.INFO, message, fields)

    def warning(self, message: str, **fields: Any) -> None:
        self._log(logging.WARNING, message, fields)

    def error(self, message: str, **fields: Any) -> None:
        self._log(logging.ERROR, message, fields)

    def fatal(self, message: str, **fields: Any) -> None:
        """What ends the program, as Go logs it; ends nothing by itself."""
        self._log(logging.CRITICAL, message, fields)

    def failure(self, message: str, error: BaseException, **fields: Any) -> None:
        """An error line with the traceback; for what should not have happened."""
        self._logger.error(
            message,
            extra={"fields": {**fields, "error": error}},
            exc_info=(type(error), error, error.__traceback__),
            stacklevel=2,
        )


def get(name: str) -> Logger:
    """The logger of one component; quiet until `setup` (or the embedding program's own logging) listens.

    Operators filter by `name`: it is written out, not a module's, so that it stays when a file moves.
    """
    return Logger(logging.getLogger(f"{_ROOT}.{name}"))


class _PrivateFileHandler(logging.handlers.RotatingFileHandler):
    """Files only the owner may read: names of schemas and hosts are nobody else's business."""

    def _open(self) -> IO[Any]:  # type: ignore[override]
        return open(
            self.baseFilename,
            self.mode,
            encoding=self.encoding,
            opener=lambda path, flags: os.open(path, flags, 0o600),
        )


def level_name(name: str) -> str:
    """As lines have it, of a name of `logging`."""
    return _LEVEL_NAMES.get(name, name)


def root() -> logging.Logger:
    """The parent of every logger of ours."""
    return logging.getLogger(_ROOT)


def level_number(level: str) -> int:
    """The number of a level's name. Raises `ConfigError`."""
    number = LEVELS.get(level.lower())
    if number is None:
        raise ConfigError(f"log level {level!r} is unknown", hint="use debug, info, warn, error or fatal")
    return number


def change_level(number: int) -> None:
    """Log from this level on; libraries never below warnings."""
    logging.getLogger().setLevel(max(number, logging.WARNING))
    root().setLevel(number)


def remove_handlers() -> None:
    """What `setup` put in place writes no more."""
    while _installed:
        handler = _installed.pop()
        logging.getLogger().removeHandler(handler)
        handler.close()


def setup(
    level: str = "info",
    file: str = "",
    format: str = "tidb",
    *,
    clock: Clock | None = None,
    stream: IO[str] | None = None,
) -> None:
    """Send all logging of this process to `file` (empty: `stream`, by itself standard output).

    Raises `ConfigError`.
    """
    prepared(level, file, format, clock=clock, stream=stream)()


def prepared(
    level: str,
    file: str,
    format: str,
    *,
    clock: Clock | None = None,
    stream: IO[str] | None = None,
) -> Callable[[], None]:
    """What `setup` will do, with all of it checked: the file is opened anew then, also under the same name,
    since another program may have moved it away. Raises `ConfigError`."""
    number = level_number(level)
    if format not in ("tidb", "json"):
        raise ConfigError(f"log format {format!r} is unknown", hint="use tidb or json")
    if file:
        try:
            _PrivateFileHandler(file, encoding="utf-8").close()
        except OSError as error:
            raise ConfigError(
                f"cannot write the log file {file}: {error.strerror}",
                hint="change -log-file or its directory",
            ) from None

    def put_in_place() -> None:
        handler: logging.Handler = logging.StreamHandler(stream or sys.stdout)
        if file:
            handler = _PrivateFileHandler(
                file, maxBytes=FILE_BYTES_MAX, backupCount=FILES_KEPT, encoding="utf-8"
            )
        handler.setFormatter(TidbFormatter() if format == "tidb" else JsonFormatter())
        handler.addFilter(RepeatFilter(clock))
        remove_handlers()
        _installed.append(handler)
        logging.getLogger().addHandler(handler)
        change_level(number)

    return put_in_place
