"""The command line: ``grls VERB [NAME] [arguments] [options]``.

A verb is a function of ``grls.commands``. Its docstring is the ``--help``; its parameters before ``*`` are
positional arguments, the others options. Options in dataclasses are nested: ``--search.beams 20``. The
options stored in a retriever folder (``search`` and ``hops`` in ``grls.json``) replace the defaults.
``--config`` takes a file or the name of a recipe (:mod:`grls.io.recipes`). The exit codes are described in
:mod:`grls.io.ending`; a wrong option ends a command with 2.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from difflib import get_close_matches
from importlib import import_module
from inspect import Parameter, isclass, signature
from itertools import takewhile
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, get_origin, get_type_hints

import grls
from grls.errors import ConfigError, DataError, Option
from grls.io import ending
from grls.io.arguments import UnfitError, fitted
from grls.io.files import near_name
from grls.io.option_errors import (
    InParagraphs,
    PlainParser,
    fold_sections,
    is_list,
    name_lines,
    paragraphs,
    usage,
)
from grls.io.progress import showing, telling_of_imports, wait_asleep_if_busy
from grls.io.recipes import with_recipes

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser


@dataclass(frozen=True)
class Verb:
    """A command.

    Args:
        summary: A line for the help.
        target: ``module:function``; a module without a package is in ``grls.commands``. Empty: the verb needs
            one of its ``names``.
        names: Names that may follow the verb, each with its command.
        training: It trains a stage, whose options are the class ``target``; Lightning handles SIGTERM.
        example: A command for the help.
    """

    summary: str
    target: str = ""
    names: Mapping[str, Verb] = field(default_factory=dict)
    training: bool = False
    example: str = ""


def _stage(summary: str, options: str, name: str) -> Verb:
    """``name``: of the command, and of its recipe."""
    typed = f"grls train {name} --config configs/{name}.yaml --data.data data/mine --output runs/mine/{name}"
    return Verb(summary, f"grls.train.options:{options}", training=True, example=typed)


def _data_set(summary: str, module: str, function: str = "prepare") -> Verb:
    return Verb(summary, f"data_prep.{module}:{function}")


VERBS = {
    "prepare": Verb(
        "prepare a data set from raw files, or extra files for training and answering",
        names={
            "beir": _data_set("any BEIR folder, or a pair of JSONL files", "beir"),
            "texts": _data_set("a folder of texts: passages to retrieve, and texts to read", "texts"),
            "ruletaker": _data_set("rules and proofs, generated", "ruletaker"),
            "ruletaker_release": _data_set("rules and proofs of RuleTaker's own files", "ruletaker_release"),
            "entailmentbank": _data_set("question and answer -> the facts of a proof", "entailmentbank"),
            "strategyqa": _data_set("question -> facts, or evidence paragraphs", "strategyqa"),
            "explagraphs": _data_set("belief and argument -> paths of a graph", "explagraphs"),
            "hotpotqa": _data_set("question -> two paragraphs; a sample", "hotpotqa"),
            "hotpotqa_full": _data_set("HotpotQA or HoVer over five million abstracts", "hotpotqa_full"),
            "hotpotqa_distractor": _data_set(
                "HotpotQA's dev questions over their own paragraphs", "pooled", "hotpotqa_distractor"
            ),
            "twowiki": _data_set("2WikiMultihopQA: question -> two or four paragraphs", "pooled", "twowiki"),
            "musique": _data_set("MuSiQue: question -> two to four paragraphs", "pooled", "musique"),
            "hipporag": _data_set(
                "HippoRAG's MuSiQue, 2WikiMultihopQA, HotpotQA: 1,000 questions each", "pooled", "hipporag"
            ),
            "multihop_rag": _data_set("MultiHop-RAG: question -> news articles", "multihop_rag"),
            "nq": _data_set("Natural Questions, a sample", "nq"),
            "dpr": _data_set("Natural Questions or SQuAD over 21 million passages", "dpr"),
            "nq320k": _data_set("Natural Questions -> whole articles", "nq320k"),
            "msmarco": _data_set("MS MARCO passages, TREC DL 2019 and 2020", "judged", "msmarco"),
            "browsecomp_plus": _data_set(
                "BrowseComp-Plus: question -> web pages", "judged", "browsecomp_plus"
            ),
            "qrecc": _data_set("QReCC: a conversation's question -> passages", "judged", "qrecc"),
            "propositions": Verb("statements of one fact each, as keys", "propositions:propositions"),
            "pseudo-queries": Verb(
                "queries for passages without any, by a query generator", "propositions:pseudo_queries"
            ),
        },
    ),
    "train": Verb(
        "train a model: a stage of a generator, a query generator, a bi-encoder, a reranker",
        names={
            "memorise": _stage("learn to write each passage of a corpus", "MemoriseStage", "memorise"),
            "retrieve": _stage(
                "learn to write the next passage, given query and evidence", "RetrieveStage", "retrieve"
            ),
            "chains": _stage("learn all hops of a query at once", "ChainStage", "chains"),
            "riches": _stage("learn to answer with quotes (RICHES)", "RichesStage", "riches"),
            "doc2query": _stage("learn to write queries that a passage answers", "QueryStage", "doc2query"),
            "biencoder": Verb(
                "fine-tune a bi-encoder",
                "encoders:train_biencoder",
                example="grls train biencoder --config configs/biencoder.yaml --data data/mine "
                "--output runs/mine/biencoder",
            ),
            "reranker": Verb(
                "train a reranker of documents, for a frozen language model or for the hops of a data set",
                "encoders:train_reranker",
                example="grls train reranker --data data/mine --output runs/mine/reranker",
            ),
        },
    ),
    "index": Verb(
        "make a retriever folder from a model and a corpus, or from other retriever folders",
        "index:make_index",
        example="grls index runs/chains/model --corpus data/mine --output runs/retriever",
        names={
            "hybrid": Verb("a generator with priors that look ahead", "index:make_hybrid"),
            "hops": Verb("a retriever that retrieves hop by hop", "index:make_hops"),
            "fusion": Verb("several retrievers, fused", "index:make_fusion"),
            "rescored": Verb(
                "a retriever whose best passages a cross-encoder rescores", "index:make_rescored"
            ),
            "bm25": Verb("BM25 over a corpus", "index:make_bm25"),
            "split": Verb("cut an index into ranges, for a Ray cluster", "index:split_index"),
            "update": Verb("add passages to a retriever folder, remove passages", "index:update"),
        },
    ),
    "identify": Verb(
        "make identifiers, which a generator learns to write in place of whole passages",
        "identify:identify_command",
        example="grls identify keywords --corpus data/mine --output runs/keywords",
    ),
    "search": Verb(
        "search for one question, and print the best passages or the hops",
        "search:search_command",
        example="grls search runs/fitted 'what do otters eat?'",
    ),
    "retrieve": Verb(
        "retrieve for the queries of a data set, in a single step or hop by hop",
        "retrieve:retrieve",
        example="grls retrieve runs/fitted --data data/mine --k 20 --output runs/fitted-test",
    ),
    "fit": Verb(
        "make the best retriever for a data set: train, index, tune, compare, in the time that there is",
        "fit:fit_command",
        example="grls fit data/mine --output runs/fitted --budget 60m",
    ),
    "judge": Verb(
        "judge questions: which hits of several retrievers are gold; writes a data set",
        "judge:judge_command",
        example="grls judge runs/fitted --output data/judged",
    ),
    "tune": Verb(
        "tune the weights and other settings of a retriever folder on dev queries",
        "tune:tune",
        example="grls tune runs/retriever --data data/mine",
    ),
    "fuse": Verb(
        "fuse runs into one: interleaved, by reciprocal ranks, or by scaled scores",
        "fuse:fuse_runs",
        example="grls fuse runs/a.jsonl runs/b.jsonl --output runs/fused",
    ),
    "evaluate": Verb(
        "score runs, or answers and how well their evidence supports them",
        "evaluate:evaluate",
        example="grls evaluate runs/fitted-test.jsonl --data data/mine --examples 3",
    ),
    "experiment": Verb(
        "compare retrievers or runs in one table, with significance, cost and a page",
        "experiment:experiment_command",
        example="grls experiment bm25 runs/fitted --data data/mine --baseline bm25 --output runs/table",
    ),
    "answer": Verb(
        "answer questions with a language model and a retriever",
        names={
            "riches": Verb(
                "quote evidence that is retrieved while the answer is written (RICHES)",
                "answer:answer_riches",
            ),
            "direct": Verb("answer from retrieved passages, or without any", "answer:answer_direct"),
            "follow-up": Verb("ask follow-up questions and retrieve for each", "answer:answer_follow_up"),
            "dsp": Verb("run a program of demonstrate-search-predict, on DSPy", "answer:answer_dsp"),
        },
    ),
    "ralm": Verb(
        "let a frozen language model read with retrieved documents",
        "ralm:ralm",
        {
            "examples": Verb("collect training examples for a reranker of documents", "ralm:ralm_examples"),
        },
    ),
    "serve": Verb(
        "serve retrievers behind HTTP, with batches, streams and metrics",
        "serve:serve",
        example="grls serve runs/fitted",
    ),
    "push": Verb(
        "upload a retriever folder to the model hub, with its model card",
        "push:push",
        example="grls push runs/fitted user/name",
    ),
    "explain": Verb(
        "say why a gold passage was not found, with the beam tree",
        "explain:explain",
        example="grls explain QUERY-ID --retriever runs/fitted --data data/mine",
    ),
    "check": Verb(
        "check a corpus and its queries (duplicates, unknown ids, …), or every invariant of an index",
        "check:check",
        example="grls check data/mine",
    ),
}


GROUPS = {
    "A retriever in one command": ("fit", "search", "serve", "push"),
    "Compare": ("retrieve", "evaluate", "experiment", "explain", "fuse"),
    "Data": ("prepare", "check", "judge"),
    "The parts of a retriever": ("train", "identify", "index", "tune"),
    "Language models that read what is found": ("answer", "ralm"),
}
"""The verbs as ``grls --help`` lists them."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    wait_asleep_if_busy()
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] == ["help"]:
        words = [*words[1:], "--help"]
    verb, names, rest = VERBS.get(words[0]) if words else None, words[:1], words[1:]
    while verb is not None and rest and rest[0] in verb.names:
        verb, names, rest = verb.names[rest[0]], [*names, rest[0]], rest[1:]
    command = Command(verb or Verb(""), " ".join(["grls", *names]))
    if command.verb.target:
        return ending.exit_code_of(
            lambda: command.run(with_recipes(rest)),
            command.saving,
            ["SIGHUP"] if command.verb.training else ending.SIGNALS,
        )
    return ending.exit_code_of(lambda: _without_target(words, verb, names, rest), command.saving)


