"""Training examples of a reranker: the likelihood of the next stride behind each candidate.

Method: arXiv 2302.00083. Training: grls.train.reranker.
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
        ralm: Model, retriever and options; its chooser sets the number of candidates.
        text: Token ids.
        prefix_tokens: Tokens before a stride that a reranker will read.
        every: Take one stride out of this many.
        begin: Strides to skip, because an earlier run has done them.

    Yields:
        An example for each stride of a block; None if nothing was retrieved.

    Raises:
        ConfigError: Fewer than two candidates are asked for, or ``every`` is not positive.
    """
    if ralm.chooser.candidates < 2 or every < 1:
        raise ConfigError(
            f"examples need candidates >= 2 and every >= 1, got {ralm.chooser.candidates} and {every}."
        )
    todo = strides(len(text), ralm.options)[1::every][begin:]
    for n in range(0, len(todo), _BLOCK):
        block = todo[n : n + _BLOCK]
        candidates = ralm.candidates_for(text, block)
        spans = [(stride.first, stride.last) for stride in block]
        scores = likelihoods(ralm.scorer, text, block, candidates, spans)
        prefixes = prefixes_of(ralm.tokenizer, text, block, prefix_tokens)
        yield [
            RerankExample(prefix, tuple(ralm.corpus.ids(numbers)), tuple(values.tolist()))
            if numbers and ralm.corpus is not None
            else None
            for prefix, numbers, values in zip(prefixes, candidates, scores, strict=True)
        ]
