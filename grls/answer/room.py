"""Which prompts a model has room for.

A prompt that is too long stops its query only: an error is logged, nothing is written for the query, and the
others go on. If even the prompt without a question is too long, no query could be answered, and the run is
refused. The module does not know what a prompt says.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from grls.errors import ConfigError
from grls.models.positions import positions_in

log = logging.getLogger(__name__)


def room_of(model: Any, new_tokens: int) -> int | None:
    """Most tokens of a prompt; None if the model has no limit.

    Args:
        model: A transformers model; an encoder-decoder has its positions twice, for prompt and output.
        new_tokens: Most tokens of the output.
    """
    most = positions_in(model.config)
    if most is None:
        return None
    if model.config.is_encoder_decoder:
        return most if new_tokens <= most else 0
    return max(0, most - new_tokens)


def too_long(
    names: Sequence[str],
    prompts: Sequence[Sequence[int]],
    room: int | None,
    new_tokens: int,
    least: Callable[[], Sequence[int]],
) -> dict[int, str]:
    """The prompts that a model has no room for; an error is logged for each.

    Args:
        names: The purpose of each prompt, such as ``the query 'q1'``.
        prompts: Token ids of each prompt.
        room: Most tokens of a prompt; None for no limit.
        new_tokens: Most tokens of the output.
        least: Makes the prompt without a question; called only if a prompt is too long.

    Returns:
        Place of each such prompt -> why nothing is written.

    Raises:
        ConfigError: Even ``least`` is too long.
    """
    if room is None:
        return {}
    reasons = {
        place: f"its prompt takes {len(tokens)} tokens, but the model has room for {room} beside "
        f"{new_tokens} new ones"
        for place, tokens in enumerate(prompts)
        if len(tokens) > room
    }
    if reasons and (shortest := len(least())) > room:
        raise ConfigError(
            f"the prompt takes {shortest} tokens before anything is asked, but the model has room for {room} "
            f"beside {new_tokens} new ones: lower max_new_tokens, or take another model."
        )
    for name, why in dict.fromkeys((names[place], why) for place, why in reasons.items()):
        log.error("nothing is written for %s: %s.", name, why)
    return reasons
