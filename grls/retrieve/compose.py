"""Writing composites to folders.

A specification says what a composite is made of. :func:`write_retriever` writes it, with the members inside
or by their folders. :class:`~grls.api.searcher.Searcher` makes composites of retrievers at hand, each with
its specification; :func:`compose` opens one whose members are named by their folders::

    hops = compose(hops_spec("runs/dense", HopOptions(steps="ranked")))
    write_retriever(hops, "runs/hops", link=True)
"""

from __future__ import annotations

import json
import os
import shutil
from copy import deepcopy
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

from grls.data.corpus import corpus_file
from grls.data.inputs.tables import json_value
from grls.errors import ConfigError, DataError, MismatchError
from grls.io.files import atomic_folder, is_temporary, refuse_foreign
from grls.io.seal import seal
from grls.retrieve.registry import Opening, member_keys, open_spec, with_languages
from grls.retrieve.spec import (
    FORMAT,
    MANIFEST,
    Component,
    folder_name,
    followed,
    is_retriever,
    member_path,
    read_spec,
    refuse_changed,
    relative,
)

MEMBERS = "members"
"""The folder of the members in a self-contained copy."""


def compose(spec: dict[str, Any], opening: Opening | None = None) -> Component:
    """The composite of a specification whose members are named by their folders, in memory."""
    here, opening = Path(), replace(opening or Opening(), opened={}, numbers=count())
    draft = with_languages(spec, here)
    try:
        retriever: Any = open_spec(here, draft, opening)
        complete = with_languages(spec, here, retriever.corpus)
        if complete != draft:
            retriever = open_spec(here, complete, opening)
    except (ConfigError, DataError, MismatchError) as error:
        text = error.text.removeprefix(f"{MANIFEST}: ")  # there is no such file
        if text == error.text:
            raise
        raise type(error)(text) from error
    if hasattr(retriever, "sums"):
        complete |= retriever.sums()
    return Component(retriever, None, complete)


def write_retriever(
    retriever: Component | str | Path, output: str | os.PathLike[str], link: bool = False
) -> None:
    """Write a retriever to a folder, atomically, with its members inside.

    Args:
        retriever: The retriever, or its folder; of a link, the folder that it leads to.
        output: The folder; an earlier retriever there is replaced. It may be the retriever's own.
        link: Name the folders of members that outlive the written one, instead of copying them.
    """
    root = retriever
    if isinstance(root, Component) and root.folder is not None:
        root = root.folder
    if not isinstance(root, Component):
        root = followed(root)
        read_spec(root)
    place = Path(output)
    refuse_foreign(place, MANIFEST)
    with atomic_folder(place, MANIFEST) as new:
        write_retriever_into(new, root, place, link)


def write_retriever_into(
    new: Path, root: Component | Path, output: str | Path, link: bool = False
) -> dict[Component | Path, str]:
    """:func:`write_retriever` into an empty folder.

    Each folder that the retriever names is copied once, into ``members/NAME``. Models that are named by
    their hub names stay named.

    Args:
        new: The empty folder.
        root: The retriever in memory, or its folder, which is no link.
        output: The final path.
        link: See :func:`write_retriever`.

    Returns:
        The folders that are copied -> the paths of their copies in ``new``.
    """
    output = Path(output).resolve()
    if isinstance(root, Path):
        root = root.resolve()
        if output in root.parents:
            raise ConfigError(f"{output} holds {root}, which would be lost: choose another place.")
    copies: dict[Component | Path, str] = {root: "."}

    def copy(source: Component | Path, target: str) -> None:
        """Copy a retriever, with all members."""
        if isinstance(source, Path):
            refuse_changed(source)
            _copy_files(source, new / target)
            spec = read_spec(source)
        elif source.spec is None:
            if not hasattr(source.retriever, "save_pretrained"):
                raise ConfigError(
                    f"a retriever of kind {source.retriever.kind!r} in memory cannot be written: it has no "
                    "save_pretrained(folder), and is not made by a call of a searcher."
                )
            source.retriever.save_pretrained(new / target)
            return
        else:
            (new / target).mkdir(parents=True, exist_ok=True)
            spec = {"format": FORMAT, **source.spec}
        moved = with_copies(spec, source, target)
        seal(new / target / MANIFEST, json.loads(json.dumps(moved, default=json_value)))

    def with_copies(spec: dict[str, Any], source: Component | Path, target: str) -> dict[str, Any]:
        """A specification whose paths lead to the copies."""
        moved = deepcopy(spec)
        for holder, key in member_keys(moved):
            member = holder[key]
            if isinstance(member, dict):
                holder[key] = with_copies(member, source, target)
            elif isinstance(member, Component) and member.folder is None:
                holder[key] = relative(new / copied(member), new / target)
            elif (path := path_of(member, source)) is not None:
                real = path.resolve()
                if isinstance(source, Path) and is_file_of(real, source):
                    continue  # it is copied with the files of the folder
                if link and (is_temporary(output) or not is_temporary(real)):
                    refuse_lost(real)
                    holder[key] = relative(path, output / target)
                else:
                    holder[key] = relative(new / copied(path), new / target)
        return moved

    def is_file_of(path: Path, folder: Path) -> bool:
        inside = path.is_relative_to(folder) and not path.is_relative_to(folder / MEMBERS)
        return inside and not is_retriever(path)

    def path_of(member: Any, source: Component | Path) -> Path | None:
        """The path of a member; None: it is the name of a model, or ``bm25``."""
        if isinstance(member, Component):
            return member.folder
        path = member_path(member, source if isinstance(source, Path) else Path())
        return path if path.exists() else None

    def refuse_lost(source: Path) -> None:
        if output == source or (output in source.parents and output != root):
            raise ConfigError(
                f"{output} is or holds {source}, a member of the retriever, which would be lost: choose "
                "another place."
            )

    def copied(place: Component | Path) -> str:
        """The path of the copy of a retriever, model or corpus, which is copied once."""
        source = followed(place).resolve() if isinstance(place, Path) else place
        if source in copies:
            return copies[source]
        if isinstance(source, Path):
            refuse_lost(source)
        name = folder_name(source) if isinstance(source, Path) else source.name
        taken = {target.lower() for target in copies.values()}
        target, number = f"{MEMBERS}/{name}", 1
        while target.lower() in taken:
            number += 1
            target = f"{MEMBERS}/{name}-{number}"
        copies[source] = target
        if isinstance(source, Component) or is_retriever(source):
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
    """Copy a folder without its manifest, members and hidden files; links are followed."""
    target.mkdir(parents=True, exist_ok=True)
    for entry in sorted(source.iterdir()):
        if entry.name == MANIFEST or entry.name.startswith("."):
            continue
        if entry.is_dir():
            if entry.name != MEMBERS and not is_retriever(entry):
                shutil.copytree(entry, target / entry.name, ignore=shutil.ignore_patterns(".*"))
        else:
            shutil.copyfile(entry, target / entry.name)
