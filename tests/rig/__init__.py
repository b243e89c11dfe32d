"""Rig: a whole cluster under a workload of every kind, with faults: `python -m tests.rig --help`."""

from __future__ import annotations

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
"""Of the checkout."""
