"""The three programs of arXiv 2212.14024 (open-domain, multi-hop, conversational), and its baselines.

Each is a ``dspy.Module``: its predictors take demonstrations, and its prediction has ``answer``,
``found`` (the ranking, best first) and ``read`` (the passages that the answer was written from). If
nothing was retrieved, the context says so and the model still answers. The instructions are ours. The
defaults are small; the paper's numbers are in ``configs/paper/dsp-….yaml``.
"""

from __future__ import annotations

import io
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, ClassVar

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer

from grls.answer.dsp.calls import cost_of, note, recorded_calls
from grls.answer.dsp.lm import LIKELIHOOD, error_line
from grls.answer.dsp.needed import dspy
from grls.answer.dsp.options import USUAL_PROGRAM, DemonstrationOptions, Keep, ProgramOptions
from grls.answer.dsp.retrieval import Retrieval, RetrievedPassage
from grls.data.dataset import turns_of
from grls.data.types import Hit, Query
from grls.errors import ConfigError, DataError, GrlsError, MismatchError, Option
from grls.evaluation.metrics import answer_f1, contains_answer, normalise_answer, share_within
from grls.io.files import read_json, write_json
from grls.io.progress import counted
from grls.io.work import GrowingFile
from grls.retrieve.fusion.retriever import interleave

log = logging.getLogger(__name__)


NOTHING = "nothing was found"
STOP = "N/A"

SPREAD = 1000
"""Distance between the seeds of two branches; the draws within a branch take the seeds between."""


class SearchQuery(dspy.Signature):
    """Write a search query that finds passages to answer the question."""

    question: str = dspy.InputField()
    query: str = dspy.OutputField()


class NextQuery(dspy.Signature):
    """Sum up in one sentence what the context says about the question; then write the search query for what is still missing, or N/A if nothing is."""  # noqa: E501

    notes: list[str] = dspy.InputField()
    context: list[str] = dspy.InputField()
    question: str = dspy.InputField()
    summary: str = dspy.OutputField()
    query: str = dspy.OutputField()


class Rewrite(dspy.Signature):
    """Rewrite the last question of a conversation as a search query that can be understood without it."""

    history: str = dspy.InputField()
    question: str = dspy.InputField()
    query: str = dspy.OutputField()


class Answer(dspy.Signature):
    """Answer the question in a few words, from the context."""

    context: list[str] = dspy.InputField()
    question: str = dspy.InputField()
    answer: str = dspy.OutputField()


class ConversationAnswer(dspy.Signature):
    """Answer the last question of a conversation in a sentence, from the context."""

    context: list[str] = dspy.InputField()
    history: str = dspy.InputField()
    question: str = dspy.InputField()
    answer: str = dspy.OutputField()


class Ask(dspy.Signature):
    """Answer the question in a few words."""

    question: str = dspy.InputField()
    answer: str = dspy.OutputField()


class FollowUp(dspy.Signature):
    """Write the follow-up question to ask next, or N/A if the question can be answered now."""

    question: str = dspy.InputField()
    known: list[str] = dspy.InputField(desc="follow-up questions and their answers so far")
    follow_up: str = dspy.OutputField()


class Conclude(dspy.Signature):
    """Answer the question in a few words, from the follow-up questions and their answers."""

    question: str = dspy.InputField()
    known: list[str] = dspy.InputField(desc="follow-up questions and their answers")
    answer: str = dspy.OutputField()


def sampled(
    predict: Callable[..., Any], options: ProgramOptions, scored: bool = False, **inputs: Any
) -> list[Any]:
    """Predictions of one predictor: a plain call for one query, else a draw a query at the temperature.

    ``scored`` asks the model for the log-probabilities of several draws (:func:`likeliest`).
    """
    if options.queries == 1:
        return [predict(**inputs)]
    first = int(dspy.settings.lm.kwargs.get("seed") or 0)
    wish = {"logprobs": True} if scored else {}
    return [
        predict(**inputs, config={"temperature": options.temperature, "seed": first + number, **wish})
        for number in range(1, options.queries + 1)
    ]


