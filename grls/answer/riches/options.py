"""Options of RICHES: what may be quoted, and what a model is told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

KeyKind = Literal["sentence", "paragraph", "titled", "title", "header", "proposition"]
PromptKind = Literal["single", "multi", "none"]


@dataclass(frozen=True)
class KeyOptions:
    """What may be quoted.

    Args:
        kind: What a key is: sentence, paragraph, titled (with its title), title, header (title and section
            header, from metadata.section), or proposition. Passages under one title or header are ranked by
            TF-IDF.
        anywhere: A quote may begin anywhere in a key.
        propositions: JSONL with `passage` (its id) and `text`, for the kind proposition, as
            `grls prepare propositions` writes it.
        folder: Where the keys and their index are kept: used where it holds them, else written.
    """

    kind: KeyKind = "sentence"
    anywhere: bool = False
    propositions: str | None = None
    folder: str | None = None


@dataclass(frozen=True)
class PromptOptions:
    """What stands before an answer.

    Args:
        kind: Examples of one hop (single) or several (multi), or none: the question alone, on which models
            are fine-tuned.
        markers: What opens and closes a quote, as '["«", "»"]'.
        keywords: What to look for is written before each quote.
        chat: Ask the model in turns, by its chat template.
    """

    kind: PromptKind = "single"
    markers: tuple[str, str] = ("«", "»")
    keywords: bool = True
    chat: bool = False


USUAL_KEYS = KeyOptions()
USUAL_PROMPT = PromptOptions()
