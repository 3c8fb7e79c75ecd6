"""A whole number in a config or on a command line stays whole where a share would mean something else."""

from typing import Any, Union

import pytest

from grls.train.cli import Parser


class Limits:
    def __init__(
        self,
        batches: Union[float, int, None] = None,  # noqa: UP007
        every: Union[str, float, int] = 1.0,  # noqa: UP007
        rate: float = 0.5,
    ):
        self.batches, self.every, self.rate = batches, every, rate


@pytest.mark.parametrize(("given", "expected"), [(1, int), (7, int), (1.0, float), (0.25, float)])
def test_a_number_keeps_its_kind(given: Any, expected: type) -> None:
    parser = Parser(exit_on_error=False)
    parser.add_class_arguments(Limits, "limits")
    parsed = parser.parse_object({"limits": {"batches": given, "rate": given}})
    assert type(parsed.limits.batches) is expected
    assert type(parsed.limits.rate) is float
    assert type(parser.parse_args([f"--limits.batches={given}"]).limits.batches) is expected