def likeliest(drawn: Sequence[Any]) -> Any:
    """The prediction of the highest average log-probability of its tokens; of equal ones the first."""
    if len(drawn) == 1:
        return drawn[0]
    scores: list[Any] = [getattr(draw, LIKELIHOOD, None) for draw in drawn]
    if None in scores:
        raise ConfigError(
            f"the language model {dspy.settings.lm.model} gives no log-probabilities of its tokens, which "
            f"{Option('dsp.summary', 'likeliest')} compares: take {Option('dsp.summary', 'first')}, or a "
            "model that gives them (one in this process, or an OpenAI-compatible endpoint with logprobs)."
        )
    return drawn[scores.index(max(scores))]


def stops(query: str) -> bool:
    return query.strip().strip(".'\"`").casefold() in ("", STOP.casefold())


def _searched(drawn: Sequence[Any]) -> list[str]:
    return [draw.query for draw in drawn if not stops(draw.query)]


def context(passages: Sequence[RetrievedPassage]) -> list[str]:
    return [passage.text for passage in passages] or [NOTHING]


def in_turn(hops: Sequence[Sequence[RetrievedPassage]]) -> list[RetrievedPassage]:
    """The passages of all hops as one ranking: the best of each hop in turn."""
    texts = {passage.id: passage.text for hop in hops for passage in hop}
    order = interleave([[Hit(passage.id, passage.score) for passage in hop] for hop in hops])
    return [RetrievedPassage(hit.id, texts[hit.id], hit.score) for hit in order]


def answered(written: Any, ranking: Sequence[RetrievedPassage], read: Sequence[RetrievedPassage]) -> Any:
    return dspy.Prediction(answer=written.answer, found=list(ranking), read=list(read))


class _Retrieving(dspy.Module):
    """A program that retrieves.

    ``parts``: name -> a kind of predictor and what it writes. ``asks``: it retrieves for what the model
    writes.
    """

    parts: ClassVar[dict[str, tuple[Any, Any]]] = {}
    asks: ClassVar[bool] = False

    def __init__(self, retrieval: Retrieval, options: ProgramOptions = USUAL_PROGRAM):
        super().__init__()
        if self.asks and not options.queries:
            raise ConfigError(f"{Option('dsp.queries', 1)}: this program asks what the model writes.")
        self.retrieval = retrieval
        self.options = options
        for name, (predictor, signature) in self.parts.items():
            setattr(self, name, predictor(signature))


class OpenQA(_Retrieving):
    """Open-domain questions: retrieve for the question and for queries of the model, then answer.

    With 0 queries it retrieves for the question only. The retrieval says how many passages are read.
    """

    parts: ClassVar = {"query": (dspy.Predict, SearchQuery), "answer": (dspy.ChainOfThought, Answer)}

    def forward(self, question: str) -> Any:
        written = sampled(self.query, self.options, question=question) if self.options.queries else []
        passages = self.retrieval.fused([question, *(draw.query for draw in written)])
        return answered(self.answer(context=context(passages), question=question), passages, passages)


class MultiHop(_Retrieving):
    """Questions that need several passages: a query, a summary of its passages, the next query, ….

    The hops end if a query is N/A or empty (for several draws: half of them); the first hop is always
    taken, for the question itself if the model writes no query. Of several draws of a hop one summary is
    kept (``likeliest``: of the highest average log-probability over the tokens of summary and query,
    arXiv 2212.14024, section 4), and the rankings are fused.
    """

    parts: ClassVar = {
        "first": (dspy.Predict, SearchQuery),
        "next": (dspy.Predict, NextQuery),
        "answer": (dspy.ChainOfThought, Answer),
    }
    asks = True

    def forward(self, question: str) -> Any:
        options = self.options
        drawn = sampled(self.first, options, question=question)
        hops = [self.retrieval.fused(_searched(drawn) or [question])]
        notes: list[str] = []
        while len(hops) < options.rounds:
            inputs = {"notes": list(notes), "context": context(hops[-1]), "question": question}
            scored = options.summary == "likeliest"
            drawn = sampled(self.next, options, scored, **inputs)
            notes.append((likeliest(drawn) if scored else drawn[0]).summary)
            queries = _searched(drawn)
            if 2 * len(queries) <= len(drawn):
                note("stop", hop=len(hops) + 1, queries=[draw.query for draw in drawn])
                break
            hops.append(self.retrieval.fused(queries))
        ranking = in_turn(hops)
        read = hops[-1] if options.passages is None else ranking[: options.passages]
        prediction = self.answer(context=[*notes, *context(read)], question=question)
        return answered(prediction, ranking, ranking if options.passages is None else read)


