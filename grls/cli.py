"""The command line: ``grls COMMAND [options]``.

Every command is one function of ``grls.commands``, whose docstring is its ``--help``; ``train`` is
LightningCLI. How a command ends, and with which exit code, says :mod:`grls.io.ending`; a wrong option ends it
with exit code 2.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from inspect import signature
from typing import TYPE_CHECKING, get_type_hints

from grls.io import ending

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser

COMMANDS = {
    "train": "train a stage of a generator: memorise, retrieve, or answer with quotes",
    "neighbours": "find the passages near to each passage, for memorisation and chains of passages",
    "train-biencoder": "fine-tune a bi-encoder",
    "index": "put model, tokenizer, corpus and constraint index into one retriever folder",
    "update": "add passages to a retriever folder, remove some, merge both into its index",
    "retrieve": "retrieve for the queries of a data set: single-step, fixed or dynamic multi-step, or BM25",
    "tune-hybrid": "find the weights of bi-encoder, BM25 and empty prompt in hybrid decoding, on dev queries",
    "tune-rescore": "find what a generator's rescores of passages are to count, on dev queries",
    "tune-dynamic": "find where chains are to end, and how one is chosen, on dev queries",
    "ensemble": "fuse runs into one: interleaved, by reciprocal ranks, or by calibrated scores",
    "cut": "end rankings where their set has the highest expected F1, by dev queries",
    "evaluate": "score a run",
    "report": "compare runs on one page: tables, curves, proof graphs, significance",
    "riches": "answer questions with evidence that is retrieved while they are answered",
    "propositions": "let a language model write propositions of every passage, as keys for riches",
    "pseudo-queries": "let a trained query generator write queries for passages that have none",
    "read": "answer questions without retrieval, from retrieved passages, or from one follow-up to the next",
    "program": "answer questions with a program of demonstrate-search-predict, on DSPy",
    "answers": "score answers and how well their evidence supports them",
    "ralm": "let a frozen language model read or write with retrieved documents",
    "train-reranker": "train a judge of the documents that such a model gets",
    "explain": "say why a gold passage was not found, with the beam tree",
    "check": "report what is peculiar about a corpus",
}
"""Command -> what it does. ``grls.commands.NAME.NAME`` is its function (a hyphen is an underscore there)."""

FIRST = {
    "cut": {"run": "JSONL of `grls retrieve` or `grls ensemble`, single or fixed, or a TREC run."},
    "program": {
        "action": "run",
        "program": "openqa, multihop, conversational, vanilla, retrieve-then-read or self-ask",
    },
}
"""Commands whose first arguments, and only these, are given without option names: what they are."""

POSITIONAL = ("check", "explain")
"""Commands whose required arguments are given without option names."""

SEVERAL = {
    "answers": ("files", "NAME.answers.jsonl of `grls riches` or `grls read`."),
    "ensemble": ("runs", "JSONL of `grls retrieve` or TREC runs: one corpus, the same queries."),
    "report": ("runs", "NAME.jsonl or NAME.trec; a manifest NAME.info.json beside it says what made it."),
}
"""Commands that take any number of files without an option name: the argument of their function, its help."""

LISTS = {
    "ensemble": ("--tune", "--weights"),
    **dict.fromkeys(("program", "ralm", "read"), ("--retriever", "--weights")),
}
"""Options that take several values, separated by spaces."""

VERIFIES = (
    "explain", "neighbours", "program", "pseudo-queries", "ralm", "read", "retrieve", "riches",
    "tune-rescore", "tune-dynamic", "tune-hybrid", "update",
)  # fmt: skip
"""Commands that open folders with an index: their ``--verify`` is declared here, once."""
_VERIFY = (
    "true compares the checksums of every folder that is opened with its index, however large; null: of a "
    "large one a sample; false: none."
)

_LINES = "".join(f"  {name:<16} {what}\n" for name, what in COMMANDS.items())
USAGE = f"""usage: grls COMMAND [options]

