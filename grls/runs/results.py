"""Results with the evidence text, as JSONL.

A line for every query, answered or not::

    {"query_id", "text", "score_mode",
     "hits": [{"rank", "id", "score", "title", "text"}],
     "chain": {"done", "score", "hops": [{"id", "score"}]}}

``chain`` stands where the query was answered hop by hop until DONE, or where hops may repeat a passage; its
scores are those of the hops, while ``hits`` have those of the ranking. DONE is not in ``hits``.
``score_mode`` says what a score means: ``renormalized`` or ``full`` for a generator, otherwise the name of
the retriever; after ``, expected-f1`` it is the logarithm of the passage's probability.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from grls.data.corpus import Corpus
from grls.data.types import Chain, Hit, Passage, Query
from grls.errors import DataError
from grls.io.files import atomic_file
from grls.io.jsonl import read_jsonl
from grls.runs.trec import chain_ranking, check_ranking, finite, refuse_unknown, without_done

_BATCH = 512  # queries whose texts are in memory together


class Retrieved(NamedTuple):
    """The passages that were retrieved for a query, best first and without DONE, and its chain of hops."""

    query_id: str
    hits: list[Hit]
    chain: Chain | None = None

    @classmethod
    def ranked(cls, query_id: str, hits: Iterable[Hit]) -> Retrieved:
        return cls(query_id, without_done(hits))

    @classmethod
    def chained(cls, query_id: str, chain: Chain, hits: Iterable[Hit] | None = None) -> Retrieved:
        """A chain; ``hits`` is its ranking where that is not :func:`~grls.runs.trec.chain_ranking`."""
        return cls(query_id, chain_ranking(chain) if hits is None else without_done(hits), chain)

    def without_own(self) -> Retrieved:
        hits = [hit for hit in self.hits if hit.id != self.query_id]
        if self.chain is None:
            return self._replace(hits=hits)
        hops = tuple(hit for hit in self.chain.hits if hit.id != self.query_id)
        return self._replace(hits=hits, chain=self.chain._replace(hits=hops))


def write_results(
    path: str | Path,
    queries: Sequence[Query],
    corpus: Corpus,
    score_mode: str,
    retrieved: Iterable[Retrieved],
) -> None:
    """Write JSONL with the evidence text, atomically; few texts are in memory at a time."""
    rest = zip(queries, retrieved, strict=True)
    with atomic_file(path) as stream:
        while pairs := list(islice(rest, _BATCH)):
            passages = find_passages(corpus, (hit.id for _, result in pairs for hit in result.hits))
            for query, result in pairs:
                assert query.id == result.query_id, (
                    f"results of {result.query_id!r} where those of {query.id!r} are due"
                )
                check_ranking(query.id, result.hits)
                if (chain := result.chain) is not None and not all(
                    math.isfinite(score) for score in (chain.score, *(hit.score for hit in chain.hits))
                ):
                    raise DataError(f"query {query.id!r}: expected finite chain scores, got {chain}.")
                record: dict[str, Any] = {"query_id": query.id, "text": query.text, "score_mode": score_mode}
                record |= result_record(result)
                for hit in record["hits"]:
                    passage = passages[hit["id"]]
                    hit |= {"title": passage.title, "text": passage.text}
                stream.write(json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n")


def result_record(result: Retrieved) -> dict[str, Any]:
    hits = [{"rank": n, "id": hit.id, "score": float(hit.score)} for n, hit in enumerate(result.hits, 1)]
    record: dict[str, Any] = {"query_id": result.query_id, "hits": hits}
    if (chain := result.chain) is not None:
        hops = [{"id": hit.id, "score": float(hit.score)} for hit in chain.hits]
        record["chain"] = {"done": bool(chain.done), "score": float(chain.score), "hops": hops}
    return record


def result_of(record: Any) -> Retrieved:
    """The result of a record; ValueError: it is malformed."""
    query_id, hits, chain = _text(record, "query_id"), _hits(record, "hits"), None
    if "chain" in record:
        fields = record["chain"]
        hops = tuple(_hits(fields, "hops"))
        if not isinstance(fields.get("done"), bool):
            raise ValueError(f"expected 'done' to be true or false, got {fields.get('done')!r}")
        chain = Chain(hops, _number(fields, "score"), fields["done"])
    return Retrieved(query_id, without_done(hits), chain)


def read_results(path: str | Path) -> Iterator[tuple[str, Retrieved]]:
    """Score mode and results of every line of a file, without texts."""
    file = Path(path)
    known_ids: set[str] = set()
    known_mode = ""
    for line, record in read_jsonl(file):
        try:
            mode, result = _text(record, "score_mode"), result_of(record)
        except (ValueError, OverflowError) as error:
            raise DataError(
                f"expected a result line as grls retrieve writes it: {error}.", file, line
            ) from None
        if result.query_id in known_ids:
            raise DataError(f"the query id {result.query_id!r} is used twice.", file, line)
        if known_mode not in ("", mode):
            raise DataError(f"score mode {mode!r} after {known_mode!r}; one file holds one mode.", file, line)
        known_ids.add(result.query_id)
        known_mode = mode
        yield mode, result


def known_passages(corpus: Corpus, ids: Iterable[str]) -> dict[str, Passage]:
    """Passage id -> passage, for the ids that the corpus has; it may lack gold passages."""
    names = list(dict.fromkeys(ids))
    numbers = dict(zip(names, corpus.numbers(names), strict=True))
    known = {name: number for name, number in numbers.items() if number is not None}
    return dict(zip(known, corpus.passages([*known.values()]) if known else (), strict=True))


def find_passages(corpus: Corpus, ids: Iterable[str]) -> dict[str, Passage]:
    names = list(dict.fromkeys(ids))
    passages = known_passages(corpus, names)
    refuse_unknown(names, passages, "passage", corpus.source)
    return passages


def passage_texts(corpus: Corpus, ids: Iterable[str]) -> dict[str, str]:
    return {passage.id: passage.text for passage in find_passages(corpus, ids).values()}


def _text(record: Any, key: str) -> str:
    if not isinstance(record, dict) or not isinstance(record.get(key), str) or not record[key]:
        raise ValueError(f"expected an object with a non-empty string {key!r}")
    return str(record[key])


def _number(record: Any, key: str) -> float:
    value = record.get(key)
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise ValueError(f"expected {key!r} to be a number, got {value!r}")
    return finite(float(value))


def _hits(record: Any, key: str) -> list[Hit]:
    if not isinstance(record, dict) or not isinstance(record.get(key), list):
        raise ValueError(f"expected an object with a list {key!r}")
    return [Hit(_text(hit, "id"), _number(hit, "score")) for hit in record[key]]