class Conversational(_Retrieving):
    """The last question of a conversation: rewrite it to stand alone, retrieve for it, answer it.

    The first question is not rewritten. ``fuse_question`` also retrieves for the question as it stands (arXiv
    2212.14024, section 4).
    """

    parts: ClassVar = {
        "rewrite": (dspy.Predict, Rewrite),
        "answer": (dspy.ChainOfThought, ConversationAnswer),
    }
    asks = True

    def forward(self, question: str, history: str = "") -> Any:
        """Answer a question; ``history`` holds the turns before it, a turn a line."""
        inputs: dict[str, Any] = {"history": history, "question": question}
        written = [question]
        if history.strip():
            written = _searched(sampled(self.rewrite, self.options, **inputs))
            if self.options.fuse_question or not written:
                written.append(question)
        passages = self.retrieval.fused(written)
        return answered(self.answer(context=context(passages), **inputs), passages, passages)


class Vanilla(dspy.Module):
    def __init__(self) -> None:
        super().__init__()
        self.answer = dspy.Predict(Ask)

    def forward(self, question: str) -> Any:
        return answered(self.answer(question=question), (), ())


class RetrieveThenRead(_Retrieving):
    parts: ClassVar = {"answer": (dspy.Predict, Answer)}

    def forward(self, question: str) -> Any:
        passages = self.retrieval.find(question)
        return answered(self.answer(context=context(passages), question=question), passages, passages)


class SelfAsk(_Retrieving):
    """Self-ask (arXiv 2210.03350) with retrieval: retrieve for each follow-up question and answer it.

    It ends with N/A, an empty or repeated follow-up, or after ``rounds``.
    """

    parts: ClassVar = {
        "follow_up": (dspy.Predict, FollowUp),
        "reply": (dspy.Predict, Answer),
        "answer": (dspy.Predict, Conclude),
    }

    def forward(self, question: str) -> Any:
        hops: list[list[RetrievedPassage]] = []
        known: list[str] = []
        follow_ups: set[str] = set()
        for hop in range(1, self.options.rounds + 1):
            follow = self.follow_up(question=question, known=list(known)).follow_up
            if stops(follow) or follow.casefold() in follow_ups:
                note("stop", hop=hop, queries=[follow])
                break
            follow_ups.add(follow.casefold())
            hops.append(self.retrieval.find(follow))
            reply = self.reply(context=context(hops[-1]), question=follow).answer
            known.append(f"{follow} {reply}")
        passages = in_turn(hops)
        return answered(self.answer(question=question, known=list(known)), passages, passages)


class Branch(dspy.Module):
    """Runs a program several times with different seeds and returns the prediction of the commonest answer.

    Answers are compared as exact match does; of equally common ones the earliest wins. A failed run is
    noted and left out.
    """

    def __init__(self, program: Any, options: ProgramOptions = USUAL_PROGRAM):
        super().__init__()
        self.program = program
        self.options = options

    def forward(self, **inputs: Any) -> Any:
        options, lm = self.options, dspy.settings.lm
        if options.branches == 1:
            return self.program(**inputs)
        runs, failure = [], None
        for number in range(options.branches):
            note("branch", number=number)
            try:
                with dspy.context(lm=lm.copy(temperature=options.temperature, seed=SPREAD * (number + 1))):
                    runs.append(self.program(**inputs))
            except dspy.DSPyError as error:
                failure = error
        if failure is not None and not runs:
            raise failure
        answers = [run.answer for run in runs]
        winner = dspy.majority([{"answer": answer} for answer in answers], normalize=_normalised).answer
        note("majority", answers=answers, answer=winner)
        return next(run for run in runs if run.answer == winner)


def _normalised(answer: str) -> str | None:
    return normalise_answer(answer) or None


_PROGRAMS: dict[str, type[_Retrieving]] = {
    "openqa": OpenQA, "multihop": MultiHop, "conversational": Conversational,
    "retrieve-then-read": RetrieveThenRead, "self-ask": SelfAsk,
}  # fmt: skip


def program_named(name: str, retrieval: Retrieval | None, options: ProgramOptions) -> Branch:
    if name == "vanilla":
        return Branch(Vanilla(), options)
    if retrieval is None:
        raise ConfigError(f"the program {name} retrieves: give a retriever.")
    return Branch(_PROGRAMS[name](retrieval, options), options)


