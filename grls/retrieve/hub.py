"""Retriever folders on the model hub: uploaded with a model card and checksums, downloaded without code."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi, snapshot_download
from huggingface_hub.errors import (
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    LocalTokenNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from grls.data.corpus import corpus_file
from grls.errors import ConfigError, DataError
from grls.io.files import NEW, atomic_folder, is_temporary, read_json, refuse_foreign, temporary
from grls.io.progress import counted
from grls.retrieve.base import Retriever
from grls.retrieve.hub_names import CardOptions
from grls.retrieve.registry import member_keys
from grls.retrieve.spec import (
    CHECKSUMS,
    MANIFEST,
    compare_checksums,
    followed,
    is_retriever,
    member_path,
    own_sum,
    read_spec,
    refuse_broken_seal,
    relative,
    write_checksums,
    write_manifest,
)

_EXECUTABLE = (".py", ".pyc", ".so", ".pkl", ".pickle", ".bin", ".pt", ".pth", ".ckpt", ".joblib", ".dill")
"""Endings of files that can run code when they are opened; a retriever has none of them."""

MEMBERS = "members"
"""The folder of the members in a self-contained copy."""


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
    """
    with temporary(Path(tempfile.gettempdir()) / "grls-upload") as scratch:
        pack_folder(folder, scratch / NEW)
        if card is not None:
            (scratch / NEW / CARD).write_text(card, encoding="utf-8")
        write_checksums(scratch / NEW)
        try:
            api = HfApi()
            api.create_repo(repository, private=private, exist_ok=True)
            return str(
                api.upload_folder(
                    repo_id=repository,
                    folder_path=str(scratch / NEW),
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

    Every file is compared with the checksums that were uploaded with it.

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
    compare_checksums(folder)
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
    if isinstance(error, LocalTokenNotFoundError):
        return ConfigError("the hub asks who you are: log in with `hf auth login`.")
    if isinstance(error, HfHubHTTPError):
        return ConfigError(f"{repository}{at} cannot be {action} the hub: {error}")
    absent = "; and there is no copy in the cache, and no folder of that name" if "down" in action else ""
    unreached = isinstance(error, LocalEntryNotFoundError | ConnectionError | TimeoutError)
    if unreached or type(error).__module__.partition(".")[0] == "httpx":
        return ConfigError(
            f"{repository}{at} cannot be {action} the hub, which cannot be reached (no network, or "
            f"HF_HUB_OFFLINE is set){absent}."
        )
    return None


def pack_folder(folder: str | Path, output: str | Path, link: bool = False) -> None:
    """Write a self-contained copy of a retriever folder, atomically.

    The folder may be a link; an earlier retriever at ``output`` is replaced, also the folder itself. With
    ``link``, only temporary folders are copied; members in others stay named.
    """
    root = followed(folder)
    read_spec(root)
    refuse_foreign(output, MANIFEST)
    with atomic_folder(output, MANIFEST) as new:
        write_packed(root, output, new, link)


def write_packed(root: Path, output: str | Path, new: Path, link: bool = False) -> dict[Path, str]:
    """Write a self-contained copy of a retriever folder (no link) into the empty folder ``new``.

    The copy holds the files of the retriever, and each folder that it names once, in ``members/NAME``; no
    path leaves it. Models that are named by their hub names stay named. ``output`` is the final path.

    Returns:
        The folders that are copied -> the paths of their copies in ``new``.
    """
    root, output = root.resolve(), Path(output).resolve()
    copies = {root: "."}
    if output in root.parents:
        raise ConfigError(f"{output} holds {root}, which would be lost: choose another place.")

    def copy(source: Path, target: str) -> None:
        _copy_files(source, new / target)
        spec = read_spec(source)
        refuse_broken_seal(source)
        moved = with_copies(spec, source, target)
        if moved != spec and "sha256" in spec:
            moved["sha256"] = own_sum(moved)
        write_manifest(new / target, moved)

    def with_copies(spec: dict[str, Any], source: Path, target: str) -> dict[str, Any]:
        moved = deepcopy(spec)
        for holder, key in member_keys(moved, source / MANIFEST):
            member = holder[key]
            if isinstance(member, dict):
                holder[key] = with_copies(member, source, target)
            elif isinstance(member, str) and (path := member_path(member, source)).exists():
                real = path.resolve()
                inside = real.is_relative_to(source) and real.relative_to(source).parts[:1] != (MEMBERS,)
                if inside and not is_retriever(real):  # it is copied with the files of the folder
                    continue
                if link and not is_temporary(real):
                    refuse_lost(real)
                    holder[key] = relative(path, output / target)
                else:
                    holder[key] = relative(new / copied(path), new / target)
        return moved

    def refuse_lost(source: Path) -> None:
        if output == source or (output in source.parents and output != root):
            raise ConfigError(
                f"{output} is or holds {source}, a member of the retriever, which would be lost: choose "
                "another place."
            )

    def copied(path: Path) -> str:
        """The path of the copy of a folder or corpus, which is copied once."""
        source = followed(path).resolve()
        if source in copies:
            return copies[source]
        refuse_lost(source)
        name = source.name
        if source.parent.name.startswith(".") or source.parent.name == "snapshots":  # the hub's, or temporary
            name = str(read_spec(source)["kind"]) if is_retriever(source) else "data"
        taken = {target.lower() for target in copies.values()}
        target, number = f"{MEMBERS}/{name}", 1
        while target.lower() in taken:
            number += 1
            target = f"{MEMBERS}/{name}-{number}"
        copies[source] = target
        if is_retriever(source):
            copy(source, target)
        elif corpus_file(source).is_file():  # of a data set, the corpus alone
            (new / target).mkdir(parents=True)
            shutil.copyfile(corpus_file(source), corpus_file(new / target))
        else:
            _copy_files(source, new / target)
        return target

    copy(root, ".")
    return copies


def _copy_files(source: Path, target: Path) -> None:
    """Manifest, checksums, members and hidden files stay behind; links are followed."""
    target.mkdir(parents=True, exist_ok=True)
    for entry in sorted(source.iterdir()):
        if entry.name in (MANIFEST, CHECKSUMS) or entry.name.startswith("."):
            continue
        if entry.is_dir():
            if entry.name != MEMBERS and not is_retriever(entry):
                shutil.copytree(entry, target / entry.name, ignore=shutil.ignore_patterns(".*"))
        else:
            shutil.copyfile(entry, target / entry.name)


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
    """The card in the folder of a retriever, or a new one if options are given."""
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
    """Shares of 1 stand in points, as in all other tables."""
    names = list(dict.fromkeys(name for row in figures.values() for name in row))
    lines = [["system", *names], ["---", *["---:"] * len(names)]]
    for system, row in figures.items():
        cells = [system]
        for name in names:
            share = name in row and _SHARE.search(name) and 0 <= row[name] <= 1
            cells.append("" if name not in row else f"{100 * row[name]:.1f}" if share else f"{row[name]:.4g}")
        lines.append(cells)
    return "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in lines)
