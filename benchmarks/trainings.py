"""What was trained on each public set, as `grls` commands: recipes of ``configs/`` and what a set changes.

    python -m benchmarks.trainings                                      # lists the sets and their trainings
    python -m benchmarks.trainings strategyqa spans --dry_run true      # prints the command
    python -m benchmarks.trainings strategyqa spans --trainer.precision bf16-mixed

Options of the command that follow override those of the table. Data lie in data/SET; a training writes to
runs/SET/NAME. What it begins with, or learns from, must be there: the model of another training of the set,
the indexed bi-encoder as runs/SET/biencoder-retriever, pseudo-queries as runs/SET/pseudo.jsonl.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from grls.cli import main as grls


class Training(NamedTuple):
    """One training of a set.

    Attributes:
        layers: Its files in ``configs``, later ones over earlier ones.
        options: What the set changes.
        command: Of ``grls``.
    """

    layers: tuple[str, ...]
    options: tuple[str, ...] = ()
    command: str = "train"


def _epochs(epochs: int) -> str:
    return f"--trainer.max_epochs={epochs}"


def _measured(steps: int, epochs: int, every: int, *more: str) -> tuple[str, ...]:
    """So many steps; dev is measured every so many batches, whatever an epoch has."""
    return (
        *(f"--trainer.max_steps={steps}", _epochs(epochs), f"--trainer.val_check_interval={every}"),
        *("--trainer.check_val_every_n_epoch=null", *more),
    )


def _data(name: str) -> str:
    return f"--data.data=data/{name}"


def _begins(name: str, run: str) -> str:
    return f"--model.generator.name_or_path=runs/{name}/{run}/model"


def _dense(name: str) -> str:
    return f"runs/{name}/biencoder-retriever"


def _drawn(spans: int, batch: int) -> tuple[str, ...]:
    return (f"--data.spans.drawn={spans}", f"--data.batch_size={batch}")


_ONCE = ("--data.multistep=false", "--data.done=false")
"""Every passage from the query alone."""
_MEMORISE = ("memorise", "local/memorise")
_RETRIEVE = ("retrieve", "local/retrieve")
_CHAINS = ("chains", "local/chains")
_SPANS = (*_CHAINS, "spans")
_TWICE = "--trainer.accumulate_grad_batches=2"
_SLOW = "--model.learning_rate=1.5e-4"


def _biencoder(name: str, *options: str) -> Training:
    return Training(("biencoder", "local/biencoder"), (f"--data=data/{name}", *options), "train-biencoder")


def _pseudo(name: str, share: str, size: int) -> tuple[str, ...]:
    """Pseudo-queries among the questions."""
    return (
        f"--data.mix.pseudo=runs/{name}/pseudo.jsonl",
        *(f"--data.mix.pseudo_share={share}", f"--data.mix.size={size}"),
    )


def _rescore(name: str, passages: int) -> tuple[str, ...]:
    """Passages that bi-encoder and BM25 propose are rescored."""
    proposals = f"--data.rescore.retrievers=[{_dense(name)}, bm25]"
    return (proposals, f"--data.rescore.passages={passages}")


def _scratch(name: str, *options: str) -> tuple[str, ...]:
    """A small T5 from scratch, with a tokenizer of the set."""
    return (_data(name), f"--model.generator.data=data/{name}", *options)


def _ruletaker(
    name: str, memorise: tuple[int, int], retrieve: tuple[int, int], hops: int
) -> Mapping[str, Training]:
    """Both stages of a set of RuleTaker-Open's kind; epochs, and how often dev is measured."""
    often = "--trainer.check_val_every_n_epoch="
    first = (_epochs(memorise[0]), f"{often}{memorise[1]}")
    then = (_epochs(retrieve[0]), f"{often}{retrieve[1]}", f"--recall.hops={hops}")
    return {
        "memorise": Training(("memorise", "scratch/memorise"), _scratch(name, *first)),
        "retrieve": Training(
            ("retrieve", "scratch/retrieve"), (_data(name), _begins(name, "memorise"), *then)
        ),
    }


def _taught(name: str) -> tuple[str, ...]:
    return (_data(name), f"--data.teacher={_dense(name)}")


