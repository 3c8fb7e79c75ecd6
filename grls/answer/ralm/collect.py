"""Examples for a reranker: what each candidate does to the stride that follows (arXiv 2302.00083).

It knows nothing of how a reranker is trained.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from grls.answer.ralm.choose import likelihoods
from grls.answer.ralm.reader import InContextRalm
from grls.answer.ralm.reranker import RerankExample, prefixes_of
from grls.answer.ralm.strides import strides
from grls.errors import ConfigError

_BLOCK = 64


def collect(
    ralm: InContextRalm, text: Sequence[int], prefix_tokens: int = 64, every: int = 1, begin: int = 0
) -> Iterator[list[RerankExample | None]]:
    """Score the candidates of the strides of a text, block by block.

    Args:
        ralm: Model, retriever and options; its chooser says how many candidates.
        text: Token ids.
        prefix_tokens: Tokens before a stride that a reranker will read.
        every: Take every so many strides.
        begin: Strides taken already, to go on from.

    Yields:
        An example for each stride of a block; None where nothing was retrieved.

    Raises:
        ConfigError: Fewer than two candidates are asked for, or ``every`` is not positive.
    """
    if ralm.chooser.candidates < 2 or every < 1:
        raise ConfigError(
            f"examples need candidates >= 2 and every >= 1, got {ralm.chooser.candidates} and {every}."
        )
    todo = strides(len(text), ralm.options)[1::every][begin:]
    for n in range(0, len(todo), _BLOCK):
        some = todo[n : n + _BLOCK]
        candidates = ralm.candidates_for(text, some)
        spans = [(stride.first, stride.last) for stride in some]
        scores = likelihoods(ralm.scorer, text, some, candidates, spans)
        prefixes = prefixes_of(ralm.tokenizer, text, some, prefix_tokens)
        yield [
            RerankExample(prefix, tuple(ralm.corpus.ids(own)), tuple(values.tolist()))
            if own and ralm.corpus is not None
            else None
            for prefix, own, values in zip(prefixes, candidates, scores, strict=True)
        ]
