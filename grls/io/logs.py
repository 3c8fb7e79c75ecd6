"""Keeping other libraries' notes out of our commands' output. It imports next to nothing."""

from __future__ import annotations

import logging
import os
import warnings


def quiet() -> None:
    """Silence what is not for users; warnings and errors of consequence stay."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    from transformers.utils import logging as transformers_logging

    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    logging.getLogger("lightning.pytorch.utilities.rank_zero").setLevel(logging.WARNING)
    # We pass LightningCLI the arguments on purpose; our data modules resume mid-epoch though their loaders
    # cannot; the others are Lightning's own affair or a matter of a small machine.
    for message in (
        "LightningCLI's args parameter",
        "You're resuming from a checkpoint that ended before the epoch ended",
        ".*LeafSpec.* is deprecated",
        ".*does not have many workers.*",
    ):
        warnings.filterwarnings("ignore", message)
