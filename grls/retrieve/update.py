"""Adding and removing passages of a retriever folder of any kind.

A kind whose folder holds passages in a form of its own has a classmethod ``update(folder, output, changes)``,
which writes the changed folder. A composite becomes a self-contained copy (:mod:`grls.retrieve.compose`)
whose members are changed; the folders that it named stay unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from grls.data.corpus import Corpus, corpus_file
from grls.data.filters import Numbers
from grls.errors import ConfigError, DataError, GrlsError, Option
from grls.io.files import atomic_folder, refuse_foreign
from grls.io.seal import seal, verifying
from grls.io.work import alone_in
from grls.retrieve.compose import MEMBERS, write_retriever_into
from grls.retrieve.registry import Opening, class_of, load_retriever, member_keys
from grls.retrieve.spec import (
    MANIFEST,
    OPTIONS,
    followed,
    is_retriever,
    read_spec,
    refuse_changed,
)


@dataclass(frozen=True)
class Changes:
    """Changes of a corpus, and how the added passages are encoded.

    Args:
        add: Passages to add, behind the others.
        remove: Ids of passages to remove, before others are added.
        device: Where added passages are encoded.
        batch_size: Passages encoded together.
    """

    add: Corpus | None = None
    remove: Sequence[str] = ()
    device: str = "auto"
    batch_size: int = 32

    def over(self, corpus: Corpus) -> tuple[Corpus, Numbers]:
        """The corpus after the changes, and the old numbers of the passages that stay, ascending."""
        keep = np.ones(len(corpus), dtype=bool)
        for name, number in zip(self.remove, corpus.numbers(list(self.remove)), strict=True):
            if number is None:
                raise DataError(
                    f"the passage {name!r} is not in the corpus, so it cannot be removed.", corpus.source
                )
            keep[number] = False
        numbers = np.flatnonzero(keep)
        changed = corpus.select(numbers.tolist()) if self.remove else corpus
        changed.source = corpus.source
        if self.add is not None:
            changed = changed.extended(self.add)
        if not len(changed):
            raise ConfigError("the last passage cannot be removed: nothing would be left to retrieve.")
        return changed, numbers


def update_folder(folder: str | Path, output: str | Path | None, changes: Changes) -> int:
    """Remove and add passages of a retriever folder, atomically; returns how many there are now.

    Tuned options stay. ``output`` None: the folder itself is changed.
    """
    if changes.add is None and not changes.remove:
        raise ConfigError(f"nothing to do: give {Option('add', 'FILE')} or {Option('remove', 'FILE')}.")
    root = followed(folder)
    read_spec(root)
    final = Path(root if output is None else output)
    refuse_foreign(final, MANIFEST)
    if final.resolve() in root.resolve().parents:
        raise ConfigError(f"{final} holds {root}, which would be lost: choose another place.")
    in_place = final.resolve() == root.resolve()
    with (
        alone_in(root) if in_place else nullcontext(),
        verifying(True),  # a damaged file would get a new checksum
        atomic_folder(final, MANIFEST) as new,
    ):
        refuse_changed(root)
        if hasattr(_class(root), "update") and not any(_members(read_spec(root))):
            return _update_own_form(root, new, changes)
        copies = {new / path: source for source, path in write_retriever_into(new, root, final).items()}
        try:
            _update_copy([*copies], changes)
            return len(load_retriever(new, Opening("cpu")).corpus)
        except GrlsError as error:  # it names folders in place of their temporary copies
            text = error.text
            for copy, source in sorted(copies.items(), reverse=True):  # members before the folder around them
                text = text.replace(str(copy), str(source))
            error.args = (text,)
            raise


def _update_own_form(source: Path, target: Path, changes: Changes) -> int:
    """Its options and its members stay."""
    kind, spec = _class(source), read_spec(source)
    fields = {name: spec[name] for name in (*OPTIONS, *getattr(kind, "fields", ())) if name in spec}
    members, aside = target / MEMBERS, target.with_name(f"{target.name}.{MEMBERS}")
    moved = members.is_dir()  # the update writes the folder anew
    if moved:
        members.rename(aside)
    count: int = kind.update(source, target, changes)
    if moved:
        aside.rename(members)
    if fields or moved:
        seal(target / MANIFEST, {**read_spec(target), **fields})
    return count


def _update_copy(folders: Sequence[Path], changes: Changes) -> None:
    changed = []  # folders of kinds with ``update``
    for folder in filter(is_retriever, folders):
        kind = _class(folder)
        if hasattr(kind, "update"):
            changed.append(folder)
        elif not hasattr(kind, "folders"):
            raise ConfigError(
                f"{folder}: passages of a retriever of kind {read_spec(folder).get('kind')!r} cannot be "
                "added or removed: make it again over the new corpus."
            )
    composites = [folder for folder in folders if folder not in changed and is_retriever(folder)]
    files = {folder: corpus_file(folder) for folder in folders if folder not in changed}
    for folder in composites:
        for path in _corpora(folder, read_spec(folder)):
            files[path] = corpus_file(path)
    corpora = list({file.resolve(): file for file in files.values() if file.is_file()}.values())
    for folder in changed:
        _update_own_form(folder, folder, changes)
    for file in corpora:
        changes.over(Corpus.read(file))[0].write(file)
    for folder in filter(is_retriever, folders):
        seal(folder / MANIFEST, read_spec(folder))


def _corpora(folder: Path, spec: dict[str, Any]) -> Iterator[Path]:
    """The folders of the corpora that a specification names at any depth."""
    if isinstance(spec.get("corpus"), str):
        yield folder / spec["corpus"]
    for member in _members(spec):
        if isinstance(member, dict):
            yield from _corpora(folder, member)


def _members(spec: dict[str, Any]) -> Iterator[Any]:
    return (holder[key] for holder, key in member_keys(spec))


def _class(folder: Path) -> Any:
    return class_of(read_spec(folder)["kind"], folder / MANIFEST)
