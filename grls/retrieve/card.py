"""The model card of a retriever: ``README.md`` with a header that the hub reads."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grls.errors import ConfigError
from grls.io.files import read_json
from grls.io.listed import list_texts
from grls.io.progress import counted
from grls.retrieve.base import Description, Retriever

CARD = "README.md"

_METRICS = ("metrics.json", "fit.json")
"""Files beside a retriever that may hold measures."""
_MOST = 1e300
"""A larger number, which a float may not hold, is no measure."""

_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
_CODE = re.compile(r"[a-z0-9.+-]+")

_SHARE = re.compile(r"(^| )(n?DCG|R|P|RR|MRR|AP|MAP|F1|Success|recall|precision)(@\d+)?$")
"""Measures that are shares of 1."""

Figures = Mapping[str, Mapping[str, float]]
"""System -> measure -> value."""


@dataclass(frozen=True)
class CardOptions:
    """What the model card says beside what the folder knows.

    Args:
        license: The licence, by its name on the hub: ``apache-2.0``, ``mit``, ``cc-by-4.0``, ``other``, …;
            null: the card names none.
        base_models: Hub names of the models that were trained further. A text is a list of one.
        languages: Languages of the corpus by their codes: ``en``, ``de``, …
        datasets: Hub names of the data sets of the training.

    Raises:
        ConfigError: A name cannot be one on the hub, or is no text.
    """

    license: str | None = None
    base_models: tuple[str, ...] = ()
    languages: tuple[str, ...] = ()
    datasets: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        list_texts(self, "base_models", "languages", "datasets")
        for what, names, form in (
            ("license", () if self.license is None else (self.license,), _CODE),
            ("base_models", self.base_models, _HUB_NAME),
            ("languages", self.languages, _CODE),
            ("datasets", self.datasets, _HUB_NAME),
        ):
            wrong = [name for name in names if not form.fullmatch(name)]
            if wrong:
                raise ConfigError(f"{what}: {wrong[0]!r} can be no name on the hub; write it as there.")


@dataclass(frozen=True)
class Card:
    """A model card.

    Attributes:
        name: The name of the repository: ``user/name``.
        described: The description of the retriever.
        passages: The number of its passages.
        options: What the user says.
        figures: Measures of systems, for the table.
        notes: Further text, in Markdown.
        local: Whether the name is that of the folder of the card, not of a repository.
    """

    name: str
    described: Description
    passages: int
    options: CardOptions = field(default_factory=CardOptions)
    figures: Figures = field(default_factory=dict)
    notes: str = ""
    local: bool = False

    @property
    def text(self) -> str:
        """The whole file."""
        from huggingface_hub import ModelCardData

        how, said = self.described, self.options
        names = (how.system, how.name, *how.members)
        generative = any(word in name for name in names for word in ("generator", "hybrid"))
        tags = ["retrieval", *(["generative-retrieval"] if generative else []), "grls", how.system]
        header = ModelCardData(
            license=said.license,
            library_name="grls",
            tags=list(dict.fromkeys(tags)),
            base_model=list(said.base_models) or None,
            language=list(said.languages) or None,
            datasets=list(said.datasets) or None,
        ).to_yaml()
        facts = {
            "System": how.name,
            "Scores": how.score_mode,
            "Passages": f"{self.passages:,}",
            "Members": ", ".join(how.members),
            "Training stages": ", ".join(how.stages),
            "Base models": ", ".join(said.base_models),
            "Licence": said.license or "not stated",
        }
        listed = "\n".join(f"- {what}: {value}" for what, value in facts.items() if value)
        options = json.dumps(how.options, indent=2, ensure_ascii=False)
        where = "  # the path of the folder of this file, or its name on the hub" if self.local else ""
        parts = [
            f"# {self.name}",
            f"A retriever of the Python package `grls` over {counted(self.passages, 'passage')}.",
            "## Use",
            f'```python\nimport grls\nretriever = grls.load("{self.name}"){where}\n'
            'hits = retriever.search("your question", k=5)\n```',
            "## What it is",
            listed,
            *(["## Measures", _table(self.figures)] if self.figures else []),
            *([self.notes] if self.notes else []),
            "## Options",
            f"```json\n{options}\n```",
        ]
        body = "\n\n".join(parts)
        return f"---\n{header}\n---\n\n{body}\n"


def card_of(retriever: Retriever, folder: str | Path, name: str, options: CardOptions) -> str:
    """The card of a retriever for a repository: the one in its folder, or a new one if options are given.

    Args:
        retriever: The retriever.
        folder: Its folder.
        name: The repository: ``user/name``.
        options: What the user says.
    """
    written = Path(folder) / CARD
    if options == CardOptions() and written.is_file():
        return written.read_text(encoding="utf-8")
    figures = figures_beside(folder)
    return Card(name, retriever.describe(), len(retriever.corpus), options, figures).text


def figures_beside(folder: str | Path) -> Figures:
    """The measures in ``metrics.json`` or ``fit.json`` of a folder; empty where there are none.

    Known are ``{measure: value}`` and ``{system: {measure: value}}``, alone or under ``metrics``.
    """
    for name in _METRICS:
        file = Path(folder) / name
        if file.is_file():
            content = read_json(file)
            content = content.get("metrics", content) if isinstance(content, dict) else {}
            if isinstance(content, dict):
                rows = {"this retriever": _numbers(content)}
                rows |= {str(name): _numbers(one) for name, one in content.items() if isinstance(one, dict)}
                if figures := {name: row for name, row in rows.items() if row}:
                    return figures
    return {}


def _numbers(content: dict[str, Any]) -> dict[str, float]:
    return {
        str(name): float(value)
        for name, value in content.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= _MOST
    }


def _table(figures: Figures) -> str:
    """The measures of systems; shares of 1 in points, as in all other tables."""
    names = list(dict.fromkeys(name for row in figures.values() for name in row))
    lines = [["system", *names], ["---", *["---:"] * len(names)]]
    for system, row in figures.items():
        cells = [system]
        for name in names:
            share = name in row and _SHARE.search(name) and 0 <= row[name] <= 1
            cells.append("" if name not in row else f"{100 * row[name]:.1f}" if share else f"{row[name]:.4g}")
        lines.append(cells)
    return "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in lines)
