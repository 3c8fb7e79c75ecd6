"""Propositions of passages, written by a language model: the best keys of RICHES.

A proposition is a short statement of one fact that can be understood alone ("retrieval keys" in arXiv
2407.00361). The prompt of a causal model shows two invented passages with their propositions; an
encoder-decoder reads the passage in the form of its fine-tuning. Nothing checks that a proposition is
true to its passage.

Models write greedily, a batch of passages of similar length at a time. A shard holds whole batches, so
workers write the bytes that one process writes, where their machines round alike.
"""

from __future__ import annotations

import copy
import hashlib
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow.compute as pc
import torch
from transformers import DynamicCache, StoppingCriteriaList

from grls.answer.dialogue import Dialogue, few_shot
from grls.answer.riches.prompts import common
from grls.answer.writer import StoppedRows
from grls.cluster.options import Workers
from grls.cluster.plan import (
    Shard,
    ShardPlan,
    Work,
    held_shards,
    refuse_other_reading,
    seen_elsewhere,
)
from grls.cluster.work import done_by_workers
from grls.data.codec import foreign_ids, tokenizer_fingerprint
from grls.data.corpus import Corpus
from grls.data.sentences import sentences
from grls.data.types import Passage
from grls.errors import ConfigError, DataError, MismatchError, Option, at_least
from grls.io.files import exclusive, read_json, refuse_unwritable, write_json
from grls.io.work import LockedFile
from grls.models.base import cache_argument, positions_in
from grls.models.load.language import end_tokens, load_language_model, model_fingerprint

_TASK = (
    "Split the passage into propositions. A proposition is one short sentence that states one fact of the "
    "passage and can be understood alone: it names what it is about and holds no pronoun. Write one a line."
)


_EXAMPLES = (
    (
        Passage(
            "",
            "Talmere is a market town on the river Orrin. Its stone bridge, which Hugo Laske built in 1412, "
            "was widened in 1903 so that trams could cross it.",
            "Talmere",
        ),
        (
            "Talmere is a market town.",
            "Talmere lies on the river Orrin.",
            "The stone bridge of Talmere was built in 1412.",
            "Hugo Laske built the stone bridge of Talmere.",
            "The stone bridge of Talmere was widened in 1903.",
            "The stone bridge of Talmere was widened so that trams could cross it.",
        ),
    ),
    (
        Passage(
            "",
            "Lomax (1839-1902) was a painter. She studied in Verrin, where she later painted the ceiling of "
            "the opera house, and had three pupils.",
            "Ada Lomax",
        ),
        (
            "Ada Lomax was born in 1839.",
            "Ada Lomax died in 1902.",
            "Ada Lomax was a painter.",
            "Ada Lomax studied in Verrin.",
            "Ada Lomax painted the ceiling of the Verrin opera house.",
            "Ada Lomax had three pupils.",
        ),
    ),
)


_OURS = frozenset(line for _, lines in _EXAMPLES for line in lines)
_FIELDS = re.compile(r"\{(title|text)\}")


_BULLET = re.compile(r"^\s*(?:[-*•–—‣·]+|\(?(?:\d{1,3}|[a-zA-Z])[.)](?=\s))\s*")
_NUMBER = re.compile(r"\d+")


_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_STOPS = ("\n\n", "\nPassage:")
"""Texts that end the propositions of a passage in a plain prompt with examples."""


