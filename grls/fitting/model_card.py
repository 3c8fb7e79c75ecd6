"""The model card of a run: what was compared, on which data, from which models, and how it was made."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from grls.errors import ConfigError
from grls.fitting.models import licence_of, title_of
from grls.fitting.result import Fitted
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
    card = Card(name, retriever.describe(), len(retriever.corpus), said, fitted.metrics, notes)
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
    lines = [f"Measured on {sizes} queries. Kept: {fitted.kept}, {fitted.why}."]
    lines += ["## Data", f"Queries: {queries}."]
    lines += ["\n".join(f"- {note}" for note in data["notes"])] if data["notes"] else []
    lines += ["## How it was made", _recipe(content)]
    lines += ["Begun from " + ", ".join(map(_begun, models)) + "."] if models else []
    lines.append("## Licence\n\nThat of the base models and of the texts, whose holders decide.")
    return lines


def _begun(model: str) -> str:
    """A base model with its licence, where that is known; of a folder no path of this machine."""
    licence = licence_of(model)
    return f"`{title_of(model)}`" + ("" if licence is None else f" (licence: {licence})")


def _recipe(content: dict[str, Any]) -> str:
    """The stages of a plan that were done, and what was left out."""
    plan, seconds, lines = content["plan"], content["step_seconds"], []
    for stage in plan["stages"]:
        key = f"{stage['name']} {stage['system']}".strip()
        if key in plan["left_out"]:
            lines.append(f"- left out: {stage['what']} ({plan['left_out'][key]})")
        elif key in seconds:
            lines.append(f"- {stage['what']} ({duration(seconds[key])})")
        elif stage["name"] == "fusion" and not content["weights"]:
            lines.append("- fuse the systems: none is better than its members")
        else:
            lines.append(f"- {stage['what']}")
    return "\n".join(lines)
