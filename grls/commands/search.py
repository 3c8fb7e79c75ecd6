"""``grls search``: the best passages of a question, on the terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from grls.errors import ConfigError, DataError
from grls.models.precision_names import Precision
from grls.retrieve.hops.options import USUAL_HOPS, HopOptions

if TYPE_CHECKING:
    from grls.api.searcher import Searcher
    from grls.api.streaming import StreamedHop
    from grls.data.types import Hit

INPUT = "-"
"""The QUERY that stands for the lines of standard input."""
_RANKED = "Ranked hops: this ranking is the answer, not the chain."
IN_HOP = " in this hop"
"""What the score of a streamed passage belongs to: after other evidence the passage has another one."""
IN_CHAIN = " up to this hop"
"""What the score of a passage of a chain belongs to: the chain so far."""
_LINES = 3
"""Lines of a passage that are shown."""


def search_command(
    retriever: str,
    query: str,
    *,
    k: int = 5,
    where: str | None = None,
    hops: HopOptions = USUAL_HOPS,
    stream: bool = False,
    json: bool = False,
    metadata: bool = False,
    data: str | None = None,
    device: str = "auto",
    precision: Precision = "float32",
) -> None:
    """Search for one question, and print the best passages; of fixed and dynamic hops the best chain.

    For many questions and a run that is measured, take `grls retrieve`.

    Args:
        retriever: Retriever folder of any kind, its name on the hub (user/name), or `bm25`: BM25 over the
            corpus of ``data``.
        query: The question; `-` reads one a line from standard input.
        k: Number of passages.
        where: A filter over the metadata of passages, such as "year>=2000". It holds in every hop, so it must
            hold the passages on the way as well.
        hops: Options of retrieval hop by hop; those that the folder stores replace the defaults.
        stream: Print hops as they are found, in place of a ranking; a retriever of single steps has one. The
            score of a passage there is that in its hop, after the evidence so far. The hops of ranked hops
            are the way to the ranking, which follows them.
        json: Print one JSON object for each question (with ``stream``, for each hop), with whole texts.
        metadata: Print the metadata of passages as well.
        data: Data set folder, for `bm25`.
        device: cpu, cuda, cuda:1, …; auto takes a GPU where there is one.
        precision: Precision of the models.
    """
    from grls.io.ending import quiet
    from grls.retrieve.queries import check_counts

    quiet()
    check_counts(k=k)
    asked = _asked(query)
    searcher = _hop_by_hop(_opened(retriever, data, device, precision), retriever, hops)
    form = _Form(json, metadata)
    for number, text in enumerate(asked):
        if number and not json:
            print()
        lines = (
            _streamed(searcher, text, k, where, form) if stream else _ranking(searcher, text, k, where, form)
        )
        if len(asked) > 1 and not json:
            _print(f"{text}\n")
        for line in lines:
            _print(line)


def _asked(query: str) -> list[str]:
    """The questions; empty lines of standard input are left out."""
    lines = [line.strip() for line in sys.stdin] if query == INPUT else [query]
    asked = [line for line in lines if line]
    if not asked:
        raise DataError("there is no question: give one in quotes, or one a line on standard input with -.")
    return asked


def _opened(retriever: str, data: str | None, device: str, precision: Precision) -> Searcher:
    from grls.api.opening import BM25, load
    from grls.retrieve.registry import names_bm25

    if names_bm25(retriever):
        if data is None:
            raise ConfigError("bm25 needs --data: the folder of the data set whose corpus it searches.")
        return BM25(data)
    if data is not None:
        raise ConfigError(f"--data names the corpus of bm25; {retriever} has its own: leave it out.")
    return load(retriever, device=device, precision=precision)


def _hop_by_hop(searcher: Searcher, retriever: str, hops: HopOptions) -> Searcher:
    """A searcher with other options of hops; of a folder on the hub those that it stores are the default."""
    from grls.api.searcher import Searcher
    from grls.retrieve.hops.retriever import hop_by_hop
    from grls.retrieve.hub_names import is_on_the_hub
    from grls.retrieve.options import stored_options

    stored = HopOptions(**stored_options(searcher.folder).get("hops", {}))
    if hops == stored or (hops == USUAL_HOPS and is_on_the_hub(retriever)):
        return searcher
    return Searcher(hop_by_hop(searcher.retriever, hops), searcher.place, searcher.how)


class _Form(NamedTuple):
    """How passages are printed: as JSON, with metadata."""

    as_json: bool
    metadata: bool

    def record(self, hit: Hit) -> dict[str, object]:
        """A hit as a JSON object."""
        hop = {} if hit.hop is None else {"hop": hit.hop}
        return hit._asdict() | hop | ({"metadata": dict(hit.metadata)} if self.metadata else {})

    def shown(self, rank: int, hit: Hit, width: int, where: str = "") -> str:
        """A hit for the terminal, with what its score belongs to."""
        from grls.io.option_errors import json_line

        title = " ".join(hit.title.split())
        head = f"{rank:>3}  {hit.score:>9.4f}{where}  {hit.id:<{width}}  {title}".rstrip()
        more = [f"     {json_line(dict(hit.metadata))}"] if self.metadata and hit.metadata else []
        return "\n".join([head, *_first_lines(hit.text), *more])


def _ranking(searcher: Searcher, query: str, k: int, where: str | None, form: _Form) -> Iterable[str]:
    from grls.io.option_errors import json_line

    hits = searcher.search(query, k, where=where)
    if form.as_json:
        return [json_line({"query": query, "hits": [form.record(hit) for hit in hits]})]
    if not hits:
        return ["nothing was found"]
    width = max(len(hit.id) for hit in hits)
    places = ["" if hit.hop is None else IN_CHAIN for hit in hits]
    return [form.shown(rank, hit, width, places[rank - 1]) for rank, hit in enumerate(hits, start=1)]


def _streamed(searcher: Searcher, query: str, k: int, where: str | None, form: _Form) -> Iterable[str]:
    """The hops; of ranked hops also the ranking, which is their answer."""
    yield from _hops(searcher, query, where, form)
    if searcher.retriever.describe().steps == "ranked":
        if not form.as_json:
            yield f"\n{_RANKED}"
        yield from _ranking(searcher, query, k, where, form)


def _hops(searcher: Searcher, query: str, where: str | None, form: _Form) -> Iterable[str]:
    from grls.io.option_errors import json_line

    for hop in searcher.stream(query, where=where):
        yield json_line({"query": query, **_fields(hop, form)}) if form.as_json else _hop(hop, form)


def _fields(hop: StreamedHop, form: _Form) -> dict[str, object]:
    chain = [form.record(hit) for hit in hop.chain]
    return {**hop._asdict(), "hit": hop.hit and form.record(hop.hit), "chain": chain}


def _hop(hop: StreamedHop, form: _Form) -> str:
    found = (
        "no further passage" if hop.hit is None else form.shown(hop.number, hop.hit, len(hop.hit.id), IN_HOP)
    )
    if not hop.last:
        return found
    ids = " -> ".join(hit.id for hit in hop.chain) or "nothing was found"
    return f"{found}\nchain: {ids}{' -> DONE' if hop.done else ''} (score of the chain {hop.score:.4f})"


def _first_lines(text: str) -> Sequence[str]:
    from shutil import get_terminal_size
    from textwrap import wrap

    width = max(40, get_terminal_size((100, 24)).columns)
    indent = " " * 5
    return wrap(
        text, width, initial_indent=indent, subsequent_indent=indent, max_lines=_LINES, placeholder=" …"
    )


def _print(text: str) -> None:
    from grls.io.option_errors import visible

    print(visible(text), flush=True)
