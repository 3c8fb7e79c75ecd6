"""Uploading a retriever: what would be sent, with the hub's client replaced."""

from pathlib import Path
from typing import Any

import pytest
from small_data import small_retriever, write_small

from grls.retrieve import hub
from grls.retrieve.generative.retriever import GenerativeRetriever


class Recorder:
    """The calls of the hub's client."""

    calls: list[tuple[str, Any]] = []  # noqa: RUF012 - emptied by each test

    def create_repo(self, name: str, private: bool, exist_ok: bool) -> None:
        self.calls.append((name, private))

    def upload_folder(self, repo_id: str, folder_path: str) -> str:
        self.calls.append((repo_id, folder_path))
        return f"hub/{repo_id}"


def test_a_whole_retriever_is_saved_and_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "HfApi", Recorder)
    monkeypatch.setattr(Recorder, "calls", [])
    retriever = small_retriever(write_small(tmp_path / "data"))
    folder = tmp_path / "retriever"
    assert retriever.push_to_hub("someone/mine", folder, private=True) == "hub/someone/mine"
    assert Recorder.calls == [("someone/mine", True), ("someone/mine", str(folder))]
    assert len(GenerativeRetriever.from_pretrained(folder, device="cpu").corpus) == len(retriever.corpus)
