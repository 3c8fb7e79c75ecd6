"""LightningDataModule of RICHES: the keys of a corpus, and the targets that quote them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from grls.answer.riches.keys import build_keys
from grls.answer.riches.options import KeyOptions, PromptOptions
from grls.answer.riches.prompts import prompted
from grls.answer.riches.targets import Targets
from grls.data.corpus import Corpus
from grls.data.dataset import Qrels, free_order
from grls.data.types import Query
from grls.errors import ConfigError
from grls.io.files import sha256
from grls.io.progress import counted
from grls.models.base import start_token
from grls.train.core.datamodule import FitData
from grls.train.core.examples import Example, drawn_chain, gold_chains
from grls.train.options import QuoteDataOptions
from grls.train.riches.collate import Constraint, TextCollator

log = logging.getLogger(__name__)


class InterlacedData(FitData):
    """Question -> thoughts, quoted gold passages, answer.

    The prompt is the question without instructions or examples (``grls answer riches --prompt.kind none``).
    Gold passages come from the queries' ``evidence`` in its order, or from the qrels.
    """

    dev_examples: InterlacedExamples
    options: QuoteDataOptions

    def read(self, module: Any) -> None:
        options, tokenizer = self.options, module.tokenizer
        causal = not module.model.config.is_encoder_decoder
        self.corpus = Corpus.read(options.data)
        if options.propositions is not None:
            self.fingerprints[options.propositions] = sha256(options.propositions)
        keys = KeyOptions(options.keys, options.anywhere, options.propositions)
        self.keys = build_keys(self.corpus, tokenizer, keys, options.markers)
        self.prompt = PromptOptions("none", options.markers, options.thoughts != "none", options.chat)
        self.targets = Targets(tokenizer, self.corpus, self.keys, options.thoughts, options.answer)
        train = self.read_split("data.train_split", options.train_split, self.corpus)
        dev = self.read_split("data.dev_split", options.dev_split, self.corpus)
        self.dev = dev[0][: options.dev_size], dev[1]
        examples = []
        for split, (queries, qrels) in ((options.train_split, train), (options.dev_split, self.dev)):
            prompts = prompted(self.prompt, tokenizer, [query.text for query in queries], causal)
            examples.append(
                InterlacedExamples(
                    queries, qrels, prompts, self.targets, options.max_prompt_tokens,
                    options.max_target_tokens, options.shuffle, self.seed, split,
                )
            )  # fmt: skip
        self.train_examples, self.dev_examples = examples
        constraint = Constraint(self.keys.index, self.targets.markers.closing[0])
        self.collator = TextCollator(
            int(tokenizer.pad_token_id),
            None if causal else start_token(module.model),
            constraint if module.options.loss == "allowed" else None,
        )


class InterlacedExamples:
    """Prompt -> interlaced target.

    Examples that are too long are left out and counted in a warning; nothing is cut. Where the drawn
    order of a chain makes its target too long, the order of the file is used.
    """

    def __init__(
        self,
        queries: Sequence[Query],
        qrels: Qrels,
        prompts: Sequence[list[int]],
        targets: Targets,
        max_prompt_tokens: int,
        max_target_tokens: int,
        shuffle: bool = False,
        seed: int = 0,
        split: str = "train",
    ):
        self.targets = targets
        self.seed = seed
        self.longest = max_target_tokens
        self.items: list[tuple[Query, list[int], list[tuple[str, ...]], bool]] = []
        self._lengths: list[int] = []
        long_prompts = 0
        for query, prompt in zip(queries, prompts, strict=True):
            chains = gold_chains(query, qrels)
            if len(prompt) > max_prompt_tokens:
                long_prompts += 1
                continue
            sizes = [len(targets.write(query, chain).tokens) for chain in chains]
            short = [chain for chain, size in zip(chains, sizes, strict=True) if size <= max_target_tokens]
            if short:
                self.items.append((query, prompt, short, shuffle or free_order(query)))
                self._lengths.append(len(prompt) + min(sizes))
        long = len(queries) - len(self.items)
        cut = (
            f"{long:,} of {counted(len(queries), 'query')} of {split}: {long_prompts:,} for a prompt of more "
            f"than {counted(max_prompt_tokens, 'token')} (max_prompt_tokens), {long - long_prompts:,} for a "
            f"target of more than {max_target_tokens} (max_target_tokens)"
        )
        if not self.items:
            raise ConfigError(f"no example is left to learn from: too long are {cut}.")
        if long:
            log.warning("left out as too long: %s.", cut)

    def __len__(self) -> int:
        return len(self.items)

    def draw(self, number: int, epoch: int) -> Example:
        query, prompt, chains, shuffle = self.items[number]
        drawn = self.targets.write(query, drawn_chain(chains, shuffle, f"{self.seed}-{epoch}-{query.id}"))
        target = drawn if len(drawn.tokens) <= self.longest else self.targets.write(query, chains[0])
        return Example(prompt, list(target.tokens), target.spans)

    def lengths(self) -> Sequence[int]:
        return self._lengths