_STRATEGYQA, _EXPLAGRAPHS, _BANK, _WORLDTREE = map(
    _taught, ("strategyqa", "explagraphs", "entailmentbank", "entailmentbank-wt")
)
TRAININGS: Mapping[str, Mapping[str, Training]] = {
    "entailmentbank": {
        "memorise": Training(_MEMORISE, (_data("entailmentbank"), _epochs(1))),
        "retrieve": Training((*_RETRIEVE, "entailmentbank"), (_begins("entailmentbank", "memorise"),)),
        "mixed": Training(
            (*_RETRIEVE, "entailmentbank", "mixed"),
            (_begins("entailmentbank", "memorise"), "--data.mix.pseudo=runs/entailmentbank/pseudo.jsonl"),
        ),
        "biencoder": _biencoder("entailmentbank", "--max_steps=100", "--shuffle=true"),
        "causal": Training((*_CHAINS, "entailmentbank"), _BANK),
        "causal-mixed": Training(
            (*_CHAINS, "entailmentbank"),
            (*_BANK, _epochs(4), *_pseudo("entailmentbank", "[0.7, 0.5]", 3000)),
        ),
        "beside": Training(
            (*_CHAINS, "entailmentbank"),
            (*_measured(450, 9, 60), f"--data.prior.retrievers=[{_dense('entailmentbank')}]"),
        ),
        "spans": Training((*_SPANS, "entailmentbank"), (*_BANK, *_ONCE, *_drawn(6, 16), _epochs(5))),
        "spans-hops": Training(
            (*_SPANS, "entailmentbank"),
            (
                *(*_BANK, _begins("entailmentbank", "spans"), "--data.batch_size=4", _TWICE, _SLOW),
                *_pseudo("entailmentbank", "[0.5, 0.3]", 3000),
            ),
        ),
        "spans-beside": Training(
            (*_SPANS, "entailmentbank"),
            (
                *(
                    _begins("entailmentbank", "spans-hops"),
                    "--data.batch_size=4",
                    "--model.learning_rate=1e-4",
                ),
                *_measured(360, 3, 120, _TWICE),
                f"--data.prior.retrievers=[{_dense('entailmentbank')}]",
            ),
        ),
        "spans-memories": Training(
            (*_SPANS, "entailmentbank"),
            (
                *(*_BANK, _begins("entailmentbank", "spans"), *_ONCE, *_drawn(6, 16), _epochs(5)),
                *("--data.teach_memories=true", "--data.mix.memorise.reads=[keywords, neighbour]"),
                *("--data.mix.memorise.query=true", "--data.mix.memorise_share=[0.8, 0.6]"),
                *(
                    "--data.mix.memorise.neighbours=runs/entailmentbank/near.safetensors",
                    "--data.mix.size=3200",
                ),
            ),
        ),
        "query-generator": Training(
            ("doc2query", "local/doc2query"),
            (_data("entailmentbank"), "--data.passages=some", *_measured(100, -1, 50)),
        ),
        "riches": Training(("riches", "local/riches", "entailmentbank")),
    },
    "entailmentbank-wt": {
        "biencoder": _biencoder("entailmentbank-wt", "--max_steps=200", "--shuffle=true"),
        "spans-rescore": Training(
            (*_SPANS, "rescore", "entailmentbank"),
            (
                *(*_WORLDTREE, *_ONCE, *_rescore("entailmentbank-wt", 10), "--model.learning_rate=3e-4"),
                *_measured(300, 3, 200, _TWICE),
            ),
        ),
        "hops-rescore": Training(
            (*_SPANS, "rescore", "entailmentbank"),
            (
                *(*_WORLDTREE, _begins("entailmentbank-wt", "spans-rescore"), _SLOW, *_drawn(2, 4)),
                *(*_rescore("entailmentbank-wt", 7), "--data.rescore.right=4", "--data.rescore.hops=2"),
                *_measured(120, 1, 480, "--trainer.accumulate_grad_batches=4"),
            ),
        ),
    },
    "explagraphs": {
        "memorise": Training(_MEMORISE, (_data("explagraphs"), "--data.unit=path")),
        "retrieve": Training(
            _RETRIEVE, (_data("explagraphs"), _begins("explagraphs", "memorise"), _epochs(2))
        ),
        "biencoder": _biencoder("explagraphs"),
        "causal": Training(_CHAINS, _EXPLAGRAPHS),
        "spans": Training(_SPANS, (*_EXPLAGRAPHS, *_ONCE, *_drawn(6, 16), _epochs(2))),
        "spans-hops": Training(
            _SPANS,
            (
                *(
                    *_EXPLAGRAPHS,
                    _begins("explagraphs", "spans"),
                    "--data.shuffle=true",
                    "--data.batch_size=4",
                ),
                *(_epochs(2), _TWICE, _SLOW),
            ),
        ),
        "spans-rescore": Training(  # an epoch's 267 batches make 134 steps, the last of them of one batch
            (*_SPANS, "rescore"),
            (
                *(*_EXPLAGRAPHS, *_ONCE, *_rescore("explagraphs", 10), "--model.learning_rate=3e-4"),
                *_measured(200, 2, 399, _TWICE),
            ),
        ),
    },
    "hotpotqa": {
        "memorise": Training(_MEMORISE, (_data("hotpotqa"), _epochs(1), "--data.batch_size=32")),
        "retrieve": Training((*_RETRIEVE, "hotpotqa"), (_begins("hotpotqa", "memorise"),)),
        "biencoder": _biencoder(
            "hotpotqa",
            *("--done=false", "--max_tokens=160", "--max_steps=20", "--batch_size=16"),
            *("--learning_rate=3e-5", "--length_pool=1"),
        ),
    },
    "nq": {
        "memorise": Training(_MEMORISE, (_data("nq"),)),
        "retrieve": Training((*_RETRIEVE, "nq"), (_begins("nq", "memorise"), _epochs(6))),
        "biencoder": _biencoder(  # a batch of unrelated passages teaches little: hard negatives from BM25
            "nq",
            *("--multistep=false", "--done=false", "--hard_negatives=1", "--batch_size=16"),
            *("--learning_rate=3e-5", "--length_pool=1"),
        ),
        "spans": Training(
            ("chains", "default/chains", "nq"),
            (
                "--data.teacher=runs/nq/default/dense",
                _epochs(4),
                "--data.batch_size=32",
                "--data.dev_size=60",
            ),
        ),
        "spans-pseudo": Training(
            ("chains", "default/chains", "nq"),
            (
                *("--data.teacher=runs/nq/default/dense", "--data.batch_size=32", "--data.dev_size=60"),
                *(
                    _begins("nq", "spans"),
                    _epochs(2),
                    "--model.learning_rate=1e-4",
                    *_pseudo("nq", "0.6", 3200),
                ),
            ),
        ),
        "query-generator": Training(("doc2query", "local/doc2query"), (_data("nq"), _epochs(1))),
    },
    "quickstart": {
        "query-generator": Training(
            ("doc2query", "scratch/doc2query", "quickstart"), ("--model.generator.data=data/quickstart",)
        ),
        "mixed": Training(
            ("retrieve", "scratch/retrieve", "mixed", "quickstart"),
            (_begins("quickstart", "memorise"), "--data.mix.pseudo=runs/quickstart/pseudo.jsonl"),
        ),
    },
    "ruletaker": {
        **_ruletaker("ruletaker", (10, 5), (8, 2), 12),
        "biencoder": Training(  # of the model that memorised: the same backbone, and the same start
            ("biencoder",),
            (
                *("--data=data/ruletaker", "--source=runs/ruletaker/memorise/model", "--epochs=2"),
                *("--batch_size=64", "--learning_rate=5e-4", "--optimizer=adamw", "--length_pool=20"),
            ),
            "train-biencoder",
        ),
        "riches": Training(("riches", "scratch/riches"), _scratch("ruletaker")),
    },
    "ruletaker-paper": _ruletaker("ruletaker-paper", (6, 3), (24, 4), 8),
    "strategyqa": {
        "memorise": Training(_MEMORISE, (_data("strategyqa"),)),
        "retrieve": Training(_RETRIEVE, (_data("strategyqa"), _begins("strategyqa", "memorise"), _epochs(3))),
        "biencoder": _biencoder("strategyqa"),
        "causal": Training(_CHAINS, _STRATEGYQA),
        "spans": Training(_SPANS, (*_STRATEGYQA, *_ONCE, *_drawn(6, 32), _epochs(4))),
        "spans-rescore": Training(
            (*_SPANS, "rescore"),
            (*_STRATEGYQA, *_ONCE, *_rescore("strategyqa", 8), "--data.spans.drawn=3", _epochs(1)),
        ),
    },
}


