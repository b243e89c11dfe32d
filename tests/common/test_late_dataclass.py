"""`tidb_binlog.late_dataclass`: beside the standard decorator, the same in all that can be seen."""

from __future__ import annotations

import builtins
import copy
import dataclasses
import inspect
import pickle
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from tidb_binlog.late_dataclass import asdict, dataclass, field, fields, replace


@dataclass(frozen=True, slots=True)
class Place:
    """Where."""

    file: str
    offset: int = 0
    tags: list[str] = field(default_factory=list, compare=False)
    KIND: ClassVar[str] = "place"


@dataclass(frozen=True, slots=True)
class Sized(Place):
    size: int = field(default=1, kw_only=True, repr=False)

    def __post_init__(self) -> None:
        assert self.size > 0


@dataclass
class Counter:
    count: int


class Own(Place):
    """No dataclass: it may have more."""

    def __init__(self, file: str) -> None:
        super().__init__(file, 7)
        self.more = 1


def family(decorate: Callable[..., Any]) -> Any:
    @decorate(frozen=True, slots=True)
    class Pair:
        a: int
        b: tuple[int, ...] = ()

        def __repr__(self) -> str:
            return "mine"

    return Pair


def test_values_compare_print_and_hash_as_the_standard_ones() -> None:
    place = Place("a", 3)
    assert place == Place("a", 3, ["x"])
    assert place != Place("a", 4)
    assert place != Sized("a", 3)
    assert hash(place) == hash(("a", 3))
    assert repr(Sized("a")) == "Sized(file='a', offset=0, tags=[])"
    assert Place.KIND == "place"


def test_each_method_may_be_the_first_that_is_called() -> None:
    for use in (repr, hash, lambda one: one == one):
        kinds = [family(decorate) for decorate in (dataclass, dataclasses.dataclass)]
        seen = []
        for kind in kinds:
            one = object.__new__(kind)
            object.__setattr__(one, "a", 1)
            object.__setattr__(one, "b", ())
            seen.append(use(one))
        assert seen[0] == seen[1]


def test_nothing_is_compiled_before_the_first_use(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[object] = []
    standard = exec
    monkeypatch.setattr(builtins, "exec", lambda *rest: (seen.append(rest[0]), standard(*rest))[1])
    kind = family(dataclass)
    assert not seen
    assert kind(1).b == ()
    assert seen
    assert kind.__init__.__code__.co_varnames[:3] == ("self", "a", "b")


def test_a_signature_is_that_of_the_standard_one() -> None:
    kinds = [family(decorate) for decorate in (dataclass, dataclasses.dataclass)]
    assert inspect.signature(kinds[0]) == inspect.signature(kinds[1])
    assert str(inspect.signature(kinds[0])) == "(a: 'int', b: 'tuple[int, ...]' = ()) -> None"


def test_frozen_stays_frozen() -> None:
    place = Place("a")
    with pytest.raises(dataclasses.FrozenInstanceError):
        place.offset = 1  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        del place.offset  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        Sized("a").offset = 1  # type: ignore[misc]
    own = Own("a")
    assert (own.file, own.offset, own.more) == ("a", 7, 1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        own.file = "b"  # type: ignore[misc]


def test_slots_and_mutable_ones() -> None:
    assert not hasattr(Place("a"), "__dict__")
    counter = Counter(1)
    counter.count += 1
    assert counter == Counter(2)
    with pytest.raises(TypeError):
        hash(counter)


def test_post_init_keywords_and_wrong_calls() -> None:
    with pytest.raises(AssertionError):
        Sized("a", size=0)
    with pytest.raises(
        TypeError, match=r"Place\.__init__\(\) missing 1 required positional argument: 'file'"
    ):
        Place()  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        Sized("a", 1, [], 2)  # type: ignore[misc]


def test_the_functions_of_dataclasses_take_them() -> None:
    assert [one.name for one in fields(Sized)] == ["file", "offset", "tags", "size"]
    assert asdict(Place("a", 1)) == {"file": "a", "offset": 1, "tags": []}
    assert replace(Sized("a", size=3), offset=2) == Sized("a", 2, size=3)
    match Place("a", 5):
        case Place(file, offset):
            assert (file, offset) == ("a", 5)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_copies_are_equal(copied: Callable[[Place], Place]) -> None:
    for one in (Place("a", 1, ["x"]), Sized("a", size=2)):
        again = copied(one)
        assert again == one
        assert again.tags == one.tags
