"""A language model continues prompts: many at once, to a stop string or an end token.

It writes greedily, or it draws. Each prompt has its own seed, so its draw does not depend on the batch
(but for rounding). transformers' ``generate`` does the work. B prompts of a batch, L tokens of the
longest, T tokens written.
"""

from __future__ import annotations

import copy
import logging
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from transformers import (
    DynamicCache,
    LogitsProcessor,
    LogitsProcessorList,
    StoppingCriteria,
    StoppingCriteriaList,
    TopPLogitsWarper,
)

from grls.data.codec import tokenizer_fingerprint
from grls.data.corpus import Corpus
from grls.data.dataset import Qrels, first_queries, read_split
from grls.data.types import Query
from grls.errors import ConfigError
from grls.io.files import refuse_unwritable
from grls.io.locks import exclusive
from grls.models.base import cache_argument, positions_in
from grls.models.load.language import end_tokens, model_fingerprint
from grls.models.load.opening import refuse_larger_tokenizer
from grls.runs.portions import RunInfo, fingerprint_queries

log = logging.getLogger(__name__)


class Continuation(NamedTuple):
    """The continuation of a prompt.

    Attributes:
        text: The text up to the stop string or the end, without white space around it.
        tokens: The tokens written, stop string and end token included.
        ended: False if the length limit cut the text.
        scores: The log-probability (nats) of each token under the model, whatever the temperature of the
            draw; empty unless asked for.
    """

    text: str
    tokens: tuple[int, ...]
    ended: bool
    scores: tuple[float, ...] = ()


class Sampling(NamedTuple):
    """How a continuation is drawn instead of written greedily.

    The same prompt and ``seed`` give the same text. ``top_p``: draw only from the likeliest tokens, as
    many as have this probability together (nucleus sampling).
    """

    temperature: float
    seed: int
    top_p: float = 1.0


@dataclass
class Spent:
    """The work of a writer so far: calls of ``generate``, one a batch, and tokens without padding.

    ``cut``: passages that readers left out because the model has no room for them.
    """

    prompts: int = 0
    calls: int = 0
    tokens_read: int = 0
    tokens_written: int = 0
    cut: int = 0


