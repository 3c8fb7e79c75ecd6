"""Retriever folders on the model hub: uploaded with a model card and checksums, downloaded without code."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from grls.errors import ConfigError, DataError
from grls.io.ending import needing
from grls.io.files import read_json, temporary
from grls.io.progress import counted
from grls.retrieve.base import Retriever
from grls.retrieve.compose import write_retriever
from grls.retrieve.hub_names import CardOptions
from grls.retrieve.spec import (
    MANIFEST,
    is_retriever,
)

with needing("models", "the model hub"):
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.errors import (
        HfHubHTTPError,
        HFValidationError,
        LocalEntryNotFoundError,
        LocalTokenNotFoundError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

_EXECUTABLE = (".py", ".pyc", ".so", ".pkl", ".pickle", ".bin", ".pt", ".pth", ".ckpt", ".joblib", ".dill")
"""Endings of files that can run code when they are opened; a retriever has none of them."""


def upload(folder: str | Path, repository: str, private: bool = False, card: str | None = None) -> str:
    """Upload a self-contained copy of a retriever folder, and return the address.

    The repository is made where it is missing; what it held before is replaced.

    Args:
        folder: The retriever folder.
        repository: The name of the repository: ``user/name``.
        private: Whether a new repository is private.
        card: The model card; None: the ``README.md`` of the folder, if there is one.
    """
    with temporary(Path(tempfile.gettempdir()) / "grls-upload") as scratch:
        write_retriever(folder, scratch)
        if card is not None:
            (scratch / CARD).write_text(card, encoding="utf-8")
        try:
            api = HfApi()
            api.create_repo(repository, private=private, exist_ok=True)
            return str(
                api.upload_folder(
                    repo_id=repository,
                    folder_path=str(scratch),
                    commit_message="Upload a retriever of grls",
                    delete_patterns="*",
                )
            )
        except Exception as error:
            if (ours := _as_ours(error, repository, "uploaded to", None)) is None:
                raise
            raise ours from error


def download(repository: str, revision: str | None = None) -> Path:
    """Download a retriever from the hub, or find it in the hub's cache; no code of it is run.

    Args:
        repository: Its name: ``user/name``.
        revision: A branch, tag or commit; None: the newest.
    """
    patterns = [f"*{ending}" for ending in _EXECUTABLE]
    try:
        folder = Path(snapshot_download(repository, revision=revision, ignore_patterns=patterns))
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
    if executable := [path for path in sorted(folder.rglob("*")) if path.suffix.lower() in _EXECUTABLE]:
        raise DataError(
            f"{repository} holds {executable[0].relative_to(folder)}, which can run code when it is opened; "
            "a retriever of grls has no such file. Remove it from the repository and from the cache.",
            folder,
        )
    return folder


def _as_ours(error: Exception, repository: str, action: str, revision: str | None) -> ConfigError | None:
    """An error of the hub's client, with the remedy; None: the error is of other code."""
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
    unknown = isinstance(error, HfHubHTTPError) and error.response.status_code == 401
    if unknown or isinstance(error, LocalTokenNotFoundError):
        return ConfigError("the hub asks who you are: log in with `hf auth login`.")
    if isinstance(error, HfHubHTTPError):
        return ConfigError(f"{repository}{at} cannot be {action} the hub: {error}")
    absent = "; and there is no copy in the cache, and no folder of that name" if "down" in action else ""
    unreached = isinstance(error, LocalEntryNotFoundError | ConnectionError | TimeoutError)
    if unreached or type(error).__module__.startswith("httpx"):  # httpx2, too
        return ConfigError(
            f"{repository}{at} cannot be {action} the hub, which cannot be reached (no network, or "
            f"HF_HUB_OFFLINE is set){absent}."
        )
    return None


CARD = "README.md"

_METRICS = ("metrics.json", "fit.json")
"""Files in a folder that may hold measures."""
_MOST = 1e300
"""A larger number, which a float may not hold, is no measure."""


