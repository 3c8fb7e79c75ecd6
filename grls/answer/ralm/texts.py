"""The texts that a language model reads, as its tokens."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from grls.data.codec import foreign_places
from grls.data.words import count
from grls.errors import DataError, at_least
from grls.io.files import read_text
from grls.models.load.language import LanguageModel


class TokenizedText(NamedTuple):
    """A text.

    Attributes:
        name: The name of its file.
        words: Number of words of its tokens.
        tokens: Its token ids.
    """

    name: str
    words: int
    tokens: list[int]


def read_texts(path: Path, loaded: LanguageModel, limit: int | None) -> list[TokenizedText]:
    """The texts of a file or folder, cut to a limit; words behind the cut are not counted.

    Args:
        path: A text file, or a folder with .txt files.
        loaded: The language model, whose tokenizer is used.
        limit: Most tokens of a text; None: all.

    Raises:
        ConfigError: The limit is below 2.
        DataError: There is no text, or a text is empty.
    """
    at_least(2, limit=limit)
    files = sorted(path.glob("*.txt")) if path.is_dir() else [path]
    if not files or not all(file.is_file() for file in files):
        raise DataError("no such text; expected a file, or a folder with .txt files.", path)
    texts = []
    for file in files:
        text = read_text(file)
        tokens, places = foreign_places(loaded.tokenizer, [text])[0]
        tokens = tokens[:limit]
        if not tokens:
            raise DataError("the text is empty; fill the file, or remove it.", file)
        end = places[len(tokens) - 1][1]
        texts.append(TokenizedText(file.name, count(text[:end]), tokens))
    return texts
