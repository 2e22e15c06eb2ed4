"""How often the embedded model shows what was asked: `python -m videoinfer.demo.evaluate --workflow t2va --prompts 64`.

Dense sampling through the engine; the checker reads the decoded frames and sound. Half of the cases are combinations
of words that were never trained together.
"""

import argparse
import json
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from ..engine import VideoEngine
from .checker import read_clip
from .suite import ATTRIBUTES, WORKFLOWS, Case, make_cases, read_cases

SHEET_CLIPS, SHEET_FRAMES = 12, 5


def evaluate(engine: VideoEngine, cases: list[Case], steps: int, frames: int, say: Callable[[str], None]) -> dict:
    """Generate and read every case.

    Returns `accuracy` by attribute, `cases` with what was expected and seen, and `strips`: for the first clips, some
    frames side by side, uint8 (H, W, 3).
    """
    right, asked, rows, strips = Counter(), Counter(), [], []
    for number, case in enumerate(cases, start=1):
        request = case.request.model_copy(update={"steps": steps, "num_frames": frames})
        began = time.perf_counter()
        resolved = engine.resolve(request)
        clip = engine.decode(engine.denoise(engine.encode(resolved), resolved))
        seconds = time.perf_counter() - began
        if number <= SHEET_CLIPS:
            moments = np.linspace(0, len(clip.frames) - 1, SHEET_FRAMES).round().astype(int)
            strips.append(np.concatenate(list(clip.frames[moments]), axis=1))
        reading = read_clip(torch.from_numpy(clip.frames), torch.from_numpy(clip.audio))
        seen = {name: getattr(reading, name) for name in ATTRIBUTES}
        for name, word in case.expected.items():
            asked[name] += 1
            right[name] += seen[name] == word
        if "shape" in case.expected:
            asked["sound"] += 1
            right["sound"] += reading.sound == case.expected["shape"]
        asked["pan"] += 1
        right["pan"] += bool(reading.pan)
        rows.append(
            {
                "prompt": case.request.prompt_text,
                "held_out": case.held_out,
                "expected": case.expected,
                "seen": seen,
                "seconds": round(seconds, 2),
            }
        )
        wrong = {name: f"{seen[name]} for {word}" for name, word in case.expected.items() if seen[name] != word}
        say(f"{number}/{len(cases)} {case.request.prompt_text!r} {seconds:.1f} s {wrong or 'right'}")
    accuracy = {name: round(right[name] / asked[name], 4) for name in (*ATTRIBUTES, "sound", "pan") if asked[name]}
    return {"accuracy": accuracy, "cases": rows, "strips": strips}


def write_sheet(path: Path, strips: list[np.ndarray]) -> None:
    """One PNG with a row of frames per clip; refuses to replace a file."""
    gap = np.full((4, strips[0].shape[1], 3), 255, np.uint8)
    sheet = np.concatenate([part for strip in strips for part in (strip, gap)][:-1])
    with path.open("xb") as file:
        Image.fromarray(sheet).save(file, format="PNG")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workflow", default="t2va", help="one or more of t2va,fl2va,ref2va")
    parser.add_argument("--prompts", type=int, default=64)
    parser.add_argument("--prompts-file", type=Path, help="JSONL of requests instead of the built-in suite")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--frames", type=int, default=124)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--sheet", type=Path, help="also write frames of the first clips into this new PNG")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    arguments = parser.parse_args()
    workflows = arguments.workflow.split(",")
    if unknown := [name for name in workflows if name not in WORKFLOWS]:
        parser.error(f"workflow {unknown[0]!r} is not one of {', '.join(WORKFLOWS)}")
    if arguments.sheet and arguments.sheet.exists():
        parser.error(f"--sheet {arguments.sheet} exists already; name a new file")
    strips = []
    result: dict = {"accuracy": {}, "n": 0, "steps": arguments.steps, "frames": arguments.frames, "cases": {}}
    with tempfile.TemporaryDirectory() as folder, VideoEngine.from_pretrained(arguments.model) as engine:
        by_workflow: dict[str, list[Case]] = defaultdict(list)
        if arguments.prompts_file:
            for case in read_cases(arguments.prompts_file):
                by_workflow[case.request.workflow].append(case)
        else:
            for name in workflows:
                by_workflow[name] = make_cases(name, arguments.prompts, Path(folder))
        for name, cases in by_workflow.items():
            outcome = evaluate(
                engine, cases, arguments.steps, arguments.frames, lambda line: print(line, file=sys.stderr, flush=True)
            )
            result["accuracy"][name] = outcome["accuracy"]
            result["cases"][name] = outcome["cases"]
            result["n"] += len(cases)
            strips += outcome["strips"]
    if arguments.sheet:
        write_sheet(arguments.sheet, strips)
    if arguments.json:
        print(json.dumps(result, indent=1))
        return
    for name, accuracy in result["accuracy"].items():
        print(
            name, " ".join(f"{key} {value:.1%}" for key, value in accuracy.items()), f"n {len(result['cases'][name])}"
        )


if __name__ == "__main__":
    main()
