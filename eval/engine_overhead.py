"""What the engine adds to diffusers' own denoise loop, and what the other stages cost beside it.

    python -P -m videoinfer.eval.engine_overhead [--model demo] [--workflow t2va] [--steps 50] [--rounds 5]

Both sides run in one process on the same weights, alternating, and the side that goes first changes with each round.
The ratio is taken in each round, so that a slow moment of the machine hits both sides of it.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from diffusers import MiniMaxH3Blocks

from ..conditioning import Conditioning
from ..demo.suite import WORKFLOWS, make_cases
from ..engine import VideoEngine
from ..request import ResolvedRequest


def bare_denoise(engine: VideoEngine, resolved: ResolvedRequest, conditioning: Conditioning) -> Callable[[], Any]:
    """diffusers' pipeline of the same workflow with its encoders and decoders taken out, on the engine's components."""
    blocks = MiniMaxH3Blocks().get_workflow(resolved.workflow)
    for name in [name for name in blocks.sub_blocks if not name.startswith("denoise.")]:
        blocks.sub_blocks.pop(name)
    pipeline: Any = blocks.init_pipeline(str(engine.model.source(resolved.workflow).folder))
    mine = engine.model.stage(resolved.workflow, "denoise")
    engine.model.family.denoise_loop(pipeline._blocks).set_progress_bar_config(disable=True)
    pipeline.register_components(**{name: getattr(mine, name) for name in pipeline.component_names})

    def run() -> Any:
        generator = torch.Generator("cpu").manual_seed(resolved.seed)
        return pipeline(**engine.model.family.denoise_inputs(conditioning, resolved, generator, mine))

    return run


def seconds(device: torch.device, run: Callable[[], Any]) -> float:
    started = time.perf_counter()
    run()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - started


def measure(engine: VideoEngine, workflow: str, steps: int, rounds: int) -> dict[str, Any]:
    """Ratios engine / bare of the denoise stage by round, and the seconds of each stage of whole generations."""
    device = engine.model.device
    shares, stages = [], []
    with tempfile.TemporaryDirectory() as folder:
        (case,) = make_cases(workflow, 1, Path(folder))
        output = case.request.output.model_copy(update={"folder": Path(folder)})
        request = case.request.model_copy(update={"steps": steps, "output": output})
        resolved = engine.resolve(request)
        conditioning = engine.encode(resolved)
        sides = {
            "engine": lambda: engine.denoise(conditioning, resolved, on_step=lambda *_: None),
            "bare": bare_denoise(engine, resolved, conditioning),
        }
        engine.decode(engine.denoise(conditioning, resolved))  # warm both: first calls allocate and choose kernels
        sides["bare"]()
        ratios = []
        for number in range(rounds):
            order = ("engine", "bare") if number % 2 else ("bare", "engine")
            taken = {side: seconds(device, sides[side]) for side in order}
            ratios.append(taken["engine"] / taken["bare"])
            timings = engine.generate(request).timings
            stages.append(timings)
            shares.append(1 - timings["denoise"] / timings["total"])
    return {
        "device": str(device),
        "dtype": str(engine.model.dtype).removeprefix("torch."),
        "threads": torch.get_num_threads(),
        "workflow": workflow,
        "steps": steps,
        "rounds": rounds,
        "ratio": summary(ratios),
        "share_outside_denoise": summary(shares),
        "seconds": {name: summary([timings[name] for timings in stages]) for name in stages[0]},
    }


def summary(values: list[float]) -> dict[str, float]:
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--model", default="demo")
    parser.add_argument("--workflow", default="t2va", choices=WORKFLOWS)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dtype", default="auto", choices=("auto", "float32", "bfloat16"))
    parser.add_argument("--steps", type=int, default=50, help="model forwards")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with VideoEngine.from_pretrained(options.model, device=options.device, dtype=options.dtype) as engine:
        found = measure(engine, options.workflow, options.steps, options.rounds)
    if options.json:
        print(json.dumps(found, indent=2))
        return
    where = f"{found['device']} {found['dtype']}, {found['threads']} threads"
    print(f"{found['workflow']}, {options.steps} forwards, {where}")
    for name in ("ratio", "share_outside_denoise"):
        value = found[name]
        spread = f"{value['min']:.4f} .. {value['max']:.4f}, n={options.rounds}"
        print(f"{name:<22} median {value['median']:.4f}  ({spread})")
    for name, value in found["seconds"].items():
        print(f"  {name:<10} {value['median']:8.3f} s  ({value['min']:.3f} .. {value['max']:.3f})")


if __name__ == "__main__":
    main()
