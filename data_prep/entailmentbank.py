"""EntailmentBank: question + answer -> the leaves of its entailment tree, in the order of the file.

The corpus is the union of the leaves (task 1), the 25 context sentences of each question (task 3) and
the fact bank, without duplicates (case and punctuation do not count). A training query whose text also stands
in dev or test is left out. In arXiv 2204.13596 the corpus is smaller: the leaves of task 3.

WorldTree (optional; the paper always has it) gives extra training pairs: question + correct answer ->
the facts of its explanation. Its questions overlap with EntailmentBank's dev and test, so a question is left
out if its id or its text stands there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from data_prep import common
from data_prep.raw import read_tsv
from grls.data.types import Query
from grls.errors import DataError
from grls.io.files import read_json
from grls.io.jsonl import read_jsonl
from grls.io.progress import counted

FILES = {"train": "train.angles.jsonl", "dev": "dev.jsonl", "test": "test.jsonl"}
FACT_BANK = "worldtree_corpus_sentences_extended.json"
PLACEHOLDER = "DUMMY"

_ANGLES = re.compile(
    r"\$question\$ = (.+?) ; \$answer\$ = (.+?) ; \$hypothesis\$ = .*?\$context\$ = (.+)", re.S
)
_SENTENCE = re.compile(r"(?:^|\s)sent\d+: ")


class Pair(NamedTuple):
    """A question with its gold sentences.

    Attributes:
        id: The question's id in the source; two pairs may share it.
        question: The question, without options.
        answer: The text of the correct answer.
        sentences: The gold sentences in order.
        source: ``entailmentbank`` or ``worldtree``.
    """

    id: str
    question: str
    answer: str
    sentences: list[str]
    source: str = "entailmentbank"

    @property
    def text(self) -> str:
        """The query."""
        return f"{self.question} {self.answer}"


def prepare(
    raw: Path, out: Path, seed: int = 0, worldtree: Path | None = None, tokenizer: Path | None = None
) -> None:
    """Prepare EntailmentBank.

    Args:
        raw: Folder with task_1, task_3 and worldtree_corpus_sentences_extended.json.
        out: Folder to write; an earlier one is replaced.
        seed: Without effect, because the splits are the official ones.
        worldtree: Folder with WorldTree's questions.nomercury.jsonl and facts.tsv: adds its training
            questions as extra training pairs (default: none).
        tokenizer: Folder of a tokenizer to count passage tokens with (default: whitespace tokens).
    """
    pairs = {name: list(_pairs(raw / "task_1" / file)) for name, file in FILES.items()}
    pool = common.PassagePool(key=common.plain_words)
    for group in pairs.values():  # leaves come first: where spellings differ, the leaf's stays
        pool.update(sentence for pair in group for sentence in pair.sentences)
    for file in FILES.values():
        pool.update(sentence for pair in _pairs(raw / "task_3" / file) for sentence in pair.sentences)
    pool.update(_fact_bank(raw / FACT_BANK))
    print(f"{'union':<20} {counted(len(pool), 'passage')}: leaves, contexts and fact bank without duplicates")
    held_out = pairs["dev"] + pairs["test"]
    texts = {common.query_key(pair.text) for pair in held_out}
    train = [pair for pair in pairs["train"] if common.query_key(pair.text) not in texts]
    left_out = counted(len(pairs["train"]) - len(train), "training query")
    print(f"{'left out':<20} {left_out} whose text stands in dev or test")
    pairs["train"] = train
    if worldtree is not None:
        pairs["train"] += _extra(worldtree, held_out, pool)
    find = pool.finder()
    splits = {name: list(_queries(group, find)) for name, group in pairs.items()}
    common.finish(out, common.dataset(pool.passages(), splits), tokenizer)


def _pairs(file: Path) -> Iterator[Pair]:
    for line, record in read_jsonl(file):
        question, answer, sentences = _parts(record, file, line)
        yield Pair(common.field(record, "id", str, file, line), question, answer, sentences)


def _parts(record: dict[str, Any], file: Path, line: int) -> tuple[str, str, list[str]]:
    """Question, answer and sentences of a record, in the format of training ("angles") or of dev and test."""
    if "meta" in record:
        triples = common.field(common.field(record, "meta", dict, file, line), "triples", dict, file, line)
        sentences = [common.field(triples, key, str, file, line) for key in triples]
        question = common.field(record, "question", str, file, line)
        return question, common.field(record, "answer", str, file, line), sentences
    text = common.field(record, "input", str, file, line)
    match = _ANGLES.search(text)
    if match is None:
        raise DataError(
            "expected 'input' to hold '$question$ = … ; $answer$ = … ; $hypothesis$ = … ; "
            f"$context$ = sent1: …', got {text!r:.80}.",
            file,
            line,
        )
    question, answer, context = match.groups()
    sentences = [part.strip() for part in _SENTENCE.split(context)[1:]]
    if not sentences or not all(sentences):
        raise DataError(
            f"expected 'sent1: … sent2: …' after '$context$ = ', got {context!r:.80}.", file, line
        )
    return question, answer, sentences


def _fact_bank(file: Path) -> Iterator[str]:
    bank = read_json(file)
    if not isinstance(bank, dict):
        raise DataError(f"expected a JSON object id -> sentence, got {type(bank).__name__}.", file)
    for name in bank:
        sentence = common.field(bank, name, str, file, f"entry {name!r}")
        if sentence != PLACEHOLDER:
            yield sentence


def _extra(folder: Path, held_out: Sequence[Pair], pool: common.PassagePool) -> list[Pair]:
    """WorldTree's training pairs not held out (punctuation does not count); their facts join the pool."""
    pairs = list(_worldtree_pairs(folder))
    ids = {pair.id for pair in held_out}
    questions = {common.plain_words(pair.question) for pair in held_out}
    extra = [p for p in pairs if p.id not in ids and common.plain_words(p.question) not in questions]
    before = len(pool)
    pool.update(sentence for pair in extra for sentence in pair.sentences)
    print(
        f"{'WorldTree':<20} {len(extra):,} training pairs added, {len(pairs) - len(extra)} left out that "
        f"stand in dev or test; {len(pool) - before} facts joined the corpus"
    )
    return extra


