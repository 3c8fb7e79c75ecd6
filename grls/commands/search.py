"""``grls search``: the best passages of a question, on the terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from shutil import get_terminal_size
from textwrap import wrap
from typing import TYPE_CHECKING, NamedTuple

from grls.data.evidence import part_around
from grls.data.types import Hit, hop_and_links
from grls.errors import ConfigError, DataError
from grls.io.arguments import Count
from grls.io.progress import json_line, visible
from grls.models.option_names import Device, Precision
from grls.retrieve.hops.options import USUAL_HOPS, HopOptions

if TYPE_CHECKING:
    from grls.api.searcher import Searcher

INPUT = "-"
"""The QUERY that stands for the lines of standard input."""
_RANKED = "Ranked hops: this ranking is the answer, not the chain."
IN_HOP = " in this hop"
"""Said of the score of a streamed passage: after other evidence the passage has another score."""
IN_CHAIN = " up to this hop"
"""Said of the score of a passage of a chain: it is the score of the chain so far."""
_LINES = 3
"""Lines of a passage that are shown."""
_INDENT = " " * 5


def search_command(
    retriever: str,
    query: str,
    *,
    k: Count = 5,
    where: str | None = None,
    hops: HopOptions = USUAL_HOPS,
    stream: bool = False,
    json: bool = False,
    metadata: bool = False,
    data: str | None = None,
    device: Device = "auto",
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
        data: Data set folder, or documents (a folder or a file), for `bm25`.
    """
    from grls.api.opening import BM25, load
    from grls.api.searcher import Searcher
    from grls.retrieve.hops.retriever import hop_by_hop
    from grls.retrieve.hub_names import is_on_the_hub
    from grls.retrieve.registry import names_bm25

    texts = [line.strip() for line in sys.stdin] if query == INPUT else [query]
    questions = [text for text in texts if text]
    if not questions:
        raise DataError("there is no question: give one in quotes, or one a line on standard input with -.")
    if names_bm25(retriever):
        searcher: Searcher = BM25(data)
    elif data is not None:
        raise ConfigError(f"--data names the corpus of bm25; {retriever} has its own: leave it out.")
    else:
        searcher = load(retriever, device=device, precision=precision)
    own = getattr(searcher.retriever, "hops", USUAL_HOPS)
    if hops != own and not (hops == USUAL_HOPS and is_on_the_hub(retriever)):  # its options come with it
        searcher = Searcher(hop_by_hop(searcher.retriever, hops))
    form = _Form(json, metadata)
    for number, question in enumerate(questions):
        if number and not json:
            print()
        search = _streamed if stream else _ranking
        lines = search(searcher, question, k, where, form)
        if len(questions) > 1 and not json:
            print(visible(f"{question}\n"), flush=True)
        for line in lines:
            print(visible(line), flush=True)


class _Form(NamedTuple):
    as_json: bool
    metadata: bool

    def record(self, hit: Hit) -> dict[str, object]:
        metadata = {"metadata": dict(hit.metadata)} if self.metadata else {}
        return hit._asdict() | hop_and_links(hit) | metadata

    def shown(self, query: str, rank: int, hit: Hit, width: int, of_score: str = "") -> str:
        """A hit for the terminal, with the words after its score and the lines nearest to the query."""
        title = " ".join(hit.title.split())
        head = f"{rank:>3}  {hit.score:>9.4f}{of_score}  {hit.id:<{width}}  {title}".rstrip()
        columns = max(40, get_terminal_size((100, 24)).columns)
        room = columns - len(_INDENT)
        rows = wrap(part_around(query, hit.text, _LINES * room), room, max_lines=_LINES, placeholder=" …")
        if hit.links:
            rows.append(f"by {', '.join(map(str, hit.links))}")
        if self.metadata and hit.metadata:
            rows.append(json_line(dict(hit.metadata)))
        return "\n".join([head, *(f"{_INDENT}{row}" for row in rows)])


def _ranking(searcher: Searcher, query: str, k: int, where: str | None, form: _Form) -> Iterable[str]:
    hits = searcher.search(query, k, where=where)
    if form.as_json:
        return [json_line({"query": query, "hits": [form.record(hit) for hit in hits]})]
    if not hits:
        return ["nothing was found"]
    width = max(len(hit.id) for hit in hits)
    return [
        form.shown(query, rank, hit, width, "" if hit.hop is None else IN_CHAIN)
        for rank, hit in enumerate(hits, 1)
    ]


def _streamed(searcher: Searcher, query: str, k: int, where: str | None, form: _Form) -> Iterable[str]:
    """The hops; of ranked hops also the ranking, which is their answer."""
    for hop in searcher.stream(query, where=where):
        if form.as_json:
            hit = None if hop.hit is None else form.record(hop.hit)
            chain = [form.record(passage) for passage in hop.chain]
            yield json_line({"query": query, **hop._asdict(), "hit": hit, "chain": chain})
            continue
        text = "no further passage"
        if hop.hit is not None:
            text = form.shown(query, hop.number, hop.hit, len(hop.hit.id), IN_HOP)
        if hop.last:
            ids = " -> ".join(passage.id for passage in hop.chain) or "nothing was found"
            text += f"\nchain: {ids}{' -> DONE' if hop.done else ''} (score of the chain {hop.score:.4f})"
        yield text
    if searcher.retriever.describe().steps == "ranked":
        if not form.as_json:
            yield f"\n{_RANKED}"
        yield from _ranking(searcher, query, k, where, form)