def demonstrated(
    program: Any,
    options: DemonstrationOptions,
    train: Sequence[Any],
    threads: int,
    file: str | Path,
    setting: Mapping[str, Any],
) -> Any:
    """A program with demonstrations (:func:`demonstrate`), read from a file; a missing file is written.

    ``setting`` is everything that they depend on, as JSON values. Demonstrations that depend on the query
    (``nearest``) have no file.
    """
    path = Path(file)
    if options.how in ("none", "nearest"):
        return demonstrate(program, options, train)
    if path.is_file():
        try:
            content = read_json(path)
            if content["settings"] != setting:
                raise MismatchError(
                    f"{path} holds demonstrations that were made with other settings; give another output, "
                    "or remove the file."
                )
            program.load_state(content["program"])
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(
                f"these are no demonstrations of this program ({error!r}); remove the file.", path
            ) from None
        return program
    taught = demonstrate(program, options, train, threads=threads)
    if not any(predictor.demos for predictor in taught.predictors()):
        log.warning(
            "no demonstration could be made of %d examples: the program answers none correctly.", len(train)
        )
    write_json(path, {"settings": dict(setting), "program": taught.dump_state()})
    return taught


def dspy_examples(queries: Sequence[Query], history: bool = False) -> list[Any]:
    """DSPy examples of queries that have accepted answers (the first one is shown) or ``evidence``."""
    examples = []
    for query in queries:
        if query.answers or query.evidence:
            inputs = inputs_of(query, history)
            shown = {"answer": query.answers[0]} if query.answers else {}
            known = {"answers": list(query.answers), "evidence": list(query.evidence)}
            examples.append(dspy.Example(**inputs, **shown, **known).with_inputs(*inputs))
    if not examples:
        raise DataError(
            "no query of the split for demonstrations has an answer or evidence; choose another split."
        )
    return examples


def inputs_of(
    query: Query, history: bool = False, replies: Mapping[tuple[str, ...], str] | None = None
) -> dict[str, str]:
    """The inputs of a program: the question and, if asked for, the conversation before it, a text a line.

    ``replies``: the questions of a conversation -> the reply to the last one, which replaces that of the
    data; an empty one leaves the question without a reply.
    """
    if not history:
        return {"question": query.text}
    asked = conversation(query)
    lines: list[str] = []
    for n, turn in enumerate(turns_of(query), 1):
        reply = None if replies is None else replies.get(asked[:n])
        lines += turn if reply is None else filter(None, (turn[0], reply))
    return {"question": query.text, "history": "\n".join(lines)}


def conversation(query: Query) -> tuple[str, ...]:
    return (*(turn[0] for turn in turns_of(query)), " ".join(query.text.split()))


def answer_in_order(
    queries: Sequence[Query],
    answer: Callable[[dict[str, dict[str, str]]], list[dict[str, Any]]],
) -> list[dict[str, Any]]:
    """Answer conversations question by question, each behind the answers to the questions before it.

    Questions belong to one conversation if they begin with the same questions. Behind one that failed
    none is answered. ``answer``: inputs by query id -> the records of :func:`answer_all`. Returns the
    record of each query, in order.
    """
    replies: dict[tuple[str, ...], str] = {}
    records: dict[str, dict[str, Any]] = {}
    failed: set[tuple[str, ...]] = set()  # questions without an answer, with those before them
    asked = {query.id: conversation(query) for query in queries}
    earlier = {turns[:n] for turns in asked.values() for n in range(1, len(turns))}
    if kept := len(earlier - {*asked.values()}):
        log.warning(
            "%s of conversations %s not among those asked, so the reply of the data stays.",
            counted(kept, "earlier question"), "is" if kept == 1 else "are",
        )  # fmt: skip
    for length in sorted({*map(len, asked.values())}):
        these = [query for query in queries if len(asked[query.id]) == length]
        behind = {q.id for q in these if any(asked[q.id][:n] in failed for n in range(1, length))}
        for record in answer({q.id: inputs_of(q, True, replies) for q in these if q.id not in behind}):
            records[record["query_id"]] = record
        nothing = {"answer": "", "found": [], "read": [], "trace": [], "cost": cost_of([])}
        why = "an earlier question of its conversation failed"
        records |= {name: {"query_id": name, **nothing, "failed": why} for name in behind}
        failed |= {asked[query.id] for query in these if "failed" in records[query.id]}
        replies |= {asked[query.id]: " ".join(records[query.id]["answer"].split()) for query in these}
    return [records[query.id] for query in queries]


