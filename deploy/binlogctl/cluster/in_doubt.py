"""In doubt: transactions that an application has prepared, and whose end is written nowhere.

Out    a line for each database that is to be asked, with what asks it; troubles of the cluster
Why    a prepared transaction holds up every drainer, and no timer ends it: only the application's
       own database knows whether it is committed
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Final

from tidb_binlog import tso
from tidb_binlog.errors import Corruption
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.quantities import span
from tidb_binlog.status.troubles import ERROR, WARNING, Trouble
from tidb_binlog.upstream.standalone.layout import Prepared

AGE_S: Final = 60.0
WHY: Final = "drainers wait for it: only that database knows whether it is committed"
MEND: Final = (
    "run the application's publisher with that database again, or settle once:"
    " await publisher.settle(OutcomeTable(CONNECT))"
)


@dataclass(frozen=True, slots=True)
class Doubt:
    """Transactions of one database. `abandoned`: the lease of one of them is not renewed."""

    database: str
    seen: str
    abandoned: bool


def doubts(prepared: Mapping[int, Prepared], now_s: float) -> list[Doubt]:
    """Those that are older than a minute; `prepared` by start_ts."""
    by_database: defaultdict[str, list[int]] = defaultdict(list)
    for start_ts in sorted(prepared):
        if tso.age_s(start_ts, now_s) >= AGE_S:
            by_database[prepared[start_ts].database].append(start_ts)
    return [
        Doubt(
            database,
            _seen(database, start_tss, now_s),
            any(prepared[start_ts].deadline_ms / 1000 < now_s for start_ts in start_tss),
        )
        for database, start_tss in sorted(by_database.items())
    ]


def _seen(database: str, start_tss: list[int], now_s: float) -> str:
    more = f" and {len(start_tss) - 1} more" if len(start_tss) > 1 else ""
    age = span(tso.age_s(start_tss[0], now_s))
    return f"transaction {start_tss[0]}{more}, begun {age} ago, is prepared in database {database}"


def troubles(prepared: Mapping[int, Prepared] | Corruption, now_s: float) -> list[Trouble]:
    """`Corruption`: why the table cannot be read. `now_s`: by the upstream's clock."""
    if isinstance(prepared, Corruption):
        return [Trouble(ERROR, "upstream", f"its table of transactions: {prepared.message}", prepared.hint)]
    return [
        Trouble(ERROR if doubt.abandoned else WARNING, "upstream", f"{doubt.seen}; {WHY}", MEND)
        for doubt in doubts(prepared, now_s)
    ]
