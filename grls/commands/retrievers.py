"""Opens a retriever for the queries of a data set."""

from __future__ import annotations

import logging
from pathlib import Path

from grls.data.corpus import Corpus, corpus_file
from grls.data.words import USUAL, Analyzer
from grls.errors import ConfigError, MismatchError
from grls.models.load.build import BESIDE
from grls.retrieve.base import DecodesHops, Retriever
from grls.retrieve.bm25 import USUAL_BM25, BM25Options, BM25Retriever
from grls.retrieve.spec import remedy_of_other_corpus

log = logging.getLogger(__name__)


def bm25_over(
    data: str | None, corpus: Corpus | None = None, analyzer: Analyzer = USUAL, bm25: BM25Options = USUAL_BM25
) -> Retriever:
    """BM25 over the corpus of a data set; ``corpus`` is that corpus, where it is read already."""
    if data is None or not Path(data).is_dir():
        raise ConfigError(
            f"bm25 retrieves from the corpus of a data set folder (--data), and {data} is none."
        )
    return BM25Retriever(corpus or Corpus.read(data), bm25, analyzer)


def refuse_other_corpus(
    opened: Retriever, data: str, split: str | None, corpus: Corpus | None = None
) -> None:
    """Refuse a retriever over another corpus than the data set's: its run could not be scored there.

    For queries of no split (None) any corpus will do.
    """
    if split is None or not corpus_file(data).is_file():
        return
    corpus = corpus or Corpus.read(data)
    if corpus is not opened.corpus and corpus.fingerprint != opened.corpus.fingerprint:
        raise MismatchError(
            f"the retriever is over another corpus than {corpus_file(data)}, so the run could not be scored "
            f"there: {remedy_of_other_corpus(opened.corpus, corpus)}. Or give {data}/queries.jsonl and "
            "--split null to retrieve for the queries alone."
        )


def tell_unlike_training(opened: Retriever) -> None:
    """Warn of a generator that was trained with priors and is not normalized with them, or the reverse."""
    described = opened.describe()
    if not described.stages or not isinstance(opened, DecodesHops):
        return
    learned, normalized = described.stages[-1] == BESIDE, bool(described.options.get("prior_normalized"))
    if learned and not normalized:
        log.warning(
            "the generator learned beside priors; decoded otherwise, it knows only where they are wrong: "
            "make a folder of kind hybrid with the priors and weights of its training, and `normalized`."
        )
    if normalized and not learned:
        log.warning(
            "the generator does not say that it was trained beside priors (--data.prior); if it was not, "
            "leave `normalized` out."
        )
