"""Retrievers on the hub: uploaded with a card and checksums, and opened from the hub's cache."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from failing import fails, raises
from httpx import Request, Response
from huggingface_hub import errors

import grls
from grls.cli import main
from grls.errors import ConfigError, DataError, MismatchError
from grls.retrieve import hub

TEXTS = ["is the otter calm ?", "is the lynx quick ?"]
COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where uploads go in place of the hub."""

    class Client:
        def create_repo(self, name: str, private: bool, exist_ok: bool) -> None:
            assert exist_ok
            self.made = name, private

        def upload_folder(self, repo_id: str, folder_path: str, **how: Any) -> str:
            assert self.made == (repo_id, repo_id == "user/hidden")
            assert how["delete_patterns"] == "*"
            shutil.copytree(folder_path, tmp_path / "sent" / repo_id, dirs_exist_ok=True)
            return f"https://hub/{repo_id}"

    monkeypatch.setattr(hub, "HfApi", Client)
    return tmp_path / "sent"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of the hub, without a network."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def cached(cache: Path, name: str, folder: Path, ref: str = "main") -> Path:
    """Put a folder into the cache as the hub's client does: blobs, and links to them in a snapshot."""
    place = cache / f"models--{name.replace('/', '--')}"
    snapshot = place / "snapshots" / COMMIT
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        blob = place / "blobs" / file.relative_to(folder).as_posix().replace("/", "-")
        blob.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, blob)
        link = snapshot / file.relative_to(folder)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(os.path.relpath(blob, link.parent))
    (place / "refs").mkdir(exist_ok=True)
    (place / "refs" / ref).write_text(COMMIT)
    return snapshot


@pytest.mark.parametrize("kind", ["hybrid", "rescored"])
def test_what_is_uploaded_opens_from_the_cache(kinds: Path, sent: Path, cache: Path, kind: str) -> None:
    original = grls.load(kinds / kind, device="cpu")
    assert original.push_to_hub(f"user/{kind}") == f"https://hub/user/{kind}"
    snapshot = cached(cache, f"user/{kind}", sent / "user" / kind)
    opened = grls.load(f"user/{kind}", device="cpu")
    assert opened.folder == snapshot
    assert opened.search(TEXTS, 4) == original.search(TEXTS, 4)
    assert grls.load(f"user/{kind}", revision=COMMIT, device="cpu").search(TEXTS, 4) == opened.search(
        TEXTS, 4
    )
    hops = opened.hops(max=2, temperature=1.0)  # a member in the cache
    assert hops.search(TEXTS[0], 3)
    saved = grls.load(hops.save(snapshot.parents[3] / "saved"), device="cpu")
    assert saved.search(TEXTS, 3) == hops.search(TEXTS, 3)


def test_a_card_is_written_and_its_header_is_valid(kinds: Path, sent: Path, tmp_path: Path) -> None:
    shutil.copytree(kinds / "dense", tmp_path / "dense")
    figures = {"bm25": {"nDCG@10": 0.25}, "mine | ours": {"nDCG@10": 0.5, "R@5": 0.75}}
    (tmp_path / "dense" / "metrics.json").write_text(json.dumps(figures))
    searcher = grls.load(tmp_path / "dense", device="cpu")
    searcher.push_to_hub(
        "user/mine", license="apache-2.0", base_models=["sentence-transformers/all-MiniLM-L6-v2"],
        languages=["en"],
    )  # fmt: skip
    _, header, body = (sent / "user" / "mine" / "README.md").read_text().split("---\n", 2)
    assert yaml.safe_load(header) == {
        "license": "apache-2.0",
        "library_name": "grls",
        "tags": ["retrieval", "grls", "biencoder"],  # no generator is in it
        "base_model": ["sentence-transformers/all-MiniLM-L6-v2"],
        "language": ["en"],
    }
    assert 'retriever = grls.load("user/mine")' in body
    assert "| mine / ours | 50.0 | 75.0 |" in body
    assert "- Passages: 10" in body
    assert not (tmp_path / "dense" / "README.md").exists()  # only the copy has a card


def test_a_card_in_the_folder_is_kept(kinds: Path, sent: Path, tmp_path: Path) -> None:
    shutil.copytree(kinds / "dense", tmp_path / "dense")
    (tmp_path / "dense" / "README.md").write_text("---\nlicense: mit\n---\nmine")
    grls.load(tmp_path / "dense", device="cpu").push_to_hub("user/hidden", private=True)
    assert (sent / "user" / "hidden" / "README.md").read_text().endswith("mine")


