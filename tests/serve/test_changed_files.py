"""Files of a served folder that are changed in place."""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from serve_helpers import Slow, client_of, serving_of

import grls
from grls.data.corpus import Corpus
from grls.data.types import Hit, Query
from grls.index import files
from grls.models.load import opening
from grls.serve.worker import BatchKey, RefusalError, SearchJob, Worker, _JobCounts

ASK: dict[str, Any] = {"query": ["is the otter calm ?", "is the lynx quick ?"], "k": 3}


def test_small_indexes_and_models_are_in_memory(kinds: Path, tmp_path: Path) -> None:
    place, names = shutil.copytree(kinds, tmp_path / "kinds"), ("generative", "dense", "rescored", "hybrid")
    asked = [ASK | {"retriever": name} for name in names]
    with client_of(serving_of({name: place / name for name in names})) as client:
        before = [client.post("/v1/search", json=ask).json() for ask in asked]
        assert all(answer["results"][0]["hits"] for answer in before)
        for file in filter(Path.is_file, place.rglob("*")):
            os.truncate(file, 0)
        assert [client.post("/v1/search", json=ask).json() for ask in asked] == before


def map_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let small indexes and models be mapped as large ones are."""
    monkeypatch.setattr(files, "CHECKED_BYTES", 0)
    monkeypatch.setattr(files.map_array, "__defaults__", (0,))
    monkeypatch.setattr(opening, "READ_BYTES", 0)


@pytest.mark.parametrize("kind", ["generative", "dense"])
@pytest.mark.parametrize("path", ["search", "stream", "explain"])
def test_an_answer_from_a_file_that_changed_meanwhile_is_not_given(
    kinds: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, path: str
) -> None:
    folder = shutil.copytree(kinds / kind, tmp_path / "one")
    map_all(monkeypatch)
    body: dict[str, Any] = {"query": "is the otter calm ?"}
    if path == "explain":
        body["gold"] = ["otter-calm"]
    with client_of(serving_of({"one": folder})) as client:
        assert client.post(f"/v1/{path}", json=body).status_code == 200
        monkeypatch.setattr(_JobCounts, "add", lambda *_: os.utime(folder / "model" / "model.safetensors"))
        texts = list[Any]()
        monkeypatch.setattr(Corpus, "with_metadata", lambda *read: texts.append(read))
        refused = client.post(f"/v1/{path}", json=body)
        assert not texts
        assert (refused.status_code, "was changed while it is served" in refused.text) == (503, True)


class Changing:
    """A check that refuses once files are changed, as a search changes them; the sizes of searches."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, at: int):
        self.changed, self.sizes, search = False, list[int](), Slow.retrieve

        def retrieve(retriever: Slow, queries: Sequence[Any], *options: Any) -> list[list[Hit]]:
            self.sizes.append(len(queries))
            self.changed |= len(self.sizes) == at
            return search(retriever, queries, *options)

        monkeypatch.setattr(Slow, "retrieve", retrieve)

    def __call__(self) -> None:
        if self.changed:
            raise RefusalError(503, "a file was changed")


@pytest.mark.parametrize(
    ("words", "at", "sizes"), [("abcd", 0, [1]), ("abcd", 2, [1, 3]), ("abzc", 3, [1, 3, 1])]
)
def test_no_job_of_a_batch_is_searched_once_files_are_changed(
    monkeypatch: pytest.MonkeyPatch, words: str, at: int, sizes: list[int]
) -> None:
    check, retriever = Changing(monkeypatch, at), Slow()
    retriever.gate.clear()
    worker = Worker("one", 10, 10, lambda *_: None, check=check)
    first, *others = jobs = [SearchJob([word], BatchKey(retriever, 2, None)) for word in words]
    worker.submit(first)
    assert retriever.began.wait(5)
    for job in others:
        worker.submit(job)
    check.changed = at == 0
    retriever.gate.set()
    for job in others if at else jobs:
        with pytest.raises(RefusalError, match="was changed"):
            job.future.result(5)
    assert check.sizes == sizes
    worker.close()


@pytest.mark.parametrize(("at", "sizes"), [(0, []), (1, [1, 1])])
def test_a_reader_gets_nothing_of_changed_files_from_a_version_that_ends(
    monkeypatch: pytest.MonkeyPatch, at: int, sizes: list[int]
) -> None:
    from grls.serve.answering import QueuedRetriever

    check, retriever = Changing(monkeypatch, 1 + at), Slow()
    version: Any = SimpleNamespace(worker=Worker("one", 10, 10, lambda *_: None, check=check))
    version.worker.close()
    queued = QueuedRetriever(version, retriever, None, lambda: False)  # type: ignore[arg-type]
    if at:  # as after a reload
        assert [hit.id for hit in queued.retrieve([Query("q", "a")], 2)[0]] == ["a"]
    check.changed = at == 0
    with pytest.raises(RefusalError, match="was changed"):
        queued.retrieve([Query("q", "a")], 2)
    assert check.sizes == sizes


@pytest.mark.parametrize(
    ("kind", "cut"), [("generative", "*.npy"), ("dense", "*.npy"), ("dense", "*.safetensors")]
)
def test_a_large_index_or_a_model_that_is_changed_is_not_searched(
    kinds: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, cut: str
) -> None:
    folder = shutil.copytree(kinds / kind, tmp_path / "one")
    map_all(monkeypatch)
    with client_of(serving_of({"one": folder})) as client:
        expected = grls.load(folder, device="cpu").search(ASK["query"], 3)
        found = client.post("/v1/search", json=ASK).json()["results"]
        assert [[hit["id"] for hit in row["hits"]] for row in found] == [
            [hit.id for hit in hits] for hits in expected
        ]
        file = max(folder.rglob(cut), key=lambda file: file.stat().st_size)
        shutil.copy(file, tmp_path / "new")
        (tmp_path / "new").rename(file)  # replaced: the process still has the former file
        assert client.post("/v1/search", json=ASK).status_code == 200
    with client_of(serving_of({"one": folder})) as client:
        os.truncate(file, 100)
        for ask in (ASK, ASK | {"k": 2}):
            refused = client.post("/v1/search", json=ask)
            assert refused.status_code == 503
            assert "was changed while it is served" in refused.json()["detail"]
            assert str(tmp_path) not in refused.text
        assert client.get("/health").status_code == 200
