"""LightningDataModule of RICHES: the keys of a corpus, and the targets that quote them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from grls.answer.riches.keys import build_keys
from grls.answer.riches.options import KeyKind, KeyOptions, PromptOptions, Thoughts
from grls.answer.riches.prompts import prompted
from grls.answer.riches.targets import Targets
from grls.data.corpus import Corpus
from grls.data.dataset import Qrels, free_order
from grls.data.types import Query
from grls.errors import ConfigError, at_least
from grls.io.files import sha256
from grls.io.progress import counted
from grls.models.seq2seq.slots import start_token
from grls.train.core.datamodule import FitData
from grls.train.core.examples import Example, drawn_chain, gold_chains
from grls.train.riches.collate import Constraint, TextCollator

log = logging.getLogger(__name__)


class InterlacedData(FitData):
    """Question -> thoughts, quoted gold passages, answer.

    The prompt is the question without instructions or examples (``grls answer riches --prompt.kind none``).
    Gold passages come from the queries' ``evidence`` in its order, or from the qrels.

    Args:
        data: Data set folder in BEIR's layout.
        train_split: Split of the training queries.
        dev_split: Split of the dev queries.
        keys: Kind of the keys that are quoted: sentence, paragraph, titled (a paragraph with its title),
            title, header or proposition.
        anywhere: Allow quotes from anywhere in a key. This changes the ``allowed`` loss and the measurement
            on dev; targets still quote whole keys.
        propositions: JSONL file of propositions with ``passage`` (a passage id) and ``text``; needed for keys
            of kind proposition.
        markers: Opening and closing marker of a quote.
        thoughts: Text before a quote: ``shared`` (the words of the key that occur in the question or an
            earlier quote), ``title`` (the title of the passage), or ``none``.
        answer: Answer of queries without one, such as ``proved``; null leaves their last line out.
        chat: Put the question into the chat template of the model.
        shuffle: Draw the order of the evidence anew each epoch, ignoring the order of the file.
        max_prompt_tokens: Longest prompt in tokens; queries with a longer one are left out and counted.
        max_target_tokens: Longest target in tokens; queries with a longer one are left out and counted.
        kwargs: The options of :class:`grls.train.core.datamodule.FitData`.
    """

    dev_examples: InterlacedExamples

    def __init__(
        self,
        data: str,
        train_split: str = "train",
        dev_split: str = "dev",
        keys: KeyKind = "sentence",
        anywhere: bool = False,
        propositions: str | None = None,
        markers: tuple[str, str] = ("«", "»"),
        thoughts: Thoughts = "shared",
        answer: str | None = None,
        chat: bool = False,
        shuffle: bool = False,
        max_prompt_tokens: int = 256,
        max_target_tokens: int = 512,
        **kwargs: Any,
    ):
        super().__init__(data, **kwargs)
        self.train_split = train_split
        self.dev_split = dev_split
        self.key_options = KeyOptions(keys, anywhere, propositions)
        self.markers = markers
        self.thoughts: Thoughts = thoughts
        self.answer = answer
        self.chat = chat
        self.shuffle = shuffle
        self.max_prompt_tokens = max_prompt_tokens
        self.max_target_tokens = max_target_tokens

    def read(self, module: Any) -> None:
        at_least(1, "data.", max_prompt_tokens=self.max_prompt_tokens)
        at_least(1, "data.", max_target_tokens=self.max_target_tokens)
        tokenizer = module.tokenizer
        causal = not module.model.config.is_encoder_decoder
        self.corpus = Corpus.read(self.data)
        if self.key_options.propositions is not None:
            self.fingerprints[self.key_options.propositions] = sha256(self.key_options.propositions)
        self.keys = build_keys(self.corpus, tokenizer, self.key_options, self.markers)
        self.prompt = PromptOptions("none", self.markers, self.thoughts != "none", self.chat)
        self.targets = Targets(tokenizer, self.corpus, self.keys, self.thoughts, self.answer)
        train = self.read_split(self.train_split, self.corpus)
        self.dev = self.read_split(self.dev_split, self.corpus)
        self.dev = self.dev[0][: self.dev_size], self.dev[1]
        self.train_examples = self._examples(tokenizer, causal, *train, self.train_split)
        self.dev_examples = self._examples(tokenizer, causal, *self.dev, self.dev_split)
        constraint = Constraint(self.keys.index, self.targets.markers.closing[0])
        self.collator = TextCollator(
            int(tokenizer.pad_token_id),
            None if causal else start_token(module.model),
            constraint if module.loss == "allowed" else None,
        )

    def _examples(
        self, tokenizer: Any, causal: bool, queries: Sequence[Query], qrels: Qrels, split: str
    ) -> InterlacedExamples:
        prompts = prompted(self.prompt, tokenizer, [query.text for query in queries], causal)
        longest = (self.max_prompt_tokens, self.max_target_tokens)
        return InterlacedExamples(
            queries, qrels, prompts, self.targets, *longest, self.shuffle, self.seed, split
        )  # fmt: skip


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
