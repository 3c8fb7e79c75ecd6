"""Programs, models and demonstrations by their names on the command line."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from grls.answer.dsp.baselines import RetrieveThenRead, SelfAsk, Vanilla
from grls.answer.dsp.demonstrate import demonstrate
from grls.answer.dsp.lines import LinesAdapter
from grls.answer.dsp.lm import LocalEngine, endpoint_lm, local_lm
from grls.answer.dsp.needed import dspy
from grls.answer.dsp.options import API, CallOptions, DemonstrationOptions, ProgramOptions
from grls.answer.dsp.patience import Patience
from grls.answer.dsp.programs import Conversational, MultiHop, OpenQA
from grls.answer.dsp.retrieval import Retrieval
from grls.errors import ConfigError, DataError, MismatchError
from grls.io.files import read_json, write_json
from grls.models.load.language import load_language_model, weights_fingerprint

log = logging.getLogger(__name__)


def program_named(name: str, retrieval: Retrieval | None, dsp: ProgramOptions) -> Any:
    """A program or a baseline, to be run once.

    Raises:
        ConfigError: The program needs a retriever, or the name is unknown.
    """
    if name == "vanilla":
        return Vanilla()
    if retrieval is None:
        raise ConfigError(f"the program {name} retrieves: give a retriever.")
    if name == "retrieve-then-read":
        return RetrieveThenRead(retrieval)
    if name == "self-ask":
        return SelfAsk(retrieval, dsp.rounds)
    if name == "openqa":
        return OpenQA(retrieval, dsp.queries, dsp.temperature)
    if name == "multihop":
        return MultiHop(retrieval, dsp.rounds, dsp.queries, dsp.temperature, dsp.summary, dsp.passages)
    if name == "conversational":
        return Conversational(retrieval, dsp.queries, dsp.temperature, dsp.fuse_question)
    raise ConfigError(f"unknown program {name!r}.")


class NamedLM(NamedTuple):
    """A language model opened by name.

    Attributes:
        lm: A ``dspy.LM``.
        weights: Fingerprint of a model in this process; None for a served model.
    """

    lm: Any
    weights: str | None


def lm_named(name: str, calls: CallOptions = CallOptions(), device: str = "auto") -> NamedLM:  # noqa: B008
    """A ``dspy.LM`` of an endpoint, a provider (``api:openai/gpt-4o-mini``), or a model in this process.

    Raises:
        ConfigError: The model cannot be opened.
    """
    new_tokens = calls.filled(name)[1]
    if calls.is_remote(name):
        served = endpoint_lm(
            name.removeprefix(API), calls.endpoint, new_tokens, calls.timeout, calls.attempts - 1
        )
        return NamedLM(served, None)
    model, tokenizer = load_language_model(name, device)
    engine = LocalEngine(model, tokenizer, new_tokens, calls.batch_size, calls.chat)
    return NamedLM(local_lm(engine, Path(name).name), weights_fingerprint(model))


def adapter_named(template: str, attempts: int) -> Patience:
    """The adapter of a template: ``lines``, the paper's plain template, or ``chat``, DSPy's format."""
    inner = LinesAdapter() if template == "lines" else dspy.ChatAdapter(use_json_adapter_fallback=False)
    return Patience(inner, attempts)


def demonstrated(
    program: Any,
    options: DemonstrationOptions,
    train: Sequence[Any],
    threads: int,
    file: str | Path,
    made: Mapping[str, Any],
) -> Any:
    """A program with demonstrations, read from a file; a missing file is made and written.

    Demonstrations that depend on the query (``nearest``) have no file.

    Args:
        program: The program.
        options: How to make demonstrations.
        train: Examples to make demonstrations of.
        threads: Examples tried at the same time.
        file: The file of the demonstrations.
        made: Everything that demonstrations depend on, as JSON values; a file with other settings is refused.

    Raises:
        DataError: The file belongs to another program.
        MismatchError: The demonstrations of the file were made with other settings.
    """
    path = Path(file)
    if options.how in ("none", "nearest"):
        return demonstrate(program, options, train)
    if path.is_file():
        try:
            kept = read_json(path)
            if kept["settings"] != made:
                raise MismatchError(
                    f"{path} holds demonstrations that were made with other settings; give another output, "
                    "or remove the file."
                )
            program.load_state(kept["program"])
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(
                f"these are no demonstrations of this program ({error!r}); remove the file.", path
            ) from None
        return program
    taught = demonstrate(program, options, train, threads=threads)
    if not any(predictor.demos for predictor in taught.predictors()):
        log.warning(
            "no demonstration could be made of %d examples: the program answers none correctly.", len(train)
        )
    write_json(path, {"settings": dict(made), "program": taught.dump_state()})
    return taught