def _without_target(words: list[str], verb: Verb | None, names: list[str], rest: list[str]) -> int:
    """Print the usage, name an unknown word, or prepare the data set of a plugin."""
    if words == ["--version"]:
        print(f"grls {grls.__version__}")
        return 0
    if not words or words[0] in ("-h", "--help"):
        print(_verbs())
        return 0 if words else 2
    if verb is None:
        return _unknown(words)
    prog = " ".join(["grls", *names])
    wants_help = bool(rest) and rest[0] in ("-h", "--help")
    if rest and not wants_help:
        return _unknown([*names, *rest], len(names), verb)
    file = sys.stdout if wants_help else sys.stderr
    print(_usage(prog, "NAME", verb.names, verb.summary), end="", file=file)
    return 0 if wants_help else 2


def _verbs() -> str:
    listed = {title: {name: VERBS[name].summary for name in names} for title, names in GROUPS.items()}
    groups = [f"{title}:\n{name_lines(verbs)}".rstrip() for title, verbs in listed.items()]
    more = "`grls VERB --help` explains a verb, `grls --version` prints the version."
    return "\n\n".join(("usage: grls VERB [options]", *groups, f"Example: {VERBS['fit'].example}\n{more}"))


def _usage(prog: str, word: str, verbs: Mapping[str, Verb], summary: str = "") -> str:
    lines = name_lines({name: verb.summary for name, verb in verbs.items()})
    about = f"\n{paragraphs(summary)}\n" if summary else ""
    return f"usage: {prog} {word} [options]\n{about}\n{lines}\n`{prog} {word} --help` explains its options.\n"


