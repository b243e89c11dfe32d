"""Late dataclass: the standard one, with methods that are compiled when a class is first used, not at import.

Why    the standard decorator compiles six functions for each class, a third of what a daemon's start took,
       and most classes that a start imports are not used in it
Holds  methods are those that the standard library makes; its functions take these classes
Never  takes `order` or an `InitVar`, or is the base of a frozen class of the standard decorator
Tests  tests/common/test_late_dataclass.py
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import asdict, field, fields, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(cls: type | None = None, /, **options: bool) -> Any:
        """As `dataclasses.dataclass`."""
        return (lambda cls: _late(cls, **options)) if cls is None else _late(cls, **options)


__all__ = ["asdict", "dataclass", "field", "fields", "replace"]


def _late(cls: Any, *, frozen: bool = False, eq: bool = True, **more: bool) -> type:
    written = set(vars(cls))
    cls.__doc__ = cls.__doc__ or cls.__name__  # the standard decorator would write a signature
    cls = dataclasses.dataclass(cls, init=False, repr=False, eq=False, **more)
    names = ["__init__", "__repr__", *(["__eq__"] if eq else []), *(["__hash__"] if eq and frozen else [])]
    if eq and not frozen and "__hash__" not in written:
        cls.__hash__ = None
    if frozen:
        _freeze(cls)

    for name in names:
        if name not in written:
            setattr(cls, name, _Late(cls, name, frozen))
    return cls  # type: ignore[no-any-return]


class _Late:
    """Where a method will be: whoever looks for it finds it compiled, and in its place from then on."""

    def __init__(self, cls: Any, name: str, frozen: bool) -> None:
        self._cls, self._name, self._frozen = cls, name, frozen

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        method = self._compiled()
        setattr(self._cls, self._name, method)
        return method if instance is None else method.__get__(instance)

    def _compiled(self) -> Callable[..., Any]:
        cls, name = self._cls, self._name
        namespace: dict[str, Any] = {"__doc__": cls.__doc__, "__qualname__": cls.__qualname__}
        if hasattr(cls, "__post_init__"):
            namespace["__post_init__"] = cls.__post_init__
        twin = dataclasses.make_dataclass(
            cls.__name__,
            [(entry.name, entry.type, entry) for entry in fields(cls)],
            namespace=namespace,
            init=name == "__init__",
            repr=name == "__repr__",
            eq=name in ("__eq__", "__hash__"),
            frozen=self._frozen,
        )
        method: Callable[..., Any] = vars(twin)[name]
        return method


def _freeze(cls: Any) -> None:
    """Fields are set once, by `__init__` and when a copy is restored."""

    def is_kept(self: Any, name: str) -> bool:
        return type(self) is cls or name in cls.__dataclass_fields__

    def set_field(self: Any, name: str, value: Any) -> None:
        if is_kept(self, name):
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def delete_field(self: Any, name: str) -> None:
        if is_kept(self, name):
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    def state(self: Any) -> list[Any]:
        return [getattr(self, entry.name) for entry in fields(self)]

    def restore(self: Any, values: list[Any]) -> None:
        for entry, value in zip(fields(self), values, strict=True):
            object.__setattr__(self, entry.name, value)

    cls.__setattr__, cls.__delattr__ = set_field, delete_field
    if "__slots__" in vars(cls):
        cls.__getstate__, cls.__setstate__ = state, restore
