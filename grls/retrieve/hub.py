"""Retriever folders on the model hub: uploaded with a model card and checksums, downloaded without code."""

from __future__ import annotations

import tempfile
from pathlib import Path

from huggingface_hub import HfApi, snapshot_download
from huggingface_hub.errors import (
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    LocalTokenNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from grls.errors import ConfigError, DataError
from grls.io.temporary import NEW, temporary
from grls.retrieve.card import CARD
from grls.retrieve.checksums import compare_checksums, write_checksums
from grls.retrieve.pack import pack_folder
from grls.retrieve.spec import MANIFEST, is_retriever

_CODE = (".py", ".pyc", ".so", ".pkl", ".pickle", ".bin", ".pt", ".pth", ".ckpt", ".joblib", ".dill")
"""Endings of files that can run code when they are opened; a retriever has none of them."""


def upload(folder: str | Path, repository: str, private: bool = False, card: str | None = None) -> str:
    """Upload a self-contained copy of a retriever folder as a model repository, made where it is missing.

    What the repository held before is replaced.

    Args:
        folder: The retriever folder.
        repository: The name of the repository: ``user/name``.
        private: Whether a new repository is private.
        card: The model card; None: the ``README.md`` of the folder, if there is one.

    Returns:
        The address.

    Raises:
        ConfigError: The hub refuses the name or the user, or cannot be reached.
        DataError: The folder is no retriever.
    """
    with temporary(Path(tempfile.gettempdir()) / "grls-upload") as place:
        pack_folder(folder, place / NEW)
        if card is not None:
            (place / NEW / CARD).write_text(card, encoding="utf-8")
        write_checksums(place / NEW)
        try:
            api = HfApi()
            api.create_repo(repository, private=private, exist_ok=True)
            return str(
                api.upload_folder(
                    repo_id=repository,
                    folder_path=str(place / NEW),
                    commit_message="Upload a retriever of grls",
                    delete_patterns="*",
                )
            )
        except Exception as error:
            if (ours := _as_ours(error, repository, "uploaded to")) is None:
                raise
            raise ours from error


def download(repository: str, revision: str | None = None) -> Path:
    """Download a retriever from the hub, or find it in the hub's cache; no code of it is run.

    Every file is compared with the checksums that were uploaded with it.

    Args:
        repository: Its name: ``user/name``.
        revision: A branch, tag or commit; None: the newest.

    Raises:
        ConfigError: There is no such repository or revision, or the hub cannot be reached.
        DataError: The repository holds no retriever, or files that can run code.
        MismatchError: A file is not as it was uploaded.
    """
    try:
        folder = Path(
            snapshot_download(repository, revision=revision, ignore_patterns=[f"*{one}" for one in _CODE])
        )
    except Exception as error:
        if (ours := _as_ours(error, repository, "downloaded from", revision)) is None:
            raise
        raise ours from error
    if not is_retriever(folder):
        raise DataError(
            f"{repository} on the hub is no retriever of grls ({MANIFEST} is missing). A model is made one "
            "with `grls index`.",
            folder,
        )
    found = [path for path in sorted(folder.rglob("*")) if path.suffix.lower() in _CODE]
    if found:
        raise DataError(
            f"{repository} holds {found[0].relative_to(folder)}, which can run code when it is opened; a "
            "retriever of grls has no such file. Remove it from the repository and from the cache.",
            folder,
        )
    compare_checksums(folder)
    return folder


def _as_ours(error: Exception, repository: str, what: str, revision: str | None = None) -> ConfigError | None:
    """An error of the hub's client, with the remedy; None: it is none."""
    at = "" if revision is None else f" at the revision {revision!r}"
    if isinstance(error, HFValidationError):
        return ConfigError(f"{repository!r} can be no name on the hub ({error}); expected user/name.")
    if isinstance(error, RevisionNotFoundError):
        return ConfigError(f"{repository} on the hub has no revision {revision!r}; name another one.")
    if isinstance(error, RepositoryNotFoundError):
        return ConfigError(
            f"there is no repository {repository} on the hub, and no folder of that name here; or it is "
            "private: log in with `hf auth login`."
        )
    if isinstance(error, LocalTokenNotFoundError):
        return ConfigError("the hub asks who you are: log in with `hf auth login`.")
    if isinstance(error, HfHubHTTPError):
        return ConfigError(f"{repository}{at} cannot be {what} the hub: {error}")
    unreached = isinstance(error, LocalEntryNotFoundError | ConnectionError | TimeoutError)
    if unreached or type(error).__module__.partition(".")[0] == "httpx":
        return ConfigError(
            f"{repository}{at} cannot be {what} the hub, which cannot be reached (no network, or "
            "HF_HUB_OFFLINE is set); and there is no copy in the cache, and no folder of that name."
        )
    return None