def options(name: str, run: str) -> list[str]:
    """The layers and options of a training, and where it writes.

    Args:
        name: The set.
        run: The training.
    """
    training = TRAININGS[name][run]
    layers = [word for layer in training.layers for word in ("--config", f"configs/{layer}.yaml")]
    return [*layers, *training.options, f"--output=runs/{name}/{run}"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a command and run it.

    Args:
        arguments: Those of the command line, where None.

    Returns:
        The exit code.
    """
    parser = argparse.ArgumentParser(
        "python -m benchmarks.trainings", allow_abbrev=False, description=__doc__
    )
    parser.add_argument("name", nargs="?", metavar="SET")
    parser.add_argument("run", nargs="?", metavar="NAME")
    parser.add_argument(
        "--dry_run", choices=("true", "false"), default="false", help="print the command only"
    )
    given, more = parser.parse_known_args(arguments)
    if given.run is None:
        print("\n".join(f"{name}: {', '.join(runs)}" for name, runs in TRAININGS.items()))
        return 0
    if given.run not in TRAININGS.get(given.name, ()):
        raise SystemExit(
            f"error: no training {given.run!r} of {given.name!r}; without arguments they are listed."
        )
    command = [TRAININGS[given.name][given.run].command, *options(given.name, given.run), *more]
    print(f"grls {shlex.join(command)}", flush=True)
    return 0 if given.dry_run == "true" else grls(command)


if __name__ == "__main__":
    sys.exit(main())
