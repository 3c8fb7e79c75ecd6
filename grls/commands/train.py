"""``grls train``: stages of generators, RICHES, the query generator; bi-encoders and rerankers.

A stage that Lightning's parser reads has a model class and a data class; a config may name others. Its
``--help`` is read from the source of these classes, since their parser needs torch and Lightning, which take
seconds to load.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from grls.io.ending import lacking_extras, quiet, require
from grls.io.files import refuse_foreign
from grls.train.reranker.options import USUAL_RERANK_HOPS, USUAL_RERANKER, RerankerOptions, RerankHopOptions
from grls.train.signatures import STAGES, class_options, class_summary

_RUN = {
    "--config": "YAML with options: a file or the name of a recipe. Later options override it. The options "
    "of model and data stand in it directly, or under init_args beside the class_path of another class.",
    "--print_config": "Print all options with their values, and end.",
    "--output": "Folder for everything that the run writes (default: runs/train).",
    "--resume": "true: resume from the last checkpoint in OUTPUT; options and data must be the same.",
    "--ckpt_path": "Resume from this checkpoint file instead.",
    "--seed_everything": "Value of all seeds that are not set (default: 0).",
}
_CALLBACKS = {
    "trainer": "grls.train.core.trainer.Trainer",
    "checkpoint": "grls.train.core.checkpoints.BestCheckpoint",
    "last": "lightning.pytorch.callbacks.ModelCheckpoint",
}
_EPILOG = (
    "--model.generator CLASS chooses the model to start from: Pretrained, ScratchT5 or WarmStart of "
    "grls.models.load.build, PretrainedLM or CausalLM of grls.models.load.language. `{prog} "
    "--model.generator.help CLASS` lists the options of CLASS. --model.help CLASS and --data.help CLASS list "
    "those of classes of your own."
)
_STAGES = {
    "memorise": "Train a generator to write each passage of a corpus, given its front.",
    "retrieve": "Train a generator to write the next passage, given the query and the evidence so far.",
    "chains": "Train a generator on all hops of a query at once, with spans, a teacher, priors or rescoring.",
    "riches": "Train a language model to answer with quotes, for `grls answer riches`.",
    "doc2query": "Train a query generator, for `grls prepare pseudo-queries`.",
}


def train_stage(name: str, arguments: Sequence[str]) -> None:
    """Train a stage; for ``--help``, print its options, read from the source of its classes."""
    prog = f"grls train {name}"
    if "-h" not in arguments and "--help" not in arguments:
        require("train", prog)
        from grls.train.cli import train

        train([*STAGES[name].arguments, *arguments], prog)
        return
    description = _STAGES[name]
    if "train" in lacking_extras():
        description += (
            ' Lightning, whose options are not listed here, is not installed: `pip install "grls[train]"`.'
        )
    parser = argparse.ArgumentParser(
        prog, "%(prog)s [options]", description, _EPILOG.format(prog=prog), add_help=False
    )
    run = parser.add_argument_group("the run")
    run.add_argument("-h", "--help", action="help", help="Show this and end.")
    for option, text in _RUN.items():
        action = "store_true" if option == "--print_config" else "store"
        run.add_argument(option, help=text, action=action)
    stage = STAGES[name]
    for title, path in {"model": stage.model, "data": stage.data, **stage.measured, **_CALLBACKS}.items():
        group = parser.add_argument_group(f"{title} ({path})", class_summary(path))
        for field in class_options(path, f"{title}."):
            facts = [f"type: {field.kind}"] if field.kind else []
            if field.usual:
                facts.append(field.usual if field.usual == "required" else f"default: {field.usual}")
            text = f"{field.help} ({', '.join(facts)})".replace("%", "%%")
            metavar = field.name.rsplit(".", 1)[-1].upper()
            group.add_argument(f"--{field.name}", metavar=metavar, help=text)
    parser.print_help()
    raise SystemExit(0)


def train_reranker(
    *,
    train: str | None = None,
    dev: str | None = None,
    data: str,
    output: str,
    encoder: str = "all-MiniLM-L6-v2",
    prefix_tokens: int | None = None,
    max_tokens: int = 256,
    fit: RerankerOptions = USUAL_RERANKER,
    hops: RerankHopOptions = USUAL_RERANK_HOPS,
    resume: bool = False,
    device: str = "auto",
) -> None:
    """Train the predictive reranker of In-Context RALM (arXiv 2302.00083, equation 9).

    The paper trains RoBERTa-base, 10,000 steps of 32 prefixes with 16 candidates each, at 1e-5; the defaults
    here are for fewer examples.

    Without --train and --dev it learns the hops of the data set: which passage follows the question and the
    passages found so far. That model is a cross-encoder, for `grls index rescored R --model OUTPUT/model`.

    Writes OUTPUT/model (for `grls ralm --rerank.by trained --rerank.reranker OUTPUT/model`), OUTPUT/logs and
    OUTPUT/checkpoints (to resume from; they hold pickles, so do not share them).

    Args:
        train: File of training examples, written by `grls ralm examples`; null: the hops of the data set.
        dev: File of examples that choose the best epoch, written by `grls ralm examples`; null with `train`.
        data: Data set folder, or corpus file, with which the examples were collected; without examples, the
            data set folder whose hops are learned.
        output: Folder for everything that the run writes.
        encoder: Folder or hub name of a bidirectional encoder to start from.
        prefix_tokens: Length of the prefix before a stride, in tokens of the language model. It must be that
            of the examples; null takes it from them.
        max_tokens: Longest input (prefix and document), in tokens of the encoder.
        fit: Options of the training.
        hops: Options of the hops that are learned without examples.
        resume: Resume from the last checkpoint in OUTPUT; options and data must be the same.
        device: cpu, cuda, cuda:1, …; auto takes a GPU if there is one.
    """
    require("train", "grls train reranker")
    import torch

    from grls.answer.ralm.reranker import Reranker
    from grls.data.codec import tokenizer_fingerprint
    from grls.data.corpus import Corpus
    from grls.train.core.checkpoints import RunState
    from grls.train.core.processes import is_first, only_training
    from grls.train.reranker.module import fit_reranker
    from grls.train.reranker.run import examples_of_files, examples_of_hops

    quiet()
    refuse_foreign(f"{output}/model", "config.json")
    with only_training(output):
        corpus = Corpus.read(data)
        of_hops = train is None and dev is None
        read = (corpus, data, prefix_tokens, hops)
        examples = examples_of_hops(*read, fit.seed) if of_hops else examples_of_files(train, dev, *read)
        torch.manual_seed(fit.seed)  # for the new head of an encoder without one
        reading = examples.prefix_tokens, max_tokens, device
        reranker = Reranker.load(encoder, *reading, evidence_words=examples.evidence_words)
        settings = {"encoder": encoder, "prefix_tokens": examples.prefix_tokens, "max_tokens": max_tokens}
        settings |= {**examples.settings, **vars(fit)}
        files = {
            "the corpus": corpus.fingerprint,
            "the tokenizer of the encoder": tokenizer_fingerprint(reranker.tokenizer),
            **examples.files,
        }
        state = RunState(settings, files, {name: f"fit.{name}" for name in vars(fit)})
        passages = None if of_hops else corpus
        best = fit_reranker(reranker, passages, examples.train, examples.dev, output, fit, resume, state)
    if is_first():
        unit = "hop" if of_hops else "stride"
        print(f"best dev loss {best:.4f} nats a {unit}; the reranker is in {output}/model")
