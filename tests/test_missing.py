from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from tests.missing import without


def test_modules_are_theirs_again_for_those_who_come_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "a_package_of_this_test"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "inner").mkdir()
    (package / "inner" / "__init__.py").write_text("")
    (package / "inner" / "needs.py").write_text("import wave\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    needs = f"{package.name}.inner.needs"
    before = importlib.import_module(needs)
    with pytest.MonkeyPatch.context() as inner:
        without(inner, "wave", forget=rf"{package.name}\.inner")
        with pytest.raises(ImportError, match="wave"):
            importlib.import_module(needs)
    top = sys.modules[package.name]
    assert sys.modules[needs] is top.inner.needs is before
    for name in [name for name in sys.modules if name.startswith(package.name)]:
        del sys.modules[name]
