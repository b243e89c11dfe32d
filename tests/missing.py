"""Packages that are not there, for one test."""

from __future__ import annotations

import re
import sys

import pytest


def without(monkeypatch: pytest.MonkeyPatch, *packages: str, forget: str = r"(?!)") -> None:
    """Importing `packages` fails, and modules that match `forget` are imported anew when they are asked for.

    At the end of the test those that were are there again, in `sys.modules` and as what their packages have
    by their names: an import that is made anew, or fails half way, changes both.
    """
    for module in [module for module in sys.modules if re.match(forget, module)]:
        package, _, name = module.rpartition(".")
        if package in sys.modules and hasattr(sys.modules[package], name):
            monkeypatch.setattr(sys.modules[package], name, sys.modules[module])
        monkeypatch.delitem(sys.modules, module)
    for module in packages:
        monkeypatch.setitem(sys.modules, module, None)
