"""Programs, models and demonstrations by their names on the command line."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer

from grls.answer.dsp.lines import LinesAdapter
from grls.answer.dsp.lm import LocalEngine, endpoint_lm, local_lm
from grls.answer.dsp.needed import dspy
from grls.answer.dsp.options import API, CallOptions, DemonstrationOptions, Keep, ProgramOptions
from grls.answer.dsp.patience import Patience
from grls.answer.dsp.programs import Conversational, MultiHop, OpenQA, RetrieveThenRead, SelfAsk, Vanilla
from grls.answer.dsp.retrieval import Retrieval
from grls.data.dataset import turns_of
from grls.data.types import Query
from grls.errors import ConfigError, DataError, GrlsError, MismatchError
from grls.evaluation.metrics.answer_f1 import answer_scores, share_within
from grls.evaluation.metrics.answer_recall import contains_answer
from grls.io.files import read_json, write_json
from grls.models.load.language import load_language_model, weights_fingerprint

log = logging.getLogger(__name__)


def program_named(name: str, retrieval: Retrieval | None, dsp: ProgramOptions) -> Any:
    """A program or a baseline, to be run once.

    Raises:
        ConfigError: The program needs a retriever, or the name is unknown.
    """
    if name == "vanilla":
        return Vanilla()
    if retrieval is None:
        raise ConfigError(f"the program {name} retrieves: give a retriever.")
    if name == "retrieve-then-read":
        return RetrieveThenRead(retrieval)
    if name == "self-ask":
        return SelfAsk(retrieval, dsp.rounds)
    if name == "openqa":
        return OpenQA(retrieval, dsp.queries, dsp.temperature)
    if name == "multihop":
        return MultiHop(retrieval, dsp.rounds, dsp.queries, dsp.temperature, dsp.summary, dsp.passages)
    if name == "conversational":
        return Conversational(retrieval, dsp.queries, dsp.temperature, dsp.fuse_question)
    raise ConfigError(f"unknown program {name!r}.")


class NamedLM(NamedTuple):
    """A language model opened by name.

    Attributes:
        lm: A ``dspy.LM``.
        weights: Fingerprint of a model in this process; None for a served model.
    """

    lm: Any
    weights: str | None


def lm_named(name: str, calls: CallOptions = CallOptions(), device: str = "auto") -> NamedLM:  # noqa: B008
    """A ``dspy.LM`` of an endpoint, a provider (``api:openai/gpt-4o-mini``), or a model in this process.

    Raises:
        ConfigError: The model cannot be opened.
    """
    new_tokens = calls.filled(name)[1]
    if calls.is_remote(name):
        served = endpoint_lm(
            name.removeprefix(API), calls.endpoint, new_tokens, calls.timeout, calls.attempts - 1
        )
        return NamedLM(served, None)
    model, tokenizer = load_language_model(name, device)
    engine = LocalEngine(model, tokenizer, new_tokens, calls.batch_size, calls.chat)
    return NamedLM(local_lm(engine, Path(name).name), weights_fingerprint(model))


def adapter_named(template: str, attempts: int) -> Patience:
    """The adapter of a template: ``lines``, the paper's plain template, or ``chat``, DSPy's format."""
    inner = LinesAdapter() if template == "lines" else dspy.ChatAdapter(use_json_adapter_fallback=False)
    return Patience(inner, attempts)


def demonstrated(
    program: Any,
    options: DemonstrationOptions,
    train: Sequence[Any],
    threads: int,
    file: str | Path,
    made: Mapping[str, Any],
) -> Any:
    """A program with demonstrations, read from a file; a missing file is made and written.

    Demonstrations that depend on the query (``nearest``) have no file.

    Args:
        program: The program.
        options: How to make demonstrations.
        train: Examples to make demonstrations of.
        threads: Examples tried at the same time.
        file: The file of the demonstrations.
        made: Everything that demonstrations depend on, as JSON values; a file with other settings is refused.

    Raises:
        DataError: The file belongs to another program.
        MismatchError: The demonstrations of the file were made with other settings.
    """
    path = Path(file)
    if options.how in ("none", "nearest"):
        return demonstrate(program, options, train)
    if path.is_file():
        try:
            kept = read_json(path)
            if kept["settings"] != made:
                raise MismatchError(
                    f"{path} holds demonstrations that were made with other settings; give another output, "
                    "or remove the file."
                )
            program.load_state(kept["program"])
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
    write_json(path, {"settings": dict(made), "program": taught.dump_state()})
    return taught


def dspy_examples(queries: Sequence[Query], history: bool = False) -> list[Any]:
    """DSPy examples of queries that have accepted answers (the first one is shown) or ``evidence``.

    Raises:
        DataError: No query has answers or evidence.
    """
    examples = []
    for query in queries:
        inputs = inputs_of(query, history)
        shown = {"answer": query.answers[0]} if query.answers else {}
        known = {"answers": list(query.answers), "evidence": list(query.evidence)}
        if query.answers or query.evidence:
            examples.append(dspy.Example(**inputs, **shown, **known).with_inputs(*inputs))
    if not examples:
        raise DataError(
            "no query of the split for demonstrations has an answer or evidence; choose another split."
        )
    return examples


def inputs_of(query: Query, history: bool = False) -> dict[str, str]:
    """The inputs of a program: the question and, if asked for, the conversation before it, a text a line.

    Raises:
        DataError: ``metadata.history`` is no list of turns (:func:`grls.data.dataset.turns_of`).
    """
    if not history:
        return {"question": query.text}
    return {"question": query.text, "history": "\n".join(text for turn in turns_of(query) for text in turn)}


OVERLAP_F1 = 0.75
OVERLAP_PRECISION = 0.8


def right(example: Any, prediction: Any, trace: Any = None, keep: Keep = "answer") -> bool:
    """Whether an example is answered correctly.

    An example with gold passages only is answered correctly if all of them are retrieved.

    Args:
        example: The example.
        prediction: The program's prediction.
        trace: Unused; DSPy's optimizers pass it.
        keep: ``answer``: the answer is an accepted one (exact match, as ``grls evaluate`` counts it).
            ``passage``: and a passage that was read has an accepted answer (``answer_match`` and
            ``passage_match`` of arXiv 2212.14024, its open questions). ``overlap``: the answer has an F1 of
            at least 0.75 with an accepted one, and a passage that was read has at least 0.8 of the words of
            an accepted one (its conversations).
    """
    if not example.answers:
        return set(example.evidence) <= {one.id for one in prediction.found}
    exact, f1 = answer_scores(str(prediction.answer), example.answers)
    texts = [one.text for one in prediction.read]
    if keep == "overlap":
        pairs = ((answer, text) for answer in example.answers for text in texts)
        return f1 >= OVERLAP_F1 and any(share_within(*pair) >= OVERLAP_PRECISION for pair in pairs)
    return exact == 1 and (keep == "answer" or any(contains_answer(text, example.answers) for text in texts))


def demonstrate(
    program: Any, options: DemonstrationOptions, train: Sequence[Any], candidates: int = 4, threads: int = 1
) -> Any:
    """A copy of a program with demonstrations.

    Args:
        program: The program.
        options: How to make demonstrations.
        train: DSPy examples (:func:`dspy_examples`). ``search`` holds out every second one to compare sets.
        candidates: Random bootstrapped sets to choose from (``search``), beside one set in the order of the
            examples, the labeled examples, and no demonstrations.
        threads: Held-out examples answered at the same time (``search``).

    Raises:
        ConfigError: There are too few examples to hold some out, no example has an answer to show, or the
            model failed for all of them.
    """
    how, demos = options.how, options.count
    if how == "none":
        return program
    if how == "search" and (len(train) < 2 or candidates < 1):
        raise ConfigError(
            f"expected at least 1 candidate and 2 examples to search, got {candidates} and {len(train)}."
        )
    if how == "labeled":
        labeled = [example for example in train if example.answers]
        if not labeled:
            raise ConfigError("no example has an answer to show; choose bootstrapped demonstrations.")
        return dspy.LabeledFewShot(k=demos).compile(program, trainset=labeled, sample=False)
    shown = demos + options.labeled if options.labeled else 0
    metric = partial(right, keep=options.keep)
    settings = {"metric": metric, "max_bootstrapped_demos": demos, "max_labeled_demos": shown}
    if how == "nearest":
        near = min(4 * demos, len(train))
        return dspy.KNNFewShot(near, list(train), vectors(train), **settings, max_errors=near + 1).compile(
            program
        )
    try:
        with hushed():
            if how == "bootstrap":
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
    """An embedder that compares questions by TF-IDF vectors, fitted on the examples; nothing is cached."""
    fitted = TfidfVectorizer(sublinear_tf=True).fit([example.question for example in train])

    def embed(texts: Sequence[str]) -> Any:
        return np.asarray(fitted.transform(list(texts)).toarray(), dtype=np.float32)

    return dspy.Embedder(embed, caching=False)


@contextmanager
def hushed() -> Iterator[None]:
    """Within this block the process prints nothing: DSPy's optimizers print every step."""
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        yield
