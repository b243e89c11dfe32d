"""Compiler of `where`: an expression and a table version to functions of encoded rows.

In     an expression, the definition of a table, how errors name the rule and the table
Out    for an INSERT and a DELETE row whether it is in the set, for an UPDATE row whether it was and is
Holds  only the columns that the expression names are decoded, in one pass. TRUE is in the set, FALSE and
       NULL are not, as in MySQL. Functions are generated from the checked expression, never from its text
Never  takes a column that the table lacks or a comparison that has no sure answer: `ConfigError` names rule,
       column and table

An expression with `before.` or `after.` is about the change, not about the row: `was` and `is` are the same
then. Other columns are those after the change, of a DELETE those before it; what an INSERT has not before,
and a DELETE not after, is NULL.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Final

from drainer.stream.rules.where.column_values import ELEMENTS, Unlike, ValueClass, comparable_conversion
from drainer.stream.rules.where.comparison import Comparisons, Term, Truth
from drainer.stream.rules.where.expression import (
    And,
    Between,
    ColumnRef,
    Compare,
    Condition,
    In,
    IsNull,
    Like,
    Literal,
    LiteralKind,
    Not,
    Operand,
    Or,
    Side,
    operands,
)
from tidb_binlog.errors import ConfigError
from tidb_binlog.rowcodec.plan import RowReaders
from tidb_binlog.rowcodec.source import Source
from tidb_binlog.table_info import Column, TableInfo

_OLD, _NEW, _NOWHERE = "o", "v", "x"
Sides = Mapping[Side, str]
"""Prefixes of the locals that hold the columns of each side; those of `_NOWHERE` are NULL."""
_INSERTED: Final[Sides] = {Side.OWN: _NEW, Side.AFTER: _NEW, Side.BEFORE: _NOWHERE}
_DELETED: Final[Sides] = {Side.OWN: _NEW, Side.AFTER: _NOWHERE, Side.BEFORE: _NEW}
_CHANGED: Final[Sides] = {Side.OWN: _NEW, Side.AFTER: _NEW, Side.BEFORE: _OLD}
_WAS: Final[Sides] = {Side.OWN: _OLD}
_IS: Final[Sides] = {Side.OWN: _NEW}


class RowCondition:
    """The condition of one table version. All functions raise `RowError` for a row that cannot be right."""

    def __init__(self, condition: Condition, info: TableInfo, label: str, table: str) -> None:
        self._condition = condition
        self._label, self._table = label, table
        self._readers = RowReaders(info, comparable_conversion, None)
        self._places = {
            column.name.lower(): place for place, column in enumerate(self._readers.layout.columns)
        }
        self._info = info
        self.refs = [one for one in operands(condition) if isinstance(one, ColumnRef)]
        self.is_about_change: bool = any(ref.side is not Side.OWN for ref in self.refs)
        self.truth(Comparisons(), _CHANGED)  # what is wrong is said now

    # -- functions of rows ---------------------------------------------------------------------------

    @cached_property
    def insert(self) -> Callable[[bytes], bool]:
        """Whether an INSERT row is in the set."""
        made = _Result(self, _INSERTED)
        slow = made.slow("new = read(b)", self._readers.strict.insert)
        # What may be absent is absent for sure only if all of the row is as expected.
        whole = any(entry.optional and entry.index in made.new for entry in self._readers.layout.insert)
        return self._readers.of_insert(made.new, made.lines, slow, whole=whole, extra=made.names)

    @cached_property
    def delete(self) -> Callable[[bytes], bool]:
        """Whether a DELETE row was in the set."""
        made = _Result(self, _DELETED)
        slow = made.slow("new = read(b)", self._readers.strict.delete)
        return self._readers.of_delete(made.new, made.lines, slow, whole=False, extra=made.names)

    @cached_property
    def update(self) -> Callable[[bytes], tuple[bool, bool, int]]:
        """Whether an UPDATE row was in the set and is in it now; the offset of its second half."""
        sides = (_CHANGED,) if self.is_about_change else (_WAS, _IS)
        made = _Result(self, *sides, more="split")
        slow = made.slow("old, new, split = read(b)", self._readers.strict.update)
        return self._readers.of_update(made.old, made.new, made.lines, slow, whole=False, extra=made.names)

    # -- source --------------------------------------------------------------------------------------

    def truth(self, made: Comparisons, sides: Sides) -> Truth:
        """Source of the whole condition; `sides` says in which locals columns are."""
        return self._source(self._condition, made, sides)

    def _source(self, condition: Condition, made: Comparisons, sides: Sides) -> Truth:
        match condition:
            case And(parts) | Or(parts):
                truths = [self._source(part, made, sides) for part in parts]
                true, false = (" and ", " or ") if isinstance(condition, And) else (" or ", " and ")
                return Truth(
                    f"({true.join(one.true for one in truths)})",
                    f"({false.join(one.false for one in truths)})",
                )
            case Not(inner):
                return _negated(self._source(inner, made, sides))
            case _:
                return self._predicate(condition, made, lambda operand: self._term(operand, sides))

    def _term(self, operand: Operand, sides: Sides) -> Term | Literal:
        if isinstance(operand, Literal):
            return operand
        place = self.place(operand)
        return Term(f"{sides[operand.side]}{place}", self._readers.layout.columns[place])

    def _predicate(
        self,
        condition: Compare | Between | In | Like | IsNull,
        made: Comparisons,
        term: Callable[[Operand], Any],
    ) -> Truth:
        try:
            if isinstance(condition, Compare):
                return made.compare(condition.op, term(condition.left), term(condition.right))
            operand = term(condition.operand)
            if isinstance(condition, Between):
                truth = _between(made, operand, term(condition.low), term(condition.high))
            elif isinstance(operand, Literal):
                raise Unlike("a value is asked about", "a condition is about columns")
            elif isinstance(condition, In):
                truth = made.in_list(operand, [term(item) for item in condition.items])
            elif isinstance(condition, Like):
                truth = made.like(operand, condition)
            else:
                return made.is_null(operand, negated=condition.negated)
            return _negated(truth) if condition.negated else truth
        except Unlike as error:
            raise self._unlike(condition, error) from None

    def _unlike(self, condition: Condition, error: Unlike) -> ConfigError:
        names = [one.name for one in operands(condition) if isinstance(one, ColumnRef)]
        column = f"column {self._table}.{names[0]} is " if names else ""
        return ConfigError(f"{self._label}: {condition}: {column}{error.what}", hint=error.hint)

    def place(self, ref: ColumnRef) -> int:
        """Place of a column among those that rows hold. Raises `ConfigError`."""
        found = self._places.get(ref.name.lower())
        if found is not None:
            return found
        raise missing_column(self._label, ref.name, self._table, self._info)


class _Result:
    """Statements after the values were read, what they use, and the same for rows of an odd form."""

    def __init__(self, of: RowCondition, *answers: Sides, more: str = "") -> None:
        made = Comparisons()
        places: dict[str, set[int]] = {_OLD: set(), _NEW: set(), _NOWHERE: set()}
        for sides in answers:
            for ref in of.refs:
                places[sides[ref.side]].add(of.place(ref))
        truths = list(dict.fromkeys(of.truth(made, sides).true for sides in answers))
        if more:  # of a change both are one
            truths = [truths[0], truths[-1], more]
        self.old, self.new = places[_OLD], places[_NEW]
        self.names: Mapping[str, Any] = made.names
        self.lines = [*(f"{_NOWHERE}{place} = None" for place in sorted(places[_NOWHERE]))]
        self.lines.append(f"return {', '.join(truths)}")

    def slow(self, read_line: str, read: Callable[[bytes], Any]) -> Callable[..., Any]:
        """The same answer from values of the strict reader."""
        source = Source("slow")
        source.names.update(self.names, read=read)
        source.add(0, "def slow(b):")
        source.add(1, read_line)
        source.add(1, *(f"{_OLD}{place} = old[{place}]" for place in sorted(self.old)))
        source.add(1, *(f"{_NEW}{place} = new[{place}]" for place in sorted(self.new)))
        source.add(1, *self.lines)
        return source.compile()


def _negated(truth: Truth) -> Truth:
    return Truth(truth.false, truth.true)


def _between(made: Comparisons, operand: Any, low: Any, high: Any) -> Truth:
    """`low <= operand AND operand <= high`; one floating-point number makes all three such."""
    if isinstance(operand, Term) and operand.kind in ELEMENTS and _are_mixed(low, high):
        raise Unlike(f"{operand.kind.value} between a text and a number", "give both as texts, or as numbers")
    as_float = any(_is_float(one) for one in (operand, low, high))
    above = made.compare(">=", operand, low, as_float=as_float)
    below = made.compare("<=", operand, high, as_float=as_float)
    return Truth(f"({above.true} and {below.true})", f"({above.false} or {below.false})")


def _are_mixed(low: Term | Literal, high: Term | Literal) -> bool:
    kinds = {one.kind for one in (low, high) if isinstance(one, Literal)}
    return LiteralKind.NUMBER in kinds and len(kinds) > 1


def _is_float(one: Term | Literal) -> bool:
    if isinstance(one, Term):
        return one.kind is ValueClass.FLOAT
    return one.kind is LiteralKind.NUMBER and isinstance(one.value, float)


def missing_column(label: str, name: str, table: str, info: TableInfo) -> ConfigError:
    """A rule names a column that the rows of a table do not hold."""
    for column in info.columns:
        if column.name.lower() == name.lower() and column.generated:
            return ConfigError(
                f"{label} names {table}.{name}, a generated column, which rows need not hold",
                hint="name the columns that it is made of",
            )
    names = ", ".join(column.name for column in _shown(info.columns))
    return ConfigError(
        f"{label} names column {name}, which {table} does not have",
        hint=f"it has {names}; correct the rule, or narrow its db-name and tbl-name",
    )


def _shown(columns: Sequence[Column]) -> list[Column]:
    return sorted((one for one in columns if one.is_writable), key=lambda one: one.offset)
