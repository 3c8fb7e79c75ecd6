"""Options of In-Context RALM: reranking, and training examples of a reranker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from grls.errors import ConfigError, Option, at_least
from grls.io.recipes import rare

RerankBy = Literal["none", "zero-shot", "trained", "oracle"]


@dataclass(frozen=True)
class RerankOptions:
    """Which of the retrieved documents the model reads.

    Args:
        by: none: the retriever's order; zero-shot: a language model judges; trained: a reranker judges;
            oracle: the likelihood of the stride itself, the upper bound of reranking.
        candidates: Documents to choose from.
        judge: The language model that judges (zero-shot); null: the model itself.
        judge_tokens: Tokens at the end of the prefix that the judge predicts (zero-shot).
        reranker: Folder of a trained reranker (trained).

    Raises:
        ConfigError: A number is below 1, or an option needs another value of ``by``.
    """

    by: RerankBy = "none"
    candidates: int = 16
    judge: str | None = rare(None)
    judge_tokens: int = rare(16)
    reranker: str | None = None

    def __post_init__(self) -> None:
        at_least(1, "rerank.", candidates=self.candidates, judge_tokens=self.judge_tokens)
        if (self.reranker is not None) != (self.by == "trained"):
            raise ConfigError(
                f"{Option('rerank.by', 'trained')} and {Option('rerank.reranker', 'FOLDER')} go together."
            )
        if self.judge is not None and self.by != "zero-shot":
            raise ConfigError(f"{Option('rerank.judge')} goes with {Option('rerank.by', 'zero-shot')}.")


@dataclass(frozen=True)
class ExampleOptions:
    """Training examples of a reranker.

    Args:
        candidates: Documents of an example, each scored by the likelihood of the stride behind it.
        every: Take one stride out of this many.
        prefix_tokens: Tokens before a stride that the reranker will read.

    Raises:
        ConfigError: A number is below 1.
    """

    candidates: int = 16
    every: int = 1
    prefix_tokens: int = rare(64)

    def __post_init__(self) -> None:
        at_least(1, "examples.", **vars(self))


USUAL_RERANK = RerankOptions()
USUAL_EXAMPLES = ExampleOptions()