def test_a_command_uploads_a_folder(
    kinds: Path, sent: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["push", str(kinds / "dense"), "user/hidden", "--private=true"]) == 0
    assert capsys.readouterr().out == "https://hub/user/hidden\n"
    assert (sent / "user" / "hidden" / "README.md").is_file()
    assert "no retriever here" in fails(capsys, "push", str(kinds / "none"), "user/mine")
    assert "user/name" in fails(capsys, "push", str(kinds / "dense"), "mine")
    denied = Response(401, request=Request("POST", "https://hub"))
    refused = type("ConnectError", (Exception,), {"__module__": "httpx2"})  # as huggingface_hub 2.4
    for error, said in (
        (errors.HfHubHTTPError("401 Unauthorized", response=denied), "log in with `hf auth login`"),
        (errors.LocalTokenNotFoundError("none"), "log in with `hf auth login`"),
        (errors.OfflineModeIsEnabled("offline"), "cannot be uploaded to the hub, which cannot be reached"),
        (refused("refused"), "cannot be uploaded to the hub, which cannot be reached"),
    ):
        monkeypatch.setattr(hub.HfApi, "create_repo", failing(error))
        assert said in fails(capsys, "push", str(kinds / "dense"), "user/mine")


def test_every_file_is_compared(kinds: Path, sent: Path, cache: Path) -> None:
    grls.load(kinds / "fusion", device="cpu").push_to_hub("user/mine")
    snapshot = cached(cache, "user/mine", sent / "user" / "mine")
    for file in sorted(snapshot.rglob("*")):
        if file.is_file() and file.name != "README.md":
            content = file.read_bytes()
            manifest = content.replace(b'"format"', b'"formed"')
            file.resolve().write_bytes(manifest if file.name == "grls.json" else content + b" ")
            raises(MismatchError, "has changed", grls.load, "user/mine")
            file.resolve().write_bytes(content)
    (snapshot / "members" / "bm25" / "corpus.jsonl").unlink()
    raises(MismatchError, "is missing", grls.load, "user/mine")


def test_no_code_is_run(kinds: Path, sent: Path, cache: Path) -> None:
    grls.load(kinds / "dense", device="cpu").push_to_hub("user/mine")
    (sent / "user" / "mine" / "model" / "modeling.py").write_text("raise SystemExit")
    cached(cache, "user/mine", sent / "user" / "mine")
    raises(DataError, r"model/modeling\.py, which can run code", grls.load, "user/mine")


def test_what_is_not_there(kinds: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"user/mine cannot be downloaded from the hub, .*no folder of"):
        grls.load("user/mine")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    cached(cache, "user/model", tmp_path / "model")
    raises(DataError, "is no retriever of grls", grls.load, "user/model")
    raises(ConfigError, "has no revision", grls.load, kinds / "dense", revision="main")
    raises(DataError, "no retriever here", grls.load, "mine")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    raises(DataError, "no retriever here", grls.load, "runs/mine")


def failing(error: Exception) -> Any:
    def download(*_: Any, **__: Any) -> str:
        raise error

    return download


def test_errors_of_the_hub_say_what_to_do(kinds: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def made(kind: type[Exception]) -> Exception:
        return kind.__new__(kind)  # its constructor needs a response

    for error, said in (
        (made(errors.RepositoryNotFoundError), "no repository user/mine on the hub.*hf auth login"),
        (made(errors.RevisionNotFoundError), "has no revision 'v9'"),
        (errors.OfflineModeIsEnabled("offline"), "cannot be reached"),
        (errors.LocalEntryNotFoundError("gone"), "cannot be reached"),
        (errors.HFValidationError("bad"), "can be no name on the hub"),
    ):
        monkeypatch.setattr(hub, "snapshot_download", failing(error))
        raises(ConfigError, said, grls.load, "user/mine", revision="v9")
    monkeypatch.setattr(hub, "snapshot_download", failing(ZeroDivisionError()))
    with pytest.raises(ZeroDivisionError):
        grls.load("user/mine")
    dense = grls.load(kinds / "dense", device="cpu")
    for call, said in (
        (lambda: dense.push_to_hub("mine"), "user/name"),
        (lambda: dense.push_to_hub("user/mine", licence="mit"),
         "no argument 'licence'; did you mean license"),
        (lambda: dense.push_to_hub("user/mine", license="My own"), "can be no name on the hub"),
    ):  # fmt: skip
        raises(ConfigError, said, call)