def _unknown(words: Sequence[str], known: int = 0, verb: Verb | None = None) -> int:
    """Print the error for an unknown word, with a near name or all names; ``known`` words are right."""
    prog = " ".join(["grls", *words[:known]])
    usage = f"{_verbs()}\n" if verb is None else _usage(prog, "NAME", verb.names, verb.summary)
    kind = "verb" if verb is None else "name"
    near = get_close_matches(words[known], VERBS if verb is None else verb.names, 1)
    hint = f"; did you mean {near[0]!r}?\n`{prog} --help` lists them all.\n" if near else f"\n\n{usage}"
    print(f"error: unknown {kind} {words[known]!r}{hint}", end="", file=sys.stderr)
    return 2


@dataclass(frozen=True)
class Command:
    """A verb with a target, and the command as it is typed, for the help."""

    verb: Verb
    prog: str

    @property
    def function(self) -> Callable[..., Any]:
        """The function that the command runs."""
        module, _, name = self.verb.target.partition(":")
        module = module if "." in module else f"grls.commands.{module}"
        try:
            function: Callable[..., Any] = getattr(import_module(module), name)
        except ModuleNotFoundError as error:
            if error.name != "data_prep":
                raise
            raise ConfigError(
                "data_prep, which prepares data sets, is not installed: install grls again, or run this in a "
                "checkout of it."
            ) from error
        return function

    def run(self, arguments: list[str]) -> None:
        """Parse and run; the options that a retriever folder stores take the place of the defaults."""
        function = self.function
        parser = self.parser()
        if asked := [place for place, word in enumerate(arguments) if word in ("-h", "--help")]:
            self.explain(parser, list(takewhile(lambda word: word[:1] != "-", arguments[asked[0] + 1 :])))
        arguments = with_lists(arguments, parser)
        given = parser.parse_args(arguments, defaults=False)
        folder = given.get("retriever")
        if isinstance(folder, str):
            from grls.retrieve.options import stored_options  # it needs NumPy, and not every verb does

            known, stored = {action.dest for action in parser._actions}, stored_options(folder)
            steps = stored.get("hops", {}).get("steps", "single")
            if given.get("hops.steps", steps) != steps:  # the folder's options are of hops of another kind
                stored.pop("hops", None)
            for section, values in stored.items():
                named = {f"{section}.{name}": value for name, value in values.items()}
                parser.set_defaults({name: value for name, value in named.items() if name in known})
        parsed = parser.parse_object(given)
        options = parser.instantiate(parsed).as_dict()  # `vars` would spell the name "keys" otherwise
        options.pop("config", None)
        ending.quiet()
        for name, kind in get_type_hints(function, include_extras=True).items():
            try:
                fitted(options.get(name), kind if name in options else Any)
            except UnfitError as error:
                raise ConfigError(error.said_of(f"{Option(name)}")) from None
        _refuse_early(options, self.prog)
        for name in options.keys() & {"data", "corpus"}:
            if isinstance(options[name], str) and options[name].startswith("hub:"):
                from grls.data.hub_data import local_folder

                options[name] = local_folder(options[name])
        checks: AbstractContextManager[None] = nullcontext()
        if "verify" in options:
            from grls.io.seal import verifying

            checks = verifying(options.pop("verify"))
        if self.verb.training:
            ending.require("train", self.prog)
            from grls.train.training import train

            train(function(**options))
            return
        with checks, showing(), telling_of_imports():
            function(**options)

    def parser(self) -> ArgumentParser:
        """The parser, made from the parameters and the docstrings of the function and its options."""
        function = self.function
        parser = PlainParser(prog=self.prog, formatter_class=InParagraphs)
        parser.add_argument("--config", action="config", help=_CONFIG)
        parameters = signature(function).parameters
        positionals = {}  # the parameters before `*`; without a `*` all are options
        if any(parameter.kind is Parameter.KEYWORD_ONLY for parameter in parameters.values()):
            positionals = {n: p for n, p in parameters.items() if p.kind is Parameter.POSITIONAL_OR_KEYWORD}
        types = get_type_hints(function)
        for name, parameter in positionals.items():
            is_list = get_origin(types[name]) is list
            optional = parameter.default is not Parameter.empty
            form: dict[str, Any] = {"nargs": "*" if optional else "+"} if is_list else {"type": types[name]}
            if optional:
                form |= {"default": parameter.default} | ({} if is_list else {"nargs": "?"})
            parser.add_argument(name, **form)
        add = parser.add_class_arguments if isclass(function) else parser.add_function_arguments
        add(function, skip=set(positionals), sub_configs=True)
        if any(action.dest == "retriever" for action in parser._actions):
            parser.add_argument("--verify", type=bool | None, default=None, help=_VERIFY)
        return parser

    def explain(self, parser: ArgumentParser, sections: Sequence[str]) -> None:
        """Give the parser its help: of many options only those of these ``sections``, ``all`` or none."""
        import docstring_parser

        doc = docstring_parser.parse(self.function.__doc__ or "")
        parser.description = "\n\n".join(filter(None, (doc.short_description, doc.long_description)))
        parser.usage = f"{usage(parser, '--{} {}'.format)} [options]"
        names = {name: verb.summary for name, verb in self.verb.names.items()}
        parser.epilog = f"Example:\n\n  {self.verb.example}\n\n" if self.verb.example else "\n"
        parser.epilog += f"See also `{self.prog} NAME`:\n\n{name_lines(names)}\n" if names else ""
        if self.verb.training and "train" in ending.lacking_extras():
            parser.epilog += '\n\nIt needs Lightning, which is not installed: `pip install "grls[train]"`.'
        helps = {param.arg_name: param.description or "" for param in doc.params}
        for action in parser._actions:
            if not action.option_strings:
                action.help = helps.get(action.dest, "")
            if action.dest in ("help", "print_config") or not action.help:
                action.help = _SAID.get(action.dest)
        given, general, *others = parser._action_groups
        for group in others:
            if group.title == (doc.short_description or "").rstrip("."):
                group.title = "options"
        general.title = "general options"
        parser._action_groups = [given, *others, general]
        fold_sections(parser, sections)

    def saving(self) -> str:
        """The advice after an out-of-memory error: which options save memory."""
        if not self.verb.target:
            advice = "Use smaller inputs"
        elif self.verb.training:
            advice = (
                "Lower --data.batch_size, with --trainer.accumulate_grad_batches as many times higher, or "
                "give --model.gradient_checkpointing true"
            )
        else:
            known = [action.dest for action in self.parser()._actions]
            options = [f"--{dest}" for name in _SAVES for dest in known if dest.rsplit(".", 1)[-1] == name]
            advice = f"Lower {' or '.join(options)}" if options else "Use smaller inputs"
        return f"{advice}, end other programs, or take a machine (--device: a GPU) with more memory."


