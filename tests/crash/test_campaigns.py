"""The campaigns that are run by hand can be run: nothing else of the tests would notice a name that went."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

HERE = Path(__file__).parent
CAMPAIGNS = (".".join(path.relative_to(HERE).with_suffix("").parts) for path in HERE.rglob("[!t]*.py"))


@pytest.mark.parametrize("name", sorted(CAMPAIGNS))
def test_a_campaign_can_be_loaded(name: str) -> None:
    importlib.import_module(f"tests.crash.{name}")
