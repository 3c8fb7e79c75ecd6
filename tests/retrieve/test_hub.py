"""Uploading a retriever: what would be sent, with the hub's client replaced."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from small_data import small_retriever, write_small

from grls.retrieve import hub
from grls.retrieve.card import CardOptions, card_of
from grls.retrieve.generative.retriever import GenerativeRetriever


def test_a_whole_retriever_is_saved_and_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []

    class Recorder:
        def create_repo(self, name: str, private: bool, exist_ok: bool) -> None:
            calls.append((name, private, exist_ok))

        def upload_folder(self, repo_id: str, folder_path: str, **how: Any) -> str:
            shutil.copytree(folder_path, tmp_path / "hub" / repo_id)
            calls.append(how["delete_patterns"])
            return f"hub/{repo_id}"

    monkeypatch.setattr(hub, "HfApi", Recorder)
    retriever = small_retriever(write_small(tmp_path / "data"))
    folder = tmp_path / "retriever"
    retriever.save_pretrained(folder)
    card = card_of(retriever, folder, "someone/mine", CardOptions())
    assert hub.upload(folder, "someone/mine", True, card) == "hub/someone/mine"
    assert calls == [("someone/mine", True, True), "*"]
    assert "someone/mine" in (tmp_path / "hub" / "someone" / "mine" / "README.md").read_text()
    for place in (folder, tmp_path / "hub" / "someone" / "mine"):
        assert len(GenerativeRetriever.from_pretrained(place, device="cpu").corpus) == len(retriever.corpus)
