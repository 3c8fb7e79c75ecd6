"""Writes the propositions of a corpus, in this process or by workers.

Passages are written in one order, a batch at a time, and a shard holds whole batches. So workers write the
bytes that one process writes, where their machines round alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from grls.answer.riches.proposition_file import PropositionFile, read_propositions
from grls.answer.riches.proposition_prompt import PropositionPrompt
from grls.answer.riches.propositions import Propositionizer, batches
from grls.cluster.options import Workers
from grls.cluster.places import alone_at_shards, refuse_other_reading, seen_elsewhere, shards_folder
from grls.cluster.plan import Shard, ShardPlan, Work
from grls.cluster.work import done_by_workers
from grls.data.codec import tokenizer_fingerprint
from grls.data.corpus import Corpus
from grls.models.load.language import load_language_model, weights_fingerprint

SHARD = 1024
"""Passages of a shard, unless an option says otherwise."""
_WRITTEN = "propositions.jsonl"


class OpenedPropositions(NamedTuple):
    """What writes the propositions of a run.

    Attributes:
        corpus: The passages.
        batches: Their numbers, in the order of writing.
        writer: Writes the propositions.
        origin: The fingerprints and options that the propositions depend on.
    """

    corpus: Corpus
    batches: list[list[int]]
    writer: Propositionizer
    origin: dict[str, Any]

    @property
    def passages(self) -> int:
        """Number of passages."""
        return sum(map(len, self.batches))

    def write(
        self, batches: Iterable[list[int]], file: PropositionFile, report: Callable[[int], object]
    ) -> None:
        """Write batches to a file, which skips complete passages."""
        for numbers in batches:
            missing = set(self.corpus.ids(numbers)) - file.tally.passages
            if missing:
                file.append(self.writer.write(self.corpus.passages(numbers)))
                report(len(missing))


@dataclass(frozen=True)
class PropositionWork:
    """The options of `grls prepare propositions` that the propositions depend on.

    The attributes are named like the options.
    """

    data: str
    model: str
    chat: bool
    examples: bool | None
    template: str
    fallback: bool
    max_new_tokens: int
    longest: int
    batch_size: int
    limit: int | None
    device: str

    def opened(self) -> OpenedPropositions:
        """Read the corpus, and open the language model.

        Raises:
            ConfigError: There is no such model, or an option cannot work.
            DataError: The corpus cannot be read.
        """
        corpus = Corpus.read(self.data)
        loaded, tokenizer = load_language_model(self.model, self.device)
        shown = not loaded.config.is_encoder_decoder if self.examples is None else self.examples
        prompt = PropositionPrompt(shown, self.chat, self.template)
        writer = Propositionizer(loaded, tokenizer, prompt, self.max_new_tokens, self.longest, self.fallback)
        origin = {
            "weights": weights_fingerprint(loaded), "tokenizer": tokenizer_fingerprint(tokenizer),
            "corpus": corpus.fingerprint, "prompt": prompt.fingerprint(tokenizer),
            "fallback": self.fallback, "max_new_tokens": self.max_new_tokens, "longest": self.longest,
            "limit": self.limit,
        }  # fmt: skip
        count = min(len(corpus), self.limit or len(corpus))
        return OpenedPropositions(corpus, batches(corpus, count, self.batch_size), writer, origin)

    def elsewhere(self) -> PropositionWork:
        """The same with absolute paths: a worker runs in another folder."""
        return replace(self, data=seen_elsewhere(self.data), model=seen_elsewhere(self.model))


@dataclass(frozen=True)
class PropositionMaker:
    """Opens what writes propositions on a worker.

    Attributes:
        asked: The options.
        origin: The fingerprints and options that the command has read, and the worker must read, too.
        first: The passage, in the order of writing, that is item 0 of the shards.
    """

    asked: PropositionWork
    origin: dict[str, Any]
    first: int

    def __call__(self) -> Work:
        """Open the language model and the corpus.

        Raises:
            MismatchError: The worker reads another model or corpus.
        """
        opened, asked = self.asked.opened(), self.asked
        places = dict.fromkeys(("weights", "tokenizer", "prompt"), (asked.model, "language model"))
        places["corpus"] = (asked.data, "corpus")
        refuse_other_reading(opened.origin, self.origin, places)
        return partial(_write_shard, opened, asked.batch_size, self.first)


def _write_shard(
    opened: OpenedPropositions, size: int, before: int, shard: Shard, folder: Path
) -> dict[str, Any]:
    first, end = before + shard.first, before + shard.end
    file = PropositionFile(folder / _WRITTEN, {})
    opened.write(opened.batches[first // size : -(-end // size)], file, lambda _: None)
    file.close()
    return {}


def propositions_by_workers(
    opened: OpenedPropositions, asked: PropositionWork, file: PropositionFile, workers: Workers
) -> None:
    """Let workers write the propositions that a file lacks, and add them in order.

    Args:
        opened: The run, as this process opened it.
        asked: Its options.
        file: The file; it holds the first passages of the order of writing.
        workers: The workers.

    Raises:
        ConfigError: The cluster cannot be used.
        MismatchError: There are shards of other work.
    """
    settings = {"what": "propositions", "batch_size": asked.batch_size, **opened.origin}
    done, size = len(file.tally.passages), workers.options.shard or SHARD
    with alone_at_shards(file.path):
        plan = ShardPlan.of_rest(
            shards_folder(file.path), settings, opened.passages, done, size, asked.batch_size
        )
        if done < opened.passages:
            maker = PropositionMaker(asked.elsewhere(), opened.origin, plan.settings["first"])
            for one in done_by_workers(plan, maker, workers, "propositions", "passages"):
                file.append(read_propositions(one.folder / _WRITTEN))
        plan.remove()
