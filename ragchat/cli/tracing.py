"""What happened before an answer, as a tree for people and as JSON values."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.text import Text
from rich.tree import Tree

from ragchat.cli.output import counted, one_line
from ragchat_retrieval.trace import ModelCall, StageTiming

if TYPE_CHECKING:
    from ragchat_retrieval.trace import Trace

_STYLES = {"ok": "", "skipped": "yellow", "failed": "red"}


def trace_record(trace: Trace) -> dict[str, Any]:
    """Returns a trace as JSON values; times are in seconds."""
    return {
        "seconds": round(trace.seconds, 6),
        "stages": [_rounded(asdict(stage)) for stage in trace.stages],
        "calls": [_rounded(asdict(call)) for call in trace.calls],
        "notes": list(trace.notes),
    }


def trace_tree(trace: Trace) -> Tree:
    """Returns the stages of a trace inside one another, with the model calls that each made."""
    tree = Tree(Text.assemble(("prepare", "bold"), ("  " + _time(trace.seconds), "dim")))
    _grow(tree, trace, None)
    for note in trace.notes:
        tree.add(Text(one_line(note), style="dim"))
    return tree


def _grow(tree: Tree, trace: Trace, parent: int | None) -> None:
    """Adds what ran inside a stage, in the order in which it began."""
    inside: list[StageTiming | ModelCall] = [s for s in trace.stages if s.parent == parent]
    inside += [call for call in trace.calls if call.stage == parent]
    for item in sorted(inside, key=lambda item: item.started):
        if isinstance(item, ModelCall):
            tree.add(_line(f"{item.operation} {item.model}".rstrip(), item, _used(item)))
        else:
            counts = [f"{name} {number:,}" for name, number in item.counts.items()]
            _grow(tree.add(_line(item.stage, item, counts)), trace, item.number)


def _line(name: str, item: StageTiming | ModelCall, facts: list[str]) -> Text:
    return Text.assemble(
        one_line(name),
        (f"  {_time(item.seconds)}", "dim"),
        ("" if item.outcome == "ok" else f"  {item.outcome}", _STYLES[item.outcome]),
        ("".join(f"  {fact}" for fact in facts), "dim"),
    )


def _used(call: ModelCall) -> list[str]:
    """Returns what a call took, in words."""
    facts = []
    if call.operation != "chat":
        facts.append(counted(call.items, "text"))
    if call.requests:
        facts.append(counted(call.requests, "request"))
    if call.input_tokens is not None:
        facts.append(f"{call.input_tokens:,} tokens in")
    if call.output_tokens is not None:
        facts.append(f"{call.output_tokens:,} tokens out")
    return facts


def _time(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"


def _rounded(row: dict[str, Any]) -> dict[str, Any]:
    return {name: round(v, 6) if isinstance(v, float) else v for name, v in row.items()}
