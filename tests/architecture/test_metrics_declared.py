"""Every metric a daemon declares shows in its exposition, under the agreed form of name."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

SCRIPT = """
import importlib, sys
importlib.import_module(sys.argv[1])
from tidb_binlog.observe import metrics
text = metrics.exposition().decode()
missing = [name for name in metrics.declared() if f"# HELP {name} " not in text]
assert not missing, missing
print("\\n".join(sorted(metrics.declared())))
"""


@pytest.mark.parametrize(("module", "daemon"), [("pump.program", "pump"), ("drainer.program", "drainer")])
def test_declared_metrics_are_exposed(module: str, daemon: str) -> None:
    result = subprocess.run(
        [sys.executable, "-c", SCRIPT, module], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    names = result.stdout.split()
    assert len(names) >= 5
    for name in names:
        assert re.match(rf"binlog_({daemon}|common|binlogfile|drainer_slow_chaser)_", name), name
