"""What `grls fit` makes of passages alone, measured on labelled questions that it never sees.

    python -m benchmarks.unlabelled --data '[data/musique, data/nq]' --budget 40m
    python -m benchmarks.unlabelled --data '[data/facts]' --seeds '[0, 1, 2]' --rival true

Of each data set folder the passages are copied, and nothing else; `grls fit` works on the copy, and what it
keeps and all that it kept not answer the questions of ``--split``. What another call has made goes on.
``--rival``: the encoder after sentence-transformers' own recipe for texts without labels (TSDAE, Wang et al.
2021, arXiv 2104.06979: a sentence with most of its words deleted is written again from its embedding), with
as many steps as ``--steps``, searched with the same code.
"""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from jsonargparse import auto_cli

import grls
from benchmarks.common import machine, print_table
from grls.data.sentences import sentences
from grls.models.load.opening import packaged_encoder

MEASURES = ("R@5", "nDCG@10")
_BATCH, _DELETED = 8, 0.6


def tsdae(base: str, corpus: grls.Corpus, folder: Path, steps: int, seed: int) -> grls.Searcher:
    """The dense retriever of an encoder that learned by sentence-transformers to write sentences again."""
    from datasets import Dataset
    from sentence_transformers import (
        SentenceTransformer,
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
    )
    from sentence_transformers.sentence_transformer.losses import DenoisingAutoEncoderLoss

    if not folder.is_dir():
        draw = random.Random(seed)
        texts = [one for passage in corpus for one in sentences(passage.text)]
        texts = draw.sample(texts, min(steps * _BATCH, len(texts)))

        def noisy(text: str) -> str:
            words = re.findall(r"\w+|[^\w\s]", text)
            return " ".join([word for word in words if draw.random() >= _DELETED] or words[:1])

        model: Any = SentenceTransformer(packaged_encoder(base), trust_remote_code=False)
        model[1].pooling_mode = "cls"  # as its authors say
        SentenceTransformerTrainer(
            model=model,
            args=SentenceTransformerTrainingArguments(
                output_dir=str(folder.with_suffix(".log")), max_steps=steps, seed=seed, weight_decay=0.0,
                per_device_train_batch_size=_BATCH, learning_rate=3e-5, lr_scheduler_type="constant",
                save_strategy="no", report_to="none", disable_tqdm=True, use_cpu=True,
            ),
            train_dataset=Dataset.from_dict({"noisy": [*map(noisy, texts)], "text": texts}),
            loss=DenoisingAutoEncoderLoss(model, tie_encoder_decoder=True),
        ).train()  # fmt: skip
        model.save_pretrained(str(folder))
    return grls.BiEncoder(str(folder)).index(corpus)


def measured(
    data: str, split: str, seed: int, output: Path, rival: bool, steps: int, fit: dict[str, Any]
) -> dict[str, tuple[float, ...]]:
    """System -> its measures on the questions of a split, and the seconds of a query."""
    passages = output / "passages"
    passages.mkdir(parents=True, exist_ok=True)
    shutil.copy(Path(data) / "corpus.jsonl", passages)
    result = grls.fit(passages, output=output / "fitted", seed=seed, **fit)
    systems: dict[str, Any] = {"kept": result.retriever}
    for folder in sorted((output / "fitted" / "members").iterdir()):
        if (folder / "grls.json").is_file():
            systems[folder.name] = grls.load(folder)
    if rival:
        corpus = systems["bm25"].corpus
        systems["TSDAE"] = tsdae("all-MiniLM-L6-v2", corpus, output / "tsdae", steps, seed)
    table = grls.experiment(systems, data, split, MEASURES)
    return {row.name: (*(row.means[name] for name in MEASURES), row.seconds or 0.0) for row in table.rows}


def main(
    data: Sequence[str],
    split: str = "test",
    seeds: Sequence[int] = (0,),
    budget: str | None = None,
    output: str = "runs/unlabelled",
    rival: bool = False,
    steps: int = 300,
    fit: dict[str, Any] | None = None,
) -> None:
    """Measure.

    Args:
        data: Data set folders.
        split: Split of the questions that are asked.
        seeds: Seeds of `grls fit`; of several the mean and the sample deviation are printed.
        budget: Time of each run; null: no limit.
        output: Folder for all runs.
        rival: Measure the recipe of sentence-transformers, too.
        steps: Its steps.
        fit: Further options of `grls fit`.
    """
    for folder in data:
        name = Path(folder).name
        by_seed = [
            measured(
                folder, split, seed, Path(output) / f"{name}-{seed}", rival, steps,
                {"budget": budget, **(fit or {})},
            )
            for seed in seeds
        ]  # fmt: skip
        rows = []
        for system in by_seed[0]:
            columns = [*zip(*(one[system] for one in by_seed if system in one), strict=True)]
            cells = [
                f"{100 * fmean(column):.1f}" + (f" ± {100 * stdev(column):.1f}" if column[1:] else "")
                for column in columns[:-1]
            ]
            rows.append((system, *cells, f"{fmean(columns[-1]):.2g}"))
        print_table(f"{folder}, {split}; {machine()}", ("system", *MEASURES, "seconds a query"), rows)


if __name__ == "__main__":
    auto_cli(main, as_positional=False)