def _worldtree_pairs(folder: Path) -> Iterator[Pair]:
    facts = {name: fact for _, (name, fact) in read_tsv(folder / "facts.tsv", ("fact id", "sentence"))}
    file = folder / "questions.nomercury.jsonl"
    for line, record in read_jsonl(file):
        if common.field(record, "split", str, file, line) != "train" or not record.get("explanation"):
            continue
        ids = common.strings(record, "explanation", file, line)
        unknown = [i for i in ids if i not in facts]
        if unknown:
            raise DataError(f"the fact {unknown[0]!r} stands in no line of facts.tsv.", file, line)
        text = common.field(record, "question", str, file, line)
        question, options = options_of(text)
        key = common.field(record, "answer_key", str, file, line)
        if not options.get(key):
            raise DataError(f"expected the option ({key}), the answer_key, in {text!r:.120}.", file, line)
        name = common.field(record, "id", str, file, line)
        yield Pair(name, question, options[key], [facts[i] for i in ids], "worldtree")


def options_of(text: str) -> tuple[str, dict[str, str]]:
    """Split "question (A) one (B) two" into the question and its options by key.

    The options are the last run of brackets that starts at A or 1 and continues in order, so other brackets
    in the question or in an option stay text.
    """
    for keys in ("ABCDE", "12345"):
        begin = text.rfind(f"({keys[0]})")
        if begin < 0:
            continue
        options: dict[str, str] = {}
        start = begin
        for key, following in zip(keys, [*keys[1:], ""], strict=True):
            end = text.find(f"({following})", start) if following else -1
            options[key] = text[start + 3 : end if end >= 0 else None].strip()
            if end < 0:
                break
            start = end
        return text[:begin].strip(), options
    return text.strip(), {}


def _queries(pairs: Iterable[Pair], find: common.Finder) -> Iterator[Query]:
    """The queries of one split; a repeated question id gets a number."""
    count: dict[str, int] = {}
    for pair in pairs:
        name = pair.id if pair.source == "entailmentbank" else f"{pair.source}-{pair.id}"
        count[name] = count.get(name, 0) + 1
        yield Query(
            id=name if count[name] == 1 else f"{name}-{count[name]}",
            text=pair.text,
            evidence=find(pair.sentences),
            metadata=common.metadata(question=pair.question, answer=pair.answer, source=pair.source),
        )
