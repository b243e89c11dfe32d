"""SQL rendered straight from encoded rows, for MariaDB, MySQL and TiDB on a utf8mb4 connection.

    sql = compile_sql(info)            plan of one table version
    sql.insert_literals(row)           b"(1,'abc',NULL)"

Knows how a value is written and which rows can be the same row for the server; never runs a statement.
Expects a session without NO_BACKSLASH_ESCAPES, with time zone +00:00.
"""
