"""Row rules: what one says, which tables it is about, and everything that is refused."""

from __future__ import annotations

import subprocess
import sys

import pytest

from drainer.stream.rules.row_rule import compile_where
from tests.drainer.stream.rules.where.typed_table import table
from tidb_binlog.errors import ConfigError
from tidb_binlog.rowcodec.encoder import RowEncoder


def test_a_condition_is_compiled_for_a_table() -> None:
    info = table()
    encoder = RowEncoder(info)
    condition = compile_where("i > 5").of(info, "shop.orders")
    assert condition.insert(encoder.insert({"id": 1, "i": 6}))
    assert not condition.delete(encoder.delete({"id": 1, "i": 5}))
    changed = encoder.update({"id": 1, "i": 6}, {"id": 1, "i": 5})
    assert condition.update(changed) == (True, False, len(changed) // 2)


def test_errors_bear_the_label() -> None:
    with pytest.raises(ConfigError, match=r"^-where: at character 2: "):
        compile_where("a", "-where").of(table(), "shop.orders")
    with pytest.raises(ConfigError, match=r"^-where names column a, which shop.orders does not have"):
        compile_where("a = 1", "-where").of(table(), "shop.orders")


def test_who_has_no_rule_loads_nothing_that_reads_or_compiles_rules() -> None:
    script = (
        "import sys; import drainer.stream.translate.translator;"
        "from drainer.config.options import DrainerConfig;"
        "from drainer.stream.rules.rule_set import read_rules; read_rules(DrainerConfig());"
        "names = ('drainer.stream.rules.where', 'drainer.stream.rules.mask',"
        " 'drainer.stream.rules.python_rule',"
        " 'drainer.stream.translate.row_edit');"
        "assert not [name for name in sys.modules if name.startswith(names)]"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
