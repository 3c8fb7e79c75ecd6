"""``grls explain``: why a gold passage was found, or why not."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from grls.corpus import Corpus, gold_passages, read_qrels, read_queries, read_split
from grls.decode.scores import ScoreMode
from grls.errors import ConfigError
from grls.evaluation.manifest import Steps
from grls.explain.explain import Explainer
from grls.explain.page import write_page
from grls.explain.summary import format_summary, summarise
from grls.explain.text import format_explanation
from grls.files import read_json, write_json
from grls.logs import quiet
from grls.retrieve.generative import MANIFEST, GenerativeRetriever, SearchOptions
from grls.types import Query

EVERY = "all"
"""The QUERY that stands for a whole split."""


class Hop(NamedTuple):
    """What is asked at one hop: gold passages, given the evidence before them."""

    gold: tuple[str, ...]
    evidence: tuple[str, ...]


def explain(
    query: str,
    retriever: str | None = None,
    gold: str | None = None,
    data: str | None = None,
    split: str = "test",
    steps: Steps = "single",
    evidence: str | None = None,
    hop: int | None = None,
    k: int | None = None,
    beams: int = 10,
    mode: ScoreMode = "renormalized",
    early_stop: bool | None = None,
    widest: int = 128,
    exhaustive: bool = False,
    truncate_queries: bool = False,
    output: str | None = None,
    limit: int | None = None,
    device: str = "auto",
) -> None:
    """Explain why a gold passage was found, or why not.

    Says at which decoding step its prefix left the beam and by how much, what its whole score would have
    been, and so whether the beam or the model was at fault. For `all`, counts the verdicts of a split.

    Args:
        query: A query id of ``data``, the text of a query, or `all` for a summary over ``split``.
        retriever: Retriever folder that ``grls index`` wrote.
        gold: Ids of gold passages, separated by commas; null takes those of the data set.
        data: Data set folder.
        split: Whose qrels name the gold passages.
        steps: ``single``: every gold passage without evidence; ``fixed`` and ``dynamic``: hop by hop, each
            gold passage after those before it in gold order (dynamic: DONE may be written).
        evidence: Ids of the passages found so far, separated by commas, instead of the gold order's.
        hop: Explain only this hop of the gold order, from 1.
        k: Passages asked for; null means what ``grls retrieve`` asks for: 10, or 4 a hop (its ``branch``).
        beams: Beam width.
        mode: Score mode: over the allowed tokens, or over the vocabulary.
        early_stop: Stop at the unique prefix; null means where it is exact (renormalized).
        widest: Beam width up to which wider beams are tried for a passage that the beam lost.
        exhaustive: Score every passage, for the true rank; slow on a large corpus.
        truncate_queries: Cut queries that are too long instead of refusing them.
        output: Write OUTPUT.html (with the beam tree), OUTPUT.svg and OUTPUT.json; for `all` OUTPUT.json.
        limit: For `all`: only the first so many queries.
        device: cpu, cuda, cuda:1, …; auto takes a GPU where there is one.
    """
    quiet()
    options = SearchOptions(beams, mode, early_stop, truncate_queries=truncate_queries)
    opened = _open(retriever, device, options)
    asked = k if k is not None else 10 if steps == "single" else 4
    explainer = Explainer(opened, asked, widest, exhaustive)
    if query == EVERY:
        _summary(explainer, data, split, steps, limit, output)
        return
    found, order = _query(query, data, split)
    before = None if evidence is None else _ids(evidence, opened.corpus)
    dynamic = steps == "dynamic"
    asks = _hops(order, _ids(gold, opened.corpus), before, hop, steps)
    explanations = [e for ask in asks for e in explainer.explain(found, ask.gold, ask.evidence, dynamic)]
    colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    print("\n\n".join(format_explanation(e, colour) for e in explanations))
    if output is not None:
        print("\nwrote " + ", ".join(write_page(output, explanations)))


def _open(folder: str | None, device: str, options: SearchOptions) -> GenerativeRetriever:
    if folder is None:
        raise ConfigError("give --retriever FOLDER, a folder that `grls index` wrote.")
    manifest = Path(folder) / MANIFEST
    if manifest.is_file():
        content = read_json(manifest)
        kind = content.get("kind", "generative") if isinstance(content, dict) else "generative"
        if kind != "generative":
            raise ConfigError(
                f"--retriever {folder} is a {kind} retriever; only a generative one decodes passages step by "
                "step, so only its misses can be explained. Give a folder that `grls index` wrote."
            )
    return GenerativeRetriever.from_pretrained(folder, device, options=options)


def _query(query: str, data: str | None, split: str) -> tuple[Query, list[str]]:
    """The query and its gold passages in order; a text that is no id has none."""
    if data is not None:
        for one in read_queries(data):
            if one.id == query:
                file = Path(data) / "qrels" / f"{split}.tsv"
                return one, gold_passages(one, read_qrels(file) if file.is_file() else {})
    return Query("query", query), []


def _ids(given: str | None, corpus: Corpus) -> tuple[str, ...]:
    """Ids separated by commas; an id that itself holds a comma may be given alone."""
    if not given:
        return ()
    if corpus.numbers([given])[0] is not None:
        return (given,)
    return tuple(part.strip() for part in given.split(",") if part.strip())


def _hops(
    order: Sequence[str],
    gold: tuple[str, ...],
    evidence: tuple[str, ...] | None,
    hop: int | None,
    steps: Steps,
) -> list[Hop]:
    """What to explain.

    Raises:
        ConfigError: No gold passage is known, or the options contradict each other.
    """
    if evidence is not None and hop is not None:
        raise ConfigError("give --evidence or --hop, not both.")
    if hop is not None:
        if not 1 <= hop <= len(order) + bool(gold):
            raise ConfigError(
                f"--hop {hop}: the query has {len(order)} gold passages in order; hops count from 1."
            )
        return [Hop(gold or (order[hop - 1],), tuple(order[: hop - 1]))]
    before = evidence or ()
    wanted = gold or tuple(p for p in order if p not in before)
    if not wanted:
        raise ConfigError(
            "no gold passage is known for this query: give --gold ID, or a query id of --data DIR whose "
            "qrels (--split) or evidence name it."
        )
    if evidence is not None or steps == "single" or not order:
        return [Hop(wanted, before)]
    strange = [p for p in wanted if p not in order]
    if strange:
        raise ConfigError(
            f"{strange[0]!r} is not in the gold order of the query, so its hop is unknown; give --hop or "
            "--evidence."
        )
    return [Hop((p,), tuple(order[: order.index(p)])) for p in wanted]


def _summary(
    explainer: Explainer, data: str | None, split: str, steps: Steps, limit: int | None, output: str | None
) -> None:
    if data is None:
        raise ConfigError(f"{EVERY!r} counts the verdicts of a split: give --data DIR.")
    queries, qrels = read_split(data, split)
    asks = []
    for query in queries[:limit]:
        order = gold_passages(query, qrels)
        if order:
            asks += [(query, h.gold, h.evidence) for h in _hops(order, (), None, None, steps)]
    summary = summarise(explainer, asks, steps == "dynamic")
    print(format_summary(summary))
    if output is not None:
        write_json(f"{output}.json", summary._asdict())
        print(f"\nwrote {output}.json")
