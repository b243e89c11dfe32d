"""Compares tables row by row: what must be there with what is there. Pure; rows are canonical strings.

Values are shown as in a recorded scenario (`repr` of the column): decimal digits, decimal text, Python's
`repr` of the exact double, hexadecimal bytes, text; NULL is None, text that is no UTF-8 is `Raw`. Rows are
matched by the primary key, or as a multiset where there is none. A difference inside a documented limit of
the downstream is counted, not reported as a difference.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from tidb_binlog.errors import Corruption
from tidb_binlog.late_dataclass import dataclass, field


@dataclass(frozen=True, slots=True)
class Raw:
    """Bytes of a text value that are not UTF-8, in hexadecimal."""

    hex: str


Canonical = str | Raw | None
Row = tuple[Canonical, ...]
TableName = tuple[str, str]


@dataclass(frozen=True, slots=True)
class ColumnForm:
    """A column and the form in which its values are compared; `type` is the upstream's type text."""

    name: str
    repr: str
    type: str = ""
    charset: str = ""


@dataclass(frozen=True, slots=True)
class ExpectedTable:
    """What one table must hold. `key` names the primary key columns, () for none."""

    schema: str
    name: str
    columns: tuple[ColumnForm, ...]
    key: tuple[str, ...]
    rows: Sequence[Row]

    @property
    def full_name(self) -> str:
        return f"{self.schema}.{self.name}"


@dataclass(frozen=True, slots=True)
class ExpectedChecksum:
    """A table known only by its row count and SHA-256 (`expected_checksum.json` says of what)."""

    schema: str
    name: str
    columns: tuple[str, ...]
    rows: int
    sha256: str


@dataclass(frozen=True, slots=True)
class ActualTable:
    """What one table holds: its column names, and rows in the order of the expected columns."""

    columns: tuple[str, ...]
    rows: Sequence[Row]


