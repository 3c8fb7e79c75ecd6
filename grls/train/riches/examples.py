"""Training examples of RICHES: question -> thoughts, quoted gold passages, answer (arXiv 2407.00361).

An example is drawn anew each epoch, as a function of (epoch, seed, number) alone: one of several proofs, and
an order where any order is right.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import NamedTuple

from grls.answer.riches.targets import Targets
from grls.data.dataset import Qrels, free_order
from grls.data.types import Query
from grls.errors import ConfigError
from grls.io.counts import counted
from grls.train.core.examples import Example, drawn_chain, gold_chains

log = logging.getLogger(__name__)


class Lengths(NamedTuple):
    """Length limits of an example, in tokens.

    Attributes:
        prompt: Longest model input.
        target: Longest target, with the end token.
    """

    prompt: int
    target: int


class InterlacedExamples:
    """Prompt -> interlaced target.

    Examples that are too long are left out and counted in a warning; nothing is cut. Where the drawn order of
    a chain makes its target too long, the order of the file is used.

    Args:
        queries: The training queries.
        qrels: Their judgements.
        prompts: Model input of each query.
        targets: Writes the targets.
        lengths: Length limits.
        shuffle: Draw the order of the evidence anew each epoch, ignoring the order of the file.
        seed: Seed of the draws.
        split: Name of the split, for messages.

    Raises:
        DataError: A query has no gold passage, or a gold passage cannot be quoted.
        ConfigError: Every query is too long.
    """

    def __init__(
        self,
        queries: Sequence[Query],
        qrels: Qrels,
        prompts: Sequence[list[int]],
        targets: Targets,
        lengths: Lengths,
        shuffle: bool = False,
        seed: int = 0,
        split: str = "train",
    ):
        self.targets = targets
        self.seed = seed
        self.longest = lengths.target
        self.items: list[tuple[Query, list[int], list[tuple[str, ...]], bool]] = []
        self._lengths: list[int] = []
        long_prompts = 0
        for query, prompt in zip(queries, prompts, strict=True):
            chains = gold_chains(query, qrels)
            if len(prompt) > lengths.prompt:
                long_prompts += 1
                continue
            sizes = [len(targets.write(query, chain).tokens) for chain in chains]
            kept = [chain for chain, size in zip(chains, sizes, strict=True) if size <= lengths.target]
            if kept:
                self.items.append((query, prompt, kept, shuffle or free_order(query)))
                self._lengths.append(len(prompt) + min(sizes))
        self._say(split, len(queries), long_prompts, lengths)

    def _say(self, split: str, count: int, long_prompts: int, lengths: Lengths) -> None:
        """Warn of the queries that were left out."""
        gone = count - len(self.items)
        what = (
            f"{gone:,} of {counted(count, 'query')} of {split}: {long_prompts:,} for a prompt of more than "
            f"{counted(lengths.prompt, 'token')} (max_prompt_tokens), {gone - long_prompts:,} for a target "
            f"of more than {lengths.target} (max_target_tokens)"
        )
        if not self.items:
            raise ConfigError(f"no example is left to learn from: too long are {what}.")
        if gone:
            log.warning("left out as too long: %s.", what)

    def __len__(self) -> int:
        return len(self.items)

    def draw(self, number: int, epoch: int) -> Example:  # noqa: D102
        query, prompt, chains, shuffle = self.items[number]
        drawn = self.targets.write(query, drawn_chain(chains, shuffle, f"{self.seed}-{epoch}-{query.id}"))
        target = drawn if len(drawn.tokens) <= self.longest else self.targets.write(query, chains[0])
        return Example(prompt, list(target.tokens), target.spans)

    def lengths(self) -> Sequence[int]:  # noqa: D102
        return self._lengths
