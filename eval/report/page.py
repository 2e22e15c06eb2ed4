"""`report.html`: all of a report on one page without scripts; clips, plots and pictures by relative path."""

import html
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from .examples import AMPLIFIED, MOMENTS
from .examples import PROMPTS as SHOWN
from .plots import plot_names
from .words import best, best_note, facts, reading, table

STYLE = (
    ":root{color-scheme:light dark}body{font:15px system-ui;margin:1.5rem;max-width:110rem}"
    "table{border-collapse:collapse;font-variant-numeric:tabular-nums}td,th{padding:.2rem .6rem;text-align:right;"
    "border-bottom:1px solid #8884}td:first-child,th:first-child{text-align:left}.wide{overflow-x:auto}"
    "section{display:grid;gap:1rem;grid-template-columns:repeat(auto-fill,minmax(320px,1fr))}figure{margin:0}"
    "video,figure img{width:100%}img.plot{max-width:100%;background:#fff}"
    "figcaption{font-size:13px;word-break:break-word}"
    "ul.warn{border-left:4px solid #c60;padding:.5rem 2rem}"
)


def page(report: Mapping[str, Any], clips: str, pictures: str, folder: Path) -> str:
    """The page that lies in `folder`; clips and pictures are in its folders of these names."""
    parts = ["<h1>Step caches: speed and quality</h1>", *(f"<p>{html.escape(text)}</p>" for text in facts(report))]
    if report["warnings"]:
        parts.append(f'<ul class="warn">{_items(report["warnings"])}</ul>')
    for workflow in report["prompts"]:
        details = [one for one in report["details"] if one["workflow"] == workflow]
        parts += [f"<h2>{html.escape(workflow)}</h2>", _table(table(report, workflow))]
        parts += [f"<p>Best at a speed. {html.escape(best_note())}</p>", _table(best(report, workflow))]
        parts += [
            f'<p><img class="plot" src="plots/{quote(name)}" alt="{html.escape(title)}"></p>'
            for name, title in plot_names(report, workflow)
        ]
        parts += _worst(details, clips)
        for prompt in range(SHOWN):
            parts += _examples(details, prompt, clips, pictures, folder)
    parts.append(f"<h2>How to read it</h2><ul>{_items(reading(report))}</ul>")
    if report["missing"]:
        missing = [f"{one['clip']}: {one['reason']}" for one in report["missing"]]
        parts.append(f"<h2>Missing clips</h2><ul>{_items(missing)}</ul>")
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>videoinfer report</title><style>{STYLE}</style>{''.join(parts)}</html>\n"
    )


def _examples(details: Sequence[Any], prompt: int, clips: str, pictures: str, folder: Path) -> list[str]:
    """The clips of one prompt, each with its picture beside dense."""
    figures, text = [], ""
    for one in details:
        for clip in one["clips"]:
            if clip["prompt"] == prompt:
                text = clip["text"]
                picture = f"{pictures}/{clip['name']}.png"
                image = f'<img loading="lazy" src="{quote(picture)}" alt="">' if (folder / picture).exists() else ""
                figures.append(_figure(clip, one["name"], clips, image))
    if not figures:
        return []
    note = f"Pictures: dense, the method, and their difference {AMPLIFIED} times, at {len(MOMENTS)} moments."
    return [f"<h3>{html.escape(text)}</h3><p>{note}</p><section>{''.join(figures)}</section>"]


def _worst(details: Sequence[Any], clips: str) -> list[str]:
    """For each method the clip with the largest rho, and the dense one of its prompt."""
    dense = next((one for one in details if one["name"] == "dense"), None)
    figures = []
    for one in details:
        if dense is None or one is dense:
            continue
        worst = max(one["clips"], key=lambda clip: clip["rho"])
        beside = next((clip for clip in dense["clips"] if clip["prompt"] == worst["prompt"]), None)
        link = f' · <a href="{clips}/{quote(beside["name"])}.mp4">dense</a>' if beside else ""
        figures.append(_figure(worst, one["name"], clips, "", f"<br>{html.escape(worst['text'])}{link}"))
    return [f"<h3>The worst clip of each method</h3><section>{''.join(figures)}</section>"] if figures else []


def _figure(clip: Mapping[str, Any], method: str, clips: str, image: str, more: str = "") -> str:
    lost = f" · lost {', '.join(clip['lost'])}" if clip["lost"] else ""
    told = f"rho {clip['rho']:.4f} · PSNR {clip['psnr']:.2f} dB{lost}"
    return (
        f'<figure><video src="{clips}/{quote(clip["name"])}.mp4" controls loop muted preload="metadata"></video>{image}'
        f"<figcaption><b>{html.escape(method)}</b> {html.escape(told)}{more}</figcaption></figure>"
    )


def _table(rows: Sequence[Sequence[str]]) -> str:
    head, *body = ["".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in row) for tag, row in _tagged(rows)]
    return f'<div class="wide"><table><tr>{head}</tr>{"".join(f"<tr>{row}</tr>" for row in body)}</table></div>'


def _tagged(rows: Sequence[Sequence[str]]) -> list[tuple[str, Sequence[str]]]:
    return [("th" if k == 0 else "td", row) for k, row in enumerate(rows)]


def _items(texts: Sequence[str]) -> str:
    return "".join(f"<li>{html.escape(text)}</li>" for text in texts)
