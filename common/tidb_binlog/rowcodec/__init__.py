"""TiDB's row format in binlogs (row format 1): rows to values and back.

    plan = compile_table(info)         decoding plan of one table version (`plan`)
    plan.decode_insert(row)            values of `plan.columns`

Knows the bytes and the table definition; never what a value is for. Nothing is imported here: who speaks with
PD needs the keys alone.
"""
