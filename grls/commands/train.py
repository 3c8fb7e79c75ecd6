"""``grls train``: one stage of a generator, by LightningCLI."""

from __future__ import annotations

from collections.abc import Sequence


def train(arguments: Sequence[str]) -> None:
    """Train a stage; :mod:`grls.train.cli` parses the arguments.

    Args:
        arguments: Those behind the verb.
    """
    from grls.train.cli import train as fit

    fit(arguments)
