"""Writes the pictures."""

from __future__ import annotations

from tools.pictures import ROOT, files

for name, text in files().items():
    (ROOT / name).write_text(text)
