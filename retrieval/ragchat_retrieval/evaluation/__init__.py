"""Measuring retrieval: metrics, stages side by side, confidence, gates, tuning, reports."""

from __future__ import annotations

from ragchat_retrieval.evaluation.bootstrap import Difference, paired_bootstrap
from ragchat_retrieval.evaluation.citing import CITATION_METRICS, CitationEvaluation, CitedAnswer
from ragchat_retrieval.evaluation.collection import Collection, Topic, load_collection
from ragchat_retrieval.evaluation.evaluating import evaluate
from ragchat_retrieval.evaluation.gate import Gate, GateResult
from ragchat_retrieval.evaluation.grid import Grid, Setting
from ragchat_retrieval.evaluation.html import html_report
from ragchat_retrieval.evaluation.metrics import (
    DEFAULT_METRICS,
    Metric,
    ndcg,
    precision,
    recall,
    reciprocal_rank,
)
from ragchat_retrieval.evaluation.report import Report
from ragchat_retrieval.evaluation.result import Evaluation, evaluate_run
from ragchat_retrieval.evaluation.tuning import Trial, Tuning, tune

__all__ = [
    "CITATION_METRICS",
    "DEFAULT_METRICS",
    "CitationEvaluation",
    "CitedAnswer",
    "Collection",
    "Difference",
    "Evaluation",
    "Gate",
    "GateResult",
    "Grid",
    "Metric",
    "Report",
    "Setting",
    "Topic",
    "Trial",
    "Tuning",
    "evaluate",
    "evaluate_run",
    "html_report",
    "load_collection",
    "ndcg",
    "paired_bootstrap",
    "precision",
    "recall",
    "reciprocal_rank",
    "tune",
]
