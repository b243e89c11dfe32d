from __future__ import annotations

import dataclasses
import subprocess
import sys

from tidb_binlog.process import process_identity
from tidb_binlog.process.process_identity import ProcessIdentity


def test_this_process_lives() -> None:
    me = process_identity.current("t")
    assert not process_identity.is_gone(me)
    assert ProcessIdentity.from_json(me.to_json()) == me


def test_a_dead_process_is_gone_also_as_a_zombie() -> None:
    code = "from tidb_binlog.process import process_identity as p; print(p.current('t').to_json().decode())"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        identity = ProcessIdentity.from_json(process.stdout.readline())
        assert identity is not None
        process.stdout.read()  # it has ended, nobody has waited for it
        while not process_identity.is_gone(identity):
            pass
    assert process_identity.is_gone(identity)


def test_a_reused_process_id_is_somebody_else() -> None:
    me = process_identity.current("t")
    assert process_identity.is_gone(dataclasses.replace(me, started="1"))


def test_nobody_is_declared_dead_from_another_machine() -> None:
    me = process_identity.current("t")
    elsewhere = dataclasses.replace(me, space="other-boot:pid:[1]", started="1", pid=1)
    assert not process_identity.is_gone(elsewhere)
    assert not process_identity.is_gone(dataclasses.replace(elsewhere, space=""))


def test_foreign_values_are_not_identities() -> None:
    for data in (b"", b"x", b"[]", b"{}", b'{"host":1}', b'"x"'):
        assert ProcessIdentity.from_json(data) is None