class PropositionPrompt(NamedTuple):
    """Writes the prompt for a passage.

    Attributes:
        examples: Whether the prompt holds the task and examples, as a causal model needs them.
        chat: Whether the prompt is written with the model's chat template.
        template: The form of the passage, with ``{title}`` and ``{text}``; empty for the default form.
    """

    examples: bool = True
    chat: bool = False
    template: str = ""

    @property
    def lead(self) -> str:
        """The end of the prompt that already belongs to the output."""
        return "-" if self.examples and not self.chat else ""

    def shortened(self, text: str) -> str:
        for stop in _STOPS if self.lead else ():
            text = text.split(stop)[0]
        return text

    def stopped(self, text: str) -> bool:
        """Whether the propositions of an output have ended: by a blank line, or by a repeated line."""
        if self.shortened(text) != text:
            return True
        lines = [line for line in text.split("\n")[:-1] if line.strip()]
        return bool(lines) and lines[-1] in lines[:-1]

    def inputs(self, tokenizer: Any, passages: Sequence[Passage]) -> list[list[int]]:
        if self.template and "{text}" not in self.template:
            raise ConfigError(
                f"{Option('template')} needs {{text}} where the passage goes; got {self.template!r}."
            )
        if not self.examples and not self.chat:
            return foreign_ids(tokenizer, [self.form(passage) for passage in passages], wrapped=True)
        ask = "" if self.chat else "\nPropositions:"
        solved = [((self.form(p) + ask, "\n".join(f"- {line}" for line in lines)),) for p, lines in _EXAMPLES]
        dialogues = [Dialogue(self.form(passage) + ask, begin=self.lead) for passage in passages]
        return few_shot(tokenizer, _TASK, solved, dialogues, self.chat)

    def form(self, passage: Passage) -> str:
        title, text = (" ".join(part.split()) for part in (passage.title, passage.text))
        if self.template:
            fields = {"title": title, "text": text}
            return _FIELDS.sub(lambda match: fields[match.group(1)], self.template)
        line = f"{title}. {text}" if title else text
        return f"Passage: {line}" if self.examples or self.chat else line

    def fingerprint(self, tokenizer: Any) -> str:
        """A hash of everything that the prompt depends on except the passage."""
        parts = (*self, _TASK, _EXAMPLES, getattr(tokenizer, "chat_template", None) if self.chat else None)
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    def head(self, tokenizer: Any) -> list[int]:
        """The tokens that every input begins with."""
        rows = self.inputs(tokenizer, [Passage("", "a"), Passage("", "b", "c")])
        return rows[0][: common(rows)]


def parse_propositions(
    text: str, ended: bool, passage: Passage, longest: int = 300
) -> tuple[tuple[str, ...], dict[str, int]]:
    """Parse an output: a JSON list of texts, or a proposition a line, without bullets and numbers.

    If an output is one line without a bullet (T5's tokenizers write no line break), its sentences are the
    propositions. Returns the propositions, each once, and reason -> number of lines that were left out:
    ``cut`` (the length limit cut the line), ``twice``, ``long`` (above ``longest`` characters),
    ``copied`` (from the examples), ``invented`` (with a number that the passage lacks), ``other`` (no
    statement, such as only the title).
    """
    stripped = text.strip()
    lines = stripped.split("\n")
    if stripped.startswith("["):
        try:
            entries = json.loads(stripped)
        except ValueError:  # cut off, or not quite JSON: take the complete strings
            entries = []
            for match in _STRING.findall(stripped):
                with suppress(ValueError):
                    entries.append(json.loads(match, strict=False))
            entries += [] if ended else [""]
        lines = [entry for entry in entries if isinstance(entry, str)]
    elif len(lines) == 1 and not _BULLET.match(stripped):
        lines = sentences(stripped)
    dropped: Counter[str] = Counter()
    if not ended and lines:
        lines.pop()
        dropped["cut"] += 1
    texts: dict[str, None] = {}
    numbers = set(_NUMBER.findall(f"{passage.title} {passage.text}"))
    for line in lines:
        plain = " ".join(_BULLET.sub("", line).split())
        if not plain:
            continue
        if len(plain) > longest:
            dropped["long"] += 1
        elif plain in texts:
            dropped["twice"] += 1
        elif plain in _OURS:
            dropped["copied"] += 1
        elif set(_NUMBER.findall(plain)) - numbers:
            dropped["invented"] += 1
        elif (
            plain.endswith(":")
            or len(re.findall(r"\w+", plain)) < 2
            or not re.search(r"[^\W\d_]", plain)
            or plain.rstrip(" .").casefold() == passage.title.strip(" .").casefold()
        ):
            dropped["other"] += 1
        else:
            texts[plain] = None
    return tuple(texts), dict(dropped)


_TAIL = 8
"""Number of last tokens that are searched for the end of a line."""


class Propositions(NamedTuple):
    """The propositions of a passage.

    ``by`` is ``sentences`` if they are the sentences of the passage. ``dropped``: as in
    :func:`parse_propositions`, and ``unread`` if the passage is too long.
    """

    passage: str
    texts: tuple[str, ...]
    by: Literal["model", "sentences"]
    dropped: dict[str, int]


