"""``grls explain``: why a gold passage was found, or why not."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import NamedTuple

from grls.data.corpus import Corpus
from grls.data.dataset import Qrels, gold_passages, read_qrels, read_queries, read_split
from grls.data.types import Query
from grls.decode.scores import ScoreMode
from grls.errors import ConfigError, DataError
from grls.explain.explain import Explainer
from grls.explain.page import write_explanations
from grls.explain.summary import TOLD_APART, Ask, format_summary, of_ask, summarise
from grls.explain.text import format_explanation
from grls.io.files import read_json, refuse_unwritable, write_json
from grls.io.logs import quiet
from grls.io.resumable import GrowingFile
from grls.models.precision import Precision
from grls.retrieve.generative.options import SearchOptions
from grls.retrieve.generative.retriever import GenerativeRetriever
from grls.retrieve.queries import check_counts
from grls.retrieve.spec import MANIFEST
from grls.runs.manifest import Steps, fingerprint_queries

log = logging.getLogger(__name__)

EVERY = "all"
"""The QUERY that stands for a whole split."""


class Hop(NamedTuple):
    """What is asked at one hop: gold passages, given the evidence before them."""

    gold: tuple[str, ...]
    evidence: tuple[str, ...]


def explain(
    query: str,
    *,
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
    done_bias: float = 0.0,
    widest: int = 128,
    exhaustive: bool = False,
    truncate_queries: bool = False,
    output: str | None = None,
    limit: int | None = None,
    device: str = "auto",
    precision: Precision = "float32",
) -> None:
    """Explain why a gold passage was found, or why not.

    Says at which decoding step its prefix left the beam and by how much, what its whole score would have
    been, and so whether the beam or the model was at fault. For `all`, counts the verdicts of a split; with
    ``output`` a killed run goes on where it stopped when it is called again with the same options
    (OUTPUT.explained.jsonl).
    The search is explained: what `--rescore` of `grls retrieve` makes of its ranking is not looked into.

    Args:
        query: A query id of ``data``, the text of a query (without ``data``, or with a space), or `all`
            for a summary over ``split``.
        retriever: Retriever folder that ``grls index`` wrote.
        gold: Ids of gold passages, separated by commas; null takes those of the data set.
        data: Data set folder.
        split: Whose qrels name the gold passages; they must judge the query unless ``gold`` is given.
        steps: ``single``: every gold passage without evidence; ``fixed`` and ``dynamic``: hop by hop, each
            gold passage after those before it in gold order (dynamic: DONE may be written).
        evidence: Ids of the passages found so far, separated by commas, instead of the gold order's.
        hop: Explain only this hop of the gold order, from 1.
        k: Passages asked for; null means what ``grls retrieve`` asks for: 10, or 4 a hop (its ``branch``).
        beams: Beam width.
        mode: Score mode: over the allowed tokens, or over the vocabulary.
        early_stop: Stop at the unique prefix; null means where it is exact (renormalized).
        done_bias: Added to the log-odds of DONE (dynamic), as `grls retrieve` does.
        widest: Beam width up to which wider beams are tried for a passage that the beam lost.
        exhaustive: Score every passage, for the true rank; slow on a large corpus.
        truncate_queries: Cut queries that are too long instead of refusing them.
        output: Write OUTPUT.html (with the beam tree), OUTPUT.svg and OUTPUT.json; for `all` OUTPUT.json.
        limit: For `all`: only the first so many queries.
        device: cpu, cuda, cuda:1, …; auto takes a GPU where there is one.
        precision: In which numbers the model computes: bfloat16 where the processor has it; float16-weights
            or int8 on CPUs (generators only); auto measures.
    """
    quiet()
    if query == EVERY and any(given is not None for given in (gold, evidence, hop)):
        raise ConfigError(f"--gold, --evidence and --hop are of one query; for {EVERY!r} leave them out.")
    if limit is not None:
        check_counts(**{"--limit": limit})
    if output is not None:
        refuse_unwritable(output)
    if done_bias and steps != "dynamic":
        raise ConfigError(f"--done_bias {done_bias} weighs DONE, which only --steps dynamic writes.")
    options = SearchOptions(beams, mode, early_stop, truncate_queries=truncate_queries)
    opened = _open(retriever, device, precision, options)
    asked = k if k is not None else 10 if steps == "single" else 4
    explainer = Explainer(opened, asked, widest, exhaustive, done_bias)
    if query == EVERY:
        _summary(explainer, data, split, steps, limit, output, precision)
        return
    found, order = _query(query, data, split, gold is not None)
    before = None if evidence is None else _ids(evidence, opened.corpus)
    dynamic = steps == "dynamic"
    asks = _hops(order, _ids(gold, opened.corpus), before, hop, steps)
    explanations = [e for ask in asks for e in explainer.explain(found, ask.gold, ask.evidence, dynamic)]
    colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    print("\n\n".join(format_explanation(e, colour) for e in explanations))
    if output is not None:
        print("\nwrote " + ", ".join(write_explanations(output, explanations)))


def _open(folder: str | None, device: str, precision: str, options: SearchOptions) -> GenerativeRetriever:
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
    opened = GenerativeRetriever.from_pretrained(folder, device, precision, options)
    if opened.spans is not None:
        raise ConfigError(
            f"--retriever {folder} writes spans of passages, which cannot be explained; give one that writes "
            "passages from their beginning."
        )
    if opened.removed:
        raise ConfigError(
            f"--retriever {folder} has removed passages, which the searches repeated here would find: merge "
            f"it first (`grls update --retriever {folder} --merge true`)."
        )
    return opened


def _query(query: str, data: str | None, split: str, named: bool) -> tuple[Query, list[str]]:
    """The query and its gold passages in order; a text has none.

    Args:
        query: Id or text.
        data: Data set folder.
        split: Whose qrels must judge the query.
        named: The gold passages are given, so the qrels need not know the query; its order is then unknown.

    Raises:
        DataError: The query is no id of the data set and no text either, or the split does not judge it.
    """
    if data is None:
        return Query("query", query), []
    known = {one.id: one for one in read_queries(data)}
    if query in known:
        return known[query], _order(known[query], Path(data) / "qrels", split, named)
    file = Path(data) / "queries.jsonl" if Path(data).is_dir() else Path(data)
    if not any(character.isspace() for character in query):
        close = get_close_matches(query, known, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else "."
        raise DataError(
            f"no query has the id {query!r}{hint} The text of a query needs no --data, or holds a space.",
            file,
        )
    log.warning("%s: no query has the id %r, so it is taken as the text of a query.", file, query)
    return Query("query", query), []


def _order(query: Query, folder: Path, split: str, named: bool) -> list[str]:
    """Gold passages in order, by the qrels of a split; evidence alone does not make a passage gold here."""
    file = folder / f"{split}.tsv"
    qrels = read_qrels(file) if file.is_file() else {}
    if query.id in qrels:
        return gold_passages(query, qrels)
    if named:
        return []
    others = [f.stem for f in sorted(folder.glob("*.tsv")) if f != file and query.id in read_qrels(f)]
    where = f"--split {others[0]} does: name it" if others else "no split does: make qrels"
    raise DataError(f"--split {split} does not judge query {query.id!r}; {where}, or give --gold ID.", file)


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
    explainer: Explainer,
    data: str | None,
    split: str,
    steps: Steps,
    limit: int | None,
    output: str | None,
    precision: Precision,
) -> None:
    if data is None:
        raise ConfigError(f"{EVERY!r} counts the verdicts of a split: give --data DIR.")
    queries, qrels = read_split(data, split)
    every, asks = _asks(queries, qrels, steps), _asks(queries[:limit], qrels, steps)
    file = None if output is None else _kept(output, explainer, every, steps, precision)
    summary = summarise(explainer, asks, steps == "dynamic", file)
    print(format_summary(summary))
    if output is not None:
        write_json(f"{output}.json", summary._asdict())
        print(f"\nwrote {output}.json")
    if file is not None and file.count <= len(asks):  # else a run of more queries goes on with it
        file.remove()


def _asks(queries: Sequence[Query], qrels: Qrels, steps: Steps) -> list[Ask]:
    """Everything that is to be judged, in order."""
    asks: list[Ask] = []
    for query in queries:
        order = gold_passages(query, qrels)
        if order:
            asks += [(query, h.gold, h.evidence) for h in _hops(order, (), None, None, steps)]
    return asks


def _kept(
    output: str, explainer: Explainer, every: Sequence[Ask], steps: Steps, precision: Precision
) -> GrowingFile:
    """Where verdicts are kept as they come; it says what they depend on."""
    retriever = explainer.retriever
    options = retriever.options
    settings = {
        "retriever": retriever.fingerprint(),
        "queries": fingerprint_queries([query for query, _, _ in every]),
        "steps": steps, "k": explainer.k, "widest": explainer.widest, "exhaustive": explainer.exhaustive,
        "done_bias": explainer.done_bias, "beams": options.beams, "mode": options.mode,
        "early_stop": options.early_stop, "truncate_queries": options.truncate_queries,
        "precision": precision,
    }  # fmt: skip
    file = GrowingFile(f"{output}.explained.jsonl", settings, keep=False)
    file.refuse_other(TOLD_APART, map(of_ask, every))
    return file
