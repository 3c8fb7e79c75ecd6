"""``grls index update``: passages are added to a retriever folder, or removed from it."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from grls.errors import ConfigError
from grls.io.counts import counted

if TYPE_CHECKING:
    from grls.data.corpus import Corpus


def update(
    retriever: str,
    *,
    add: str | None = None,
    remove: str | None = None,
    merge: bool = False,
    output: str | None = None,
) -> None:
    """Add and remove passages of a generative retriever, without building its index again.

    Passages are removed first, then added, then merged if asked. The model is not trained on the new
    passages.

    Args:
        retriever: Folder of a generative retriever.
        add: Passages to add: a ``corpus.jsonl``, or the folder that holds one. Not to an index of unique
            prefixes.
        remove: A file of passages to remove, an id a line.
        merge: Merge added passages into one index, and drop removed ones. Searches are then as fast as over a
            new index, and the ids of removed passages are free again.
        output: Folder of the changed retriever; null: the folder is replaced.
    """
    from grls.data.corpus import Corpus
    from grls.io.files import refuse_foreign
    from grls.io.locks import alone_in
    from grls.io.logs import quiet
    from grls.retrieve.spec import MANIFEST, followed, is_retriever

    quiet()
    if add is None and remove is None and not merge:
        raise ConfigError("nothing to do: give --add FILE, --remove FILE or --merge true.")
    retriever = str(followed(retriever))
    final = output or retriever
    refuse_foreign(final, MANIFEST)
    _refuse_other_kinds(retriever)
    gone = [] if remove is None else _ids(remove)
    new = None if add is None else Corpus.read(add)
    in_place = Path(final).resolve() == Path(retriever).resolve() and is_retriever(Path(retriever))
    with alone_in(retriever) if in_place else nullcontext():
        _change(retriever, final, gone, new, merge)


def _change(retriever: str, final: str, gone: list[str], new: Corpus | None, merge: bool) -> None:
    from time import perf_counter

    from grls.retrieve.generative.retriever import GenerativeRetriever

    opened = GenerativeRetriever.from_pretrained(retriever, "cpu")
    start = perf_counter()
    if gone:
        opened.remove(gone)
    if new is not None:
        opened.add(new)
    if merge:
        opened.merge()
    seconds = perf_counter() - start
    opened.save_pretrained(final)
    print(
        f"{final}: {counted(len(opened.corpus) - len(opened.removed), 'passage')} to be found, "
        f"{len(opened.removed):,} removed and not yet merged, {seconds:.1f} s"
    )


def _refuse_other_kinds(folder: str) -> None:
    """Refuse a retriever whose passages can only be changed by making it again.

    Raises:
        ConfigError: It is one; the error names the command.
    """
    from grls.retrieve.spec import read_spec

    kind = read_spec(folder).get("kind", "generative")
    if kind == "generative":
        return
    raise ConfigError(
        f"{folder}: `grls index update` changes the index of a generative retriever, and this one is of kind "
        f"{kind!r}: {_AGAIN.get(kind, _OF_MEMBERS).format(folder)}."
    )


_FROM_ITS_MODEL = "make it again with `grls index {}/model --corpus DATA --output FOLDER`"
_AGAIN = {
    "bm25": "make it again with `grls index bm25 --corpus DATA --output FOLDER`, which takes seconds",
    "dense": _FROM_ITS_MODEL,
    "sparse": _FROM_ITS_MODEL,
    "multi-vector": _FROM_ITS_MODEL,
}
"""What to do for a kind; the place is that of the folder."""
_OF_MEMBERS = "change or make again its members, over one corpus, and then this folder"


def _ids(file: str) -> list[str]:
    from grls.io.files import named_lines

    return list(dict.fromkeys(line for _, line in named_lines(file, "a passage id a line")))
