"""What a beam search considers at each token: probabilities, what the constraint allows, and what is dropped.

The search runs once more with a recorder, so a search that nobody watches costs nothing. The evidence before
the hop is fixed. Of the candidates of a step only the best are listed, so a trace is bounded.

Legend: A candidates of a step, R beams that they continue, K beam width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from grls.data.codec import DONE, DONE_ID
from grls.data.corpus import Corpus
from grls.data.filters import Filter
from grls.data.types import Passage, Query, ScoreMode
from grls.decode.beam import BeamStep, Decoder
from grls.decode.prior import Masses, Prior
from grls.decode.scope import Scope
from grls.decode.select import ragged_logsumexp
from grls.decode.trace import Fate, fate_of
from grls.errors import ConfigError, DataError
from grls.explain.options import TEXT_ALONE, candidates_listed, hops_of
from grls.index.rows import Ints
from grls.index.subset import Subset
from grls.io.locks import exclusive
from grls.io.progress import counted
from grls.models.base import Floats, GeneratorModel, Session
from grls.retrieve.base import DecodesPassages, Retriever, no_beam, single_steps
from grls.retrieve.hops.stop import Never, StopRule, stop_of_hop

if TYPE_CHECKING:
    from grls.retrieve.generative.retriever import GenerativeRetriever

MOST_STEPS = 256
"""Steps of a search that are listed."""
LISTED = 24
"""Candidates of a step that are listed, where nothing says how many."""


class TracedBeam(NamedTuple):
    """A prefix that a step continues.

    Attributes:
        parent: Its index among the listed candidates of the step before; None at the first step, or where
            that candidate is not listed.
        allowed: Number of tokens that the constraint allows after it.
        mass: The probability that the model gives to all allowed tokens together, within its vocabulary.
    """

    parent: int | None
    allowed: int
    mass: float


class TracedToken(NamedTuple):
    """A candidate: a token that may continue a prefix. All logarithms are natural.

    Attributes:
        beam: The prefix that it continues: its index among the beams of the step.
        token: The token as the tokenizer writes it.
        full: Log-probability of the token within the vocabulary.
        constrained: Log-probability of the token among the allowed tokens.
        prior: The share of the priors in the score; None without priors.
        score: Score of the prefix with this token, by which candidates are ranked.
        passages: Number of different passages that begin so, and may be found.
        fate: Its end in the search; see :data:`grls.decode.trace.Fate`.
        unique: It is finished because one passage alone begins so, before its last token.
        found: Ids of the passages that it finishes.
    """

    beam: int
    token: str
    full: float
    constrained: float
    prior: float | None
    score: float
    passages: int
    fate: Fate
    unique: bool
    found: tuple[str, ...]


class TracedStep(NamedTuple):
    """A step of the search.

    Attributes:
        beams: The prefixes that it continues.
        tokens: The listed candidates, best first. Those within the beam width come before others where not
            all can be listed.
        candidates: Number of all candidates.
    """

    beams: tuple[TracedBeam, ...]
    tokens: tuple[TracedToken, ...]
    candidates: int


class TracedResult(NamedTuple):
    """A passage that the search returns; ``DONE`` is one of them where the model may end the chain."""

    id: str
    title: str
    text: str
    score: float


class BeamTrace(NamedTuple):
    """A search for the next passage of a query.

    Attributes:
        evidence: Ids of the passages before.
        beams: Beam width K.
        k: Passages that the search returns.
        early_stop: Whether a unique prefix ends a beam.
        vocabulary: Number of tokens of the model.
        passages: Number of different passages that may be found.
        stop: The stop rule, whose bias on DONE hops add after the search.
        rescored: Number of results that are rescored after the search.
        steps: The steps; none where one passage alone may be found.
        cut: The search has further steps.
        results: The passages that the search returns, best first.
    """

    evidence: tuple[str, ...]
    mode: ScoreMode
    beams: int
    k: int
    early_stop: bool
    vocabulary: int
    passages: int
    stop: StopRule
    rescored: int
    steps: tuple[TracedStep, ...]
    cut: bool
    results: tuple[TracedResult, ...]


def trace_beam(
    retriever: Retriever,
    query: str,
    evidence: Sequence[str] = (),
    allow: Filter | None = None,
    k: int | None = None,
    most: int = LISTED,
) -> BeamTrace:
    """Search for the next passage of a query, and record what the beam considers.

    Args:
        retriever: A retriever that decodes passages, alone, with priors or hop by hop.
        query: The query.
        evidence: Ids of the passages of the hops before.
        allow: The filter.
        k: Passages to return; None: as many as a hop takes, or 10.
        most: Candidates of a step that are listed.
    """
    reason = no_beam(retriever)
    if reason is not None:
        raise ConfigError(reason)
    inner, hops = single_steps(retriever), hops_of(retriever)
    assert isinstance(inner, DecodesPassages)
    generator: GenerativeRetriever = inner.generator
    with exclusive(generator.model):
        stop = stop_of_hop(inner, hops)
        next_query, may_end = Query(TEXT_ALONE, query), stop.may_end(len(evidence))
        numbers = passage_numbers(generator.corpus, evidence, label="evidence")
        if k is None:
            k = max(candidates_listed(hops), generator.widest if stop.bias else 0)
        model_input, hidden, prior = prepared_hop(inner, next_query, numbers, may_end, hops.repeat)
        (subset,) = generator.subsets([next_query], allow)
        decoder = generator.decoder(k)
        recorder = RecordingModel(decoder.generator)
        steps: list[BeamStep] = []
        recorded = replace(decoder, generator=recorder, observer=steps.append)
        (hits,) = recorded.search((model_input,), k, (hidden,), (subset,), prior=prior)
        listing = _Listing(generator, decoder, (hidden,), subset, prior, most)
        return BeamTrace(
            evidence=tuple(evidence),
            mode=decoder.mode,
            beams=decoder.beams,
            k=k,
            early_stop=decoder.stops_early,
            vocabulary=int(generator.model.config.vocab_size),
            passages=int(listing.remaining(np.array([decoder.index.start()]))[0]),
            stop=stop if may_end else Never(),
            rescored=generator.options.rescore,
            steps=listing.steps(steps[:MOST_STEPS], recorder.steps),
            cut=len(steps) > MOST_STEPS,
            results=tuple(listing.result(hit.passage, hit.score) for hit in hits),
        )


def prepared_hop(
    retriever: DecodesPassages, query: Query, evidence: Sequence[int], may_end: bool, repeat: bool
) -> tuple[Sequence[int], list[int], Prior | None]:
    """The input of the model, the passages that may not come next, and the priors of a hop."""
    generator: GenerativeRetriever = retriever.generator
    generator.model.eval()
    model_input = generator.hop_input(query, generator.encode([query])[0], evidence)
    hidden = [*([] if repeat else evidence), *([] if may_end else [generator.done])]
    return model_input, hidden, retriever.priors_of([query], [generator.corpus.passages(evidence)])


def passage_or_done(generator: GenerativeRetriever, number: int) -> Passage:
    """A passage by its number, which may be that of DONE."""
    return Passage(DONE_ID, DONE) if number == generator.done else generator.corpus[number]


def passage_numbers(
    corpus: Corpus, ids: Sequence[str], done: int | None = None, label: str = "gold"
) -> list[int]:
    """The numbers of passages; ``done`` is that of DONE, if it may be there; ``label`` begins the error."""
    known: list[int] = []
    for name, number in zip(ids, corpus.numbers(ids), strict=True):
        number = done if number is None and name == DONE_ID else number
        if number is None:
            raise DataError(
                f"{label}: the passage id {name!r} is not in the retriever's corpus "
                f"({counted(len(corpus), 'passage')}); give another id, or build the retriever again with "
                "`grls index`."
            )
        known.append(number)
    return known


@dataclass
class _Listing:
    generator: GenerativeRetriever
    decoder: Decoder
    exclude: Sequence[Sequence[int]]
    subset: Subset | None
    prior: Prior | None
    most: int

    def __post_init__(self) -> None:
        self._scope = Scope(self.decoder.index, 1, self.exclude, [self.subset])
        self._masses: Masses | None = None
        if self.prior is not None:
            self._masses = Masses(self.prior, self.decoder.index, self._scope, 1)
            self._masses.load(np.zeros(1, np.int64))

    def steps(self, steps: Sequence[BeamStep], recorded: Sequence[RecordedStep]) -> tuple[TracedStep, ...]:
        listed: list[TracedStep] = []
        codec, end = self.generator.codec, self.decoder.index.rows.end
        parents: list[int | None] = [None]  # of each beam among the listed candidates of the step before
        for step, scores in zip(steps, recorded, strict=False):
            best = np.argsort(-step.scores, kind="stable")
            within = np.isin(best, np.concatenate((step.chosen.live, step.chosen.finished)))
            first = np.concatenate((best[within], best[~within]))[: self.most]
            order = best[np.isin(best, first)]  # the listed candidates, best first
            offsets = np.searchsorted(step.parents, np.arange(len(parents) + 1))
            logits, none = scores.logits.astype(np.float64), np.zeros(len(step.states), np.int64)
            allowed: Floats = ragged_logsumexp(logits, offsets)
            full, constrained = logits - scores.normalizers[step.parents], logits - allowed[step.parents]
            gains = None if self._masses is None else self._masses.gains(none, step.states, offsets)
            tokens = []
            for n, remaining in zip(order.tolist(), self.remaining(step.states[order]).tolist(), strict=True):
                found: tuple[str, ...] = ()
                if n in step.chosen.finished:
                    (numbers,) = self._scope.passages(none[:1], step.states[[n]], self.decoder.beams)
                    found = tuple(self.result(number, 0.0).id for number in numbers)
                tokens.append(
                    TracedToken(
                        beam=int(step.parents[n]),
                        token=str(codec.tokenizer.convert_ids_to_tokens(int(step.tokens[n]))),
                        full=float(full[n]),
                        constrained=float(constrained[n]),
                        prior=None if gains is None else float(gains[n]),
                        score=float(step.scores[n]),
                        passages=remaining,
                        fate=fate_of(step, n),
                        unique=bool(step.complete[n]) and int(step.tokens[n]) != end,
                        found=found,
                    )
                )
            masses = np.minimum(1.0, np.exp(allowed - scores.normalizers)).tolist()
            beams = map(TracedBeam, parents, np.diff(offsets).tolist(), masses)
            listed.append(TracedStep(tuple(beams), tuple(tokens), len(step.scores)))
            indexes = {candidate: n for n, candidate in enumerate(order.tolist())}
            parents = [indexes.get(candidate) for candidate in step.live.tolist()]
        return tuple(listed)

    def result(self, number: int, score: float) -> TracedResult:
        passage = passage_or_done(self.generator, number)
        return TracedResult(passage.id, passage.title, passage.text, score)

    def remaining(self, states: Ints) -> Ints:
        """Number of different passages under each state that may be found."""
        return self._scope.remaining(np.zeros(len(states), np.int64), *self.decoder.index.span(states))


class RecordedStep(NamedTuple):
    """The scores of the model for one step. R rows (beams), A (row, token) pairs, V vocabulary.

    Attributes:
        rows: ``[A]`` the beam of each allowed token.
        logits: ``[A]`` the logit of each allowed token.
        normalizers: ``[R]`` log of the sum of exponentials of all V logits of each beam.
    """

    rows: Ints
    logits: Floats
    normalizers: Floats


class RecordingModel:
    """A model and its one session in :class:`grls.decode.beam.Decoder`, whose logits are recorded.

    It also records the normalizer over the vocabulary, which a search with ``renormalized`` scores does not
    need. See :class:`grls.models.base.GeneratorModel` and :class:`grls.models.base.Session`.
    """

    def __init__(self, model: GeneratorModel):
        self._model = model
        self.steps: list[RecordedStep] = []

    def open(self, inputs: Sequence[Sequence[int]]) -> Session:
        self._session = self._model.open(inputs)
        return self

    def first(self) -> None:
        self._session.first()

    def step(self, parents: Ints, tokens: Ints) -> None:
        self._session.step(parents, tokens)

    def logits(self, rows: Ints, tokens: Ints) -> Floats:
        logits = self._session.logits(rows, tokens)
        self.steps.append(RecordedStep(rows, logits, self._session.log_normalizer()))
        return logits

    def log_normalizer(self) -> Floats:
        return self.steps[-1].normalizers
