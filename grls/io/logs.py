"""Keeps notes of other libraries out of the output of commands. It imports next to nothing."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager


def quiet() -> None:
    """Silence notes that are not for users; warnings and errors that matter stay."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    from transformers.utils import logging as transformers_logging

    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
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
def without_warnings() -> Iterator[None]:
    """A context in which our own warnings are not printed: what they are about is thrown away."""
    log = logging.getLogger("grls")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)
