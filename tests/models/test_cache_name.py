"""A cache has the name that the forward method of a model has for it."""

from typing import Any

from torch import nn

from grls.models.base import cache_argument


class Before(nn.Module):
    """A model of transformers before 5.24."""

    def forward(self, input_ids: Any = None, past_key_values: Any = None, use_cache: Any = None) -> None:
        """Nothing."""


class Since(nn.Module):
    """A model of transformers since 5.24."""

    def forward(self, input_ids: Any = None, cache: Any = None, use_cache: Any = None) -> None:
        """Nothing."""


def test_it_is_the_name_that_the_model_has() -> None:
    assert cache_argument(Before()) == "past_key_values"
    assert cache_argument(Since()) == "cache"
