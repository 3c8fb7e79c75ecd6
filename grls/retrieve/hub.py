"""Retriever folders on the model hub."""

from __future__ import annotations

from pathlib import Path

from huggingface_hub import HfApi


def upload(folder: str | Path, repository: str, private: bool = False) -> str:
    """Upload a retriever folder as a model repository, made where it is missing; returns its address."""
    api = HfApi()
    api.create_repo(repository, private=private, exist_ok=True)
    return str(api.upload_folder(repo_id=repository, folder_path=str(folder)))
