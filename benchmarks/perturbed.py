"""A data set whose training queries stand there twice, the second time perturbed (docs/results/twowiki.md).

    python -m benchmarks.perturbed --data data/twowiki --kind typo --output data/twowiki-typo

Training on both was measured beside training on the queries as they are.
"""

from __future__ import annotations

from pathlib import Path

from jsonargparse import auto_cli

from grls.data.corpus import Corpus
from grls.data.dataset import read_qrels, read_queries, write_dataset
from grls.data.perturbed import Perturbation, perturbed


def main(data: str, output: str, kind: Perturbation = "typo", seed: int = 0) -> None:
    """Write the data set; dev and test queries stay as they are.

    Args:
        data: Data set folder with the split train.
        output: Folder to write; an earlier one is replaced.
        kind: Kind of perturbation.
        seed: Its seed.
    """
    qrels = {file.stem: read_qrels(file) for file in sorted((Path(data) / "qrels").glob("*.tsv"))}
    if "train" not in qrels:
        raise SystemExit(f"error: {data} has no qrels/train.tsv: name a data set folder with this split.")
    corpus, queries = Corpus.read(data), [*read_queries(data)]
    for query in list(queries):
        changed = perturbed(query, kind, seed, corpus) if query.id in qrels["train"] else None
        if changed is not None:
            queries.append(changed._replace(id=f"{query.id}-{kind}"))
            qrels["train"][f"{query.id}-{kind}"] = qrels["train"][query.id]
    write_dataset(output, corpus, queries, qrels)
    print(f"{len(qrels['train']):,} training queries")


if __name__ == "__main__":
    auto_cli(main, as_positional=False)
