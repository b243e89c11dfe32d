"""The campaigns that are run by hand can be run: nothing else of the tests would notice a name that went."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest


@pytest.mark.parametrize("name", sorted(path.stem for path in Path(__file__).parent.glob("[!t]*.py")))
def test_a_campaign_can_be_loaded(name: str) -> None:
    importlib.import_module(f"tests.crash.{name}")
