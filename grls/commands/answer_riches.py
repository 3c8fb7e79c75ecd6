"""``grls answer riches``: answers with the evidence retrieved while they are written."""

from __future__ import annotations

from grls.answer.riches.options import USUAL_KEYS, USUAL_PROMPT, KeyOptions, PromptOptions
from grls.decode.interleave.options import USUAL_INTERLEAVE, InterleaveOptions

_PORTION = 8
"""Batches between two points where a run can go on."""


def answer_riches(
    *,
    data: str,
    model: str,
    output: str,
    keys: KeyOptions = USUAL_KEYS,
    prompt: PromptOptions = USUAL_PROMPT,
    search: InterleaveOptions = USUAL_INTERLEAVE,
    split: str = "test",
    limit: int | None = None,
    device: str = "auto",
    name: str | None = None,
) -> None:
    """Answer questions with interlaced retrieval (RICHES, arXiv 2407.00361).

    Writes the passages of the quotes, in their order, as a run (OUTPUT.trec, OUTPUT.jsonl, OUTPUT.info.json),
    thoughts, quotes and answer (OUTPUT.answers.jsonl), and OUTPUT.html to look at; `grls evaluate` scores
    run and answers. A killed run resumes when it is called again with the same options
    (OUTPUT.written.jsonl).

    Args:
        data: Data set folder.
        model: Folder or hub name of a language model, causal or encoder-decoder; a .gguf file is read, too.
        output: Path of the results without ending.
        keys: Options of the keys that may be quoted.
        prompt: Options of the prompt.
        search: How free text and quotes are decoded.
        split: Split of the queries.
        limit: Number of first queries to answer; null: all.
        device: cpu, cuda, cuda:1, …; auto takes a GPU where there is one.
        name: Name of the run in reports.
    """
    from grls.answer.questions import Questions
    from grls.answer.riches.written import run_riches
    from grls.io.ending import quiet

    quiet()
    questions = Questions.read(data, split, limit, output)
    run_riches(questions, model, keys, prompt, search, device, output, name, _PORTION)
