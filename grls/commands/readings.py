"""What the commands that answer questions have in common: their queries, and what they write."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grls.data.types import Query
from grls.errors import ConfigError
from grls.io.files import refuse_unwritable

if TYPE_CHECKING:
    from grls.answer.direct import WrittenAnswer
    from grls.answer.writer import TextWriter
    from grls.data.corpus import Corpus
    from grls.data.dataset import Qrels
    from grls.io.resumable import GrowingFile
    from grls.runs.manifest import RunInfo

BATCHES = 4
"""Batches that are answered together before they are kept: prompts of like lengths share one."""
SHOWN = 3
"""Answers that are printed, the first ones."""

Answer = Callable[[Sequence[Query], Callable[[int], object]], Sequence["WrittenAnswer"]]
"""From queries, and what is called with the number of those answered, to their readings."""


@dataclass(frozen=True)
class Questions:
    """What is asked, and of which passages.

    Attributes:
        data: The data set's folder.
        split: Which of its queries.
        corpus: The passages.
        every: All queries of the split.
        asked: Those that are answered.
        qrels: Their gold passages.
    """

    data: str
    split: str
    corpus: Corpus
    every: list[Query]
    asked: list[Query]
    qrels: Qrels

    @classmethod
    def read(cls, data: str, split: str, limit: int | None, output: str) -> Questions:
        """Read a data set, and refuse what cannot be written before anything is loaded.

        Raises:
            ConfigError: The limit is below 1, or the output cannot be written.
            DataError: The data set cannot be read.
        """
        from grls.data.corpus import Corpus
        from grls.data.dataset import read_split

        if limit is not None and limit < 1:
            raise ConfigError(f"--limit must be at least 1, got {limit}.")
        refuse_unwritable(output)
        corpus = Corpus.read(data)
        every, qrels = read_split(data, split, corpus)
        return cls(data, split, corpus, every, every[:limit], qrels)

    @property
    def fingerprints(self) -> dict[str, str]:
        """Of the corpus and of all queries: what a run depends on."""
        from grls.runs.manifest import fingerprint_queries

        return {"corpus": self.corpus.fingerprint, "queries": fingerprint_queries(self.every)}

    def info(
        self, system: str, name: str, score_mode: str, seconds: float, options: dict[str, Any]
    ) -> RunInfo:
        """The manifest of a run of rankings."""
        from grls.runs.manifest import RunInfo, fingerprint_queries

        return RunInfo(
            system=system,
            name=name,
            steps="single",
            corpus=self.corpus.fingerprint,
            queries=fingerprint_queries(self.asked),
            data=self.data,
            split=self.split,
            score_mode=score_mode,
            seconds=seconds,
            options=options,
        )


def read_all(
    questions: Questions, output: str, settings: dict[str, Any], writer: TextWriter, answer: Answer
) -> tuple[list[WrittenAnswer], GrowingFile]:
    """The reading of each query, and the file that they are kept in, OUTPUT.readings.jsonl."""
    from grls.answer.kept import read_on
    from grls.io.progress import Progress
    from grls.io.resumable import GrowingFile

    file = GrowingFile(f"{output}.readings.jsonl", settings, lambda record: "spent" in record)
    file.refuse_other(("query_id",), [(query.id,) for query in questions.every])
    known = {record["query_id"] for record in file.records}
    done = sum(query.id in known for query in questions.asked)
    with Progress(len(questions.asked), "read", "queries", done) as bar:
        readings = read_on(
            file, questions.asked, lambda some: answer(some, bar.update), writer.spent,
            BATCHES * writer.batch_size,
        )  # fmt: skip
    return readings, file


def spent_options(
    readings: Sequence[WrittenAnswer], file: GrowingFile, options: dict[str, Any]
) -> tuple[float, dict[str, Any]]:
    """The seconds that all readings took, and ``options`` with what was cut and what was spent."""
    from grls.answer.kept import spent_on

    spent = spent_on(file)
    seconds = spent.pop("seconds")
    return seconds, {**options, "cut": sum(one.cut for one in readings), **spent}


def model_settings(model: str, loaded: Any, tokenizer: Any) -> dict[str, Any]:
    """What is written depends on of a language model."""
    from grls.data.codec import tokenizer_fingerprint
    from grls.models.load.language import weights_fingerprint

    return {
        "model": Path(model).name,
        "weights": weights_fingerprint(loaded),
        "tokenizer": tokenizer_fingerprint(tokenizer),
    }


def write_readings(
    questions: Questions,
    output: str,
    readings: Sequence[WrittenAnswer],
    info: RunInfo,
    more: Sequence[dict[str, Any]] = (),
) -> None:
    """Print the first answers, write OUTPUT.answers.jsonl and the run, and say what was reached.

    Args:
        questions: What was asked.
        output: Path without ending.
        readings: One a query.
        info: The manifest of the run.
        more: For each query, what stands in its line of the answers, too.
    """
    from grls.answer.records import answer_record, shown_reading
    from grls.commands.output import Outcome, write_outputs
    from grls.evaluation.answers import ENDING, read_answers, score_answers, summary, write_answers

    corpus, asked = questions.corpus, questions.asked
    for query, reading in list(zip(asked, readings, strict=True))[:SHOWN]:
        print(shown_reading(query, reading, corpus) + "\n")
    answers = f"{output}{ENDING}"
    lines = (answer_record(*pair, corpus) for pair in zip(asked, readings, strict=True))
    write_answers(answers, lines if not more else (a | b for a, b in zip(lines, more, strict=True)))
    write_outputs(output, asked, corpus, Outcome([list(one.ranking) for one in readings]), info)
    scores = score_answers(read_answers(answers, texts=False), asked, questions.qrels, corpus)
    print(summary(scores, info.seconds))
