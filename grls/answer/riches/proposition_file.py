"""The file of propositions: written passage by passage; a killed run goes on where it stopped.

One JSON object a line: ``passage`` (its id), ``text`` (null in the only line of a passage without
propositions), ``part`` of ``parts`` (from 1; 0 of 0 without propositions), ``by`` (``model``, or
``sentences`` if the model wrote none) and, in the first line of a passage, ``dropped`` (reasons and numbers
of lines that were left out). The file maps propositions to passages and shows which passages are complete:
an incomplete last passage of a killed run is cut off. Beside it, ``FILE.manifest.json`` holds the origin of
the propositions; a run with another origin is refused.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from grls.answer.riches.propositions import Propositionizer, PropositionPrompt, Propositions, batches
from grls.cluster.options import Workers
from grls.cluster.plan import (
    Shard,
    ShardPlan,
    Work,
    alone_at_shards,
    refuse_other_reading,
    seen_elsewhere,
    shards_folder,
)
from grls.cluster.work import done_by_workers
from grls.data.codec import tokenizer_fingerprint
from grls.data.corpus import Corpus
from grls.errors import DataError, MismatchError, Option
from grls.io.files import read_json, refuse_unwritable, write_json
from grls.io.resumable import LockedFile
from grls.models.load.language import load_language_model, weights_fingerprint

FORMAT = 1
_REMEDY = f"give the options it was begun with, or another {Option('output')}"


@dataclass
class Tally:
    """Counts of a file.

    Attributes:
        passages: Ids of the complete passages.
        propositions: Number of lines with a text.
        sentences: Number of passages whose propositions are their sentences.
        none: Number of passages without propositions.
        dropped: Reason -> number of lines of the model that were left out.
    """

    passages: set[str] = field(default_factory=set)
    propositions: int = 0
    sentences: int = 0
    none: int = 0
    dropped: Counter[str] = field(default_factory=Counter)

    def add(self, unit: list[dict[str, Any]]) -> None:
        """Count the lines of one passage."""
        self.passages.add(unit[0]["passage"])
        self.propositions += unit[0]["parts"]
        self.none += unit[0]["parts"] == 0
        self.sentences += unit[0]["by"] == "sentences" and unit[0]["parts"] > 0
        self.dropped.update(unit[0]["dropped"])


class PropositionFile:
    """A file of propositions that grows.

    Args:
        path: The file; its manifest is beside it.
        origin: The data and options that the propositions are made from, as JSON values.

    Raises:
        DataError: The file exists without a manifest, or a line before the last passage is damaged.
        MismatchError: The file was begun with another origin.
        WriteError: The file cannot be written, or another process writes it.
    """

    def __init__(self, path: str | Path, origin: dict[str, Any]):
        self.path = Path(path)
        self.tally = Tally()
        manifest = self.path.with_name(f"{self.path.name}.manifest.json")
        refuse_unwritable(self.path)
        if manifest.is_file():
            made = read_json(manifest)
            if not isinstance(made, dict) or made.get("format") != FORMAT:
                raise DataError(
                    f"expected a manifest of format {FORMAT}; give another {Option('output')}.", manifest
                )
            for name, new in json.loads(json.dumps(origin)).items():
                if (old := made.get(name)) != new:
                    values = f" ({old!r}, now {new!r})" if len(f"{new}{old}") < 80 else ""
                    raise MismatchError(f"{self.path}: begun with another {name}{values}; {_REMEDY}.")
        elif self.path.exists() and self.path.stat().st_size:
            raise DataError(
                "the file has no manifest, so nothing is added to it; move the file away.", self.path
            )
        self._file = LockedFile(self.path)
        if not manifest.is_file():
            write_json(manifest, {"format": FORMAT, **origin})
        self._take_up()

    def append(self, new: Iterable[Propositions]) -> None:
        """Add the propositions of passages; passages that are complete are skipped.

        Raises:
            WriteError: The disk is full; complete passages stay.
        """
        units: list[list[dict[str, Any]]] = []
        for passage, texts, by, dropped in new:
            if passage not in self.tally.passages:
                numbered: Iterable[tuple[int, str | None]] = list(enumerate(texts, 1)) or [(0, None)]
                lines: list[dict[str, Any]] = [
                    {"passage": passage, "text": text, "part": part, "parts": len(texts), "by": by}
                    for part, text in numbered
                ]
                lines[0]["dropped"] = dropped
                units.append(lines)
        written = "".join(json.dumps(line, ensure_ascii=False) + "\n" for unit in units for line in unit)
        self._file.append(written.encode("utf-8", "backslashreplace"))
        for unit in units:
            self.tally.add(unit)

    def close(self) -> None:
        """Let other processes write the file."""
        self._file.close()

    def _take_up(self) -> None:
        """Count the complete passages, and cut off the rest.

        Raises:
            DataError: A line is malformed, or not the next one.
        """
        complete = place = 0
        unit: list[dict[str, Any]] = []
        with self.path.open("rb") as stream:
            for number, raw in enumerate(stream, 1):
                place += len(raw)
                if not raw.endswith(b"\n"):  # the line that a killed run was writing
                    break
                try:
                    line: dict[str, Any] = json.loads(raw)
                    part, parts = line["part"], line["parts"]
                    fits = part == (len(unit) + 1 if parts else 0) and ("dropped" in line) == (not unit)
                    fits &= line["passage"] not in self.tally.passages
                    if unit:
                        fits &= (line["passage"], parts) == (unit[0]["passage"], unit[0]["parts"])
                except (ValueError, TypeError, KeyError):
                    fits = False
                if not fits:
                    raise DataError(
                        "expected the next proposition as `grls prepare propositions` writes it; remove the "
                        "rest of the file, and run the command again.",
                        self.path,
                        number,
                    )
                unit.append(line)
                if unit[-1]["part"] == unit[-1]["parts"]:
                    self.tally.add(unit)
                    unit, complete = [], place
        if complete < self._file.size:
            self._file.cut(complete)


def read_propositions(path: Path) -> Iterator[Propositions]:
    """The propositions of a whole file, passage by passage."""
    unit: list[dict[str, Any]] = []
    with path.open("rb") as stream:
        for line in map(json.loads, stream):
            unit.append(line)
            if line["part"] == line["parts"]:
                texts = tuple(one["text"] for one in unit if one["part"])
                yield Propositions(line["passage"], texts, line["by"], unit[0]["dropped"])
                unit = []


# Writes the propositions of a corpus, in this process or by workers.
#
# Passages are written in one order, a batch at a time, and a shard holds whole batches. So workers write the
# bytes that one process writes, where their machines round alike.


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
