"""Result: the state of a run is the worst of its tables, and nothing compared is not equality."""

from __future__ import annotations

from drainer.compare.verify.result import ComparedColumn, How, State, TableResult, Verification, worst


def table(state: State, **figures: int) -> TableResult:
    return TableResult((("shop", "item"),), ("shop", "item"), state, **figures)  # type: ignore[arg-type]


def run(*tables: TableResult) -> Verification:
    return Verification("up", "down", 7, 0, 1.0, 2.0, tables)


def test_a_run_is_as_its_worst_table() -> None:
    equal, other, wrong = table(State.EQUAL), table(State.NOT_COMPARABLE), table(State.DIFFERS, extra=2)
    assert run(equal).state is State.EQUAL
    assert run(equal, other).state is State.NOT_COMPARABLE
    assert run(wrong, other, equal).state is State.DIFFERS
    assert run(equal, wrong, wrong).wrong == 4


def test_without_a_table_nothing_is_shown_to_be_equal() -> None:
    assert run().state is State.NOT_COMPARABLE
    assert worst(()) is State.NOT_COMPARABLE


def test_values_of_rows_belong_to_the_columns_that_were_compared() -> None:
    columns = (
        ComparedColumn("id", is_key=True),
        ComparedColumn("note", How.NOT_COMPARED, "left out by a column rule"),
        ComparedColumn("ratio", How.VALUES, "a FLOAT"),
    )
    found = TableResult((("shop", "item"),), ("shop", "item"), State.EQUAL, columns=columns)
    assert [one.name for one in found.row_columns] == ["id", "ratio"]
    assert [one.name for one in found.key_columns] == ["id"]
