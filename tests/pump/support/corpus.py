"""Recorded pump directories and what the pump that wrote them served."""

from __future__ import annotations

import base64
import gzip
import json
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CORPUS = Path(__file__).parents[2] / "golden" / "corpus"


@dataclass(frozen=True)
class Entry:
    tp: str
    start_ts: int
    commit_ts: int
    payload: bytes


@dataclass(frozen=True)
class Recording:
    scenario: str
    archive: Path
    written: Path
    pulled: Path

    @property
    def name(self) -> str:
        return f"{self.scenario}/{self.archive.name.removesuffix('.tar.gz')}"

    def unpack(self, directory: Path) -> Path:
        with tarfile.open(self.archive) as archive:
            archive.extractall(directory, **SAFE)
        (found,) = directory.iterdir()
        return found


# Before Python 3.11.4 there is no filter to ask for, from 3.12 on it must be asked for.
SAFE: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}


def entries(path: Path) -> list[Entry]:
    with gzip.open(path, "rt") as file:
        documents = [json.loads(line) for line in file]
    return [
        Entry(
            document["tp"],
            int(document["start_ts"]),
            int(document["commit_ts"]),
            base64.b64decode(document["payload"]),
        )
        for document in documents
    ]


def recordings(*, killed: bool) -> list[Recording]:
    found = []
    for scenario in sorted(path for path in CORPUS.iterdir() if path.is_dir()):
        for archive in sorted(scenario.glob("pump-data*.tar.gz")):
            if ("killed" in archive.name) != killed:
                continue
            number = archive.name.removeprefix("pump-data").removesuffix(".tar.gz").replace("-killed", "")
            written, pulled = scenario / f"written{number}.jsonl.gz", scenario / f"pulled{number}.jsonl.gz"
            found.append(Recording(scenario.name, archive, written, pulled))
    return found
