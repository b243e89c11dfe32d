"""The product's cores as values: a state of one is a number, a call of it is a step from number to number.

Each step is taken once, by the real object, on a copy; who asks again is given what came of it. States are
told apart by all that the object holds, so nothing of a core is modelled here.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

T = TypeVar("T")


class Kept:
    """Objects of one class."""

    def __init__(self, shape: Callable[[Any], Any] | None = None) -> None:
        self._shape = shape or shape_of
        self._objects: list[Any] = []
        self._numbers: dict[Any, int] = {}
        self._steps: dict[Any, tuple[int, Any]] = {}
        self._facts: dict[Any, Any] = {}

    def __len__(self) -> int:
        return len(self._objects)

    def add(self, core: Any) -> int:
        """The number of its state."""
        shape = self._shape(core)
        if shape not in self._numbers:
            self._numbers[shape] = len(self._objects)
            self._objects.append(core)
        return self._numbers[shape]

    def step(self, number: int, name: str, call: Callable[[Any], T], *given: Any) -> tuple[int, T]:
        """`call` on a copy: the state after it, what it returned. `name` and `given` say which call it is."""
        key = (number, name, given)
        if key not in self._steps:
            core = copy.deepcopy(self._objects[number])
            result = call(core)
            self._steps[key] = self.add(core), result
        return self._steps[key]

    def fact(self, number: int, name: str, ask: Callable[[Any], T]) -> T:
        """What `ask` says of it."""
        key = (number, name)
        if key not in self._facts:
            self._facts[key] = ask(self._objects[number])
        found: T = self._facts[key]
        return found

    def renamed(self, number: int, names: Mapping[str, str]) -> int:
        """A number that two states share if one is the other with these names in it."""
        key = (number, tuple(names.items()))
        if key not in self._facts:
            shape = shape_of(self._objects[number], names)
            self._facts[key] = self._numbers.setdefault(("as", shape), -len(self._numbers))
        found: int = self._facts[key]
        return found


def shape_of(value: Any, names: Mapping[str, str] | None = None) -> Any:
    """All that it holds, as a value that can be compared."""
    if value is None or isinstance(value, int | float | bytes):
        return value
    if isinstance(value, str):
        return (names or {}).get(value, value)
    if isinstance(value, dict):
        pairs = [(shape_of(key, names), shape_of(found, names)) for key, found in value.items()]
        return ("dict", *(sorted(pairs) if all(isinstance(key, str) for key in value) else pairs))
    if isinstance(value, set | frozenset):
        return ("set", *sorted(value))
    if isinstance(value, list | tuple):
        return (type(value).__name__, *[shape_of(item, names) for item in value])
    if isinstance(value, type):
        return value.__qualname__
    reduced = value.__reduce_ex__(4)
    return (type(value).__name__, *[shape_of(part, names) for part in reduced[1:3]])
