"""Training examples: pairs of model input and target sequence, and the gold chains that they are drawn from.

An example is drawn anew each epoch, as a function of (epoch, seed, number) alone. So a resumed run and every
worker of a distributed run see the same draw.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from grls.data.corpus import Corpus
from grls.data.dataset import Qrels, gold_passages, passage_queries, proofs_of
from grls.data.types import Passage, Query
from grls.errors import DataError
from grls.models.text_encoder import passage_text


class Example(NamedTuple):
    """One training pair: model input and sequence to write (with its end token), as token ids.

    ``spans``: first position, and position after the last one, of each quoted key in an interlaced
    target.
    """

    source: list[int]
    target: list[int]
    spans: tuple[tuple[int, int], ...] = ()


class Examples(Protocol):
    """A sized collection of examples that may vary from epoch to epoch."""

    def __len__(self) -> int: ...

    def draw(self, number: int, epoch: int) -> Any:
        """Example ``number`` as it is in ``epoch``."""
        ...

    def lengths(self) -> Sequence[int]:
        """The length of each example, in tokens, for sorting."""
        ...


def gold_chains(query: Query, qrels: Qrels) -> list[tuple[str, ...]]:
    """The gold chains of a query: its gold passages in order, and other proofs of the same length."""
    gold = tuple(gold_passages(query, qrels))
    if not gold:
        raise DataError(
            f"query {query.id!r} has neither evidence nor a qrel above zero; training needs gold passages: "
            "add them, or remove the query from the split."
        )
    proofs = [tuple(dict.fromkeys(proof)) for proof in proofs_of(query)]  # what is used again is learned once
    return [gold, *(proof for proof in proofs if len(proof) == len(gold) and proof != gold)]


def drawn_chain(chains: Sequence[Sequence[str]], shuffle: bool, seed: str) -> list[str]:
    """One of the gold chains of a query, shuffled if asked; a function of the seed."""
    rng = random.Random(seed)
    chain = list(rng.choice(chains))
    if shuffle:
        rng.shuffle(chain)
    return chain


def chain_passages(
    queries: Sequence[Query], chains: Sequence[Sequence[Sequence[str]]], corpus: Corpus
) -> dict[str, Passage]:
    users = {
        passage: query.id
        for query, proofs in zip(queries, chains, strict=True)
        for proof in proofs
        for passage in proof
    }
    numbers = corpus.numbers(list(users))
    for (passage, query), number in zip(users.items(), numbers, strict=True):
        if number is None:
            raise DataError(
                f"gold passage {passage!r} of query {query!r} is not in {corpus.source}; add the passage or "
                "remove the reference."
            )
    return dict(zip(users, corpus.passages([n for n in numbers if n is not None]), strict=True))


def own_passages(queries: Sequence[Query], qrels: Qrels, corpus: Corpus) -> list[list[str]]:
    """The ids of each query's own passages, which are never wrong for it: those with its text or its id.

    The id counts as in an evaluation (:func:`~grls.data.dataset.passage_queries`).
    """
    same_ids = passage_queries(queries, qrels, corpus)
    own = [[query.id] if query.id in same_ids else [] for query in queries]
    asked: dict[str, list[int]] = defaultdict(list)
    for row, query in enumerate(queries):
        asked[query.text.strip()].append(row)
    for passage in corpus:
        for text in {passage.text.strip(), passage_text(passage).strip()}:
            for row in asked.get(text, ()):
                own[row].append(passage.id)
    return own
