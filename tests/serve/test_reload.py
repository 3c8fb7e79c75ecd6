"""POST /admin/reload: a new version takes over; a broken one is refused."""

import gc
import shutil
import threading
import weakref
from pathlib import Path

import pytest
from failing import raises
from serve_helpers import serving_of
from serve_process import until
from starlette.testclient import TestClient

from grls.data.corpus import Corpus
from grls.data.types import Passage
from grls.errors import ConfigError, GrlsError
from grls.retrieve.bm25 import BM25Retriever
from grls.serve import served
from grls.serve.app import create_app
from grls.serve.guards import read_admin_token
from grls.serve.options import ServerOptions
from grls.serve.serving import Serving
from grls.serve.start import named_folders
from grls.serve.worker import RefusalError

TOKEN = {"Authorization": "Bearer the-token-of-the-admin"}


def write(place: Path, *texts: str) -> Path:
    shutil.rmtree(place, ignore_errors=True)
    BM25Retriever(Corpus.from_passages([Passage(text, text) for text in texts])).save_pretrained(place)
    return place


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path / "one", "old otter", "stone")


@pytest.fixture
def client(folder: Path, tmp_path: Path) -> TestClient:
    (tmp_path / "token").write_text("the-token-of-the-admin\n")
    serving = serving_of({"one": folder}, admin=read_admin_token(tmp_path / "token"))
    return TestClient(create_app(serving), raise_server_exceptions=False)


def found(client: TestClient) -> tuple[int, list[str]]:
    answer = client.post("/v1/search", json={"query": "otter"}).json()
    return answer["version"], [hit["id"] for hit in answer["results"][0]["hits"]]


def test_a_new_version_takes_over(client: TestClient, folder: Path) -> None:
    with client:
        assert found(client) == (1, ["old otter"])
        write(folder, "new otter", "water", "stone")
        assert found(client) == (1, ["old otter"])
        answer = client.post("/admin/reload", json={"retriever": "one"}, headers=TOKEN)
        assert answer.json() == {"retriever": "one", "version": 2, "passages": 3}
        assert found(client) == (2, ["new otter"])


def test_a_version_that_cannot_be_spread_is_refused(folder: Path) -> None:
    def refuse(version: served.Version) -> None:
        assert version.number == 2
        raise GrlsError("no replica can be started.")

    server = serving_of({"one": folder}).retrievers["one"]
    with pytest.raises(RefusalError, match=r"version 1 goes on: no replica can be started\."):
        server.reload(refuse)
    assert server.version.number == 1
    assert server.reload().number == 2


@pytest.mark.parametrize("harm", ["gone", "no json", "damaged"])
def test_a_broken_version_is_refused_and_the_old_one_goes_on(
    client: TestClient, folder: Path, harm: str
) -> None:
    with client:
        if harm == "gone":
            shutil.rmtree(folder)
        elif harm == "no json":
            (folder / "grls.json").write_text("{")
        else:
            for file in folder.rglob("*"):
                if file.is_file() and file.name != "grls.json":
                    file.write_bytes(file.read_bytes()[:7])
        answer = client.post("/admin/reload", json={}, headers=TOKEN)
        assert answer.status_code == 422, answer.text
        assert "version 1 goes on" in answer.json()["detail"]
        assert str(folder) not in answer.text
        assert found(client) == (1, ["old otter"])
        write(folder, "new otter")
        assert client.post("/admin/reload", json={}, headers=TOKEN).status_code == 200
        assert found(client)[0] == 2


def test_who_may_reload(client: TestClient, folder: Path) -> None:
    with client:
        for headers in ({}, {"Authorization": "Bearer no"}, {"Authorization": "the-token-of-the-admin"}):
            assert client.post("/admin/reload", json={}, headers=headers).status_code == 401
        assert client.post("/admin/reload", json={"retriever": "x"}, headers=TOKEN).status_code == 404
        assert client.post("/admin/reload", json={"folder": "/etc"}, headers=TOKEN).status_code == 422
    with TestClient(create_app(serving_of({"one": folder}))) as other:
        answer = other.post("/admin/reload", json={}, headers=TOKEN)
        assert (answer.status_code, "GRLS_ADMIN_TOKEN" in answer.text) == (403, True)


def test_searches_go_on_while_versions_change(client: TestClient) -> None:
    wrong: list[object] = []
    ended = threading.Event()

    def search() -> None:
        while not ended.is_set():
            version, ids = found(client)
            if ids != ["old otter"]:
                wrong.append((version, ids))

    with client:
        threads = [threading.Thread(target=search) for _ in range(3)]
        for thread in threads:
            thread.start()
        versions = []
        for _ in range(4):
            versions.append(client.post("/admin/reload", json={}, headers=TOKEN).json()["version"])
        ended.set()
        for thread in threads:
            thread.join()
    assert versions == [2, 3, 4, 5]
    assert wrong == []


def test_a_second_reload_meanwhile_is_asked_to_wait(client: TestClient) -> None:
    with client:
        served = client.app.state.serving.retrievers["one"]  # type: ignore[attr-defined]
        with served._loading:
            answer = client.post("/admin/reload", json={}, headers=TOKEN)
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")


def test_names_of_folders(tmp_path: Path, folder: Path) -> None:
    assert named_folders([str(folder), f"other={folder}"]) == {"one": str(folder), "other": str(folder)}
    (tmp_path / "a=b").mkdir()
    for folders, problem in (
        ([str(tmp_path / "a=b")], "write name=folder"),
        ([str(folder), str(folder)], "stands for"),
        ([f"../x={folder}"], "a name of a retriever"),
        ([], "at least one folder"),
    ):
        raises(ConfigError, problem, named_folders, folders)


@pytest.mark.usefixtures("unfreezing")
def test_an_old_version_leaves_the_memory_and_what_is_loaded_is_set_aside(
    kinds: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full collection of garbage stops every thread: for 0.3 s, with torch and transformers loaded."""
    monkeypatch.setattr(served, "_GRACE", 0.0)
    try:
        serving = Serving(ServerOptions({"one": str(kinds / "generative")}, device="cpu"))
        serving.load()
        one = serving.retrievers["one"]
        until(_set_aside)  # versions of other tests may end now, which looks at everything again
        old = weakref.ref(one.version.searcher.retriever)
        one.reload()
        until(lambda: old() is None)
        one.version.worker.close()
    finally:
        gc.unfreeze()


def _set_aside() -> bool:
    """Whether most objects are left out of collections; what is imported later is not."""
    return gc.get_freeze_count() > max(100_000, len(gc.get_objects()))
