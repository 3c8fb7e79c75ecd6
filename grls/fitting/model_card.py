"""The model card of a run: what was compared, on which data, from which models, and how it was made."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from grls.errors import ConfigError
from grls.fitting.account import account_of
from grls.fitting.models import licence_of, title_of
from grls.fitting.result import Fitted, milliseconds
from grls.io.files import atomic_file
from grls.io.progress import duration
from grls.retrieve.card import CARD, Card, CardOptions
from grls.retrieve.registry import Opening, load_retriever


def write_card(fitted: Fitted, content: dict[str, Any], device: str) -> None:
    """Write ``README.md``.

    Args:
        fitted: The run.
        content: What stands in its ``fit.json``.
        device: Where the retriever is opened, for its description.
    """
    retriever = load_retriever(fitted.output, Opening(device))
    models = content["base_models"]
    language = content["language"]
    said = CardOptions(
        base_models=tuple(name for name in models if _may_be_on_the_hub(name)),
        languages=() if language is None else (language,),
    )
    notes = "\n\n".join(_notes(fitted, content, models))
    name = fitted.output.absolute().name
    card = Card(name, retriever.describe(), len(retriever.corpus), said, fitted.metrics, notes, local=True)
    with atomic_file(fitted.output / CARD) as stream:
        stream.write(card.text)


def _may_be_on_the_hub(name: str) -> bool:
    """Whether a model has the form of a hub name, and is no folder here."""
    try:
        CardOptions(base_models=(name,))
    except ConfigError:
        return False
    return not Path(name).exists()


def _notes(fitted: Fitted, content: dict[str, Any], models: Sequence[str]) -> list[str]:
    sizes = ", ".join(f"{count:,} {split}" for split, count in fitted.queries.items())
    data = content["data"]
    queries = ", ".join(f"{count:,} {split}" for split, count in data["queries"].items())
    lines = [f"Measured on {sizes} queries, in percent. Kept: {fitted.kept}, {fitted.why}."]
    if fitted.query_seconds:
        times = ", ".join(f"{name} {milliseconds(took)}" for name, took in fitted.query_seconds.items())
        lines.append(f"Milliseconds a query, in batches and without loading, where it was made: {times}.")
    lines += ["## Data", f"Queries: {queries}."]
    lines += ["\n".join(f"- {note}" for note in data["notes"])] if data["notes"] else []
    account = account_of(content)
    made = (f"- {what}" + (f" ({took})" if took else "") for what, took in account.done)
    lines += ["## How it was made", "\n".join(made), f"{duration(content['seconds'])} in all."]
    skipped = "\n".join(f"- {name}: {why}" for name, why in account.skipped)
    lines += ["## What was skipped", skipped] if skipped else []
    lines += ["Begun from " + ", ".join(map(_begun, models)) + "."] if models else []
    lines.append("## Licence\n\nThat of the base models and of the texts, whose holders decide.")
    return lines


def _begun(model: str) -> str:
    """A base model with its licence, where that is known; of a folder no path of this machine."""
    licence = licence_of(model)
    return f"`{title_of(model)}`" + ("" if licence is None else f" (licence: {licence})")