class Drawn(LogitsProcessor):
    """Noise that makes the best token of a row a draw from its distribution (the Gumbel-max trick).

    The greatest of l_v / T + g_v, where l are the logits and the g_v are independent draws from the
    standard Gumbel distribution, is token v with probability softmax(l / T)_v.
    """

    def __init__(self, draws: Sequence[Sampling | None]):
        self.draws = draws
        self.generators = [torch.Generator().manual_seed(draw.seed) if draw else None for draw in draws]

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Logits with noise, ``[B, V]``; rows that are not drawn stay as they are."""
        drawn = scores.clone()
        for row, (draw, generator) in enumerate(zip(self.draws, self.generators, strict=True)):
            if draw is not None:
                noise = torch.empty(scores.shape[1]).exponential_(generator=generator).log_().neg_()  # [V]
                likely = scores[row : row + 1] / draw.temperature  # [1, V]
                if draw.top_p < 1:
                    likely = TopPLogitsWarper(draw.top_p)(None, likely)
                drawn[row] = likely[0] + noise.to(scores.device)
        return drawn


class RefuseNaNLogits(LogitsProcessor):
    """Refuses logits that are not numbers: an output written from them is no answer."""

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        if not bool((scores < torch.inf).all()):
            raise ConfigError(
                "the model's logits are not numbers (NaN or infinite): its weights are damaged or overflow. "
                "T5 overflows in float16: use bfloat16 or float32."
            )
        return scores


class StoppedRows(StoppingCriteria):
    """Ends the rows whose new tokens, from ``start`` on, are complete."""

    def __init__(self, complete: Callable[[list[int]], bool], start: int):
        self.complete = complete
        self.start = start

    def __call__(self, input_ids: torch.Tensor, scores: Any, **_: Any) -> torch.Tensor:
        stopped = [self.complete(row) for row in input_ids[:, self.start :].tolist()]
        return torch.tensor(stopped, device=input_ids.device)


def room_of(model: Any, new_tokens: int) -> float:
    """Most tokens of a prompt beside ``new_tokens`` of output; infinite if the model has no limit.

    An encoder-decoder has its positions twice, for prompt and output.
    """
    positions = positions_in(model.config)
    if positions is None:
        return math.inf
    if model.config.is_encoder_decoder:
        return positions if new_tokens <= positions else 0
    return max(0, positions - new_tokens)


@dataclass(eq=False, repr=False)
class TextWriter:
    """Writes continuations by a causal model, or by an encoder-decoder, whose encoder reads the prompt.

    A continuation ends before the first stop string that follows more than white space, or where ``complete``
    says so. A causal model reads ``head``, tokens that prompts begin with, once. ``spent`` counts prompts,
    calls and tokens so far.
    """

    model: Any
    tokenizer: Any
    max_new_tokens: int = 32
    batch_size: int = 8
    stops: Sequence[str] = ("\n",)
    complete: Callable[[str], bool] = lambda text: False
    head: Sequence[int] = ()

    def __post_init__(self) -> None:
        refuse_larger_tokenizer(self.model, self.tokenizer)
        self.spent = Spent()
        self._ends = end_tokens(self.model, self.tokenizer)
        pad = self.tokenizer.pad_token_id
        self._pad = self.tokenizer.eos_token_id if pad is None else pad
        self._cache: DynamicCache | None = None

    @property
    def room(self) -> float:
        return room_of(self.model, self.max_new_tokens)

    def write(
        self,
        prompts: Sequence[Sequence[int]],
        decided: Callable[[int], object] | None = None,
        draws: Sequence[Sampling | None] | None = None,
        scored: bool = False,
    ) -> list[Continuation]:
        """Continue prompts (token ids).

        Args:
            prompts: A causal model does not read an end token behind a prompt: it would write nothing.
            decided: Called with the number of prompts that a batch has finished.
            draws: How each continuation is drawn; None: all greedily.
            scored: Also return the log-probabilities of the tokens.
        """
        draws = [None] * len(prompts) if draws is None else draws
        rows = [list(tokens) for tokens in prompts]
        for row in rows:
            if row and row[-1] == self.tokenizer.eos_token_id and not self.model.config.is_encoder_decoder:
                row.pop()
            if not row:
                raise ConfigError("a prompt has no token; expected a text to continue.")
            if len(row) > self.room:
                raise ConfigError(
                    f"a prompt takes {len(row)} tokens, but the model has room for {self.room} beside "
                    f"{self.max_new_tokens} new ones: shorten it, or lower max_new_tokens."
                )
        continuations: dict[int, Continuation] = {}
        order = sorted(range(len(rows)), key=lambda n: len(rows[n]))  # similar lengths together: less padding
        for first in range(0, len(order), self.batch_size):
            indices = order[first : first + self.batch_size]
            with exclusive(self.model):
                written = self._batch([rows[n] for n in indices], [draws[n] for n in indices], scored)
            continuations |= zip(indices, written, strict=True)
            if decided is not None:
                decided(len(indices))
        return [continuations[n] for n in range(len(rows))]

    def write_each(
        self,
        names: Sequence[str],
        prompts: Sequence[Sequence[int]],
        least: Callable[[], Sequence[int]],
        decided: Callable[[int], object] | None = None,
        draws: Sequence[Sampling | None] | None = None,
    ) -> list[Continuation | str]:
        """Continue prompts as :meth:`write` does; one that is too long gets the reason (:func:`too_long`)."""
        reasons = too_long(names, prompts, self.room, self.max_new_tokens, least, decided)
        rows = [row for row in range(len(prompts)) if row not in reasons]
        chosen = None if draws is None else [draws[row] for row in rows]
        written = dict(zip(rows, self.write([prompts[row] for row in rows], decided, chosen), strict=True))
        return [reasons[row] if row in reasons else written[row] for row in range(len(prompts))]

    @torch.inference_mode()
    def _batch(self, rows: list[list[int]], draws: list[Sampling | None], scored: bool) -> list[Continuation]:
        """Continue the prompts of one batch."""
        encoder = self.model.config.is_encoder_decoder
        cache = self._head_cache(rows)
        longest = max(map(len, rows))
        # Padding stands behind the tokens of the cache, and behind all tokens of an encoder.
        kept = 0 if cache is None else cache.get_seq_length()
        inputs = torch.empty((len(rows), longest), dtype=torch.long)  # [B, L]
        mask = torch.ones_like(inputs)
        for n, row in enumerate(rows):
            first, padding = len(row) if encoder else kept, longest - len(row)
            inputs[n] = torch.tensor([*row[:first], *[self._pad] * padding, *row[first:]])
            mask[n, first : first + padding] = 0
        start = 1 if encoder else longest  # an encoder-decoder's output begins with its start token
        device = self.model.device
        with _settings_of_generate():
            output = self.model.generate(
                input_ids=inputs.to(device), attention_mask=mask.to(device),
                max_new_tokens=self.max_new_tokens,
                do_sample=False, num_beams=1, temperature=None, top_p=None, top_k=None,
                eos_token_id=sorted(self._ends), pad_token_id=self._pad,
                stopping_criteria=StoppingCriteriaList([StoppedRows(lambda row: self._text(row)[1], start)]),
                logits_processor=LogitsProcessorList([RefuseNaNLogits(), *([Drawn(draws)] if any(draws) else
                [])]), return_dict_in_generate=True, output_logits=scored,
                **({} if cache is None else {cache_argument(self.model): cache}),
            )  # fmt: skip
        tokens = output.sequences[:, start:]  # [B, T]
        continuations = []
        for row in tokens.tolist():
            text, stopped = self._text(row)
            written = len(row)
            while written and row[written - 1] == self._pad:
                written -= 1
            end = next((n for n, token in enumerate(row) if token in self._ends), None)
            if end is not None and not stopped:
                written = end + 1
            continuations.append(Continuation(text, tuple(row[:written]), stopped or end is not None))
        if scored:
            steps = zip(output.logits, tokens.T, strict=True)  # T of [B, V] and [B]
            values = [logits.float().log_softmax(-1).gather(1, row[:, None])[:, 0] for logits, row in steps]
            continuations = [
                continuation._replace(scores=tuple(scores[: len(continuation.tokens)]))
                for continuation, scores in zip(continuations, torch.stack(values, 1).tolist(), strict=True)
            ]
        self.spent.prompts += len(rows)
        self.spent.calls += 1
        self.spent.tokens_read += sum(map(len, rows))
        self.spent.tokens_written += sum(len(continuation.tokens) for continuation in continuations)
        return continuations

    def _text(self, row: list[int]) -> tuple[str, bool]:
        """The text of new tokens up to the first stop string, and whether there was one."""
        text = self.tokenizer.decode(row, skip_special_tokens=True).lstrip()
        ends = [end for stop in self.stops if (end := text.find(stop)) >= 0]
        return (text[: min(ends)].rstrip(), True) if ends else (text.rstrip(), self.complete(text))

    def _head_cache(self, rows: list[list[int]]) -> DynamicCache | None:
        """Keys and values of the head that rows share; None if the model has no plain full cache."""
        config = self.model.config
        kinds = set(getattr(config, "layer_types", None) or ()) - {"full_attention"}
        if config.is_encoder_decoder or kinds or getattr(config, "sliding_window", None) is not None:
            return None
        shared = common([[*self.head, -1], *rows])
        if not shared:
            return None
        if self._cache is None or self._cache.get_seq_length() != shared:
            cache = DynamicCache(config=config)
            head = torch.tensor([rows[0][:shared]], device=self.model.device)
            self.model(input_ids=head, use_cache=True, **{cache_argument(self.model): cache})
            if cache.get_seq_length() != shared:  # a model with another kind of cache
                return None
            self._cache = cache
        cache = copy.deepcopy(self._cache)
        cache.batch_repeat_interleave(len(rows))
        return cache


def common(rows: Sequence[Sequence[int]]) -> int:
    """Length of the prefix that all rows share, at most one less than the shortest row."""
    shortest = min(len(row) for row in rows)
    same: Iterator[int] = (n for n in range(shortest - 1) if any(row[n] != rows[0][n] for row in rows))
    return next(same, shortest - 1)


@contextmanager
def _settings_of_generate() -> Iterator[None]:
    """A context that names the file of the settings on which ``generate`` breaks."""
    try:
        yield
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"transformers cannot write with this language model ({error}): see whether its "
            "generation_config.json is that of the source of the model."
        ) from error


def too_long(
    names: Sequence[str],
    prompts: Sequence[Sequence[int]],
    room: float,
    new_tokens: int,
    least: Callable[[], Sequence[int]],
    decided: Callable[[int], object] | None = None,
) -> dict[int, str]:
    """The prompts above ``room`` tokens, by index, and why nothing is written for them; each is logged.

    ``names`` say what a prompt is for, such as ``the query 'q1'``. ``least`` makes the prompt without a
    question; it is called only if a prompt is too long.
    """
    reasons = {
        index: f"its prompt takes {len(tokens)} tokens, but the model has room for {room} beside "
        f"{new_tokens} new ones"
        for index, tokens in enumerate(prompts)
        if len(tokens) > room
    }
    if reasons and (shortest := len(least())) > room:
        raise ConfigError(
            f"the prompt takes {shortest} tokens before anything is asked, but the model has room for {room} "
            f"beside {new_tokens} new ones: lower max_new_tokens, or take another model."
        )
    for name, why in dict.fromkeys((names[index], why) for index, why in reasons.items()):
        log.error("nothing is written for %s: %s.", name, why)
    if decided is not None and reasons:
        decided(len(reasons))
    return reasons


@dataclass(frozen=True)
class Questions:
    data: str
    split: str
    corpus: Corpus
    every: list[Query]
    queries: list[Query]
    qrels: Qrels

    @classmethod
    def read(cls, data: str, split: str, limit: int | None, output: str) -> Questions:
        """Read a data set; an output that cannot be written is refused first."""
        refuse_unwritable(output)
        corpus = Corpus.read(data)
        every, qrels = read_split(data, split, corpus)
        return cls(data, split, corpus, every, first_queries(every, limit), qrels)

    @property
    def fingerprints(self) -> dict[str, str]:
        return {"corpus": self.corpus.fingerprint, "queries": fingerprint_queries(self.every)}

    def info(
        self, system: str, name: str, score_mode: str, seconds: float, options: dict[str, Any]
    ) -> RunInfo:
        return RunInfo(
            system=system,
            name=name,
            steps="single",
            corpus=self.corpus.fingerprint,
            queries=fingerprint_queries(self.queries),
            data=self.data,
            split=self.split,
            score_mode=score_mode,
            seconds=seconds,
            options=options,
            limit=len(self.queries) if len(self.queries) < len(self.every) else None,
        )


def model_settings(model: str, loaded: Any, tokenizer: Any) -> dict[str, Any]:
    return {
        "model": Path(model).name,
        "weights": model_fingerprint(loaded),
        "tokenizer": tokenizer_fingerprint(tokenizer),
    }