class Propositionizer:
    """Writes propositions; without ``prompt``, a causal model reads examples and others do not.

    A causal model reads the prefix that all inputs share only once. A model that repeats a line is in a loop,
    and is stopped. ``fallback``: take the sentences of a passage if the model wrote no proposition.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        prompt: PropositionPrompt | None = None,
        max_new_tokens: int = 256,
        longest: int = 300,
        fallback: bool = True,
    ):
        at_least(1, max_new_tokens=max_new_tokens, longest=longest)
        self.model = model
        self.tokenizer = tokenizer
        self.encoder_decoder = bool(model.config.is_encoder_decoder)
        self.prompt = prompt or PropositionPrompt(examples=not self.encoder_decoder)
        self.max_new_tokens = max_new_tokens
        self.longest = longest
        self.fallback = fallback
        pad = tokenizer.pad_token_id
        self._pad = int(tokenizer.eos_token_id if pad is None else pad)
        self._head = self._without_end(self.prompt.head(tokenizer))
        self._prefix: tuple[int, DynamicCache] | None = None
        positions = positions_in(model.config) or sys.maxsize
        self._room = positions - (0 if self.encoder_decoder else max_new_tokens)
        if len(self._head) >= self._room or max_new_tokens >= positions:
            raise ConfigError(
                f"the prompt takes {len(self._head)} tokens, the propositions up to {max_new_tokens}, but "
                f"the model has {positions} positions; lower {Option('max_new_tokens')}."
            )

    def write(self, passages: Sequence[Passage]) -> list[Propositions]:
        rows = [self._without_end(row) for row in self.prompt.inputs(self.tokenizer, passages)]
        short = [n for n, p in enumerate(passages) if p.text.strip() and len(rows[n]) <= self._room]
        outputs = dict(zip(short, self._generate([rows[n] for n in short]), strict=True))
        results = []
        for n, passage in enumerate(passages):
            texts: tuple[str, ...] = ()
            dropped = {"unread": 1} if passage.text.strip() else {}
            if n in outputs:
                texts, dropped = parse_propositions(*outputs[n], passage, self.longest)
            by: Literal["model", "sentences"] = "model"
            if not texts and self.fallback:
                texts, by = tuple(" ".join(s.split()) for s in sentences(passage.text)), "sentences"
            results.append(Propositions(passage.id, tuple(dict.fromkeys(texts)), by, dropped))
        return results

    @torch.inference_mode()
    def _generate(self, rows: list[list[int]]) -> Iterator[tuple[str, bool]]:
        if not rows:
            return
        with exclusive(self.model):
            cache = None if self.encoder_decoder else self._prefix_cache(rows)
            shared = 0 if cache is None else cache.get_seq_length()
            # Padded behind the first `shared` tokens; an encoder is padded at the end, since some encoders
            # count positions from the first token, padding included.
            longest = max(map(len, rows))
            tokens, mask = [], []  # both [B, longest]
            for row in rows:
                first, pads = len(row) if self.encoder_decoder else shared, longest - len(row)
                tokens.append([*row[:first], *[self._pad] * pads, *row[first:]])
                mask.append([1] * first + [0] * pads + [1] * (len(row) - first))
            start = 0 if self.encoder_decoder else longest
            ends = end_tokens(self.model, self.tokenizer)
            written = self.model.generate(
                input_ids=torch.tensor(tokens, device=self.model.device),
                attention_mask=torch.tensor(mask, device=self.model.device),
                do_sample=False,
                num_beams=1,
                max_new_tokens=self.max_new_tokens,
                eos_token_id=sorted(ends),
                pad_token_id=self._pad,
                stopping_criteria=StoppingCriteriaList([StoppedRows(self._complete, start)]),
                **({} if cache is None else {cache_argument(self.model): cache}),
            )
        for row in written[:, start:].tolist():
            first = 1 if self.encoder_decoder else 0  # the decoder's start token, which may be an end token
            end = next((n for n, token in enumerate(row) if n >= first and token in ends), None)
            text = self.prompt.lead + self.tokenizer.decode(row[:end], skip_special_tokens=True)
            yield self.prompt.shortened(text), end is not None or self.prompt.stopped(text)

    def _prefix_cache(self, rows: list[list[int]]) -> DynamicCache | None:
        """Keys and values of the prefix that all inputs share; None if the model has no plain full cache."""
        kinds = set(getattr(self.model.config, "layer_types", None) or ()) - {"full_attention"}
        if kinds or getattr(self.model.config, "sliding_window", None) is not None:
            return None
        shared = common([[*self._head, -1], *rows])
        if not shared:
            return None
        if self._prefix is None or self._prefix[0] != shared:
            cache = DynamicCache(config=self.model.config)
            prompt = torch.tensor([self._head[:shared]], device=self.model.device)
            self.model(input_ids=prompt, use_cache=True, **{cache_argument(self.model): cache})
            if cache.get_seq_length() != shared:  # a model with another kind of cache
                return None
            self._prefix = shared, cache
        cache = copy.deepcopy(self._prefix[1])
        cache.batch_repeat_interleave(len(rows))
        return cache

    def _complete(self, row: list[int]) -> bool:
        """Whether an output's propositions are complete: looked at where a line has just ended."""
        if "\n" not in self.tokenizer.decode(row[-_TAIL:]):
            return False
        return self.prompt.stopped(self.prompt.lead + self.tokenizer.decode(row))

    def _without_end(self, row: list[int]) -> list[int]:
        """A causal input without the end token that some tokenizers add."""
        causal = not self.encoder_decoder and row and row[-1] == self.tokenizer.eos_token_id
        return row[:-1] if causal and not self.prompt.chat else row


