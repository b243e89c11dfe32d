"""Relay format: the forms in which a relay log is written. Both are read.

Tests  tests/drainer/config/test_options.py
"""

from __future__ import annotations

from typing import Final

PAYLOAD: Final = "payload"
"""Binlogs as pumps sent them, with what is needed to read them."""
OBINLOG: Final = "obinlog"
"""What a Go drainer writes and reads."""
FORMATS: Final = (PAYLOAD, OBINLOG)