_SHARE = re.compile(r"(^| )(n?DCG|R|P|RR|MRR|AP|MAP|F1|Success|recall|precision)(@\d+)?$")
"""Measures that are shares of 1."""

Figures = Mapping[str, Mapping[str, float]]
"""System -> measure -> value."""


def card_text(
    name: str,
    retriever: Retriever,
    options: CardOptions,
    figures: Figures,
    notes: str = "",
    local: bool = False,
) -> str:
    """A model card (``README.md``) with a header that the hub reads.

    ``name`` is that of the repository, or of the folder (``local``); ``notes`` is further Markdown.
    """
    from huggingface_hub import ModelCardData

    described, passages = retriever.describe(), len(retriever.corpus)
    systems = (described.system, described.name, *described.members)
    generative = any(word in system for system in systems for word in ("generator", "hybrid"))
    tags = ["retrieval", *(["generative-retrieval"] if generative else []), "grls", described.system]
    header = ModelCardData(
        license=options.license,
        library_name="grls",
        tags=list(dict.fromkeys(tags)),
        base_model=list(options.base_models) or None,
        language=list(options.languages) or None,
        datasets=list(options.datasets) or None,
    ).to_yaml()
    facts = {
        "System": described.name,
        "Scores": described.score_mode,
        "Passages": f"{passages:,}",
        "Members": ", ".join(described.members),
        "Training stages": ", ".join(described.stages),
        "Base models": ", ".join(options.base_models),
        "Licence": options.license or "not stated",
    }
    listed = "\n".join(f"- {fact}: {value}" for fact, value in facts.items() if value)
    json_options = json.dumps(described.options, indent=2, ensure_ascii=False)
    where = "  # the path of the folder of this file, or its name on the hub" if local else ""
    parts = [
        f"# {name}",
        f"A retriever of the Python package `grls` over {counted(passages, 'passage')}.",
        "## Use",
        f'```python\nimport grls\nretriever = grls.load("{name}"){where}\n'
        'hits = retriever.search("your question", k=5)\n```',
        "## What it is",
        listed,
        *(["## Measures", _table(figures)] if figures else []),
        *([notes] if notes else []),
        "## Options",
        f"```json\n{json_options}\n```",
    ]
    body = "\n\n".join(parts)
    return f"---\n{header}\n---\n\n{body}\n"


def card_of(retriever: Retriever, folder: str | Path, name: str, options: CardOptions) -> str:
    written = Path(folder) / CARD
    if options == CardOptions() and written.is_file():
        return written.read_text(encoding="utf-8")
    return card_text(name, retriever, options, figures_beside(folder))


def figures_beside(folder: str | Path) -> Figures:
    """The measures in ``metrics.json`` or ``fit.json`` of a folder, if any.

    Known are ``{measure: value}`` and ``{system: {measure: value}}``, alone or under ``metrics``.
    """
    for name in _METRICS:
        file = Path(folder) / name
        if file.is_file():
            content = read_json(file)
            content = content.get("metrics", content) if isinstance(content, dict) else {}
            if isinstance(content, dict):
                rows = {"this retriever": _numbers(content)}
                rows |= {str(name): _numbers(row) for name, row in content.items() if isinstance(row, dict)}
                if figures := {name: row for name, row in rows.items() if row}:
                    return figures
    return {}


def _numbers(content: dict[str, Any]) -> dict[str, float]:
    return {
        str(name): float(value)
        for name, value in content.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= _MOST
    }


def _table(figures: Figures) -> str:
    names = list(dict.fromkeys(name for row in figures.values() for name in row))
    lines = [["system", *names], ["---", *["---:"] * len(names)]]
    for system, row in figures.items():
        cells = [system]
        for name in names:
            share = name in row and _SHARE.search(name) and 0 <= row[name] <= 1
            cells.append("" if name not in row else f"{100 * row[name]:.1f}" if share else f"{row[name]:.4g}")
        lines.append(cells)
    return "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in lines)
