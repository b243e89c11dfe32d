"""Row rule: which rows of a table replicate, and what of them is hidden (`[[syncer.row-rule]]`).

In     rules with `db-name`, `tbl-name` (as in `replicate-do-table`) and `where`
Out    what one rule, or all rules of a table, ask for
Holds  conditions are compiled for a table version: a column that it lacks is a `ConfigError` naming rule,
       column and table

    condition = compile_where("total >= 100 AND state <> 'draft'")
    of_table = condition.of(table_version.info, "shop.orders")
    of_table.insert(row)                    whether an INSERT row is in the set; so `delete`
    was, now, split = of_table.update(row)  whether an UPDATE row was in it and is; where its second half is
"""

from __future__ import annotations

from dataclasses import dataclass

from common.table_info import TableInfo
from drainer.rules.where.compiler import RowCondition
from drainer.rules.where.expression import Condition
from drainer.rules.where.parser import parse


@dataclass(frozen=True, slots=True)
class Where:
    """A condition that was read. `label` is how errors name it."""

    condition: Condition
    label: str

    def of(self, info: TableInfo, table: str) -> RowCondition:
        """The condition for rows of one table version. Raises `ConfigError` for a column that it lacks, and
        for comparisons that have no sure answer."""
        return RowCondition(self.condition, info, self.label, table)


def compile_where(text: str, label: str = "where") -> Where:
    """Read a condition. Raises `ConfigError`, which names the character that is wrong."""
    return Where(parse(text, label), label)
