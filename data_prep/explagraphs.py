"""ExplaGraphs-Open: belief + argument -> the paths of its explanation graph, in the order of the file.

One retrieval unit is one path ``subject; relation; object``. ``dev.tsv`` is the test split (the
official test set has no graphs). Our dev split is a part of ``train.tsv``, split by belief, because
``dev.tsv`` and ``train.tsv`` also share no belief.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

from data_prep import common
from data_prep.raw import read_tsv
from grls.data.types import Query
from grls.errors import DataError

_PATH = re.compile(r"\(([^()]*)\)")


def prepare(
    raw: Path,
    out: Path,
    seed: int = 0,
    named: bool = False,
    tokenizer: Path | None = None,
) -> None:
    """Prepare ExplaGraphs-Open.

    Args:
        raw: Folder with train.tsv and dev.tsv.
        out: Folder to write; an earlier one is replaced.
        seed: Seed of the draw of the dev split.
        named: Write queries as ``belief: … argument: …``, as in arXiv 2204.13596 (appendix A.3), instead of
            the two texts without labels.
        tokenizer: Folder of a tokenizer to count passage tokens with (default: whitespace tokens).
    """
    files = {"train": raw / "train.tsv", "test": raw / "dev.tsv"}
    rows = {name: list(_rows(file, name, named)) for name, file in files.items()}
    pool = common.PassagePool()
    pool.update(path for _, paths in rows["train"] + rows["test"] for path in paths)
    find = pool.finder()
    queries = {name: [q._replace(evidence=find(paths)) for q, paths in pairs] for name, pairs in rows.items()}

    def belief(query: Query) -> str:
        return common.plain_words(json.loads(query.metadata)["belief"])

    train, dev = common.split(queries["train"], (0.9, 0.1), seed, belief)
    splits = {"train": train, "dev": dev, "test": queries["test"]}
    common.finish(out, common.dataset(pool.passages(), splits), tokenizer)


def _rows(file: Path, name: str, named: bool) -> Iterator[tuple[Query, list[str]]]:
    for line, fields in read_tsv(file, ("belief", "argument", "stance", "graph")):
        belief, argument, stance, graph = fields
        metadata = common.metadata(belief=belief, argument=argument, stance=stance)
        text = f"belief: {belief} argument: {argument}" if named else f"{belief} {argument}"
        yield Query(f"{name}-{line}", text, metadata=metadata), _paths(graph, file, line)


def _paths(graph: str, file: Path, line: int) -> list[str]:
    paths = [[part.strip() for part in path.split(";")] for path in _PATH.findall(graph)]
    if not paths or _PATH.sub("", graph).strip() or any(len(p) != 3 or not all(p) for p in paths):
        raise DataError(f"expected (subject; relation; object)…, got {graph!r:.80}.", file, line)
    return ["; ".join(path) for path in paths]
