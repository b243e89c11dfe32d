"""LevelDB: the binding that has wheels for this interpreter.

plyvel has none from Python 3.13 on; plyvel-next is its successor: the same interface under another name.

Tests  tests/pump/index/test_index.py
"""

from __future__ import annotations

import sys

if sys.version_info >= (3, 13):
    import plyvel_next as plyvel
else:
    import plyvel

__all__ = ["plyvel"]
