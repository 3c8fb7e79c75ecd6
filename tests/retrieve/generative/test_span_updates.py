"""Passages added to an index of spans, and removed from it: the same as an index that is built anew."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from llama_small import write_llama
from small_data import queries, write_small

from grls.data.corpus import Corpus
from grls.data.spans import Spans
from grls.data.types import Hit, Passage
from grls.errors import ConfigError
from grls.models.load.language import CausalLM
from grls.retrieve.generative.options import SearchOptions
from grls.retrieve.generative.retriever import GenerativeRetriever
from grls.retrieve.hybrid.priors import open_sources
from grls.retrieve.hybrid.retriever import HybridRetriever
from grls.retrieve.hybrid.weighted import WeightedSource
from grls.retrieve.update import Changes, update_folder

WIDE = SearchOptions(beams=200)  # all spans there are
NEW = [
    Passage("new", "the otter is proud and calm .", "A river"),
    Passage("twin", "the otter is proud and calm .", "A river"),
    Passage("short", "otter"),
]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("spans")
    write_llama(folder / "llama", write_small(folder / "data"))
    return folder


def made(root: Path, corpus: Corpus | None = None, **options: Any) -> GenerativeRetriever:
    loaded = CausalLM(str(root / "llama")).load()
    parts = (loaded.model.eval(), loaded.tokenizer, Corpus.read(root / "data") if corpus is None else corpus)
    return GenerativeRetriever.assemble(*parts, options=WIDE, span_words=3, **options)


def found(retriever: Any, k: int = 8) -> list[list[tuple[str, float]]]:
    return [[(hit.id, round(hit.score, 3)) for hit in hits] for hits in retriever.retrieve(queries()[:3], k)]


def files(folder: Path) -> dict[str, bytes]:
    places = sorted(file for file in folder.rglob("*") if file.is_file())
    return {str(file.relative_to(folder)): file.read_bytes() for file in places}


def changed(corpus: Corpus, removed: set[str], added: list[Passage]) -> Corpus:
    return Corpus.from_passages([one for one in corpus if one.id not in removed] + added, "changed")


def same_spans(one: Spans | None, other: Spans | None) -> bool:
    assert one is not None
    assert other is not None
    return all(
        map(
            np.array_equal, (one.starts, one.offsets, one.owners), (other.starts, other.offsets, other.owners)
        )
    )


def test_added_passages_are_found_as_in_an_index_built_anew(root: Path) -> None:
    retriever = made(root)
    assert retriever.spans is not None
    assert len(retriever.spans.owners)  # made before the change, and cached
    anew = made(root, changed(retriever.corpus, set(), NEW))
    retriever.add(NEW[:1])
    retriever.add(NEW[1:])
    assert same_spans(retriever.spans, anew.spans)
    assert found(retriever, 40) == found(anew, 40)
    assert "new" in {name for name, _ in found(retriever, 40)[0]}


@pytest.mark.parametrize("backend", ["array", "marisa", "flat"])
def test_merged_it_is_the_folder_of_an_index_built_anew(root: Path, tmp_path: Path, backend: str) -> None:
    retriever = made(root, backend=backend)
    gone = {retriever.corpus[number].id for number in (0, 3)}
    anew = made(root, changed(retriever.corpus, gone, NEW), backend=backend)
    retriever.add(NEW)
    retriever.remove(sorted(gone))
    before = found(retriever, 5)
    retriever.merge()
    assert same_spans(retriever.spans, anew.spans)
    assert [[name for name, _ in hits] for hits in before] == [
        [name for name, _ in h] for h in found(retriever, 5)
    ]
    for one, name in ((retriever, "merged"), (anew, "anew")):
        one.save_pretrained(tmp_path / name)
    assert files(tmp_path / "merged") == files(tmp_path / "anew")


def test_with_an_added_segment_it_is_saved_and_opened(root: Path, tmp_path: Path) -> None:
    retriever = made(root)
    retriever.add(NEW)
    retriever.remove(["twin"])
    retriever.save_pretrained(tmp_path / "saved")
    opened = GenerativeRetriever.from_pretrained(tmp_path / "saved", "cpu", options=WIDE)
    assert found(opened) == found(retriever)
    assert all(name != "twin" for hits in found(opened, 40) for name, _ in hits)


def test_beside_a_prior_added_passages_have_their_share(root: Path) -> None:
    def hybrid(generator: GenerativeRetriever) -> list[list[Hit]]:
        (source,) = open_sources(generator.corpus, ["bm25"])
        return HybridRetriever(generator, [WeightedSource(source, 2.0)]).retrieve(queries()[:2], 6)

    retriever = made(root)
    anew = made(root, changed(retriever.corpus, set(), NEW))
    retriever.add(NEW)
    for hits, due in zip(hybrid(retriever), hybrid(anew), strict=True):
        assert [hit.id for hit in hits] == [hit.id for hit in due]
        assert [hit.score for hit in hits] == pytest.approx([hit.score for hit in due], abs=1e-3)


def test_a_folder_is_updated(root: Path, tmp_path: Path) -> None:
    retriever = made(root)
    retriever.save_pretrained(tmp_path / "folder")
    first = retriever.corpus[0].id
    again = Passage(first, "the otter is small .")
    changes = Changes(Corpus.from_passages([again], "added"), [first], merge=True)
    count = update_folder(tmp_path / "folder", None, changes)
    assert count.found == len(retriever.corpus)
    anew = made(root, changed(retriever.corpus, {first}, [again]))
    anew.save_pretrained(tmp_path / "anew")
    assert files(tmp_path / "folder") == files(tmp_path / "anew")


def test_unique_prefixes_of_spans_lose_passages_and_take_none(root: Path, tmp_path: Path) -> None:
    retriever = made(root, form="prefixes")
    first = retriever.corpus[0].id
    with pytest.raises(ConfigError, match="unique prefixes"):
        retriever.add(NEW)
    anew = made(root, changed(retriever.corpus, {first}, []), form="prefixes")
    retriever.remove([first])
    retriever.merge()
    assert found(retriever, 40) == found(anew, 40)