_SAVES = ("memory", "batch_size", "beams", "window", "candidates", "max_new_tokens")
"""Options whose lower values save memory, in the order in which they are advised."""
_SAID = {
    "help": "Print this help, and end; `--help all`: of all options.",
    "print_config": "Print all options as YAML, and end.",
    "device": "Where models run: cpu, cuda, cuda:1, …; auto takes a GPU where there is one.",
    "precision": "Precision of models: float32 or bfloat16; auto: bfloat16 where the processor has it.",
}
"""The help of options that mean the same in all commands."""
_CONFIG = "YAML with options: a file or the name of a recipe. Later options override it."
_VERIFY = (
    "Check the files of an index against their checksums when it is opened. true: all files; null: a sample "
    "of a large index; false: none."
)


def _refuse_early(options: Mapping[str, Any], prog: str) -> None:
    """Refuse names and missing files before a command imports what takes seconds.

    A name of an option means the same in all commands. ``prog`` is the command, for the remedy.
    """
    retriever, data, query = options.get("retriever"), options.get("data"), options.get("query") or os.devnull
    if isinstance(retriever, str) and not os.path.isfile(retriever):  # noqa: PTH113 (the name may be too long)
        from grls.retrieve.hub_names import is_on_the_hub
        from grls.retrieve.registry import names_bm25
        from grls.retrieve.spec import followed, is_retriever, read_spec

        is_none = not is_retriever(Path(retriever))
        if names_bm25(retriever):
            if "data" in options and data is None:
                raise ConfigError(
                    f"bm25 needs {Option('data')}: the folder of the data set whose corpus it searches."
                )
        elif is_none and is_retriever(Path(query)):
            place, form = "comes first", f"{quote(query)} {quote(retriever)}"
            if prog.endswith("explain"):
                place, form = "is an option", f"{quote(retriever)} {Option('retriever', query)}"
            raise ConfigError(f"the folder of the retriever {place}: `{prog} {form}`.")
        elif is_none and data and os.path.isdir(retriever) and is_retriever(Path(data)):  # noqa: PTH112
            raise ConfigError(
                f"{Option('data')} names a retriever, and the retriever is {retriever}: swap them."
            )
        elif not is_on_the_hub(retriever):
            read_spec(followed(retriever))
    if isinstance(data, str) and not data.startswith("hub:") and not os.path.exists(data):  # noqa: PTH110
        raise DataError(
            "no such folder; a data set is a folder with corpus.jsonl, queries.jsonl and qrels/"
            f"{' (or give a folder of documents)' if prog == 'grls fit' else ''}{near_name(data)}",
            data,
        )
    raw, out = options.get("raw"), options.get("out")
    if raw is not None and out is not None:
        replaced, read = Path(out).resolve(), Path(raw).resolve()
        if replaced == read or replaced in read.parents:
            raise ConfigError(
                f"{out} holds the files to read, and would be replaced: give another {Option('out')}."
            )
        prepared = all((read / name).exists() for name in ("corpus.jsonl", "queries.jsonl", "qrels"))
        if prepared and prog.split()[-1] in VERBS["prepare"].names and prog != "grls prepare beir":
            raise ConfigError(
                f"{raw} is prepared already, no raw files: `grls fit {quote(str(raw))} "
                f"{Option('output', 'NEW')}` takes it as it is."
            )
    alone = [] if "retriever" in options or "run" not in options else [options["run"]]
    runs = options.get("runs") or alone
    for run in runs:
        if not os.path.isfile(run):  # noqa: PTH113
            raise DataError("no such file; expected a run in JSONL or TREC form.", run)


def with_lists(arguments: Sequence[str], parser: ArgumentParser) -> list[str]:
    """Turn ``--ratios 0.8 0.2`` into jsonargparse's ``--ratios=["0.8", "0.2"]``, where options are lists."""
    lists = [f"--{one.dest}" for one in parser._actions if is_list(getattr(one, "_typehint", None))]
    joined: list[str] = []
    values: list[str] | None = None
    for argument in arguments:
        if argument.startswith("--"):
            values = [] if argument in lists else None
        elif values is not None and not (not values and argument.startswith("[")):
            values.append(argument)
            joined[-1] = f"{joined[-1].split('=')[0]}={json.dumps(values)}"
            continue
        else:
            values = None  # a list in jsonargparse's own form: later arguments do not belong to it
        joined.append(argument)
    return joined


if __name__ == "__main__":
    sys.exit(main())
