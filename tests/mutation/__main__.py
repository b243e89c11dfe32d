"""Mutation score of a core: which slips do its tests see?

    python -m tests.mutation group_commit            a core of `CORES`, or --all
    python -m tests.mutation merger --line 120       mutants of one line
    python -m tests.mutation merger --survivors      what is listed as equivalent too

Tests are collected once. Each mutant is a fork, in which the code of one function is another one's. It is
killed by the first test that fails, by an error, or when it takes far longer than the tests do. Values that
stand outside of functions are copied on import, so such a mutant has a process import everything anew. Where
tests need a server, there are no forks, and no mutants outside of functions.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import gc
import importlib.abc
import importlib.machinery
import inspect
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import pytest

from tests.architecture.source import ROOT, modules
from tests.mutation.cores import CORES, EQUIVALENT
from tests.mutation.mutants import Mutant, mutants

CPU_S, WALL_S = 5, 30  # and so many times what all tests take
TIMES = 10


class Campaign:
    """A plugin of pytest: in place of a run over the tests, one for each mutant."""

    def __init__(self, name: str, path: Path, wanted: Callable[[Mutant], bool]) -> None:
        self.name, self.path = name, path
        self._wanted = wanted
        self.killed = 0
        self.survivors: list[str] = []

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Fork by fork."""
        gc.freeze()
        has_server = any("mariadb" in getattr(item, "fixturenames", ()) for item in session.items)
        began_s = time.monotonic()
        whole = functools.partial(_all_pass, session)
        assert whole() if has_server else _forked(whole, (600, 600)), "the tests fail without a mutant"
        took_s = time.monotonic() - began_s
        limits = int(CPU_S + TIMES * took_s), int(WALL_S + TIMES * took_s)
        for mutant in mutants(self.path.read_text()):
            if not self._wanted(mutant):
                continue
            code = compile(mutant.tree, str(self.path), "exec")
            functions = list(_functions(sys.modules[self.name], mutant.function)) if mutant.function else []
            if functions:
                codes = [found for found in _codes(code) if found.co_qualname == mutant.function]
                changed = functools.partial(_passes_with, session, functions, codes)
                survives = changed() if has_server else _forked(changed, limits)
            elif has_server:
                continue
            else:
                survives = _survives_anew(session, self.name, code, limits)
            if survives:
                self.survivors.append(f"{mutant.line}: {mutant}")
                print(f"\n{self.name}:{mutant.line}: {mutant}", end=" ", flush=True)
            else:
                self.killed += 1
                print(".", end="", flush=True)
        return True


def _all_pass(session: pytest.Session) -> bool:
    """Whether all tests pass. What the session has set up stays for the next time."""
    for item, after in zip(session.items, [*session.items[1:], session.items[0]], strict=True):
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
        if session.testsfailed:
            session.testsfailed = 0
            session._setupstate.teardown_exact(session.items[0])
            return False
    return True


def _passes_with(
    session: pytest.Session, functions: Sequence[FunctionType], codes: Sequence[CodeType]
) -> bool:
    """The same with other code. `codes` in their order: of a property, what reads and what writes."""
    kept = [function.__code__ for function in functions]
    try:
        for function, code in zip(functions, codes, strict=True):
            function.__code__ = code
        return _all_pass(session)
    finally:
        for function, code in zip(functions, kept, strict=True):
            function.__code__ = code


def _forked(function: Callable[[], bool], limits: tuple[int, int]) -> bool:
    """What it returns; False if it raises or takes more than `limits` of seconds: CPU, wall clock."""
    sys.stdout.flush()
    if pid := os.fork():
        return os.waitpid(pid, 0)[1] == 0
    good = False
    with contextlib.suppress(BaseException):
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        resource.setrlimit(resource.RLIMIT_CPU, (limits[0], limits[0]))
        signal.alarm(limits[1])
        good = function()
    os._exit(0 if good else 1)


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _functions(module: ModuleType, name: str) -> Iterator[FunctionType]:
    """The functions of a qualified name, as their module has them now."""
    found: Any = module
    for part in name.split("."):
        found = inspect.getattr_static(found, part, None)
    of_property = [found.fget, found.fset] if isinstance(found, property) else [found]
    for one in of_property:
        one = getattr(one, "func", getattr(one, "__func__", one))
        one = inspect.unwrap(one) if callable(one) else None
        if isinstance(one, FunctionType):
            yield one


def _survives_anew(session: pytest.Session, name: str, code: CodeType, limits: tuple[int, int]) -> bool:
    """The same where everything is imported anew."""
    files = sorted({str(item.path) for item in session.items})

    def run() -> bool:
        ours = ("tests.", *(f"{root.name.partition('.')[0]}." for root in modules()))
        for loaded in [loaded for loaded in sys.modules if loaded.startswith(ours)]:
            del sys.modules[loaded]
        sys.meta_path.insert(0, _Planted(name, code))
        return pytest.main(["-x", *OPTIONS, *files]) == 0

    return _forked(run, (limits[0] + CPU_S, limits[1]))


class _Planted(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    """Imports one module as given code."""

    def __init__(self, name: str, code: CodeType) -> None:
        self._name, self._code = name, code

    def find_spec(
        self, name: str, path: object, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        return importlib.machinery.ModuleSpec(name, self, origin="mutant") if name == self._name else None

    def get_code(self, fullname: str) -> CodeType:
        return self._code

    def get_source(self, fullname: str) -> None:
        return None


OPTIONS = [
    "-oaddopts=--import-mode=importlib",
    "-otimeout=60",
    "-pno:xdist",
    "-pno:cacheprovider",
    "-pno:terminal",
]


def run(name: str, wanted: Callable[[Mutant], bool] = lambda _: True) -> Campaign:
    """The campaign of one core, done. `name`: a key of `CORES`."""
    module, tests = CORES[name]
    (path,) = [found.path for found in modules() if found.name == module]
    campaign = Campaign(module, path, wanted)
    status = pytest.main([*OPTIONS, *(str(ROOT / "tests" / test) for test in tests)], [campaign])
    assert status in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED), status
    return campaign


def main() -> int:
    """The exit code: 1 if a mutant survives that is not listed."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation")
    parser.add_argument("cores", nargs="*", choices=[[], *CORES])
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--line", type=int)
    parser.add_argument(
        "--functions", action="store_true", help="nothing outside of functions: much sooner done"
    )
    parser.add_argument("--survivors", action="store_true", help="try what is listed as equivalent too")
    options = parser.parse_args()
    unknown = 0
    for name in CORES if options.all else options.cores:
        listed = {} if options.survivors else EQUIVALENT.get(name, {})

        def wanted(mutant: Mutant, listed: dict[str, str] = listed) -> bool:
            inside = mutant.function or not options.functions
            return bool(inside) and options.line in (None, mutant.line) and str(mutant) not in listed

        campaign = run(name, wanted)
        unknown += len(campaign.survivors)
        tried = campaign.killed + len(campaign.survivors)
        print(f"\n{name}: {campaign.killed} of {tried} killed, {len(listed)} more are equivalent")
    return 1 if unknown else 0


if __name__ == "__main__":
    sys.exit(main())
