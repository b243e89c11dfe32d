"""Which errors of the downstream pass by themselves: the whole table."""

from __future__ import annotations

from itertools import chain

from drainer.mysql.errors import NUMBERS, Trouble, trouble_of_number

PASSES = {
    Trouble.CONNECTION: {1152, 1158, 1159, 1160, 1161, 1184, 1927, 2002, 2003, 2006, 2013, 2014, 2055, 4031},
    Trouble.RESTART: {1047, 1053, 1077, 1079, 3169},
    Trouble.READ_ONLY: {1290, 1792, 1836},
    Trouble.CONNECTIONS: {1040, 1129, 1135, 1203, 1226, 1637},
    Trouble.LOCK: {1020, 1205, 1213, 1614},
    Trouble.INTERRUPTED: {1317, 1969, 3024},
    Trouble.RESOURCES: {1021, 1037, 1038, 1041, 1114, 1206},
    Trouble.COMMIT: {1180, 3101},
    Trouble.STORE: {8002, 8005, 8022, 8027, 8028, 8229, *range(9001, 9006), 9007, *range(9010, 9014)},
}


def test_every_number_there_is() -> None:
    for number in range(1 << 16):
        expected = next((trouble for trouble, numbers in PASSES.items() if number in numbers), None)
        assert trouble_of_number(number) is expected


def test_a_full_medium_passes_and_a_broken_table_does_not() -> None:
    full = 'Got error 28 "No space left on device" from storage engine InnoDB'
    for number in (3, 1026, 1030):
        assert trouble_of_number(number, full) is Trouble.RESOURCES
        assert trouble_of_number(number, "Got error 127 from storage engine") is None
    assert trouble_of_number(1406, "row 28") is None


def test_every_trouble_has_numbers_and_no_number_two() -> None:
    assert set(NUMBERS) == set(Trouble) - {Trouble.RELAY_LOG} == set(PASSES)
    numbers = list(chain(*NUMBERS.values()))
    assert len(set(numbers)) == len(numbers)


def test_only_a_lock_and_our_own_log_leave_the_session_usable() -> None:
    keep = [trouble for trouble in Trouble if trouble.keeps_connection]
    assert keep == [Trouble.LOCK, Trouble.RELAY_LOG]
