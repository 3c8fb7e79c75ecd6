"""BM25 over a corpus, with bm25s: the baseline without training.

A passage is indexed by its title and text. The index is in memory and is built from the corpus at each
opening.

Words of one letter and signs (``R``, ``c++``, an emoji) have an index of their own; its scores are added. So
initials make no passage longer, and a query without such words has the scores of bm25s over the other words.
That index has no length normalization: most passages have no such word, so a mean length over them says
nothing. A query of function words alone is searched as if the analyzer kept them.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt

from grls.data.corpus import Corpus, corpus_file
from grls.data.filters import Allow
from grls.data.types import Hit, Query
from grls.data.words import USUAL, Analyzer, is_short, nothing_found
from grls.errors import ConfigError, DataError, Option
from grls.io.arguments import NonNegativeFloat, Share, options
from grls.io.files import atomic_folder
from grls.io.progress import Progress, counted, waiting
from grls.io.seal import seal
from grls.retrieve.base import AllScores, Description, Evidence
from grls.retrieve.queries import queries_of, reachable, with_evidence_text
from grls.retrieve.registry import Opening, names_bm25
from grls.retrieve.spec import (
    FORMAT,
    MANIFEST,
    check_fields,
    from_fields,
    from_record,
    recorded,
)

log = logging.getLogger(__name__)

Variant = Literal["lucene", "robertson", "atire", "bm25l", "bm25+"]


@options("bm25")
class BM25Options:
    """Options of BM25.

    Args:
        k1: Term-frequency saturation (k1), at least 0.
        b: Length normalization (b), from 0 (none) to 1 (full).
        method: The variant of BM25, by its name in bm25s, without what bm25l and bm25+ add to all passages.
    """

    k1: NonNegativeFloat = 1.5
    b: Share = 0.75
    method: Variant = "lucene"


USUAL_BM25 = BM25Options()

_LEAST = float(np.finfo(np.float32).tiny)
"""The least that a word adds to the score of a passage that has it."""


class BM25Retriever:
    """Ranks passages by BM25; among equal scores, the first passage of the corpus wins.

    A passage without a common word has the score 0 and is no hit; any common word adds more than 0. At least
    one passage must have a word to index.

    Args:
        corpus: The passages.
        analyzer: Splits texts into words; None: the analyzer of the language guessed from the passages.
    """

    kind = "bm25"
    folders = ("corpus",)
    heeds: tuple[str, ...] = ()
    temperature = 2.0
    scores_done = False
    least_score = 0.0

    def __init__(
        self,
        corpus: Corpus,
        options: BM25Options = USUAL_BM25,
        analyzer: Analyzer | None = None,
    ):
        import bm25s  # late: the command line needs the options of this module alone

        logging.getLogger("bm25s").setLevel(logging.INFO)  # its import sets DEBUG, ignoring the root logger
        self.corpus, self.options = corpus, options
        with waiting(f"index {counted(len(corpus), 'passage')} by their words", None):
            self.analyzer = (analyzer or Analyzer()).of(corpus)
            longer: list[list[str]] = []
            short: list[list[str]] = []
            for passage in corpus:
                longer.append([])
                short.append([])
                for word in self.analyzer.words(f"{passage.title} {passage.text}", singles=True):
                    (short if is_short(word) else longer)[-1].append(word)
            self._indexes = []
            self._known: set[str] = set()
            for words, normalization in ((longer, options.b), (short, 0.0)):
                if any(words):
                    k1 = max(options.k1, _LEAST)  # of 0, bm25+ would divide 0 by 0
                    index = bm25s.BM25(k1=k1, b=normalization, method=options.method)
                    index.index(words, show_progress=False)
                    # What bm25l and bm25+ add to all passages alike; and robertson and atire give nothing
                    # for a word that half of the passages, or all, have.
                    index.nonoccurrence_array = None
                    index.scores["data"] = np.maximum(index.scores["data"], _LEAST)
                    self._indexes.append(index)
                    self._known |= index.vocab_dict.keys()
            if not self._indexes:
                raise DataError(f"{corpus.source} holds no word to index; BM25 needs passages with words.")
        self._searched = self._missed = 0  # queries, and those without a word of any passage
        self._next_warning = 1

    @classmethod
    def open(cls, folder: Path, spec: dict[str, Any], opening: Opening) -> Self:
        """Open a folder, or BM25 that is embedded in another.

        ``corpus`` names the folder of the passages; without it they are in the folder itself, or are those of
        the retriever around it. A file written by hand may have no language: English.
        """
        file = folder / MANIFEST
        check_fields(spec, (), ("corpus", "analyzer", "k1", "b", "method"), file)
        analyzer = from_record(Analyzer, spec.get("analyzer", {}), file, "analyzer")
        if spec.get("analyzer", {}).get("language") == analyzer.language == "auto":
            raise DataError(
                "analyzer.language: a folder stores its language, and 'auto' is for making one: write a code "
                "such as en, de, zh, or none.",
                file,
            )
        path = spec.get("corpus")
        if path is not None and not isinstance(path, str):
            raise DataError(f"corpus: expected the path of a folder with corpus.jsonl, got {path!r}.", file)
        if path is not None or _has_passages(folder, opening):
            corpus = Corpus.read(folder / (path or "."))
        elif opening.corpus is not None:
            corpus = opening.corpus
        else:
            raise DataError(
                "bm25 has no passages here, and no other member has: name their folder, as in "
                '{"kind": "bm25", "corpus": "../data"}, or make one with `grls index bm25`.',
                file,
            )
        options = from_fields(BM25Options, spec, file, "bm25")
        return cls(corpus, options, analyzer.in_english())

    @staticmethod
    def shared_by(folder: Path, spec: dict[str, Any], opening: Opening) -> Hashable | None:
        """It is shared over the passages of the retriever around it."""
        if opening.corpus is None or spec.get("corpus") is not None or _has_passages(folder, opening):
            return None
        names = ("analyzer", "k1", "b", "method")
        parameters = json.dumps({name: spec[name] for name in names if name in spec})
        return parameters, opening.corpus.fingerprint, opening.corpus.metadata_fingerprint

    def reopened(self, folder: Path, opening: Opening) -> Self:
        return self

    def save_pretrained(self, folder: str | Path) -> None:
        """Write a folder; the index is built again at each opening."""
        content = {**recorded(self.options), "analyzer": recorded(self.analyzer)}
        with atomic_folder(folder, MANIFEST) as new:
            self.corpus.write(corpus_file(new))
            seal(new / MANIFEST, {"format": FORMAT, "kind": self.kind, **content})

    def retrieve(self, queries: Sequence[Query | str], k: int, allow: Allow = None) -> list[list[Hit]]:
        """The top-k passages of each query, best first; ``Hit.score`` is the BM25 score.

        A filter does not change scores: document frequencies are those of the whole corpus.
        """
        queries = queries_of(queries)
        within = reachable(queries, allow, self.corpus)
        rankings: list[list[Hit]] = []
        with Progress(len(queries), "bm25", "queries", shown=None) as bar:
            for query, (index, words) in enumerate(self._asked([query.text for query in queries])):
                hits: list[Hit] = []
                allowed = within[query]
                if words and (allowed is None or len(allowed)):
                    scores = index._scores(words) if allowed is None else index._scores(words)[allowed]
                    rows = np.flatnonzero(scores > 0)  # few of many passages share a word with a query
                    if len(rows) > k:
                        rows = rows[scores[rows] >= np.partition(scores[rows], -k)[-k]]
                    rows = rows[np.argsort(-scores[rows], kind="stable")][:k]
                    ids = self.corpus.ids((rows if allowed is None else allowed[rows]).tolist())
                    hits += map(Hit, ids, scores[rows].tolist())
                rankings.append(hits)
                bar.update()
        return rankings

    def describe(self) -> Description:
        options = recorded(self.options)
        if settings := self.analyzer.settings():
            options["analyzer"] = settings
        return Description("bm25", "bm25", options)

    def fingerprint(self) -> str:
        options = self.describe().options
        return f"bm25 {self.corpus.fingerprint}{f' {json.dumps(options)}' if options else ''}"

    def scores(self, queries: Sequence[Query], evidence: Evidence = ()) -> AllScores:
        """BM25 scores of all passages, with evidence appended to the query."""
        evidence = evidence or [()] * len(queries)
        texts = [
            with_evidence_text(query, passages) for query, passages in zip(queries, evidence, strict=True)
        ]

        def scores(numbers: npt.NDArray[Any]) -> npt.NDArray[Any]:
            return self.text_scores([texts[n] for n in numbers.tolist()])

        return scores

    def text_scores(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """The BM25 score of every passage for each text, ``[texts, passages]``; 0 without a common word."""
        scores = np.zeros((len(texts), len(self.corpus)), dtype=np.float32)
        with Progress(len(texts), "bm25", "queries", shown=None) as bar:
            for row, (index, words) in zip(scores, self._asked(texts), strict=True):
                row[:] = index._scores(words)
                bar.update()
        return scores

    def word_scores(self, text: str, passage: int) -> dict[str, float]:
        index, words = self._of_query(text)
        return {word: float(index._scores([word])[passage]) * times for word, times in Counter(words).items()}

    def _scores(self, words: list[str]) -> npt.NDArray[np.float32]:
        scores = np.zeros(len(self.corpus), dtype=np.float32)
        for index in self._indexes:
            if known := [word for word in words if word in index.vocab_dict]:
                scores += index.get_scores(known)
        return scores

    def _asked(self, texts: Sequence[str]) -> Iterator[tuple[BM25Retriever, list[str]]]:
        """Warns if most queries have no word of any passage."""
        for text in texts:
            index, words = self._of_query(text)
            self._searched += 1
            self._missed += index._known.isdisjoint(words)
            yield index, words
        if self._searched >= self._next_warning and self._missed * 2 > self._searched:
            log.warning(nothing_found(self._searched, self._missed, self.corpus.source))
            self._next_warning = 10 * self._searched

    def _of_query(self, text: str) -> tuple[BM25Retriever, list[str]]:
        """The words of a query, and the retriever that has them in its indexes."""
        words = self.analyzer.words(text)
        if not words and (words := replace(self.analyzer, stop_words=False).words(text)):
            return self._with_function_words, words
        return self, words

    @cached_property
    def _with_function_words(self) -> BM25Retriever:
        """It takes as much memory again, so the first query that needs it makes it."""
        return BM25Retriever(self.corpus, self.options, replace(self.analyzer, stop_words=False))


def refuse_words(name: str, analyzer: Analyzer, bm25: BM25Options = USUAL_BM25) -> None:
    """Refuse (ConfigError) options of ``bm25`` for a folder, which has its own."""
    if not names_bm25(name) and (analyzer, bm25) != (USUAL, USUAL_BM25):
        option = Option("bm25" if analyzer == USUAL else "analyzer")
        raise ConfigError(
            f"{option} is for bm25, which counts the words of the corpus anew; {name} searches as it was "
            f"made: leave {option} out, or make a folder with `grls index bm25`."
        )


def _has_passages(folder: Path, opening: Opening) -> bool:
    return corpus_file(folder).is_file() and (opening.corpus is None or folder.resolve() in opening.within)
