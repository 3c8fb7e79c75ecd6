"""The same rows as a table of each library that is installed."""

from collections.abc import Callable
from typing import Any

import datasets
import pandas as pd
import pyarrow as pa

try:
    import polars
except ImportError:
    polars = None

Columns = dict[str, list[Any]]

TABLES: dict[str, Callable[[Columns], Any]] = {
    "pandas": pd.DataFrame,
    "datasets": datasets.Dataset.from_dict,
    "streamed": lambda columns: datasets.Dataset.from_dict(columns).to_iterable_dataset(),
    "pyarrow": pa.table,
    "rows": lambda columns: [
        dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)
    ],
}
"""Library -> a table from columns; ``rows`` is a list of dicts."""

if polars is not None:
    TABLES["polars"] = polars.DataFrame
