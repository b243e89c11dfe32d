"""What a batch sink is given: public values; of a large transaction rows that can be read again."""

from __future__ import annotations

from drainer import Ddl, Transaction
from drainer.sink.batch.public_items import PublicItems
from drainer.testing.stream import Stream
from drainer.txn import INSERT, UPDATE, LargeTransaction
from drainer.txn import Ddl as EncodedDdl


def test_transactions_and_ddl_are_public_values() -> None:
    stream = Stream()
    ts = stream.transaction(("t", INSERT, (1, "a")), ("t", UPDATE, (1, "a")))
    translator = stream.translator(0)
    created = translator.translate(stream.entries[1])
    assert isinstance(created, EncodedDdl)
    items = [created, translator.translate(stream.entries[-1])]
    ddl, transaction = PublicItems()(items)
    assert isinstance(ddl, Ddl)
    assert (ddl.commit_ts, [str(table) for table in ddl.after]) == (created.commit_ts, ["d.t"])
    assert isinstance(transaction, Transaction)
    assert (transaction.commit_ts, transaction.large) == (ts, False)
    assert [(row.kind, row.before, row.after) for row in transaction.rows] == [
        ("insert", None, {"id": 1, "v": "a"}),
        ("update", {"id": 1, "v": "a"}, {"id": 1, "v": "a+"}),
    ]


def test_rows_of_a_large_transaction_are_read_piece_by_piece_and_again() -> None:
    stream = Stream()
    ts = stream.large_transaction(9000)
    translator = stream.translator(stream.entries[-2].commit_ts)
    spilled = stream.entries[-1].spilled
    assert spilled is not None
    begun = 0

    def pieces() -> object:
        nonlocal begun
        begun += 1
        return translator.pieces(spilled)

    (transaction,) = PublicItems()([LargeTransaction(ts - 1, ts, spilled.size, pieces)])  # type: ignore[arg-type]
    assert isinstance(transaction, Transaction)
    assert transaction.large
    for _ in range(2):
        assert [row.after["id"] for row in transaction.rows if row.after] == list(range(9000))
    assert begun == 2
    assert next(iter(transaction.rows)).after == {"id": 0, "v": "l"}