@dataclass(frozen=True, slots=True)
class Limit:
    """Something the downstream cannot hold, and why. `explains` decides by (column, expected, actual).

    `shows`: what there is instead, so that rows with such values in their key find each other.
    """

    name: str
    reason: str
    explains: Callable[[ColumnForm, Canonical, Canonical], bool]
    shows: Callable[[ColumnForm, Canonical], Canonical] = lambda _column, expected: expected


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that is not as it must be. Rows are None where there is none on that side."""

    table: str
    what: str
    key: str = ""
    expected: Row | None = None
    actual: Row | None = None

    def __str__(self) -> str:
        text = f"{self.table}: {self.what}"
        if self.key:
            text += f", key {self.key}"
        if self.expected is not None or self.actual is not None:
            text += f"\n    upstream:   {show(self.expected)}\n    downstream: {show(self.actual)}"
        return text


@dataclass(slots=True)
class Report:
    """Outcome of a comparison."""

    tables: int = 0
    rows_identical: int = 0
    differences: list[Difference] = field(default_factory=list)
    limited: Counter[str] = field(default_factory=Counter)  # limit name -> rows inside it
    not_compared: list[str] = field(default_factory=list)

    @property
    def equal(self) -> bool:
        return not self.differences


def show(row: Row | None) -> str:
    """A row for the operator."""
    if row is None:
        return "no such row"
    return (
        "("
        + ", ".join("NULL" if v is None else f"x'{v.hex}'" if isinstance(v, Raw) else v for v in row)
        + ")"
    )


def canonical(text: str | bytes | None, form: str) -> Canonical:
    """Bring a value as the server prints it into the compared form; `Corruption` if it cannot be read so."""
    if text is None:
        return None
    if isinstance(text, bytes):
        raw = text
        try:
            text = raw.decode()
        except UnicodeDecodeError:
            return Raw(raw.hex())
    try:
        if form in ("int", "uint"):
            return str(int(text))
        if form == "dec":
            return _decimal(text)
        if form == "double":
            return repr(float(text))
    except ValueError as error:
        raise Corruption(f"value {text!r} cannot be shown as {form}: {error}") from None
    return text.lower() if form == "hex" else text


def _decimal(text: str) -> str:
    """Decimal text without leading zeros (ZEROFILL columns print them)."""
    sign, digits = ("-", text[1:]) if text.startswith("-") else ("", text)
    whole, dot, fraction = digits.partition(".")
    return sign + (whole.lstrip("0") or "0") + dot + fraction


def compare(
    expected: Iterable[ExpectedTable],
    actual: Mapping[TableName, ActualTable],
    limits: Sequence[Limit] = (),
    contradicted: Mapping[TableName, str] | None = None,
) -> Report:
    """Compare all tables; tables on one side only are differences.

    `contradicted`: tables whose contents upstream are not what its own binlog says, with the limit's name.
    """
    report = Report()
    contradicted = contradicted or {}
    names = set()
    for table in expected:
        names.add((table.schema, table.name))
        report.tables += 1
        seen = actual.get((table.schema, table.name))
        if seen is None:
            report.differences.append(Difference(table.full_name, "table is missing downstream"))
        elif seen.columns != tuple(column.name for column in table.columns):
            report.differences.append(_columns_differ(table, seen))
        else:
            before = len(report.differences)
            _compare_rows(table, seen, limits, report)
            limit = contradicted.get((table.schema, table.name))
            if limit is not None and len(report.differences) > before:
                report.limited[limit] += len(report.differences) - before
                del report.differences[before:]
    for schema, name in sorted(set(actual) - names):
        report.differences.append(Difference(f"{schema}.{name}", "table exists downstream only"))
    return report


def _columns_differ(table: ExpectedTable, seen: ActualTable) -> Difference:
    expected = tuple(column.name for column in table.columns)
    return Difference(table.full_name, f"columns are {list(seen.columns)}, must be {list(expected)}")


def _compare_rows(table: ExpectedTable, seen: ActualTable, limits: Sequence[Limit], report: Report) -> None:
    surplus = Counter(table.rows)
    surplus.subtract(Counter(seen.rows))
    missing = sorted((+surplus).elements(), key=show)
    extra = sorted((-surplus).elements(), key=show)
    report.rows_identical += len(table.rows) - len(missing)
    positions = [i for i, column in enumerate(table.columns) if column.name in table.key]
    by_key: defaultdict[Row, list[Row]] = defaultdict(list)
    for row in extra:
        by_key[_key(row, positions)].append(row)
    for row in missing:
        key = _key(row, positions)
        near = by_key[key] or by_key[_shown_key(table, row, positions, limits)]
        partner = near.pop() if positions and near else None
        if partner is None:
            report.differences.append(
                Difference(table.full_name, "row is missing downstream", _text(key), row)
            )
            continue
        inside = _explained(table, row, partner, limits)
        if inside:
            report.limited.update(inside)
        else:
            what = f"row differs in {', '.join(_differing(table, row, partner))}"
            report.differences.append(Difference(table.full_name, what, _text(key), row, partner))
    for key, rows in by_key.items():
        for row in rows:
            report.differences.append(
                Difference(table.full_name, "row exists downstream only", _text(key), actual=row)
            )


def _key(row: Row, positions: Sequence[int]) -> Row:
    return tuple(row[i] for i in positions)


def _shown_key(table: ExpectedTable, row: Row, positions: Sequence[int], limits: Sequence[Limit]) -> Row:
    """The key as the downstream holds it inside its limits."""
    shown = []
    for i in positions:
        forms = (limit.shows(table.columns[i], row[i]) for limit in limits)
        shown.append(next((form for form in forms if form != row[i]), row[i]))
    return tuple(shown)


def _text(key: Row) -> str:
    return show(key) if key else ""


def _differing(table: ExpectedTable, expected: Row, actual: Row) -> list[str]:
    return [c.name for c, e, a in zip(table.columns, expected, actual, strict=True) if e != a]


def _explained(table: ExpectedTable, expected: Row, actual: Row, limits: Sequence[Limit]) -> set[str]:
    """Names of the limits that explain every differing column of this row; empty if one is unexplained."""
    names = set()
    for column, must, got in zip(table.columns, expected, actual, strict=True):
        if must == got:
            continue
        limit = next((candidate for candidate in limits if candidate.explains(column, must, got)), None)
        if limit is None:
            return set()
        names.add(limit.name)
    return names
