"""The questions of a data set, and everything that a run of answers depends on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grls.data.codec import tokenizer_fingerprint
from grls.data.corpus import Corpus
from grls.data.dataset import Qrels, first_queries, read_split
from grls.data.types import Query
from grls.io.files import refuse_unwritable
from grls.models.load.language import weights_fingerprint
from grls.runs.manifest import RunInfo, fingerprint_queries

SHOWN = 3
"""The first answers that are printed."""


@dataclass(frozen=True)
class Questions:
    """Questions and passages.

    Attributes:
        data: The data set's folder.
        split: The split of the queries.
        corpus: The passages.
        every: All queries of the split.
        asked: The queries to answer.
        qrels: The gold passages of the split.
    """

    data: str
    split: str
    corpus: Corpus
    every: list[Query]
    asked: list[Query]
    qrels: Qrels

    @classmethod
    def read(cls, data: str, split: str, limit: int | None, output: str) -> Questions:
        """Read a data set; an output that cannot be written is refused first.

        Raises:
            ConfigError: The limit is below 1, or the output cannot be written.
            DataError: The data set cannot be read.
        """
        refuse_unwritable(output)
        corpus = Corpus.read(data)
        every, qrels = read_split(data, split, corpus)
        return cls(data, split, corpus, every, first_queries(every, limit), qrels)

    @property
    def fingerprints(self) -> dict[str, str]:
        """Fingerprints of the corpus and of all queries: a run depends on them."""
        return {"corpus": self.corpus.fingerprint, "queries": fingerprint_queries(self.every)}

    def info(
        self, system: str, name: str, score_mode: str, seconds: float, options: dict[str, Any]
    ) -> RunInfo:
        """The manifest of a run of rankings."""
        return RunInfo(
            system=system,
            name=name,
            steps="single",
            corpus=self.corpus.fingerprint,
            queries=fingerprint_queries(self.asked),
            data=self.data,
            split=self.split,
            score_mode=score_mode,
            seconds=seconds,
            options=options,
            limit=len(self.asked) if len(self.asked) < len(self.every) else None,
        )


def model_settings(model: str, loaded: Any, tokenizer: Any) -> dict[str, Any]:
    """Everything of a language model that its output depends on."""
    return {
        "model": Path(model).name,
        "weights": weights_fingerprint(loaded),
        "tokenizer": tokenizer_fingerprint(tokenizer),
    }
