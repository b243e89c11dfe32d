"""Fixtures of the promises: those of the drainer's tests."""

from __future__ import annotations

from tests.drainer.conftest import target

__all__ = ["target"]
