"""``grls train STAGE``: the stages of generators, RICHES and the query generator, with LightningCLI.

Each stage has a model class and a data class; a config may name others. ``--help`` is read from the source of
these classes, since their parser needs torch and Lightning, which take seconds to load.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from grls.io.ending import lacking_extras, require
from grls.train.catalogue import STAGES

_RUN = {
    "--config": "YAML with options: a file or the name of a recipe. Later options override it. The options "
    "of model and data stand in it directly, or under init_args beside the class_path of another class.",
    "--print_config": "Print all options with their values, and end.",
    "--output": "Folder for everything that the run writes (default: runs/train).",
    "--resume": "true: resume from the last checkpoint in OUTPUT; options and data must be the same.",
    "--ckpt_path": "Resume from this checkpoint file instead.",
    "--seed_everything": "Value of all seeds that are not set (default: 0).",
}
_OTHERS = {
    "trainer": "grls.train.cli.Trainer",
    "checkpoint": "grls.train.core.checkpoints.BestCheckpoint",
    "last": "lightning.pytorch.callbacks.ModelCheckpoint",
}
_MORE = (
    "--model.generator CLASS chooses the model to start from: Pretrained, ScratchT5 or WarmStart of "
    "grls.models.load.build, PretrainedLM or CausalLM of grls.models.load.build. `{prog} "
    "--model.generator.help CLASS` lists the options of CLASS. --model.help CLASS and --data.help CLASS list "
    "the options of classes of your own."
)


def train_memorise(arguments: Sequence[str]) -> None:
    """Train a generator to write each passage of a corpus, given its front, keywords or a neighbour."""
    _run("memorise", train_memorise.__doc__, arguments)


def train_retrieve(arguments: Sequence[str]) -> None:
    """Train a generator to write the next passage, given the query and the evidence so far."""
    _run("retrieve", train_retrieve.__doc__, arguments)


def train_chains(arguments: Sequence[str]) -> None:
    """Train a generator on all hops of a query at once, with spans, a teacher, priors or rescoring."""
    _run("chains", train_chains.__doc__, arguments)


def train_riches(arguments: Sequence[str]) -> None:
    """Train a language model to answer with quotes, for `grls answer riches`."""
    _run("riches", train_riches.__doc__, arguments)


def train_doc2query(arguments: Sequence[str]) -> None:
    """Train a query generator, for `grls prepare pseudo-queries`."""
    _run("doc2query", train_doc2query.__doc__, arguments)


def _run(name: str, what: str | None, arguments: Sequence[str]) -> None:
    """Train a stage; for ``--help``, print its options, read from the source of its classes."""
    prog = f"grls train {name}"
    if "-h" not in arguments and "--help" not in arguments:
        require("train", prog)
        from grls.train.cli import train

        train([*STAGES[name].arguments, *arguments], prog)
        return
    from grls.train.signatures import class_options, class_summary

    what = what or ""
    if "train" in lacking_extras():
        what += ' Lightning, whose options are not listed here, is not installed: pip install "grls[train]".'
    parser = argparse.ArgumentParser(
        prog, "%(prog)s [options]", what, _MORE.format(prog=prog), add_help=False
    )
    run = parser.add_argument_group("the run")
    run.add_argument("-h", "--help", action="help", help="Show this and end.")
    for option, text in _RUN.items():
        action = "store_true" if option == "--print_config" else "store"
        run.add_argument(option, help=text, action=action)
    stage = STAGES[name]
    for title, path in {"model": stage.model, "data": stage.data, **stage.measured, **_OTHERS}.items():
        group = parser.add_argument_group(f"{title} ({path})", class_summary(path))
        for field in class_options(path, f"{title}."):
            facts = [f"type: {field.kind}"] if field.kind else []
            if field.usual:
                facts.append(field.usual if field.usual == "required" else f"default: {field.usual}")
            text = f"{field.what} ({', '.join(facts)})".replace("%", "%%")
            metavar = field.name.rsplit(".", 1)[-1].upper()
            group.add_argument(f"--{field.name}", metavar=metavar, help=text)
    parser.print_help()
    raise SystemExit(0)