{_LINES}
`grls COMMAND --help` explains the options of a command.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    return ending.unless_unread(lambda: _main(arguments))


def _main(arguments: Sequence[str] | None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    if not given or given[0] in ("-h", "--help"):
        print(USAGE, end="")
        return 0 if given else 2
    command, rest = given[0], given[1:]
    if command not in COMMANDS:
        print(f"error: unknown command {command!r}\n\n{USAGE}", end="", file=sys.stderr)
        return 2
    return ending.told(
        lambda: _run(command, rest),
        saving=lambda: _saving(command),
        again="go on from the last checkpoint",  # Lightning writes checkpoints and logs itself
        signals=["SIGHUP"] if command == "train" else ending.SIGNALS,  # trainings handle SIGTERM themselves
    )


_SAVES = {
    "memory": "--memory",
    "batch_size": "--batch_size",
    "beams": "--beams",
    "window": "--window",
    "candidates": "--candidates",
    "max_new_tokens": "--max_new_tokens",
}
"""Options that save memory where they are lower, the first ones first."""
_TRAINING = {
    "train": "Lower --data.batch_size (with --trainer.accumulate_grad_batches as many times higher a step "
    "stays as large), or give --model.gradient_checkpointing true",
    "train-biencoder": "Lower --batch_size, or give --gradient_checkpointing true",
}


def _saving(command: str) -> str:
    """Which options of a command save memory."""
    told = _TRAINING.get(command)
    if told is None:
        name = command.replace("-", "_")
        known = signature(getattr(import_module(f"grls.commands.{name}"), name)).parameters
        options = [option for name, option in _SAVES.items() if name in known]
        told = f"Lower {' or '.join(options)}" if options else "Give it less at a time"
    return f"{told}, end other programs, or take a machine (--device: a GPU) with more memory."


def _run(command: str, arguments: list[str]) -> None:
    if command == "train":
        from grls.train.cli import train

        train(arguments)
        return
    from grls.index.array_files import verifying
    from grls.io.progress import showing

    name = command.replace("-", "_")
    function = getattr(import_module(f"grls.commands.{name}"), name)
    parser = _parser(command, function)
    parsed = parser.parse_args(_gathered(arguments, LISTS.get(command, ())))
    options = parser.instantiate_classes(parsed).as_dict()  # `vars` would spell the name "keys" otherwise
    options.pop("config", None)
    with verifying(options.pop("verify", None)), showing():
        function(**options)


def _parser(command: str, function: Callable[..., None]) -> ArgumentParser:
    """The options of a command: the arguments of its function."""
    from jsonargparse import ArgumentParser

    parser = ArgumentParser(prog=f"grls {command}")
    parser.add_argument("--config", action="config", help="YAML with options; later ones override it.")
    first = FIRST.get(command, {})
    types = get_type_hints(function)
    for argument, what in first.items():
        parser.add_argument(argument, type=types[argument], help=what)
    if command in SEVERAL:
        several, what = SEVERAL[command]
        parser.add_argument(several, nargs="+", help=what)
        first = {several: what}
    parser.add_function_arguments(
        function, as_positional=command in POSITIONAL, skip=set(first), sub_configs=True
    )
    if command in VERIFIES:
        parser.add_argument("--verify", type=bool | None, default=None, help=_VERIFY)
    return parser


def _gathered(arguments: Sequence[str], lists: Sequence[str]) -> list[str]:
    """``--tune a b`` as ``--tune=["a", "b"]``, as jsonargparse writes it, for the options in ``lists``."""
    gathered: list[str] = []
    values: list[str] | None = None
    for argument in arguments:
        if argument.startswith("--"):
            values = [] if argument in lists else None
        elif values is not None and not (not values and argument.startswith("[")):
            values.append(argument)
            gathered[-1] = f"{gathered[-1].split('=')[0]}={json.dumps(values)}"
            continue
        else:
            values = None  # a list as jsonargparse writes it: what follows is none of it
        gathered.append(argument)
    return gathered
