"""What fails in a table of examples names its example."""

from __future__ import annotations

import pytest

from tests.cases import case


def test_the_example_stands_beside_what_failed() -> None:
    with pytest.raises(AssertionError) as caught, case("name", 7):
        raise AssertionError("is not")
    assert caught.value.__notes__ == ["example: name, 7"]
    assert str(caught.value) == "is not"
