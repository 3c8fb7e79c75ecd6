"""The command line: ``grls COMMAND [options]``.

Every command is one function of ``grls.commands``, whose docstring is its ``--help``; ``train`` is
LightningCLI. A :class:`~grls.errors.GrlsError` ends a command with its text and exit code 1; a wrong
option with exit code 2; standard output that nobody reads any more (``| head``) with 141, as SIGPIPE does.
"""

from __future__ import annotations

import json
import logging
import os
import re
import select
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from inspect import signature
from typing import TextIO, get_type_hints

COMMANDS = {
    "train": "train a stage of a generator: memorise, retrieve, or answer with quotes",
    "neighbours": "find the passages near to each passage, for memorisation and chains of passages",
    "train-biencoder": "fine-tune a bi-encoder",
    "index": "put model, tokenizer, corpus and constraint index into one retriever folder",
    "update": "add passages to a retriever folder, remove some, merge both into its index",
    "retrieve": "retrieve for the queries of a data set: single-step, fixed or dynamic multi-step, or BM25",
    "tune-hybrid": "find the weights of bi-encoder, BM25 and empty prompt in hybrid decoding, on dev queries",
    "tune-assess": "find what a generator's assessments of passages are to count, on dev queries",
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

_LINES = "".join(f"  {name:<16} {what}\n" for name, what in COMMANDS.items())
USAGE = f"""usage: grls COMMAND [options]

{_LINES}
`grls COMMAND --help` explains the options of a command.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    try:
        code = _main(arguments)
    except BaseException as end:  # what fails is told whether or not its output is read
        harmless = isinstance(end, BrokenPipeError) or (isinstance(end, SystemExit) and not end.code)
        if _unread() and harmless:
            return 141
        raise
    return 141 if _unread() and not code else code


def _unread() -> bool:
    """Write what standard output still holds: whether its reader has gone. Then all of it goes nowhere."""
    if sys.stdout is None:
        return False
    try:
        sys.stdout.flush()
        gone = _has_gone(sys.stdout)
    except BrokenPipeError:
        gone = True
    if gone:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
    return gone


def _has_gone(stream: TextIO) -> bool:
    """Whether the reader of a pipe has gone; False of what is none."""
    try:
        watched = select.poll()
        watched.register(stream.fileno(), select.POLLERR)
    except (AttributeError, OSError):  # no poll on Windows; no file behind the stream
        return False
    return any(event & select.POLLERR for _, event in watched.poll(0))


def _main(arguments: Sequence[str] | None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    if not given or given[0] in ("-h", "--help"):
        print(USAGE, end="")
        return 0 if given else 2
    command, rest = given[0], given[1:]
    if command not in COMMANDS:
        print(f"error: unknown command {command!r}\n\n{USAGE}", end="", file=sys.stderr)
        return 2
    # Imported late: torch and transformers take seconds, and a typo should not.
    from grls.errors import GrlsError
    from grls.shown import Visible, visible

    if logging.lastResort is not None:  # what writes warnings where nothing else is set up
        logging.lastResort.setFormatter(Visible())

    try:
        with _ending_cleanly(command):
            _run(command, rest)
    except GrlsError as error:
        print(f"error: {visible(str(error))}", file=sys.stderr)
        return 1
    except (MemoryError, OSError, RuntimeError) as error:
        told = _told(command, error)
        if told is None:
            raise
        print(f"error: {visible(told)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except _Ended as end:
        number = int(str(end.code)) - 128
        print(
            f"error: ended by {signal.Signals(number).name}; nothing half-written is left.", file=sys.stderr
        )
        return 128 + number
    return 0


class _Ended(SystemExit):
    """SIGTERM or SIGHUP; the code is the shell's."""


@contextmanager
def _ending_cleanly(command: str) -> Iterator[None]:
    """Let SIGTERM and SIGHUP end a command as an error does, so that nothing half-written is left.

    Trainings handle SIGTERM themselves. A signal that is ignored (``nohup``) or handled stays so.
    """
    process, names = os.getpid(), ["SIGHUP"] if command == "train" else ["SIGTERM", "SIGHUP"]

    def end(number: int, _: object) -> None:
        if os.getpid() != process:  # one that was forked: it has nothing to clean up
            os._exit(128 + number)
        signal.signal(number, signal.SIG_IGN)
        raise _Ended(128 + number)

    taken = []
    if threading.current_thread() is threading.main_thread():
        known = [getattr(signal, name) for name in names if hasattr(signal, name)]
        taken = [one for one in known if signal.getsignal(one) is signal.SIG_DFL]
    for one in taken:
        signal.signal(one, end)
    try:
        yield
    finally:
        for one in taken:
            signal.signal(one, signal.SIG_DFL)


def _told(command: str, error: Exception) -> str | None:
    """What to say of an error that is none of ours; None: it is a fault, and all of it is shown."""
    from grls.errors import out_of_memory
    from grls.files import WRITE_ERRORS

    if out_of_memory(error):
        asked = _ASKED.search(str(error))
        size = f" ({asked[1]} more were asked for)" if asked else ""
        return f"there is not enough memory{size}. {_saving(command)}"
    if isinstance(error, OSError) and error.errno in WRITE_ERRORS:
        # Lightning writes checkpoints and logs itself (checkpoints under a temporary name, too).
        return (
            f"{error}. Free some space or choose a place that can be written, then go on from the last "
            "checkpoint."
        )
    return None


_ASKED = re.compile(r"to allocate ([\d.,]+ ?\w+)")
"""How much memory was asked for, as NumPy and torch say it."""
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
    from jsonargparse import ArgumentParser, auto_cli

    name = command.replace("-", "_")
    function = getattr(import_module(f"grls.commands.{name}"), name)
    arguments = _gathered(arguments, LISTS.get(command, ()))
    if command in SEVERAL or command in FIRST:
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
        parser.add_function_arguments(function, skip=set(first))
        options = vars(parser.instantiate_classes(parser.parse_args(arguments)))
        function(**{option: value for option, value in options.items() if option != "config"})
        return
    auto_cli(function, args=arguments, as_positional=command in POSITIONAL, prog=f"grls {command}")


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
