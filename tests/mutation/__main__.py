"""Mutation score of a core: which slips do its tests see?

    python -m tests.mutation group_commit            a core of `CORES`, or --all
    python -m tests.mutation merger --line 120       mutants of one line
    python -m tests.mutation merger --survivors      what is listed as equivalent too
    python -m tests.mutation derive --no-servers     by tests without a server alone

Tests are collected once. Each mutant is a fork, in which the code of one function is another one's. It is
killed by the first test that fails, by an error, or when it takes far longer than the tests do, stands
still or takes all memory. Quick tests come first, and before them the one that killed the last mutant,
which often was one of the same function. Tests that need a server come last, without a fork. Values that
stand outside of functions are copied on import, so such a mutant has a process import everything anew; not
where a test needs a server.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import functools
import gc
import importlib.abc
import importlib.machinery
import inspect
import mmap
import os
import resource
import select
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
CPU_TIMES, WALL_TIMES = 3, 10
STILL_S, STILL_CPU_S = 20, 0.1  # who uses no more in such a time waits for what never comes
DATA_BYTES = 3 << 30  # a loop without an end would take all memory before its CPU time is over
AT = mmap.mmap(-1, 4)  # the number of the test under way, which the parent of a fork sees, too


class Campaign:
    """A plugin of pytest: in place of a run over the tests, one for each mutant."""

    def __init__(self, name: str, path: Path, wanted: Callable[[Mutant], bool], *, servers: bool) -> None:
        self.name, self.path = name, path
        self._wanted, self._servers = wanted, servers
        self.killed = 0
        self.survivors: list[str] = []

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Fork by fork."""
        gc.freeze()
        forked, served = list[pytest.Item](), list[pytest.Item]()
        for item in session.items:
            needs_one = "mariadb" in getattr(item, "fixturenames", ())
            if self._servers or not needs_one:
                (served if needs_one else forked).append(item)
        began_s, cpu_s, used_s = time.monotonic(), _children_s(), dict[pytest.Item, float]()
        for item in forked:
            before_s = _children_s()
            good = _forked(functools.partial(_all_pass, session, [item]), (600, 600))
            assert good, f"{item.nodeid} fails without a mutant"
            used_s[item] = _children_s() - before_s
        forked.sort(key=used_s.__getitem__)
        took_s, cpu_s = time.monotonic() - began_s, _children_s() - cpu_s
        good = _all_pass(session, served)
        assert good, "the tests fail without a mutant"
        limits = int(CPU_S + CPU_TIMES * cpu_s), int(WALL_S + WALL_TIMES * took_s)
        for mutant in mutants(self.path.read_text()):
            if not self._wanted(mutant):
                continue
            code = compile(mutant.tree, str(self.path), "exec")
            functions = list(_functions(sys.modules[self.name], mutant.function)) if mutant.function else []
            if functions:
                codes = [found for found in _codes(code) if found.co_qualname == mutant.function]
                passes = functools.partial(_passes_with, session, functions, codes)
                survives = _forked(functools.partial(passes, forked), limits)
                if not survives:
                    forked.insert(0, forked.pop(int.from_bytes(AT[:])))
                elif not (survives := passes(served)):
                    served.insert(0, served.pop(int.from_bytes(AT[:])))
            elif served:
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


def _all_pass(session: pytest.Session, items: Sequence[pytest.Item]) -> bool:
    """Whether these pass. What is set up for the whole session stays for the next time."""
    tear_down = session._setupstate.teardown_exact
    for number, item in enumerate(items):
        AT[:] = number.to_bytes(4)
        tear_down(item)
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=item.parent)
        if session.testsfailed:
            break
    tear_down(session)
    session.testsfailed, failed = 0, session.testsfailed
    return not failed


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _passes_with(
    session: pytest.Session,
    functions: Sequence[FunctionType],
    codes: Sequence[CodeType],
    items: Sequence[pytest.Item],
) -> bool:
    """The same with other code. `codes` in their order: of a property, what reads and what writes."""
    kept = [function.__code__ for function in functions]
    try:
        for function, code in zip(functions, codes, strict=True):
            function.__code__ = code
        return _all_pass(session, items)
    finally:
        for function, code in zip(functions, kept, strict=True):
            function.__code__ = code


def _forked(function: Callable[[], bool], limits: tuple[int, int]) -> bool:
    """What it returns; False if it raises or takes more than `limits` of seconds: CPU, wall clock."""
    sys.stdout.flush()
    faulthandler.cancel_dump_traceback_later()  # a child without that thread would wait for it
    if pid := os.fork():
        until_s, used_s = time.monotonic() + limits[1], 0.0
        clock = ~pid << 3 | 2  # the child's CLOCK_PROCESS_CPUTIME_ID
        with open(os.pidfd_open(pid), "rb", buffering=0) as child:  # its own alarm clock is that of its tests
            while not select.select([child], [], [], STILL_S)[0]:
                before_s, used_s = used_s, time.clock_gettime(clock)
                if used_s - before_s < STILL_CPU_S or time.monotonic() > until_s:
                    os.kill(pid, signal.SIGKILL)
                    break
        return os.waitpid(pid, 0)[1] == 0
    good = False
    with contextlib.suppress(BaseException):
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        resource.setrlimit(resource.RLIMIT_CPU, (limits[0], limits[0]))
        resource.setrlimit(resource.RLIMIT_DATA, (DATA_BYTES, DATA_BYTES))
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


def run(name: str, wanted: Callable[[Mutant], bool], *, servers: bool) -> Campaign:
    """The campaign of one core, done. `name`: a key of `CORES`."""
    module, tests = CORES[name]
    (path,) = [found.path for found in modules() if found.name == module]
    campaign = Campaign(module, path, wanted, servers=servers)
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
    parser.add_argument("--no-servers", action="store_true", help="leave out tests that need a server")
    options = parser.parse_args()
    unknown = 0
    for name in CORES if options.all else options.cores:
        listed = {} if options.survivors else EQUIVALENT.get(name, {})

        def wanted(mutant: Mutant, listed: dict[str, str] = listed) -> bool:
            inside = mutant.function or not options.functions
            return bool(inside) and options.line in (None, mutant.line) and str(mutant) not in listed

        campaign = run(name, wanted, servers=not options.no_servers)
        unknown += len(campaign.survivors)
        tried = campaign.killed + len(campaign.survivors)
        print(f"\n{name}: {campaign.killed} of {tried} killed, {len(listed)} more are equivalent")
    return 1 if unknown else 0


if __name__ == "__main__":
    sys.exit(main())