def batches(corpus: Corpus, count: int, size: int) -> list[list[int]]:
    """Numbers of the first ``count`` passages in batches of similar length, the longest first.

    If the memory does not suffice, the first batch shows it. Batches do not depend on earlier runs, so a
    resumed run pads and rounds like an uninterrupted one.
    """
    lengths = pc.utf8_length(corpus.table.data.column("text")).to_numpy()[:count]
    order = np.argsort(-lengths.astype(np.int64), kind="stable").tolist()
    return [order[first : first + size] for first in range(0, len(order), size)]


FORMAT = 1
_REMEDY = f"give the options it was begun with, or another {Option('output')}"


class PropositionFile:
    """A file of propositions, written passage by passage; a killed run goes on where it stopped.

    One JSON object a line: ``passage`` (its id), ``text`` (null in the only line of a passage without
    propositions), ``part`` of ``parts`` (from 1; 0 of 0 without propositions), ``by`` (``model``, or
    ``sentences``) and, in the first line of a passage, ``dropped``. The manifest beside it holds the
    origin.

    Attributes:
        passages: Ids of the complete passages.
        propositions: Number of lines with a text.
        sentences: Number of passages whose propositions are their sentences.
        none: Number of passages without propositions.
        dropped: Reason -> number of lines of the model that were left out.
    """

    def __init__(self, path: str | Path, origin: dict[str, Any]):
        self.path = Path(path)
        self.passages: set[str] = set()
        self.propositions = self.sentences = self.none = 0
        self.dropped: Counter[str] = Counter()
        manifest = self.path.with_name(f"{self.path.name}.manifest.json")
        refuse_unwritable(self.path)
        if manifest.is_file():
            stored = read_json(manifest)
            if not isinstance(stored, dict) or stored.get("format") != FORMAT:
                raise DataError(
                    f"expected a manifest of format {FORMAT}; give another {Option('output')}.", manifest
                )
            for name, new in json.loads(json.dumps(origin)).items():
                if (old := stored.get(name)) != new:
                    values = f": {old!r}, now {new!r}" if len(f"{new}{old}") < 80 else ""
                    raise MismatchError(
                        f"{self.path}: begun with other settings ({name}{values}); {_REMEDY}."
                    )
        elif self.path.exists() and self.path.stat().st_size:
            raise DataError(
                "the file has no manifest, so nothing is added to it; move the file away.", self.path
            )
        self._file = LockedFile(self.path)
        if not manifest.is_file():
            write_json(manifest, {"format": FORMAT, **origin})
        self._take_up()

    def append(self, new: Iterable[Propositions]) -> None:
        """Add the propositions of passages; passages that are complete are skipped."""
        units: list[list[dict[str, Any]]] = []
        for passage, texts, by, dropped in new:
            if passage not in self.passages:
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
            self._count(unit)

    def _count(self, unit: list[dict[str, Any]]) -> None:
        self.passages.add(unit[0]["passage"])
        self.propositions += unit[0]["parts"]
        self.none += unit[0]["parts"] == 0
        self.sentences += unit[0]["by"] == "sentences" and unit[0]["parts"] > 0
        self.dropped.update(unit[0]["dropped"])

    def close(self) -> None:
        self._file.close()

    def _take_up(self) -> None:
        """Count the complete passages, and cut off the rest; refuse a line that is not the next one."""
        complete = position = 0
        unit: list[dict[str, Any]] = []
        with self.path.open("rb") as stream:
            for number, raw in enumerate(stream, 1):
                position += len(raw)
                if not raw.endswith(b"\n"):  # the line that a killed run was writing
                    break
                try:
                    line: dict[str, Any] = json.loads(raw)
                    part, parts = line["part"], line["parts"]
                    fits = part == (len(unit) + 1 if parts else 0) and ("dropped" in line) == (not unit)
                    fits &= line["passage"] not in self.passages
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
                    self._count(unit)
                    unit, complete = [], position
        if complete < self._file.size:
            self._file.cut(complete)


