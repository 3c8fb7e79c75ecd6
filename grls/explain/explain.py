"""Gathers the facts about one query and one gold passage: why it was found, or why not.

The retriever's decoder searches once more, and a trace records the search. The evidence before the hop is
fixed (gold evidence, or the passages of a chain), so one hop is explained at a time, as in teacher-forced
retrieval.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from grls.data.codec import DONE, DONE_ID
from grls.data.types import Query
from grls.decode.trace import PathStep, TokenScore, follow
from grls.errors import DataError, at_least
from grls.explain.facts import Ending, Explanation, PathRow, Preferred, Result
from grls.explain.searches import Score, Searches
from grls.explain.tree import Tree, beam_tree
from grls.explain.verdict import Judgement, judge
from grls.io.turns import turn
from grls.retrieve.base import DecodesPassages
from grls.retrieve.generative.retriever import GenerativeRetriever
from grls.retrieve.hops.stop import Never, StopRule


@dataclass
class Explainer:
    """Explains misses of a retriever that decodes passages, alone or with priors.

    Args:
        retriever: The retriever, with its options (beam width, score mode).
        k: Passages a hop.
        widest: Widest beam to try when the beam lost a passage.
        exhaustive: Score every passage of the corpus, for the true rank; slow on a large corpus.
        stop: Says from which hop on DONE may be written, and has its bias.

    Raises:
        ConfigError: k is not positive.
    """

    retriever: DecodesPassages
    k: int = 10
    widest: int = 128
    exhaustive: bool = False
    stop: StopRule = field(default_factory=Never)

    def __post_init__(self) -> None:
        at_least(1, k=self.k)

    @property
    def generator(self) -> GenerativeRetriever:
        """The generative retriever that decodes the passages."""
        generator: GenerativeRetriever = self.retriever.generator
        return generator

    def explain(self, query: Query, gold: Sequence[str], evidence: Sequence[str] = ()) -> list[Explanation]:
        """Explain one hop of a query, one gold passage after the other.

        Args:
            query: The query.
            gold: Ids of gold passages of this hop; ``DONE`` if the chain should have ended.
            evidence: Ids of the passages of the hops before.

        Raises:
            DataError: An id is not in the corpus, or the query is empty or too long.
        """
        numbers = self._numbers([*gold, *evidence])
        with turn(self.generator.model):
            searches = self._searches(query, numbers[: len(gold)], numbers[len(gold) :])
            return [self._one(searches, query, tuple(evidence), n) for n in numbers[: len(gold)]]

    def judge(
        self, query: Query, gold: Sequence[str], evidence: Sequence[str] = ()
    ) -> list[tuple[Judgement, int | None]]:
        """The verdict of each passage, with the step (from 1) at which it left the beam, or None."""
        numbers = self._numbers([*gold, *evidence])
        with turn(self.generator.model):
            searches = self._searches(query, numbers[: len(gold)], numbers[len(gold) :])
            judged = []
            for number in numbers[: len(gold)]:
                gone = [n for n, s in enumerate(_path(searches, number), 1) if s.fate in ("pruned", "beaten")]
                judgement = judge(searches, number, self.generator.done, self.widest, self.exhaustive)
                judged.append((judgement, gone[0] if gone else None))
            return judged

    def _numbers(self, ids: Sequence[str]) -> list[int]:
        numbers = self.generator.corpus.numbers(ids)
        known = []
        for name, number in zip(ids, numbers, strict=True):
            if number is None and name != DONE_ID:
                raise DataError(
                    f"gold: the passage id {name!r} is not in the retriever's corpus "
                    f"({len(self.generator.corpus):,} passages); give another id, or build the retriever "
                    "again with `grls index`."
                )
            known.append(self.generator.done if number is None else number)
        return known

    def _searches(self, query: Query, gold: Sequence[int], evidence: Sequence[int]) -> Searches:
        retriever = self.generator
        retriever.model.eval()
        before = retriever.evidence(query.text, evidence)
        model_input = retriever.codec.model_input(retriever.encode([query])[0], before)
        hidden = [*evidence] if self.stop.may_end(len(evidence)) else [*evidence, retriever.done]
        bias = {retriever.done: self.stop.bias} if self.stop.bias else {}
        prior = self.retriever.look_ahead(query, retriever.corpus.passages(evidence))
        searches = Searches(retriever.decoder(self.k), model_input, self.k, hidden, bias, prior)
        searches.forced([n for n in gold if not searches.excluded(n)])  # one pass for all passages
        return searches

    def _one(self, searches: Searches, query: Query, evidence: tuple[str, ...], gold: int) -> Explanation:
        retriever, decoder = self.generator, searches.decoder
        judgement = judge(searches, gold, retriever.done, self.widest, self.exhaustive)
        score = None if searches.excluded(gold) else searches.score(gold)
        path = _path(searches, gold)
        returned = [hit.passage for hit in searches.trace.found]
        return Explanation(
            query=query,
            evidence=evidence,
            gold=self._names([gold])[0],
            gold_text=self._texts([gold])[0],
            mode=decoder.mode,
            early_stop=decoder.stops_early,
            beams=decoder.beams,
            k=self.k,
            done_bias=searches.bias.get(retriever.done, 0.0),
            judgement=judgement,
            rank=returned.index(gold) + 1 if gold in returned else None,
            score=None if score is None else score.score,
            complete=None if score is None else score.complete,
            path=tuple(self._row(n, step) for n, step in enumerate(path, start=1)),
            tokens=len(retriever.index.tokens(gold)),
            results=self._results(searches, score),
            done=self._ending(searches, gold, score),
            twins=tuple(self._names(searches.twins(gold))),
            cut_tokens=self._cut(gold),
            tree=self._tree(searches, path),
            priors=searches.prior is not None,
        )

    def _results(self, searches: Searches, gold: Score | None) -> tuple[Result, ...]:
        returned = searches.trace.found
        numbers = [hit.passage for hit in returned]
        bar = float("-inf") if gold is None else gold.score
        rows = zip(
            returned, self._names(numbers), self._texts(numbers), searches.scores(numbers), strict=True
        )
        return tuple(
            Result(rank, name, text, hit.score, exact.complete, hit.score >= bar)
            for rank, (hit, name, text, exact) in enumerate(rows, start=1)
        )

    def _ending(self, searches: Searches, gold: int, score: Score | None) -> Ending | None:
        done = self.generator.done
        if gold == done or searches.excluded(done):
            return None
        done_score = searches.score(done).score
        returned = [hit.passage for hit in searches.trace.found]
        rank = returned.index(done) + 1 if done in returned else None
        return Ending(done_score, rank, score is not None and done_score > score.score)

    def _tree(self, searches: Searches, path: tuple[PathStep, ...]) -> Tree:
        def passages(state: int) -> list[int]:
            under = searches.decoder.index.passages(state).tolist()
            return [p for p in under if not searches.excluded(p)]

        return beam_tree(searches.trace, path, self._token, passages, self._names)

    def _row(self, number: int, step: PathStep) -> PathRow:
        token: TokenScore = step.token
        preferred = tuple(Preferred(self._token(r.token), r.log_probability) for r in token.rivals)
        return PathRow(
            number, self._token(token.token), token.log_probability, step.score, token.allowed, step.fate,
            step.rank, step.best, step.bar, step.margin, preferred,
        )  # fmt: skip

    def _token(self, token: int) -> str:
        return str(self.generator.codec.tokenizer.convert_ids_to_tokens(token))

    def _names(self, numbers: Sequence[int]) -> list[str]:
        """Ids of passages, including DONE."""
        done = self.generator.done
        ids = iter(self.generator.corpus.ids([n for n in numbers if n != done]))
        return [DONE_ID if n == done else next(ids) for n in numbers]

    def _texts(self, numbers: Sequence[int]) -> list[str]:
        done = self.generator.done
        passages = iter(self.generator.corpus.passages([n for n in numbers if n != done]))
        return [DONE if n == done else _shown(*next(passages)[1:]) for n in numbers]

    def _cut(self, gold: int) -> int:
        """Number of tokens of a passage beyond the length limit."""
        if gold == self.generator.done:
            return 0
        passage, codec = self.generator.corpus[gold], self.generator.codec
        texts = [t for t in (passage.title, passage.text) if t]
        whole = sum(map(len, codec.texts(texts))) + bool(passage.title)
        return max(0, whole - codec.limits.passage)


def _shown(text: str, title: str) -> str:
    return f"{title}: {text}" if title else text


def _path(searches: Searches, gold: int) -> tuple[PathStep, ...]:
    return () if searches.excluded(gold) else follow(searches.trace, searches.forced([gold])[0])
