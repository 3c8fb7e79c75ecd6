"""Options of RICHES: the keys that may be quoted, and the prompt."""

from __future__ import annotations

from typing import Literal

from grls.io.arguments import options

Thoughts = Literal["shared", "title", "none"]
KeyKind = Literal["sentence", "paragraph", "titled", "title", "header", "proposition"]
PromptKind = Literal["single", "multi", "none"]


@options("keys")
class KeyOptions:
    """The keys: texts that may be quoted.

    Args:
        kind: Kind of key: sentence, paragraph, titled (paragraph with its title), title, header (title and
            section header, from metadata.section), or proposition. Passages under one title or header are
            ranked by TF-IDF.
        anywhere: A quote may begin anywhere in a key.
        propositions: For the kind proposition: JSONL with `passage` (its id) and `text`.
        folder: Folder of the keys and their index: read if it holds them, else written.
    """

    kind: KeyKind = "sentence"
    anywhere: bool = False
    propositions: str | None = None
    folder: str | None = None


@options("prompt")
class PromptOptions:
    """The prompt before an answer.

    Args:
        kind: Examples of one hop (single) or of several hops (multi), or none: only the question, as in
            fine-tuning.
        markers: The texts that open and close a quote, as '["«", "»"]'.
        keywords: Write the words to look for before each quote of the examples.
        chat: Write the prompt with the model's chat template.
    """

    kind: PromptKind = "single"
    markers: tuple[str, str] = ("«", "»")
    keywords: bool = True
    chat: bool = False


USUAL_KEYS = KeyOptions()
USUAL_PROMPT = PromptOptions()
