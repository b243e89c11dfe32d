"""Dockerfile and compose.yaml, read without Docker."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
PORTS = {"pump": 8250, "drainer": 8249}
VERSION = re.compile(r"v?\d+\.\d+\.\d+(-[\w.-]+)?")


class Stage:
    """One FROM of the Dockerfile, and its instructions behind those of the stage that it begins from."""

    def __init__(self, image: str, base: Stage | None) -> None:
        self.image = image
        self.steps: list[tuple[str, str]] = list(base.steps) if base else []

    def of(self, word: str) -> list[str]:
        return [rest for name, rest in self.steps if name == word]

    @property
    def environment(self) -> dict[str, str]:
        return dict(entry.split("=", 1) for rest in self.of("ENV") for entry in shlex.split(rest))


def stages() -> dict[str, Stage]:
    text = re.sub(r"^#.*\n", "", (ROOT / "Dockerfile").read_text(), flags=re.M).replace("\\\n", " ")
    found: dict[str, Stage] = {}
    for line in filter(None, text.splitlines()):
        word, _, rest = line.partition(" ")
        if word == "FROM":
            image, _, name = rest.split()
            found[name] = current = Stage(image, found.get(image))
        else:
            current.steps.append((word, rest.strip()))
    return found


STAGES = stages()
