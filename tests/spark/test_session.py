"""Session: a healthy start says nothing; whatever else the JVM says is shown."""

from __future__ import annotations

import os
import threading

from drainer.spark import jvm
from tests.spark.conftest import Started


def test_a_healthy_start_says_nothing(started: Started) -> None:
    assert started.session.range(3).count() == 3
    assert started.said == ""


def test_only_the_warning_of_incubator_modules_is_held_back() -> None:
    source, jvm_end = os.pipe()
    shown, target = os.pipe()
    thread = threading.Thread(target=jvm.copy, args=(source, target))
    thread.start()
    os.write(jvm_end, b"WARNING: Using incubator modules: jdk.incubator.vector\nfirst: \xff\n")
    assert os.read(shown, 100) == b"first: \xff\n"  # at once, while the JVM lives
    os.write(jvm_end, b"WARNING: another one\nand no end")
    os.close(jvm_end)
    thread.join()
    os.close(target)
    with open(shown, "rb") as rest:
        assert rest.read() == b"WARNING: another one\nand no end"
