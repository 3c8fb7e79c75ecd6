"""The command line: ``grls VERB [NAME] [arguments] [options]``.

A verb is a function of ``grls.commands``: its docstring is the ``--help``, the parameters before ``*`` are
arguments without a name, those behind it options. Dataclasses of options are nested: ``--search.beams 20``.
What a retriever's folder says of itself (``search``, ``hops`` in its ``grls.json``) stands in for options
that are not given. ``--config`` takes a file or the name of a recipe (:mod:`grls.io.recipes`). How a command
ends, and with which exit code, says :mod:`grls.io.ending`; a wrong option ends it with 2.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any, get_origin, get_type_hints

from grls.commands.renamed import renamed
from grls.errors import ConfigError
from grls.io import ending
from grls.io.recipes import with_recipes

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser


@dataclass(frozen=True)
class Verb:
    """A command.

    Args:
        what: What it does, in a line.
        target: ``module:function``, of ``grls.commands`` where no package is named; empty where only
            ``names`` do something.
        names: What may follow the verb.
        training: It parses its own options, handles SIGTERM and writes checkpoints, as Lightning does.
    """

    what: str
    target: str = ""
    names: Mapping[str, Verb] = field(default_factory=dict)
    training: bool = False


def _stage(what: str, name: str) -> Verb:
    return Verb(what, f"train:train_{name}", training=True)


def _data_set(what: str, name: str) -> Verb:
    return Verb(what, f"data_prep.{name}:prepare")


VERBS = {
    "prepare": Verb(
        "make a data set of raw files, or what trainings and answers need beside one",
        names={
            "beir": _data_set("any BEIR folder, or a pair of JSONL files", "beir"),
            "texts": _data_set("a folder of texts, as passages and texts to read", "texts"),
            "ruletaker": _data_set("rules and proofs, generated", "ruletaker"),
            "entailmentbank": _data_set("question and answer -> leaves of a proof", "entailmentbank"),
            "strategyqa": _data_set("question -> facts, or evidence paragraphs", "strategyqa"),
            "explagraphs": _data_set("belief and argument -> paths of a graph", "explagraphs"),
            "hotpotqa": _data_set("question -> two paragraphs; a sample", "hotpotqa"),
            "hotpotqa_full": _data_set("the same in full: five million abstracts", "hotpotqa_full"),
            "nq": _data_set("Natural Questions, a sample", "nq"),
            "dpr": _data_set("Natural Questions in full: 21 million passages", "dpr"),
            "neighbours": Verb("the passages near to each passage", "neighbours:neighbours"),
            "propositions": Verb("statements of one fact each, as keys", "propositions:propositions"),
            "pseudo-queries": Verb(
                "queries for passages that have none, by a query generator", "pseudo_queries:pseudo_queries"
            ),
        },
    ),
    "train": Verb(
        "train a model: a stage of a generator, a query generator, a bi-encoder, a reranker",
        names={
            "memorise": _stage("write each passage of a corpus", "memorise"),
            "retrieve": _stage("write the next passage, given the query and those before", "retrieve"),
            "chains": _stage("learn all hops of a query at once", "chains"),
            "riches": _stage("answer with quotes", "riches"),
            "doc2query": _stage("write queries that passages answer", "doc2query"),
            "biencoder": Verb("fine-tune a bi-encoder", "train_biencoder:train_biencoder"),
            "reranker": Verb(
                "train a judge of documents for a frozen language model", "train_reranker:train_reranker"
            ),
        },
    ),
    "index": Verb(
        "make a retriever folder: of a model and a corpus, or of other retriever folders",
        "index:make_index",
        {
            "hybrid": Verb("a generator with priors that look ahead", "index:make_hybrid"),
            "hops": Verb("a retriever that goes hop by hop", "index:make_hops"),
            "fusion": Verb("several retrievers, fused", "index:make_fusion"),
            "bm25": Verb("BM25 over a corpus", "index:make_bm25"),
            "update": Verb("add passages to a retriever folder, remove passages, merge", "update:update"),
        },
    ),
    "retrieve": Verb(
        "retrieve for the queries of a data set, in a single step or hop by hop", "retrieve:retrieve"
    ),
    "tune": Verb("tune all that a retriever folder has on dev queries", "tune:tune"),
    "fuse": Verb(
        "fuse runs into one: interleaved, by reciprocal ranks, or by calibrated scores",
        "fuse:fuse",
        {"cut": Verb("end rankings where their set has the highest expected F1", "fuse_cut:fuse_cut")},
    ),
    "evaluate": Verb("score runs, or answers and how well their evidence supports them", "evaluate:evaluate"),
    "report": Verb("compare runs on one page: tables, curves, proof graphs, significance", "report:report"),
    "answer": Verb(
        "answer questions with a language model and a retriever",
        names={
            "riches": Verb(
                "quote evidence that is retrieved while the answer is written (RICHES)",
                "answer_riches:answer_riches",
            ),
            "direct": Verb("answer from retrieved passages, or without any", "answer_direct:answer_direct"),
            "follow-up": Verb(
                "ask follow-up questions and retrieve for each", "answer_follow_up:answer_follow_up"
            ),
            "dsp": Verb("run a program of demonstrate-search-predict, on DSPy", "answer_dsp:answer_dsp"),
        },
    ),
    "ralm": Verb(
        "let a frozen language model read or write with retrieved documents",
        "ralm:ralm",
        {
            "examples": Verb("collect what a reranker of documents learns from", "ralm:ralm_examples"),
            "generate": Verb("write on from texts with retrieved documents", "ralm:ralm_generate"),
        },
    ),
    "explain": Verb("say why a gold passage was not found, with the beam tree", "explain:explain"),
    "check": Verb("report what is peculiar about a corpus", "check:check"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    return ending.unless_unread(lambda: _main(arguments))


def _main(words: Sequence[str] | None) -> int:
    given = list(sys.argv[1:] if words is None else words)
    if not given or given[0] in ("-h", "--help"):
        print(_usage("grls", "VERB", VERBS), end="")
        return 0 if given else 2
    if before := renamed(given):
        return _refused(before)
    verb, names, rest = VERBS.get(given[0]), [given[0]], given[1:]
    while verb is not None and rest and rest[0] in verb.names:
        verb, names, rest = verb.names[rest[0]], [*names, rest[0]], rest[1:]
    prog = " ".join(["grls", *names])
    if verb is None:
        return _unknown(given)
    if not verb.target:
        asked = bool(rest) and rest[0] in ("-h", "--help")
        if rest and not asked:
            return _unknown([*names, *rest], len(names), verb)
        print(_usage(prog, "NAME", verb.names, verb.what), end="", file=sys.stdout if asked else sys.stderr)
        return 0 if asked else 2
    command = Command(verb, prog)
    try:
        arguments = with_recipes(rest)
    except ConfigError as error:
        return _refused(str(error))
    return ending.reported(
        lambda: command.run(arguments),
        saving=command.saving,
        again="go on from the last checkpoint",  # Lightning writes checkpoints and logs itself
        signals=["SIGHUP"] if verb.training else ending.SIGNALS,
    )


def _refused(why: str) -> int:
    print(f"error: {why}", file=sys.stderr)
    return 2


def _usage(prog: str, word: str, verbs: Mapping[str, Verb], what: str = "") -> str:
    lines = "".join(f"  {name:<16} {verb.what}\n" for name, verb in verbs.items())
    more = f"\n{what}\n" if what else ""
    return f"usage: {prog} {word} [options]\n{more}\n{lines}\n`{prog} {word} --help` explains its options.\n"


def _unknown(given: Sequence[str], known: int = 0, verb: Verb | None = None) -> int:
    """Say which verbs or names there are; the first ``known`` words are right."""
    prog = " ".join(["grls", *given[:known]])
    usage = _usage("grls", "VERB", VERBS) if verb is None else _usage(prog, "NAME", verb.names, verb.what)
    kind = "verb" if verb is None else "name"
    print(f"error: unknown {kind} {given[known]!r}\n\n{usage}", end="", file=sys.stderr)
    return 2


class Command:
    """A verb with its parser.

    Args:
        verb: The verb, with a target.
        prog: How it is called.
    """

    def __init__(self, verb: Verb, prog: str):
        self.prog = prog
        self._training = verb.training
        self._target = verb.target
        self._names = verb.names

    @property
    def function(self) -> Callable[..., None]:
        """What it runs."""
        module, _, name = self._target.partition(":")
        module = module if "." in module else f"grls.commands.{module}"
        try:
            found: Callable[..., None] = getattr(import_module(module), name)
        except ModuleNotFoundError as error:
            if error.name != "data_prep":
                raise
            raise ConfigError(
                "the preparations (data_prep) are not installed: install grls anew, or run this in its "
                "checkout."
            ) from error
        return found

    def run(self, arguments: list[str]) -> None:
        """Parse and run."""
        function = self.function
        if self._training:
            function(arguments)
            return
        from grls.index.array_files import verifying
        from grls.io.progress import showing

        parser = self.parser()
        arguments = _gathered(arguments, _lists(function))
        parsed = parser.parse_args(arguments)
        if self._set_stored(parser, parsed.as_dict(), arguments):
            parsed = parser.parse_args(arguments)
        options = parser.instantiate_classes(parsed).as_dict()  # `vars` would spell the name "keys" otherwise
        options.pop("config", None)
        with verifying(options.pop("verify", None)), showing():
            function(**options)

    def parser(self) -> ArgumentParser:
        """The options: the parameters of the function."""
        with _types_at_run_time():
            return self._parser()

    def _parser(self) -> ArgumentParser:
        from jsonargparse import ArgumentParser

        function = self.function
        parser = ArgumentParser(prog=self.prog, description=_description(function), epilog=self._see_also())
        parser.add_argument("--config", action="config", help=_CONFIG)
        places = _arguments(function)
        types, helps = get_type_hints(function), _helps(function)
        for name, parameter in places.items():
            several = get_origin(types[name]) is list
            optional = parameter.default is not Parameter.empty
            more: dict[str, Any] = {"nargs": "*" if optional else "+"} if several else {"type": types[name]}
            if optional:
                more |= {"default": parameter.default} | ({} if several else {"nargs": "?"})
            parser.add_argument(name, help=helps.get(name, ""), **more)
        parser.add_function_arguments(function, skip=set(places), sub_configs=True)
        if "retriever" in signature(function).parameters:
            parser.add_argument("--verify", type=bool | None, default=None, help=_VERIFY)
        return parser

    def _see_also(self) -> str:
        """What may follow the verb instead, for the end of its help."""
        names = "; ".join(f"`{self.prog} {name}`: {verb.what}" for name, verb in self._names.items())
        return f"See also {names}." if names else ""

    def _set_stored(
        self, parser: ArgumentParser, parsed: Mapping[str, Any], arguments: Sequence[str]
    ) -> bool:
        """Make the options that a retriever's folder holds the defaults; whether there are any."""
        from grls.retrieve.spec import stored_options

        folder = parsed.get("retriever")
        sections = stored_options(folder) if isinstance(folder, str) else {}
        stored = {
            f"{section}.{name}": value
            for section, options in sections.items()
            if section in parsed and not _other_steps(section, options, arguments)
            for name, value in options.items()
        }
        parser.set_defaults(stored)
        return bool(stored)

    def saving(self) -> str:
        """Which options save memory, for where there is too little."""
        if self._training:
            told = (
                "Lower --data.batch_size, with --trainer.accumulate_grad_batches as many times higher, or "
                "give --model.gradient_checkpointing true"
            )
        else:
            known = [action.dest for action in self.parser()._actions]
            options = [f"--{dest}" for name in _SAVES for dest in known if dest.rsplit(".", 1)[-1] == name]
            told = f"Lower {' or '.join(options)}" if options else "Give it less at a time"
        return f"{told}, end other programs, or take a machine (--device: a GPU) with more memory."