def read_propositions(path: Path) -> Iterator[Propositions]:
    unit: list[dict[str, Any]] = []
    with path.open("rb") as stream:
        for record in map(json.loads, stream):
            unit.append(record)
            if record["part"] == record["parts"]:
                texts = tuple(line["text"] for line in unit if line["part"])
                yield Propositions(record["passage"], texts, record["by"], unit[0]["dropped"])
                unit = []


SHARD = 1024
"""Passages of a shard, unless an option says otherwise."""
_WRITTEN = "propositions.jsonl"


class OpenedPropositions(NamedTuple):
    """A run: its passages, their numbers in the order of writing, the writer, and what they depend on."""

    corpus: Corpus
    batches: list[list[int]]
    writer: Propositionizer
    origin: dict[str, Any]

    @property
    def passages(self) -> int:
        return sum(map(len, self.batches))

    def write(
        self, batches: Iterable[list[int]], file: PropositionFile, report: Callable[[int], object]
    ) -> None:
        for numbers in batches:
            missing = set(self.corpus.ids(numbers)) - file.passages
            if missing:
                file.append(self.writer.write(self.corpus.passages(numbers)))
                report(len(missing))


@dataclass(frozen=True)
class PropositionWork:
    """The options of `grls prepare propositions` that the propositions depend on, by their names."""

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
        corpus = Corpus.read(self.data)
        loaded, tokenizer = load_language_model(self.model, self.device)
        shown = not loaded.config.is_encoder_decoder if self.examples is None else self.examples
        prompt = PropositionPrompt(shown, self.chat, self.template)
        writer = Propositionizer(loaded, tokenizer, prompt, self.max_new_tokens, self.longest, self.fallback)
        origin = {
            "weights": model_fingerprint(loaded), "tokenizer": tokenizer_fingerprint(tokenizer),
            "corpus": corpus.fingerprint, "prompt": prompt.fingerprint(tokenizer),
            "fallback": self.fallback, "max_new_tokens": self.max_new_tokens, "longest": self.longest,
            "limit": self.limit,
        }  # fmt: skip
        count = min(len(corpus), self.limit or len(corpus))
        return OpenedPropositions(corpus, batches(corpus, count, self.batch_size), writer, origin)

    def elsewhere(self) -> PropositionWork:
        """The same with absolute paths: a worker runs in another folder."""
        return replace(self, data=seen_elsewhere(self.data), model=seen_elsewhere(self.model))


def proposition_shards(options: PropositionWork, origin: dict[str, Any], first: int) -> Work:
    """What writes propositions on a worker, which must read the model and corpus of ``origin``.

    ``first`` is the passage, in the order of writing, that is item 0 of the shards.
    """
    opened = options.opened()
    sources = dict.fromkeys(("weights", "tokenizer", "prompt"), (options.model, "language model"))
    sources["corpus"] = (options.data, "corpus")
    refuse_other_reading(opened.origin, origin, sources)
    size = options.batch_size

    def write_shard(shard: Shard, folder: Path) -> dict[str, Any]:
        file = PropositionFile(folder / _WRITTEN, {})
        batches = opened.batches[(first + shard.first) // size : -(-(first + shard.end) // size)]
        opened.write(batches, file, lambda _: None)
        file.close()
        return {}

    return write_shard


def propositions_by_workers(
    opened: OpenedPropositions, options: PropositionWork, file: PropositionFile, workers: Workers
) -> None:
    """Let workers write the propositions that a file lacks, and add them in the order of writing."""
    settings = {"what": "propositions", "batch_size": options.batch_size, **opened.origin}
    done, size = len(file.passages), workers.options.shard or SHARD
    with held_shards(file.path) as folder:
        plan = ShardPlan.of_rest(folder, settings, opened.passages, done, size, options.batch_size)
        if done < opened.passages:
            maker = partial(proposition_shards, options.elsewhere(), opened.origin, plan.settings["first"])
            for shard in done_by_workers(plan, maker, workers, "propositions", "passages"):
                file.append(read_propositions(shard.folder / _WRITTEN))
