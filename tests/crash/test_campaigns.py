"""The campaigns that are run by hand can be run: nothing else of the tests would notice a name that went, or
that the product refuses what a campaign says to it."""

from __future__ import annotations

import importlib
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.source import ROOT
from tests.waiting import PATIENCE_S

HERE = Path(__file__).parent
CAMPAIGNS = (".".join(path.relative_to(HERE).with_suffix("").parts) for path in HERE.rglob("[!t]*.py"))


@pytest.mark.parametrize("name", sorted(CAMPAIGNS))
def test_a_campaign_can_be_loaded(name: str) -> None:
    importlib.import_module(f"tests.crash.{name}")


@pytest.mark.integration
@pytest.mark.parametrize(
    "campaign",
    [
        "acknowledged --rounds 2 --acks 1000",
        "faults.system_calls --points 1 --calls fdatasync",
        "relay_recovery 2",
    ],
)
def test_a_campaign_without_tests_of_its_own_runs(campaign: str) -> None:
    name, *arguments = campaign.split()
    if name == "faults.system_calls" and not shutil.which("strace"):
        pytest.skip("strace is not installed")
    command = [sys.executable, "-m", f"tests.crash.{name}", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
