"""Demonstrations for a program: DSPy's optimizers with our queries and our measure.

What counts as a correctly answered example says :func:`right`. The output that DSPy prints is hidden. The
module does not know the programs.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import partial
from typing import Any

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer

from grls.answer.dsp.needed import dspy
from grls.answer.dsp.options import DemonstrationOptions, How, Keep
from grls.data.dataset import turns_of
from grls.data.types import Query
from grls.errors import ConfigError, DataError, GrlsError
from grls.evaluation.metrics.answer_f1 import answer_scores, share_within
from grls.evaluation.metrics.answer_recall import contains_answer


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
            return _compiled(program, how, list(train), settings, candidates, threads)
    except GrlsError:
        raise
    except Exception as error:  # DSPy goes on if an example fails, and raises if all fail
        raise ConfigError(f"no example could be answered: {' '.join(str(error).split())}") from error


def _compiled(
    program: Any, how: How, train: list[Any], settings: dict[str, Any], candidates: int, threads: int
) -> Any:
    if how == "bootstrap":
        return dspy.BootstrapFewShot(**settings, max_errors=len(train)).compile(program, trainset=train)
    least = settings["max_bootstrapped_demos"]  # for the set of labeled examples
    settings |= {"max_labeled_demos": max(least, settings["max_labeled_demos"])}
    search = dspy.BootstrapFewShotWithRandomSearch(
        **settings,
        num_candidate_programs=candidates,
        num_threads=threads,
        max_errors=len(train) // 2,
    )
    return search.compile(program, trainset=train[::2], valset=train[1::2])


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
