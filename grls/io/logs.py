"""Keeps notes of other libraries out of the output of commands. It imports next to nothing."""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from threading import Lock
from typing import Any

_lock = Lock()
_contexts: list[Callable[[], None]] = []
"""One entry for each open context of :func:`without_weight_bars`: what shows the bars again."""


def quiet() -> None:
    """Silence notes that are not for users; warnings and errors that matter stay.

    transformers takes half a second to import, and a search by BM25 needs none of it. So a process that has
    not imported it finds the settings in the environment.
    """
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    if "transformers" in sys.modules:
        from transformers.utils import logging as transformers_logging

        transformers_logging.set_verbosity_error()
        transformers_logging.disable_progress_bar()
    else:
        os.environ |= {"TRANSFORMERS_VERBOSITY": "error", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
        if "huggingface_hub" in sys.modules:  # it has read its environment
            from huggingface_hub.utils.tqdm import disable_progress_bars

            disable_progress_bars()
    for name in ("lightning.pytorch.utilities.rank_zero", "lightning.fabric.utilities.seed"):
        logging.getLogger(name).setLevel(logging.WARNING)
    # We pass arguments to LightningCLI on purpose, and our data modules resume within an epoch, though their
    # loaders cannot. The other two warnings concern the inside of Lightning and small machines.
    for message in (
        "LightningCLI's args parameter",
        "You're resuming from a checkpoint that ended before the epoch ended",
        ".*LeafSpec.* is deprecated",
        ".*does not have many workers.*",
    ):
        warnings.filterwarnings("ignore", message)


@contextmanager
def without_weight_bars() -> Iterator[None]:
    """A context in which transformers draws no progress bar while it reads or writes weights.

    Bars of downloads stay as they are. Contexts may overlap, also those of several threads: the bars return
    when the last one ends.
    """
    with _lock:
        _contexts.append(_contexts[0] if _contexts else _hide_bars())
    try:
        yield
    finally:
        with _lock:
            show = _contexts.pop()
            if not _contexts:
                show()


def _hide_bars() -> Callable[[], None]:
    """Hide the bars; what is returned shows them again."""
    from huggingface_hub.utils.tqdm import (
        are_progress_bars_disabled,
        disable_progress_bars,
        enable_progress_bars,
    )
    from transformers.utils import logging as transformers_logging

    gguf: Any = import_module("transformers.modeling_gguf_pytorch_utils")
    bar, shown = getattr(gguf, "tqdm", None), transformers_logging.is_progress_bar_enabled()
    downloads = not are_progress_bars_disabled()
    transformers_logging.disable_progress_bar()  # hides those of downloads as well
    if downloads:
        enable_progress_bars()
    if bar is not None:
        gguf.tqdm = partial(bar, disable=True)

    def show() -> None:
        if bar is not None:
            gguf.tqdm = bar
        if shown:
            transformers_logging.enable_progress_bar()  # shows those of downloads as well
            if not downloads:
                disable_progress_bars()

    return show


@contextmanager
def without_warnings() -> Iterator[None]:
    """A context in which our own warnings are not printed: what they are about is thrown away."""
    log = logging.getLogger("grls")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)
