"""Retriever folders changed at random, with checksums that fit: a stranger's folder.

What comes is an error of grls that names a file, or a retriever that answers with passages of its corpus.
"""

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from fuzzing import changed_bytes, changed_json, changed_records, changed_value, fuzzed, tried
from hypothesis import given
from hypothesis import strategies as st
from small_data import queries

from grls.io.seal import seal, sealed
from grls.retrieve.folder_check import check_folder
from grls.retrieve.registry import Opening, load_retriever
from grls.retrieve.spec import MANIFEST, read_spec

WORDS = [b"\0\0\xc0\x7f", b"\0\0\x80\x7f", b"\xff" * 4, b"\0\0\0\x80", b"\xff\xff\x7f\x7f"]
"""NaN, infinity, -1, the smallest whole number, the largest float."""
ASKED = [query.text for query in queries()[:2]]


KINDS = (
    "bm25", "dense", "sparse", "multi-vector", "generative", "stored", "changed", "spans", "hybrid", "hops",
    "fusion", "chains", "rescored", "link", "embedded",
)  # fmt: skip


def answered(folder: Path) -> Any:
    """What a folder answers; its hits are different passages of its corpus, with falling finite scores."""
    retriever = load_retriever(folder, Opening("cpu"))
    known = set(retriever.corpus.ids(range(len(retriever.corpus))))
    rankings = retriever.retrieve(ASKED, 3)
    for hits in rankings:
        scores = [hit.score for hit in hits]
        assert len({hit.id for hit in hits} & known) == len(hits) <= 3
        assert all(map(math.isfinite, scores))
        assert scores == sorted(scores, reverse=True)
    retriever.describe()
    assert retriever.fingerprint()
    return rankings


@contextmanager
def restored(*files: Path) -> Iterator[None]:
    """Files that are as before afterwards: the folders are made once for all tests."""
    contents = {file: file.read_bytes() for file in files}
    try:
        yield
    finally:
        for file, content in contents.items():
            file.write_bytes(content)


def told(folder: Path, place: Path) -> None:
    tried(lambda: answered(folder), folder, place, "retriever")


def write_spec(file: Path, spec: Any) -> None:
    """Write a manifest of any form, with a seal that fits, as a stranger can."""
    file.write_text(json.dumps(sealed(spec) if isinstance(spec, dict) else spec))


@pytest.mark.parametrize("kind", KINDS)
def test_manifests_of_retrievers(every_kind: Path, kind: str) -> None:
    file = every_kind / kind / "grls.json"
    content = file.read_bytes()

    @fuzzed(4, 0.2)
    @given(st.data())
    def changed(data: st.DataObject) -> None:
        if data.draw(st.integers(0, 5)):
            write_spec(file, changed_value(json.loads(content), data))
        else:
            file.write_bytes(changed_bytes(content, data))
        told(every_kind / kind, every_kind)

    with restored(file):
        assert answered(every_kind / kind)
        changed()


def changed_array(content: bytes, data: st.DataObject) -> bytes:
    """A file of an array with another header, other numbers, or any bytes."""
    how = data.draw(st.sampled_from(["header", "numbers", "numbers", "bytes"]))
    if how == "bytes":
        return changed_bytes(content, data)
    if how == "header":
        return changed_bytes(content[:128], data) + content[128:]
    numbers = bytearray(content)
    for _ in range(data.draw(st.integers(1, 3))):
        place = 128 + 4 * data.draw(st.integers(0, (len(content) - 128) // 4 - 1))
        word = st.sampled_from(WORDS) | st.binary(min_size=4, max_size=4)
        numbers[place : place + 4] = data.draw(word)
    return bytes(numbers)


FILES = [
    ("dense", "embeddings.npy", changed_array),
    *(("sparse", f"embeddings/{name}.npy", changed_array) for name in ("data", "numbers", "bounds")),
    *(("multi-vector", f"embeddings/{name}.npy", changed_array) for name in ("vectors", "bounds")),
    *((kind, "corpus.jsonl", changed_records) for kind in ("bm25", "dense", "generative")),
    *((kind, "model/config.json", changed_json) for kind in ("dense", "generative", "sparse")),
]
"""Files that are changed, and sealed again, as by a stranger: kind, file, and how."""


@pytest.mark.parametrize(("kind", "name", "change"), FILES)
def test_files_that_the_manifest_knows(every_kind: Path, kind: str, name: str, change: Any) -> None:
    file, manifest = every_kind / kind / name, every_kind / kind / MANIFEST
    content, spec = file.read_bytes(), read_spec(manifest.parent)

    @fuzzed(8, 0.4)
    @given(st.data())
    def changed(data: st.DataObject) -> None:
        file.write_bytes(change(content, data))
        seal(manifest, spec)
        told(every_kind / kind, every_kind)

    with restored(file, manifest):
        changed()


@fuzzed(10, 0.2)
@given(st.sampled_from(KINDS), st.data())
def test_the_check_of_a_folder_reports(every_kind: Path, kind: str, data: st.DataObject) -> None:
    """Whatever a file holds: ``grls check`` says what is broken."""
    file = data.draw(
        st.sampled_from(sorted(path for path in (every_kind / kind).rglob("*") if path.is_file()))
    )
    with restored(file):
        file.write_bytes(changed_bytes(file.read_bytes(), data))
        tried(lambda: check_folder(every_kind / kind), every_kind)
