"""What every command refuses of its options before it imports what takes seconds.

A name of an option means the same in all commands, so it is checked here, and not in each command.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from shlex import quote
from typing import Any

from grls.data.inputs.arguments import Count, UnfitError, fitted
from grls.errors import ConfigError, DataError, Option
from grls.io.recipes import warn_of_missing_plugins
from grls.models.option_names import Device

_KINDS = {"device": Device} | dict.fromkeys(
    (
        "batch_size",
        "depth",
        "k",
        "limit",
        "max_new_tokens",
        "max_tokens",
        "parts",
        "passages",
        "proofs",
        "words",
    ),
    Count,
)


def refuse_early(options: Mapping[str, Any], prog: str) -> None:
    """Refuse numbers, names and missing files; ``prog`` is the command, for the remedy."""
    from grls.retrieve.hub_names import is_on_the_hub
    from grls.retrieve.registry import names_bm25
    from grls.retrieve.spec import followed, is_retriever, read_spec

    warn_of_missing_plugins()
    for name in _KINDS.keys() & options.keys():
        try:
            options[name] is None or fitted(options[name], _KINDS[name])
        except UnfitError as error:
            raise ConfigError(error.said_of(f"{Option(name)}")) from None
    if options.get("measures") is not None:
        from grls.evaluation.measures import measure_names

        measure_names(options["measures"])
    retriever, data, query = options.get("retriever"), options.get("data"), options.get("query") or os.devnull
    if isinstance(retriever, str) and not os.path.isfile(retriever):  # noqa: PTH113 (the name may be too long)
        is_none = not is_retriever(Path(retriever))
        if names_bm25(retriever):
            if "data" in options and data is None:
                raise ConfigError(
                    f"bm25 needs {Option('data')}: the folder of the data set whose corpus it searches."
                )
        elif is_none and is_retriever(Path(query)):
            place, form = "comes first", f"{quote(query)} {quote(retriever)}"
            if prog.endswith("explain"):
                place, form = "is an option", f"{quote(retriever)} {Option('retriever', query)}"
            raise ConfigError(f"the folder of the retriever {place}: `{prog} {form}`.")
        elif is_none and data and os.path.isdir(retriever) and is_retriever(Path(data)):  # noqa: PTH112
            raise ConfigError(
                f"{Option('data')} names a retriever, and the retriever is {retriever}: swap them."
            )
        elif not is_on_the_hub(retriever):
            read_spec(followed(retriever))
    if isinstance(data, str) and not data.startswith("hub:") and not os.path.exists(data):  # noqa: PTH110
        raise DataError(
            "no such folder; a data set is a folder with corpus.jsonl, queries.jsonl and qrels/.", data
        )
    raw, out = options.get("raw"), options.get("out")
    if raw is not None and out is not None:
        replaced, read = Path(out).resolve(), Path(raw).resolve()
        if replaced == read or replaced in read.parents:
            raise ConfigError(
                f"{out} holds the files to read, and would be replaced: give another {Option('out')}."
            )
    runs = [*(options.get("runs") or []), *filter(None, [options.get("run")])]
    for run in runs:
        if not os.path.isfile(run):  # noqa: PTH113
            raise DataError("no such file; expected a run in JSONL or TREC form.", run)