OVERLAP_F1 = 0.75
OVERLAP_PRECISION = 0.8


def right(example: Any, prediction: Any, trace: Any = None, keep: Keep = "answer") -> bool:
    """Whether an example is answered correctly; DSPy's optimizers also pass a trace.

    ``keep`` is that of :class:`~grls.answer.dsp.options.DemonstrationOptions`; ``passage`` is
    ``answer_match`` and ``passage_match`` of arXiv 2212.14024.
    """
    if not example.answers:
        return set(example.evidence) <= {passage.id for passage in prediction.found}
    exact, f1 = answer_f1(str(prediction.answer), example.answers).values()
    texts = [passage.text for passage in prediction.read]
    if keep == "overlap":
        pairs = ((answer, text) for answer in example.answers for text in texts)
        return f1 >= OVERLAP_F1 and any(share_within(*pair) >= OVERLAP_PRECISION for pair in pairs)
    return exact == 1 and (keep == "answer" or any(contains_answer(text, example.answers) for text in texts))


def demonstrate(
    program: Any, options: DemonstrationOptions, train: Sequence[Any], candidates: int = 4, threads: int = 1
) -> Any:
    """A copy of a program with demonstrations of DSPy examples (:func:`dspy_examples`).

    ``search`` holds out every second example to compare sets, on several threads: as many random
    bootstrapped sets as there are candidates, one set in the order of the examples, the labeled ones, and
    none.
    """
    method, demos = options.how, options.count
    if method == "none":
        return program
    if method == "search" and len(train) < 2:
        raise ConfigError(f"expected at least 2 examples to search, got {len(train)}.")
    if method == "labeled":
        labeled = [example for example in train if example.answers]
        if not labeled:
            raise ConfigError("no example has an answer to show; choose bootstrapped demonstrations.")
        return dspy.LabeledFewShot(k=demos).compile(program, trainset=labeled, sample=False)
    shown = demos + options.labeled if options.labeled else 0
    metric = partial(right, keep=options.keep)
    settings = {"metric": metric, "max_bootstrapped_demos": demos, "max_labeled_demos": shown}
    if method == "nearest":
        near = min(4 * demos, len(train))
        return dspy.KNNFewShot(near, list(train), vectors(train), **settings, max_errors=near + 1).compile(
            program
        )
    try:
        with hushed():
            if method == "bootstrap":
                bootstrap = dspy.BootstrapFewShot(**settings, max_errors=len(train))
                return bootstrap.compile(program, trainset=list(train))
            settings |= {"max_labeled_demos": max(demos, shown)}  # for the set of labeled examples
            search = dspy.BootstrapFewShotWithRandomSearch(
                **settings,
                num_candidate_programs=candidates,
                num_threads=threads,
                max_errors=len(train) // 2,
            )
            return search.compile(program, trainset=list(train)[::2], valset=list(train)[1::2])
    except GrlsError:
        raise
    except Exception as error:  # DSPy goes on if an example fails, and raises if all fail
        raise ConfigError(f"no example could be answered: {' '.join(str(error).split())}") from error


def vectors(train: Sequence[Any]) -> Any:
    """An embedder that compares questions by TF-IDF vectors, fitted on the examples."""
    fitted = TfidfVectorizer(sublinear_tf=True).fit([example.question for example in train])

    def embed(texts: Sequence[str]) -> Any:
        return np.asarray(fitted.transform(list(texts)).toarray(), dtype=np.float32)

    return dspy.Embedder(embed, caching=False)


@contextmanager
def hushed() -> Iterator[None]:
    """A block in which the process prints nothing: DSPy's optimizers print every step."""
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        yield


def settings(lm: Any, adapter: Any) -> Any:
    return dspy.context(lm=lm, adapter=adapter, trace=None, disable_history=False, callbacks=[])


