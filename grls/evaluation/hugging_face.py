"""Our metrics for Hugging Face's ``evaluate``, which loads this file by its path.

``evaluate.load(grls.evaluation.hugging_face.__file__, "set_f1")`` is the metric of that name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import datasets
import evaluate

from grls.errors import ConfigError
from grls.evaluation import metrics
from grls.evaluation.answers import attributed
from grls.evaluation.graph import graph_success, problem_from_texts
from grls.models.entailment import load_entailment


def autoais(
    answers: Sequence[str],
    references: Sequence[Mapping[str, Any]],
    nli: str,
    device: str = "auto",
    batch_size: int = 16,
) -> dict[str, Any]:
    """AutoAIS by a folder or hub name of a model of entailment, of ``{"question", "evidence"}`` a query."""
    questions, evidence = ([reference[key] for reference in references] for key in ("question", "evidence"))
    judge = load_entailment(nli, device, batch_size)
    follows = attributed(questions, answers, evidence, judge)
    return metrics.means(lambda supported: {"autoais": supported}, follows)


def _path_match(ids: Sequence[str], paths: dict[str, Any]) -> metrics.Scores:
    return metrics.path_match(ids, metrics.Accepted(**paths))


def _graph_success(chain: Sequence[str], problem: dict[str, Any]) -> metrics.Scores:
    return graph_success(chain, problem_from_texts(**problem))


TEXT, TEXTS = datasets.Value("string"), datasets.List(datasets.Value("string"))
PASSAGES = {"predictions": TEXTS, "references": TEXTS}
PATHS = {"paths": datasets.List(TEXTS), "any_order": datasets.Value("bool")}
METRICS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "sequence_recall": (metrics.sequence_recall, PASSAGES),
    "complete_recall": (metrics.complete_recall, PASSAGES),
    "hits": (metrics.hits, PASSAGES),
    "answer_recall": (metrics.answer_recall, PASSAGES),
    "seen_unseen": (metrics.seen_unseen, PASSAGES),
    "set_f1": (metrics.set_f1, PASSAGES),
    "known_number": (metrics.known_number, PASSAGES),
    "hop_hits": (metrics.hop_hits, PASSAGES),
    "exact_chain": (metrics.exact_chain, PASSAGES),
    "path_match": (_path_match, {"predictions": TEXTS, "references": PATHS}),
    "done_missing": (metrics.done_missing, {"predictions": datasets.Value("bool")}),
    "graph_success": (_graph_success, {"predictions": TEXTS, "references": {"start": TEXTS, "goal": TEXT}}),
    "answer_f1": (metrics.answer_f1, {"predictions": TEXT, "references": TEXTS}),
    "novel_f1": (metrics.novel_f1, {"predictions": TEXT, "references": TEXTS, "questions": TEXTS}),
    "autoais": (autoais, {"predictions": TEXT, "references": {"question": TEXT, "evidence": TEXTS}}),
}
"""Name -> the metric of one query (of all queries: :func:`autoais`), and the kinds of its inputs."""


class Metric(evaluate.Metric):  # type: ignore[misc]
    """The metric whose name is given to ``evaluate.load`` behind the path."""

    def _info(self) -> Any:
        if self.config_name not in METRICS:
            raise ConfigError(f"name a metric behind the path: one of {', '.join(METRICS)}.")
        metric, kinds = METRICS[self.config_name]
        told = metric.__doc__ or getattr(metrics, self.config_name, graph_success).__doc__  # of what it wraps
        return evaluate.MetricInfo(
            description=told, citation="", inputs_description=told, features=datasets.Features(kinds)
        )

    def _compute(self, k: Sequence[int] | None = None, **values: Any) -> Any:
        metric, kinds = METRICS[self.config_name]
        options = {name: value for name, value in values.items() if name not in kinds}
        options |= {} if k is None else {"ks": k}
        inputs: list[Any] = [values[name] for name in kinds]
        return autoais(*inputs, **options) if metric is autoais else metrics.means(metric, *inputs, **options)
