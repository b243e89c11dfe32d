"""Event loops: nodes run on uvloop, programs without it on asyncio's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import uvloop

_LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.hookimpl(optionalhook=True)
def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, Callable[[], Any]]:
    """A module's `LOOPS` names those that its tests run on."""
    names = getattr(getattr(item, "module", None), "LOOPS", ("asyncio",))
    return {name: _LOOPS[name] for name in names}