_SAVES = ("memory", "batch_size", "beams", "window", "candidates", "max_new_tokens")
"""Options that save memory where they are lower, the first ones first."""
_CONFIG = "YAML with options, a file or the name of a recipe; later ones override it."
_VERIFY = (
    "true compares the checksums of every folder that is opened with its index, however large; null: of a "
    "large one a sample; false: none."
)


@contextmanager
def _types_at_run_time() -> Iterator[None]:
    """Let jsonargparse take types from what modules import when they are run.

    It also runs what stands under ``TYPE_CHECKING``, beside all types of a module: that imports what takes
    seconds to load, and no option is of such a type.
    """
    from jsonargparse import _postponed_annotations as annotations

    visitor: Any = annotations.TypeCheckingVisitor
    before = visitor.update_aliases
    visitor.update_aliases = lambda *_: None
    try:
        yield
    finally:
        visitor.update_aliases = before


def _other_steps(section: str, options: Mapping[str, Any], arguments: Sequence[str]) -> bool:
    """Whether hops are to be of other steps than a folder's, so that its options say nothing of them."""
    if section != "hops":
        return False
    given = [
        a.partition("=")[2] or b
        for a, b in zip(arguments, [*arguments[1:], ""], strict=True)
        if a.split("=")[0] == "--hops.steps"
    ]
    return bool(given) and given[-1] != options.get("steps", "single")


def _lists(function: Callable[..., None]) -> list[str]:
    """The options that take several values."""
    return [f"--{name}" for name, kind in get_type_hints(function).items() if "list[" in str(kind)]


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


def _arguments(function: Callable[..., None]) -> dict[str, Parameter]:
    """The parameters before ``*``; none where all are options."""
    every = signature(function).parameters
    if not any(one.kind is Parameter.KEYWORD_ONLY for one in every.values()):
        return {}
    return {name: one for name, one in every.items() if one.kind is Parameter.POSITIONAL_OR_KEYWORD}


def _docstring(function: Callable[..., None]) -> Any:
    from docstring_parser import parse

    return parse(function.__doc__ or "")


def _description(function: Callable[..., None]) -> str:
    doc = _docstring(function)
    return "\n\n".join(text for text in (doc.short_description, doc.long_description) if text)


def _helps(function: Callable[..., None]) -> dict[str, str]:
    return {param.arg_name: param.description or "" for param in _docstring(function).params}
