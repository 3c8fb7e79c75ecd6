"""Questions that a language model writes, before the stages of a run whose data have none to learn from.

They are written and judged as by ``grls prepare pseudo-queries``, by BM25 and the bi-encoder of the stage
``base``. Time that is up and a model that fails leave what is written; without enough of it the run goes on
with cut sentences, and its next call asks for what is lacking.
"""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import cast

from grls.data.types import Query
from grls.data.words import USUAL
from grls.errors import ConfigError, GrlsError
from grls.fitting.journal import failure
from grls.fitting.search import TimeIsUp
from grls.fitting.splits import CUT
from grls.fitting.stages import FitStages
from grls.io.progress import counted
from grls.models.option_names import Numbers
from grls.retrieve.judge import open_judge
from grls.retrieve.registry import BM25, Opening
from grls.train.doc2query.options import Drawing

MOST = 2000
"""Questions that are asked for, at most; half of them along links, where passages have some."""
_EACH = 5  # questions of a passage, of a small corpus
_BATCH, _K = 8, 10
LEAST, SHARE = 40, 0.2
"""Questions, and the share of those that are written, that must pass for the model to be believed."""
_WRITING = 0.8  # the share of the time that judging leaves to writing


def written_questions(stages: FitStages, output: Path, allowance: float | None) -> list[Query]:
    """The questions that pass, in a file as well; none: why is said."""
    try:
        with stages.progress.stage("questions", allowance, again=True):
            return _written(stages, output, allowance)
    except Exception as error:
        why = failure(error).rstrip(".")
        stages.progress.say(f"questions: left out: {why}; {CUT} stand in for them")
        return []


def _written(stages: FitStages, output: Path, allowance: float | None) -> list[Query]:
    from grls.train.doc2query.generate import TWICE, drawn_tasks, open_queries
    from grls.train.doc2query.questions import GROUP, QuestionPrompt
    from grls.train.doc2query.written import foreign, found, judged, save, written

    begun, options, candidates, progress = perf_counter(), stages.options, stages.candidates, stages.progress
    corpus, encoder = stages.data.corpus, stages.models.biencoder
    draw = Drawing(min(_EACH, max(1, MOST // len(corpus))), seed=options.seed)
    most = -(-MOST // draw.queries // (2 if stages.data.linked else 1))
    tasks, writer, origin = open_queries(
        candidates.place, options.writer_model or str(options.writer), draw, most, _BATCH, options.device,
        cast(Numbers, candidates.precision), options.writer if options.writer_model else None,
    )  # fmt: skip
    if stages.data.linked and isinstance(writer.prompt, QuestionPrompt):
        tasks += drawn_tasks(corpus, replace(draw, hops=2), most)
    random.Random(options.seed).shuffle(tasks)  # whatever ends it early leaves some of each
    opened, opening = (tasks, writer, origin), Opening(options.device, candidates.precision)
    names = [BM25] if encoder is None else [BM25, str(stages.embed("base", encoder.name))]
    judges = [open_judge(name, corpus, opening, USUAL) for name in names]
    if allowance is not None:
        progress.limit(_WRITING * (allowance - (perf_counter() - begun)))
    ended = ""
    try:
        records = written(opened, output, GROUP, options.writer_limit, "writer_limit", progress.say)
    except (GrlsError, TimeIsUp) as error:
        progress.limit(None)
        ended, records = f"{str(error).rstrip('.')}. ", found(opened, output)
    progress.limit(None)
    kept: list[Query] = []
    if records and (language := foreign(records, corpus)):
        raise ConfigError(f"{language}.")
    for hops in (1, 2):
        if some := [record for record in records if ("second" in record) == (hops > 1)]:
            sifted = judged(some, writer, judges, hops, _K, progress.say)
            share = len(sifted.queries) / (len(some) - sifted.dropped[TWICE])
            progress.say(f"questions: {share:.0%} of those of {counted(hops, 'passage')} pass")
            kept += sifted.queries if share >= SHARE else []
    if len(kept) < LEAST:
        raise ConfigError(
            f"{ended}{counted(len(kept), 'question')} can be used, where {LEAST} are needed (those of one "
            f"passage, or of two, if {SHARE:.0%} of them pass)."
        )
    if ended:
        progress.say(f"questions: {ended}The run goes on with what was written.")
    save(output, kept)
    return kept
