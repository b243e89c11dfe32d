"""Row differences: which rows of a part of a table are missing, one too many, or changed.

Out    `RowDifference`s, in the order of keys; values as SQL literals
Holds  rows are compared in canonical form, as a multiset: two rows upstream and one downstream are one that
       is missing. Rows that are left over on both sides and have one key are one row that was changed
Never  takes NULL for an empty text, or two texts for one because a collation does
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from drainer.changes import canonical
from drainer.compare.verify.column_pairs import ColumnPair
from drainer.compare.verify.result import Kind, RowDifference, Values
from drainer.mysql.literal.quoting import binary_literal, text_literal

Printed = tuple[bytes | None, ...]
"""A row as a server prints it."""
NULL: Final = b"NULL"
_NUMBERS: Final = frozenset(
    {canonical.INTEGER, canonical.UNSIGNED, canonical.NUMBER, canonical.DOUBLES, canonical.DECIMALS}
)
_BYTES: Final = frozenset({canonical.PADDED, canonical.BINARY})


class RowComparison:
    """Rows of one table. `key`: places of the columns that identify a row, () for none."""

    def __init__(self, pairs: Sequence[ColumnPair], key: Sequence[int]) -> None:
        self._pairs = tuple(pairs)
        self._forms = tuple(pair.form for pair in pairs)
        self._key = tuple(key)

    def differences(self, upstream: Iterable[Printed], downstream: Iterable[Printed]) -> list[RowDifference]:
        """Raises `Corruption` for a value that its column cannot have."""
        upstream, downstream = list(upstream), list(downstream)
        if Counter(upstream) == Counter(downstream):
            return []  # as they are printed: most parts are, and that costs a tenth
        shown: dict[bytes, Printed] = {}
        above, below = self._counted(upstream, shown), self._counted(downstream, shown)
        missing = {packed: count for packed, count in above.items() if count > below[packed]}
        extra = {packed: count for packed, count in below.items() if count > above[packed]}
        differences: list[tuple[bytes, RowDifference]] = []
        by_key = {self._key_of(packed): packed for packed in extra} if self._key else {}
        for packed in missing:
            key = self._key_of(packed)
            other = by_key.pop(key, None)
            if other is not None and above[packed] == below[other] == 1:
                del extra[other]
                differences.append((key, self._changed(packed, other, shown)))
                continue
            copies = (above[packed], below[packed])
            differences.append((key, self._one_sided(Kind.MISSING, shown[packed], copies)))
        for packed in extra:
            copies = (above[packed], below[packed])
            differences.append((self._key_of(packed), self._one_sided(Kind.EXTRA, shown[packed], copies)))
        return [difference for _, difference in sorted(differences, key=lambda entry: entry[0])]

    def _counted(self, rows: Iterable[Printed], shown: dict[bytes, Printed]) -> Counter[bytes]:
        counts: Counter[bytes] = Counter()
        of_server, pack, forms = canonical.of_server, canonical.pack, self._forms
        for row in rows:
            packed = pack([of_server(value, form) for value, form in zip(row, forms, strict=True)])
            counts[packed] += 1
            shown[packed] = row
        return counts

    def _changed(self, upstream: bytes, downstream: bytes, shown: dict[bytes, Printed]) -> RowDifference:
        both = zip(self._pairs, canonical.unpack(upstream), canonical.unpack(downstream), strict=True)
        columns = tuple(pair.name for pair, above, below in both if above != below)
        values, theirs = self._literals(shown[upstream]), self._literals(shown[downstream])
        return RowDifference(self._key_values(values), Kind.CHANGED, values, theirs, columns)

    def _one_sided(self, kind: Kind, row: Printed, copies: tuple[int, int]) -> RowDifference:
        values = self._literals(row)
        is_missing = kind is Kind.MISSING
        return RowDifference(
            self._key_values(values),
            kind,
            values if is_missing else None,
            None if is_missing else values,
            copies=None if self._key and copies in ((0, 1), (1, 0)) else copies,
        )

    def _key_of(self, packed: bytes) -> bytes:
        if not self._key:
            return packed
        values = canonical.unpack(packed)
        return canonical.pack([values[place] for place in self._key])

    def _key_values(self, values: Values) -> Values:
        return tuple(values[place] for place in self._key)

    def _literals(self, row: Printed) -> Values:
        return tuple(literal(value, form) for value, form in zip(row, self._forms, strict=True))


def literal(value: bytes | None, form: str) -> bytes:
    """What a server printed, as a statement names it."""
    if value is None:
        return NULL
    if form in _NUMBERS:
        return value
    return binary_literal(value) if form in _BYTES else text_literal(value)
