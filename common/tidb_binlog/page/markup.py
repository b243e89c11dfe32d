"""Markup: HTML from parts, where a text can never become an element.

Out    `Markup`, which is what may stand in a page. Whatever else is put into an element is escaped there
Holds  what steers a reader's eyes (changes of the writing direction, control characters) is written out
Why    one place that forgets to escape a table's name lets who may create tables run scripts at an operator's
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

from tidb_binlog import time_text, tso
from tidb_binlog.observe.printable import printable
from tidb_binlog.quantities import UP_TO_DATE, span
from tidb_binlog.tso import Ts

NOTHING: Final = "-"


def place(ts: Ts) -> object:
    """A place of the stream: its time in UTC and the timestamp itself."""
    if not 0 < ts <= tso.TS_MAX:
        return NOTHING
    return join(time_text.utc(ts), " ", element("code", ts, class_="ts"))


def wall(time_s: float) -> str:
    """A time of this host, seconds since 1970."""
    ts = tso.from_wall_s(max(time_s, 0.0))
    return time_text.utc(ts) if 0 < ts <= tso.TS_MAX else NOTHING


def behind(now_ts: Ts, ts: Ts, *, least_s: float = 0.0) -> str:
    """How far a place is behind the upstream; less than `least_s` is nothing."""
    if not 0 < ts <= tso.TS_MAX or not now_ts:
        return NOTHING
    behind_s = tso.physical_s(now_ts) - tso.physical_s(ts)
    return span(behind_s) if behind_s >= least_s else UP_TO_DATE


def length(seconds: float | None) -> str:
    return NOTHING if seconds is None else span(seconds)


def command(line: str) -> Markup:
    """One to copy."""
    return element("code", line, class_="command")


TEXT_MAX: Final = 600
"""Characters of one text that a page shows."""
ROWS_MAX: Final = 100
"""Rows of one table that a page shows, fewer if they are long."""
_SHORT_MAX: Final = 40
_SHORT_MARKUP_MAX: Final = 160
_LIST_CHARS_MAX: Final = 80 * 1024


class Markup(str):
    """HTML already."""

    __slots__ = ()


def text(content: object) -> Markup:
    """Whatever it is, as the text that it is; cut where it is long."""
    if isinstance(content, Markup):
        return content
    shown = printable(clipped(str(content)))
    return Markup(escape(shown))


def clipped(content: str, chars_max: int = TEXT_MAX) -> str:
    return content if len(content) <= chars_max else content[: chars_max - 1] + "…"


def join(*parts: object) -> Markup:
    return Markup("".join(map(text, parts)))


def element(name: str, *parts: object, **attributes: object) -> Markup:
    """`class_` stands for `class`, other underscores for hyphens; an attribute that is None or False is left
    out."""
    said = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{text(value)}"'
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    return Markup(f"<{name}{said}>{join(*parts)}</{name}>")


def first(parts: Iterable[Markup]) -> list[Markup]:
    """As many as a page has room for."""
    shown: list[Markup] = []
    chars = 0
    for part in parts:
        if len(shown) == ROWS_MAX or chars > _LIST_CHARS_MAX:
            break
        shown.append(part)
        chars += len(part)
    return shown


def table(name: str, heads: Sequence[str], rows: Iterable[Sequence[object]], total: int) -> Markup:
    """Rows, the first of them, and how many there are. `name`: for who cannot see the heading."""
    head = element("tr", *(element("th", head, scope="col") for head in heads))
    shown = first(element("tr", *map(_cell, row)) for row in rows)
    shown_table = element(
        "div",
        element("table", element("thead", head), element("tbody", *shown)),
        class_="scroll",
        tabindex="0",
        role="region",
        aria_label=name,
    )
    more = f"{len(shown):,} of {total:,} are shown; /status has all of them."
    return join(shown_table, element("p", more, class_="soft")) if total > len(shown) else shown_table


def _cell(content: object) -> Markup:
    """What is short stays in one line, whatever else the table has; what is long has room to break."""
    shown = text(content)
    is_short = len(shown) <= (_SHORT_MARKUP_MAX if isinstance(content, Markup) else _SHORT_MAX)
    return element("td", shown, class_="nowrap" if is_short else "wide")


def facts(pairs: Iterable[tuple[str, object]]) -> Markup:
    """Names and values."""
    return element(
        "dl",
        *(element("div", element("dt", name), element("dd", value)) for name, value in pairs),
        class_="facts",
    )
