"""``grls index update``: passages are added to a retriever folder, or removed from it."""

from __future__ import annotations

from grls.errors import ConfigError
from grls.io.progress import counted


def update(
    retriever: str,
    *,
    add: str | None = None,
    remove: str | None = None,
    merge: bool = False,
    output: str | None = None,
    device: str = "auto",
    batch_size: int = 32,
) -> None:
    """Add and remove passages of a retriever of any kind, without making it again.

    Passages are removed first, then added behind the others. Models are not trained on the new passages. Of
    a generative retriever the index is changed, and merged if asked. Of retrievers that encode passages
    (dense, sparse, multi-vector) only the added ones are encoded. A hybrid, a fusion, hops or another
    composite becomes a copy whose members are inside and are changed; the folders that it named stay as they
    are. What is tuned stays in the folder.

    Args:
        retriever: The retriever folder.
        add: Passages to add: a ``corpus.jsonl``, or the folder that holds one. Not to an index of unique
            prefixes.
        remove: A file of passages to remove, an id a line.
        merge: Merge the passages that were added to a generative retriever into one index, and drop removed
            ones. Searches are then as fast as over a new index. This is always done within a composite, and
            where an added passage has the id of a removed one.
        output: Folder of the changed retriever; null: the folder is replaced.
        device: Where added passages are encoded: cpu, cuda, cuda:1, …; auto takes a GPU where there is one.
        batch_size: Passages encoded together.
    """
    from time import perf_counter

    from grls.data.corpus import Corpus
    from grls.io.ending import quiet
    from grls.io.files import named_lines
    from grls.retrieve.spec import followed
    from grls.retrieve.update import Changes, update_folder

    quiet()
    if add is None and remove is None and not merge:
        raise ConfigError("nothing to do: give --add FILE, --remove FILE or --merge true.")
    gone: list[str] = []
    if remove is not None:
        gone = list(dict.fromkeys(line for _, line in named_lines(remove, "a passage id a line")))
    new = None if add is None else Corpus.read(add)
    start = perf_counter()
    count = update_folder(retriever, output, Changes(new, gone, merge, device, batch_size))
    left = f"{count.removed:,} removed and not yet merged, " if count.removed else ""
    where, seconds = output or followed(retriever), perf_counter() - start
    print(f"{where}: {counted(count.found, 'passage')} to be found, {left}{seconds:.1f} s")
