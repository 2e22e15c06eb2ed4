"""`report.md`."""

from collections.abc import Mapping, Sequence
from typing import Any

from .plots import plot_names
from .words import best, best_note, facts, reading, table


def markdown(report: Mapping[str, Any]) -> str:
    """The report as Markdown; plots by relative path."""
    lines = ["# Step caches: speed and quality", ""]
    lines += [f"{text}\n" for text in facts(report)]
    if report["warnings"]:
        lines += ["**To know first**", "", *(f"* {_plain(text)}" for text in report["warnings"]), ""]
    for workflow in report["prompts"]:
        lines += [f"## {workflow}", "", *_table(table(report, workflow)), ""]
        lines += ["Best at a speed. " + best_note(), "", *_table(best(report, workflow)), ""]
        lines += [f"![{title}](plots/{name})\n" for name, title in plot_names(report, workflow)]
    lines += ["## How to read it", "", *(f"* {text}" for text in reading(report)), ""]
    if report["missing"]:
        lines += ["## Missing clips", "", *(f"* `{one['clip']}`: {_plain(one['reason'])}" for one in report["missing"])]
        lines.append("")
    return "\n".join(lines)


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    cells = [[_plain(cell) for cell in row] for row in rows]
    if not cells:
        return []
    aligned = ["---" if k == 0 else "--:" for k in range(len(cells[0]))]
    return ["| " + " | ".join(row) + " |" for row in (cells[0], aligned, *cells[1:])]


def _plain(text: str) -> str:
    """Nothing in it becomes a mark."""
    return text.replace("\n", " ").replace("|", "\\|").replace("*", "\\*").replace("<", "&lt;")
