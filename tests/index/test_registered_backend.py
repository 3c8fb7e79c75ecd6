"""A backend that the package does not have: built, stored, opened, refused where it cannot work."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

import numpy as np
import pytest
from small_data import small_retriever, write_small

from grls.data.corpus import Corpus
from grls.errors import ConfigError, IndexFormatError
from grls.index import BACKENDS, index_sequences, load_index, register_backend, save_index
from grls.index.backends import FlatIndex, check_backend
from grls.index.base import Segment
from grls.index.rows import Array, Ints, Rows
from grls.retrieve.generative.retriever import GenerativeRetriever
from grls.retrieve.registry import load_retriever


def refusal(error: type[Exception], call: Callable[[], object]) -> str:
    with pytest.raises(error) as caught:
        call()
    return str(caught.value)


PASSAGES = [np.array(tokens) for tokens in ([3, 4, 1], [3, 5, 1], [6, 1], [3, 4, 1])]


class Dated(FlatIndex):
    """Flat, with an array of its own."""

    backend = "dated"
    stored = ("days",)
    days: Array

    @classmethod
    def build(cls, rows: Rows, shared: Ints) -> Self:
        made = super().build(rows, shared)
        made.days = np.arange(len(rows))
        return made

    def arrays(self) -> dict[str, Array]:
        return {"days": self.days}

    @classmethod
    def restore(cls, rows: Rows, arrays: dict[str, Array]) -> Self:
        made = super().restore(rows, {})
        made.days = arrays["days"]
        return made


@pytest.fixture
def known() -> Iterator[None]:
    register_backend(Dated)
    yield
    BACKENDS.pop("dated", None)


def test_it_is_stored_and_opened_with_its_arrays(known: None, tmp_path: Path) -> None:
    save_index(index_sequences(PASSAGES, 1, "dated"), tmp_path / "index")
    opened = load_index(tmp_path / "index")
    assert isinstance(opened, Dated)
    assert opened.days.tolist() == [0, 1, 2]
    assert [opened.tokens(n).tolist() for n in range(4)] == [list(tokens) for tokens in PASSAGES]


def test_a_generator_is_indexed_by_it_and_opens(known: None, tmp_path: Path) -> None:
    write_small(tmp_path / "data")
    small = small_retriever(tmp_path / "data")
    corpus = Corpus.read(tmp_path / "data")
    made = GenerativeRetriever.assemble(
        small.model, small.codec.tokenizer, corpus, small.codec.limits, backend="dated"
    )
    made.save_pretrained(tmp_path / "r")
    opened = load_retriever(tmp_path / "r")
    asked = ["is the heron calm ?"]
    assert opened.retrieve(asked, 3) == small.retrieve(asked, 3)


def test_the_option_names_what_is_registered(known: None) -> None:
    assert "array, marisa, flat, dated" in refusal(ConfigError, lambda: check_backend("nope"))


def test_arrays_that_are_not_declared_are_refused_when_they_are_stored(known: None, tmp_path: Path) -> None:
    class Silent(Dated):
        backend, stored = "silent", ()

    index = Silent.build(index_sequences(PASSAGES, 1, "dated").rows, np.zeros(0, np.int64))
    message = refusal(ConfigError, lambda: save_index(index, tmp_path / "index"))
    assert "stores the arrays ['days'] and declares []" in message
    assert not (tmp_path / "index").exists()


@pytest.mark.parametrize(("changes", "message"), [
    ({"backend": "flat"}, "is FlatIndex already"),
    ({"backend": ""}, "has no name"),
    ({"backend": "new", "stored": ("tokens",)}, "stores 'tokens', which is an array of the rows"),
])  # fmt: skip
def test_a_class_that_cannot_be_a_backend_is_refused(changes: dict[str, Any], message: str) -> None:
    one = type("One", (FlatIndex,), changes)
    assert message in refusal(ConfigError, lambda: register_backend(one))
    assert set(BACKENDS) == {"array", "marisa", "flat"}


def test_a_class_without_its_methods_is_refused() -> None:
    half = type("Half", (Segment,), {"backend": "half", "start": lambda self: 0})
    message = refusal(ConfigError, lambda: register_backend(half))
    assert "lacks allowed, arrays, build, restore, span" in message


def test_a_folder_of_a_backend_that_is_unknown_here_says_so(known: None, tmp_path: Path) -> None:
    save_index(index_sequences(PASSAGES, 1, "dated"), tmp_path / "index")
    del BACKENDS["dated"]
    message = refusal(IndexFormatError, lambda: load_index(tmp_path / "index"))
    assert "backend 'dated'" in message
    assert "register" in message