def answer_all(
    program: Any,
    inputs: Mapping[str, Mapping[str, str]],
    lm: Any,
    adapter: Any,
    file: GrowingFile,
    threads: int = 8,
    decided: Callable[[int], object] | None = None,
) -> list[dict[str, Any]]:
    """Answer the queries that the file does not hold yet; each is on disk as soon as it is answered.

    A query whose model fails for good is recorded as failed, and the next call tries it again. What every
    query would meet (a refused key, an unknown provider) ends the run instead. ``inputs``: query id -> the
    program's inputs. Returns the record of each (:func:`answer_one`), with ``seconds`` since the one before.
    """
    complete = {record["query_id"] for record in file if "failed" not in record}
    waiting = {name: fields for name, fields in inputs.items() if name not in complete}
    if decided is not None:
        decided(len(inputs) - len(waiting))
    recorded: set[str] = set()
    clock = perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        futures = [
            pool.submit(answer_one, program, name, fields, lm, adapter) for name, fields in waiting.items()
        ]
        try:
            for future in as_completed(futures):
                time = perf_counter()
                record = future.result() | {"seconds": time - clock}  # since the last record, in any thread
                clock = time
                file.add([record])
                recorded.add(record["query_id"])
                if decided is not None:
                    decided(1)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            # Keep the answers that came while the run ended.
            done = [future for future in futures if future.done() and not future.cancelled()]
            records = [future.result() for future in done if future.exception() is None]
            file.add([record for record in records if record["query_id"] not in recorded])
            raise
    last = {record["query_id"]: record for record in file}
    return [last[name] for name in inputs]


def refuse_other(file: GrowingFile, queries: Collection[str]) -> None:
    """Refuse a file that answers a query twice, or a query whose id is not among ``queries``."""
    waiting = set(queries)
    for line, record in enumerate(file, 2):
        name = record.get("query_id")
        if name not in waiting:
            raise DataError(
                f"the query {name!r} is answered already, or is none of this split: another run wrote into "
                "this file. Remove this line, and run the command again.",
                file.path,
                line,
            )
        if "failed" not in record:
            waiting.remove(name)


def answer_one(program: Any, name: str, inputs: Mapping[str, str], lm: Any, adapter: Any) -> dict[str, Any]:
    """The record of a query.

    ``found`` and ``read`` are pairs of passage id and score; ``failed`` says why there is no answer,
    ``ended`` is false if the length limit cut it.
    """
    with settings(lm, adapter), recorded_calls() as trace:
        record: dict[str, Any] = {"query_id": name, "answer": "", "found": [], "read": []}
        try:
            prediction = program(**inputs)
        except (dspy.LMAuthError, dspy.LMBillingError, dspy.LMConfigurationError, dspy.LMNotConfiguredError,
                dspy.LMUnsupportedModelError) as error:  # fmt: skip
            raise ConfigError(
                f"the language model cannot be asked at all ({error_line(error)}); mend that and call again."
            ) from None
        except dspy.DSPyError as error:
            why = trace[-1].get("failed") if trace else None  # this also says whether it was cut
            record |= {"failed": why or error_line(error), "found": _so_far(trace)}
        else:
            answer = str(prediction.answer)
            # A file holds UTF-8, and models write lone surrogates, which become `?`.
            record |= {"answer": answer.strip().encode("utf-8", "replace").decode()}
            record |= {"found": _pairs(prediction.found), "read": _pairs(prediction.read)}
            # If several calls wrote the answer, it is cut if the length limit cut all of them.
            wrote = [s["calls"] for s in trace if s.get("outputs", {}).get("answer") == answer]
            record |= {"ended": not wrote or not all("cut" in calls[-1] for calls in wrote if calls)}
        return record | {"trace": trace, "cost": cost_of(trace)}


def _pairs(passages: Sequence[RetrievedPassage]) -> list[list[Any]]:
    return [[passage.id, passage.score] for passage in passages]


def _so_far(steps: Sequence[Mapping[str, Any]]) -> list[list[Any]]:
    """The ranking of a program's last run before it failed: the best passages of each hop in turn."""
    begins = [n for n, step in enumerate(steps) if step["kind"] == "branch"]
    hops = [step["found"] for step in steps[max(begins, default=0) :] if step["kind"] == "retrieval"]
    if len(hops) < 2:
        return list(hops[0]) if hops else []
    return [[hit.id, hit.score] for hit in interleave([[Hit(*pair) for pair in hop] for hop in hops])]
