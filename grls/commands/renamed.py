"""What earlier versions called the commands, so that a command of before is answered by its new name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

RENAMED: Mapping[str, str] = MappingProxyType(
    {
        "update": "index update",
        "answers": "evaluate",
        "riches": "answer riches",
        "read": "answer direct (with follow-up questions: answer follow-up)",
        "program": "answer dsp",
        "train": "train memorise|retrieve|chains|riches|doc2query",
        "neighbours": "prepare neighbours",
        "propositions": "prepare propositions",
        "pseudo-queries": "prepare pseudo-queries",
        "train-biencoder": "train biencoder",
        "train-reranker": "train reranker",
        "tune-hybrid": "tune",
        "tune-rescore": "tune",
        "tune-assess": "tune",
        "tune-dynamic": "tune",
        "ensemble": "fuse",
        "cut": "fuse cut",
    }
)
"""Commands of earlier versions, and what they are called now."""

ARGUMENTS: Mapping[tuple[str, str], str] = MappingProxyType(
    {
        ("index", "--model"): "index MODEL",
        ("retrieve", "--retriever"): "retrieve RETRIEVER",
        ("retrieve", "--bm25"): "retrieve bm25",
        ("evaluate", "--run"): "evaluate RUN",
        ("ralm", "--job"): "ralm, ralm examples or ralm generate",
    }
)
"""Commands that kept their names: an option that has become an argument, and how they are called now."""


def renamed(words: Sequence[str]) -> str | None:
    """What to say of a command of an earlier version; None where it is none.

    Args:
        words: The command line without ``grls``.
    """
    if not words:
        return None
    name, rest = words[0], words[1:]
    options = [word.partition("=")[0] for word in rest]
    if name == "train":  # the verb of today has a name behind it
        old = bool(options) and options[0].startswith("-") and options[0] not in ("-h", "--help")
        return _is_now(name, RENAMED[name]) if old else None
    if name in RENAMED:
        return _is_now(name, RENAMED[name])
    moved = [(name, option) for option in options if (name, option) in ARGUMENTS]
    if not moved or not options[0].startswith("-"):
        return None
    return _is_now(" ".join(moved[0]), ARGUMENTS[moved[0]])


def _is_now(before: str, now: str) -> str:
    return f"`grls {before}` is now `grls {now}`."
