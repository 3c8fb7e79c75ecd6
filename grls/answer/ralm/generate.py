"""Text written with retrieval: a new retrieval every s tokens (arXiv 2302.00083, generation).

Within a stride the model continues from its cache. For the next stride the documents before the text may
change, and then everything behind them is computed again. transformers' ``generate`` does the writing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from grls.answer.ralm.choose import Oracle
from grls.answer.ralm.reader import InContextRalm
from grls.answer.ralm.strides import Stride
from grls.errors import ConfigError, at_least
from grls.io.turns import turn
from grls.models.load.language import end_tokens


class RalmContinuation(NamedTuple):
    """The continuation of a prompt.

    Attributes:
        text: The text.
        passages: For each stride the ids of the documents before it.
        ended: False if the length limit cut the text.
    """

    text: str
    passages: tuple[tuple[str, ...], ...]
    ended: bool


def continue_texts(
    ralm: InContextRalm, prompts: Sequence[str | Sequence[int]], max_new_tokens: int, **sampling: Any
) -> list[RalmContinuation]:
    """Continue several prompts together.

    Args:
        ralm: Model, retriever and options.
        prompts: The texts, or their token ids: a text that was cut at a token may end within a character.
        max_new_tokens: Most tokens to write.
        **sampling: Options of transformers' ``generate`` (``do_sample``, ``temperature``, …); greedy by
            default.

    Raises:
        ConfigError: A prompt is empty, ``max_new_tokens`` is not positive, or the chooser is the oracle.
    """
    at_least(1, max_new_tokens=max_new_tokens)
    if isinstance(ralm.chooser, Oracle):
        raise ConfigError("the oracle needs the text that is still to be written; choose another reranking.")
    written = [ralm.tokens(prompt) if isinstance(prompt, str) else list(prompt) for prompt in prompts]
    if not all(written):
        raise ConfigError("a prompt is empty; there is nothing to retrieve for, or to continue.")
    begins = [len(tokens) for tokens in written]
    passages_of: list[list[tuple[str, ...]]] = [[] for _ in prompts]
    ended = [False] * len(prompts)
    ends = end_tokens(ralm.model, ralm.tokenizer)
    for done in range(0, max_new_tokens, ralm.options.stride):
        live = [n for n, over in enumerate(ended) if not over]
        if not live:
            break
        count = min(ralm.options.stride, max_new_tokens - done)
        inputs = []
        for n in live:
            stride = Stride(len(written[n]), len(written[n]) + count)
            names = ralm.documents_for(written[n], [stride])[0]
            passages_of[n].append(tuple(ralm.corpus.ids(list(names))) if ralm.corpus is not None else ())
            start = ralm.scorer.start(names, stride.last)
            inputs.append([*ralm.scorer.before(names), *written[n][start:]])
        for n, tokens in zip(live, _write(ralm, inputs, count, ends, sampling), strict=True):
            stop = next((place for place, token in enumerate(tokens) if token in ends), None)
            written[n] += tokens if stop is None else tokens[:stop]
            ended[n] = stop is not None
    return [
        RalmContinuation(ralm.tokenizer.decode(tokens[begin:]), tuple(passages), over)
        for tokens, begin, passages, over in zip(written, begins, passages_of, ended, strict=True)
    ]


@torch.inference_mode()
def _write(
    ralm: InContextRalm, inputs: Sequence[Sequence[int]], count: int, ends: set[int], sampling: dict[str, Any]
) -> list[list[int]]:
    """Up to ``count`` tokens behind each input, padded on the left."""
    device = ralm.model.device
    width = max(len(tokens) for tokens in inputs)
    filling = next(iter(ends), 0)
    ids = torch.tensor([[filling] * (width - len(tokens)) + list(tokens) for tokens in inputs], device=device)
    mask = torch.tensor([[0] * (width - len(tokens)) + [1] * len(tokens) for tokens in inputs], device=device)
    options = {"do_sample": False, "pad_token_id": filling, **sampling}
    with turn(ralm.model):
        output = ralm.model.generate(input_ids=ids, attention_mask=mask, max_new_tokens=count, **options)
    rows: list[list[int]] = output[:, width:].tolist()
    return rows
