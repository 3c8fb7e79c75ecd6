"""Questions that a language model writes, before the stages of a run whose data have none to learn from.

They are written and judged as by ``grls prepare pseudo-queries``, by BM25 and the bi-encoder of the stage
``base``, the first 64 before the others are asked for. Time that is up and a model that fails leave what is
written; without enough of it the run goes on with cut sentences. The next call then asks for what is lacking,
unless the first 64 are refused.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from grls.data.types import Query
from grls.errors import ConfigError, GrlsError, Option
from grls.fitting.journal import failure
from grls.fitting.options import FitOptions
from grls.fitting.search import Allowance, TimeIsUp
from grls.fitting.splits import CUT, SplitData
from grls.fitting.stages import FitStages
from grls.io.progress import counted
from grls.io.work import Record
from grls.models.option_names import Numbers
from grls.retrieve.registry import BM25, Opening, load_named
from grls.train.doc2query.options import Drawing

if TYPE_CHECKING:
    from grls.train.doc2query.generate import Task

QUESTIONS = "questions"
MOST = 2000
"""Questions that are asked for, at most; half of them along links, where passages have some."""
_EACH = 5  # questions of a passage, of a small corpus
_BATCH, _K = 8, 10
LEAST, SHARE = 40, 0.2
"""Questions, and the share of those that are written, that must pass for the model to be believed."""
_WRITING = 0.8  # the share of the time that judging leaves to writing


def written_questions(stages: FitStages, output: Path, seconds: float) -> tuple[list[Query], dict[str, Any]]:
    """The questions that pass, in a file as well, and a record for the journal; none: why is said."""
    allowance, nothing, made = Allowance(seconds), None, list[Query]()
    work = f"{stages.options.writer_model or stages.options.writer} writes questions"
    try:
        with stages.progress.stage(QUESTIONS, seconds, again=True):
            made, told = _written(stages, output, allowance)
            work += f": {told}"
    except Exception as error:
        nothing = f"left out: {failure(error).rstrip('.')}"
        stages.progress.say(f"questions: {nothing}; {CUT} stand in for them")
    return made, {"work": work, "nothing": nothing, "seconds": round(allowance.spent, 2)}


def question_tasks(data: SplitData, seed: int) -> tuple[Drawing, int, list[Task]]:
    """How questions are drawn, of how many passages or links at most, and the questions to write."""
    from grls.train.doc2query.generate import drawn_tasks

    draw = Drawing(min(_EACH, max(1, MOST // len(data.corpus))), seed=seed)
    most = -(-MOST // draw.queries // (2 if data.linked else 1))
    tasks = drawn_tasks(data.corpus, draw, most)
    if data.linked:
        tasks += drawn_tasks(data.corpus, replace(draw, hops=2), most)
    if len(tasks) < LEAST:
        told = f"{counted(len(tasks), 'question')} can be written, where {LEAST} are needed"
        raise ConfigError(f"{told}: leave {Option('writer')} out.")
    random.Random(seed).shuffle(tasks)  # whatever ends it early leaves some of each
    return draw, most, tasks


def plan_questions(data: SplitData, options: FitOptions) -> tuple[SplitData, str]:
    """The data as they are divided if all questions pass, and what is asked for."""
    from grls.train.doc2query.questions import QuestionPrompt
    from grls.train.doc2query.written import priced

    _, _, tasks = question_tasks(data, options.seed)
    told = f"up to {counted(len(tasks), 'question')}"
    if options.writer_model is not None:
        limit = options.writer_limit
        tasks, told = priced(QuestionPrompt(True), data.corpus, tasks, limit, "writer_limit", LEAST)
    ids = data.corpus.ids([task.passage for task in tasks])
    made = [Query(f"question {number}", "?", (passage,)) for number, passage in enumerate(ids)]
    named = options.writer_model or options.writer
    return data.taught(made), f"questions: {named} writes them, to train with: {told}"


def _written(stages: FitStages, output: Path, allowance: Allowance) -> tuple[list[Query], str]:
    from grls.train.doc2query.generate import TWICE, estimated_tokens, open_queries
    from grls.train.doc2query.questions import GROUP, QuestionPrompt
    from grls.train.doc2query.written import TRIAL, foreign, found, judged, save, written

    options, candidates, progress = stages.options, stages.candidates, stages.progress
    corpus, encoder = stages.data.corpus, stages.models.biencoder
    draw, most, tasks = question_tasks(stages.data, options.seed)
    _, writer, origin = open_queries(
        candidates.place, options.writer_model or str(options.writer), draw, most, _BATCH, options.device,
        cast(Numbers, candidates.precision), options.writer if options.writer_model else None,
    )  # fmt: skip
    if not isinstance(writer.prompt, QuestionPrompt):  # a query generator
        tasks = [task for task in tasks if task.second is None]
    opened = (tasks, writer, origin)
    opening = Opening(options.device, candidates.precision, truncate_queries=True)
    names = [BM25] if encoder is None else [BM25, str(stages.embed("base", encoder.name))]
    judges = [load_named(name, corpus, opening) for name in names]

    def passing(records: Sequence[Record], say: Callable[[str], object]) -> Iterator[tuple[list[Query], str]]:
        if records and (language := foreign(records, corpus)):
            raise ConfigError(f"{language}.")
        for hops in (1, 2):
            if some := [record for record in records if ("second" in record) == (hops > 1)]:
                sifted = judged(some, writer, judges, hops, _K, say)
                share = len(sifted.queries) / (len(some) - sifted.dropped[TWICE])
                told = f"{share:.0%} of those of {counted(hops, 'passage')} pass"
                say(f"questions: {told}")
                yield sifted.queries if share >= SHARE else [], told

    def trial(records: Sequence[Record]) -> None:
        if len(records) == TRIAL and not any(some for some, _ in passing(records, str)):
            raise ConfigError(f"of the first {TRIAL} fewer than {SHARE:.0%} pass.")

    kept, shares, ended = list[Query](), list[str](), ""
    progress.limit(_WRITING * allowance.left)
    try:
        written(opened, output, GROUP, options.writer_limit, "writer_limit", progress.say, LEAST, trial)
    except (GrlsError, TimeIsUp) as error:
        ended = f"{str(error).rstrip('.')}. "
    progress.limit(allowance.left)
    try:
        records = found(opened, output)
        for some, told in passing(records, progress.say):
            kept += some
            shares.append(told)
    except TimeIsUp as end:
        ended = f"{end}. "
    progress.limit(inf)
    if len(kept) < LEAST:
        raise ConfigError(
            f"{ended}{counted(len(kept), 'question')} can be used, where {LEAST} are needed (those of one "
            f"passage, or of two, if {SHARE:.0%} of them pass)."
        )
    if ended:
        progress.say(f"questions: {ended}The run goes on with what was written.")
    save(output, kept)
    if isinstance(writer.prompt, QuestionPrompt):
        tokens = estimated_tokens(writer.prompt, corpus, tasks[: len(records)])
        shares.append(f"about {tokens:,} tokens were read and written")
    return kept, "; ".join((f"{len(records):,} of them", *shares))
