"""Adding and removing passages of a retriever folder of any kind.

A kind whose folder holds passages in a form of its own (encoded, indexed) has a classmethod
``update(folder, output, changes)``, which writes the changed folder and returns a
:class:`~grls.retrieve.changes.ChangedCount`. A composite becomes a self-contained copy
(:mod:`grls.retrieve.pack`) whose members are changed; the folders that it named stay as they are. All is
written under a temporary name and renamed at the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from grls.data.corpus import Corpus, corpus_file
from grls.errors import ConfigError, GrlsError, Option
from grls.index.array_files import verifying
from grls.io.files import atomic_folder, refuse_foreign
from grls.io.locks import alone_in
from grls.retrieve.changes import ChangedCount, Changes
from grls.retrieve.corpora import CORPUS_FIELDS, passages_record, refuse_other_passages
from grls.retrieve.pack import MEMBERS, write_packed
from grls.retrieve.registry import Opening, class_of, load_retriever
from grls.retrieve.spec import (
    MANIFEST,
    OPTIONS,
    followed,
    is_retriever,
    member_slots,
    read_spec,
    update_spec,
)


def update_folder(folder: str | Path, output: str | Path | None, changes: Changes) -> ChangedCount:
    """Remove and add passages of a retriever folder, atomically.

    What is tuned stays in the folder. Within a composite the index of a generator is merged, so that all
    members are over one corpus.

    Args:
        folder: The retriever folder; of a link, the folder that it leads to.
        output: The changed folder; an earlier retriever there is replaced; None: the folder itself.
        changes: The changes.

    Raises:
        ConfigError: There is nothing to do, a kind takes no changes, or ``output`` holds something else.
        DataError: A passage is unknown, or its id is taken.
        MismatchError: A file is damaged.
        WriteError: Another run changes the folder, or it cannot be written. After any error, the folder is
            as it was.
    """
    if changes.add is None and not changes.remove and not changes.merge:
        raise ConfigError(
            f"nothing to do: give {Option('add', 'FILE')}, {Option('remove', 'FILE')} or "
            f"{Option('merge', True)}."
        )
    root = followed(folder)
    read_spec(root)
    final = Path(root if output is None else output)
    refuse_foreign(final, MANIFEST)
    if final.resolve() in root.resolve().parents:
        raise ConfigError(f"{final} holds {root}, which would be lost: choose another place.")
    in_place = final.resolve() == root.resolve()
    with (
        alone_in(root) if in_place else nullcontext(),
        verifying(True),  # what is damaged would get new checksums
        atomic_folder(final, MANIFEST) as new,
    ):
        if _holds_own_form(root) and not any(_members(read_spec(root))):
            return _update_own_form(root, new, changes)
        places = write_packed(root, final, new)
        with _naming({new / place: source for source, place in places.items()}):
            _update_copy([new / place for place in places.values()], replace(changes, merge=True))
            return ChangedCount(len(load_retriever(new, Opening("cpu")).corpus))


def _holds_own_form(folder: Path) -> bool:
    """Whether a folder holds passages in a form that its kind changes itself."""
    return is_retriever(folder) and hasattr(_class(folder), "update")


def _update_own_form(source: Path, target: Path, changes: Changes) -> ChangedCount:
    """Change such a folder; its options and its members stay."""
    kind, spec = _class(source), read_spec(source)
    kept = {name: spec[name] for name in (*OPTIONS, *getattr(kind, "fields", ())) if name in spec}
    with _aside(target / MEMBERS, target.with_name(f"{target.name}.{MEMBERS}")):
        count: ChangedCount = kind.update(source, target, changes)
    if kept:
        update_spec(target, kept)
    return count


@contextmanager
def _aside(folder: Path, place: Path) -> Iterator[None]:
    """A context in which a folder, if it exists, is in another place."""
    moved = folder.is_dir()
    if moved:
        folder.rename(place)
    yield
    if moved:
        place.rename(folder)


def _update_copy(folders: Sequence[Path], changes: Changes) -> None:
    """Change all that a self-contained copy holds: passages in a form of their own, and corpora.

    Args:
        folders: The copy and what it holds: retrievers, corpora, models.
        changes: The changes.
    """
    retrievers = [folder for folder in folders if is_retriever(folder)]
    for folder in retrievers:
        _refuse_other_kind(folder)
    own = [folder for folder in retrievers if _holds_own_form(folder)]
    others = [folder for folder in folders if folder not in own]
    corpora = _corpora(others)
    removed = {folder: set(_removed_before(folder)) for folder in own}
    gone = list(dict.fromkeys(chain(changes.remove, *map(sorted, removed.values()))))
    for folder, before in removed.items():
        left = [one for one in gone if one not in before]
        _update_own_form(folder, folder, replace(changes, remove=left))
    for file in corpora:
        replace(changes, remove=gone).over(Corpus.read(file)).corpus.write(file)
    for folder in others:
        if is_retriever(folder):
            _refresh(folder)


def _removed_before(folder: Path) -> list[str]:
    """Ids of passages that a folder holds though they were removed; the other members lose them now."""
    kind = _class(folder)
    return kind.removed_in(folder) if hasattr(kind, "removed_in") else []


def _corpora(folders: Sequence[Path]) -> list[Path]:
    """The files of the passages that folders hold or name, each once.

    Raises:
        MismatchError: One is not as it was when its retriever was made.
    """
    files = {folder: corpus_file(folder) for folder in folders}
    for folder in filter(is_retriever, folders):
        for part, place in _with_corpora(folder, read_spec(folder)):
            files[place] = corpus_file(place)
            if files[place].is_file():
                refuse_other_passages(Corpus.read(place), part)
    return list({file.resolve(): file for file in files.values() if file.is_file()}.values())


def _with_corpora(folder: Path, spec: dict[str, Any]) -> Iterator[tuple[dict[str, Any], Path]]:
    """The parts of a specification that name a corpus or its fingerprints, each with the place of the corpus.

    Args:
        folder: A folder of a retriever that holds passages in no form of its own.
        spec: Its specification.
    """
    for part in (spec, *_embedded(spec)):
        if CORPUS_FIELDS[0] in part or isinstance(part.get("corpus"), str):
            yield part, folder / part.get("corpus", ".")


def _refresh(folder: Path) -> None:
    """Write the fingerprints of the changed passages into a ``grls.json``."""
    spec = read_spec(folder)
    for part, place in _with_corpora(folder, spec):
        if CORPUS_FIELDS[0] in part:
            part |= passages_record(Corpus.read(place))
    update_spec(folder, spec)


def _refuse_other_kind(folder: Path) -> None:
    """Refuse a retriever that holds data of which nothing is known.

    Raises:
        ConfigError: With the folder and the remedy.
    """
    kind = _class(folder)
    if not hasattr(kind, "update") and not hasattr(kind, "folders"):
        raise ConfigError(
            f"{folder}: passages of a retriever of kind {read_spec(folder).get('kind')!r} cannot be added or "
            "removed: make it again over the new corpus."
        )


def _embedded(spec: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The specifications that one embeds, at any depth."""
    for value in _members(spec):
        if isinstance(value, dict):
            yield value
            yield from _embedded(value)


def _members(spec: Mapping[str, Any]) -> Iterator[Any]:
    """The folders that a specification names, and the specifications that it embeds."""
    for field in getattr(class_of(spec.get("kind")), "folders", ()):
        for holder, key in member_slots(spec, field.split(".")):
            yield holder[key]


def _class(folder: Path) -> Any:
    return class_of(read_spec(folder)["kind"], folder / MANIFEST)


@contextmanager
def _naming(folders: Mapping[Path, Path]) -> Iterator[None]:
    """A context whose errors name folders in place of their temporary copies.

    Args:
        folders: Copies -> the folders that they are copies of.
    """
    try:
        yield
    except GrlsError as error:
        text = error.text
        for copy, source in sorted(folders.items(), reverse=True):  # members before what holds them
            text = text.replace(str(copy), str(source))
        error.args = (text,)
        raise
