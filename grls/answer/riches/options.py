"""Options of RICHES: the keys that may be quoted, the prompt, and who writes propositions."""

from __future__ import annotations

from typing import Literal

from grls.io.arguments import Count, options
from grls.models.option_names import Device

Thoughts = Literal["shared", "title", "none"]
KeyKind = Literal["sentence", "paragraph", "titled", "title", "proposition"]
PromptKind = Literal["single", "multi", "none"]


@options("keys")
class KeyOptions:
    """The keys: texts that may be quoted.

    Args:
        kind: Kind of key: sentence, paragraph, titled (paragraph with its title), title, or proposition.
            Passages under one title are ranked by TF-IDF.
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


@options(kw_only=True)
class PropositionOptions:
    """Which model writes propositions of which passages.

    Args:
        data: Data set folder, or its corpus.jsonl.
        model: Folder or hub name of a language model; a .gguf file is read, too. A causal model is shown the
            task and two examples; an encoder-decoder, fine-tuned for the task, reads only the passage.
        chat: Put the prompt into the chat template of the model.
        template: Form of a passage in the prompt, such as 'Title: {title}. Content: {text}'; empty: title and
            text.
        max_new_tokens: Length limit of what is written for a passage.
        batch_size: Passages read together.
        limit: Number of first passages to write propositions for; null: all.
    """

    data: str
    model: str
    chat: bool = False
    template: str = ""
    max_new_tokens: Count = 256
    batch_size: Count = 8
    limit: Count | None = None
    device: Device = "auto"
