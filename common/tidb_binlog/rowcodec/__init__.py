"""TiDB's row format in binlogs (row format 1): rows to values and back.

    plan = compile_table(info)         decoding plan of one table version
    plan.decode_insert(row)            values of `plan.columns`

Knows the bytes and the table definition; never what a value is for.
"""

from tidb_binlog.rowcodec.plan import TablePlan, compile_table
from tidb_binlog.rowcodec.row_error import RowError, UnsupportedTable
from tidb_binlog.rowcodec.values import EnumValue, SetValue

__all__ = ["EnumValue", "RowError", "SetValue", "TablePlan", "UnsupportedTable", "compile_table"]
