"""The training loop of every part of the embedded model, stopped and resumed at any step."""

import json
import os
import time
from collections import defaultdict
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from diffusers import ModelMixin
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn

SAVE_EVERY = 150.0  # seconds
REPORT_EVERY = 50  # steps
WARM_UP = 100  # steps

# Given the share of the training time that is over, the terms of one fresh batch's loss; they are added up. Terms whose
# name begins with "_" are only reported.
BatchLoss = Callable[[float], dict[str, torch.Tensor]]


def half_copy(model: ModelMixin, *kept: str) -> Any:
    """A copy in bfloat16, but for the modules that diffusers keeps in float32 and those with a name in `kept`.

    Training on it is up to twice as fast on a CPU that multiplies bfloat16.
    """
    pinned = (*(model._keep_in_fp32_modules or ()), *kept)
    copy = deepcopy(model)
    for name, parameter in copy.named_parameters():
        if not any(part in name for part in pinned):
            parameter.data = parameter.data.bfloat16()
    return copy


class Trainer:
    """AdamW with a warm-up, an exponential moving average, and a checkpoint that survives a kill.

    The checkpoint is one safetensors file (weights, average, optimiser state, time spent), replaced atomically.
    `working` is a copy of the model in a cheaper dtype: the loss is computed on it, the update made on the model.
    """

    def __init__(
        self,
        model: nn.Module,
        path: Path,
        *,
        lr: float,
        average: float = 0.999,
        weight_decay: float = 0.01,
        working: nn.Module | None = None,
    ):
        self.model, self.path, self.lr, self.average = model, path, lr, average
        self.names = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
        self.parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self.optimizer = torch.optim.AdamW(
            self.parameters, lr=lr, betas=(0.9, 0.98), weight_decay=weight_decay, fused=True
        )
        self.ema = [parameter.detach().clone() for parameter in self.parameters]
        self.step, self.seconds = 0, 0.0
        if path.exists():
            self._load()
        self.working: list[torch.Tensor] = [
            parameter for parameter in (working.parameters() if working else ()) if parameter.requires_grad
        ]
        self._copy_to_working()

    def run(self, label: str, minutes: float, batch_loss: BatchLoss) -> None:
        """Train until `minutes` are spent in all, over as many sittings as it takes; a line every 50 steps.

        The learning rate stays for the first half of the time, then falls linearly to a thirtieth.
        """
        budget, saved_at, terms = minutes * 60.0, time.monotonic(), defaultdict(list)
        while self.seconds < budget:
            began = time.monotonic()
            done = self.seconds / budget
            losses = batch_loss(done)
            total = torch.stack([loss for name, loss in losses.items() if not name.startswith("_")]).sum()
            self.update(total, max(1.0 / 30.0, min(1.0, 2.0 * (1.0 - done))))
            self.seconds += time.monotonic() - began
            for name, loss in losses.items():
                terms[name.lstrip("_")].append(float(loss.detach()))
            if self.step % REPORT_EVERY == 0:
                means = " ".join(f"{name} {sum(values) / len(values):.4f}" for name, values in terms.items())
                print(f"{label} step {self.step} {self.seconds / 60.0:.1f} min {means}", flush=True)
                terms.clear()
            if time.monotonic() - saved_at > SAVE_EVERY:
                self.save()
                saved_at = time.monotonic()
        self.save()

    def update(self, loss: torch.Tensor, lr_scale: float) -> None:
        """One optimiser step at `lr_scale` times the peak rate, gradients clipped to norm 1."""
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        if self.working:
            for parameter, copy in zip(self.parameters, self.working, strict=True):
                parameter.grad, copy.grad = None if copy.grad is None else copy.grad.float(), None
        nn.utils.clip_grad_norm_(self.parameters, 1.0)
        for group in self.optimizer.param_groups:
            group["lr"] = self.lr * lr_scale * min(1.0, (self.step + 1) / WARM_UP)
        self.optimizer.step()
        self.step += 1
        decay = min(self.average, (1 + self.step) / (10 + self.step))
        with torch.no_grad():
            now: list[torch.Tensor] = [*self.parameters]
            torch._foreach_lerp_(self.ema, now, 1.0 - decay)
        self._copy_to_working()

    @torch.no_grad()
    def _copy_to_working(self) -> None:
        if self.working:
            torch._foreach_copy_(self.working, [*self.parameters])

    def save(self) -> None:
        """Write the checkpoint beside its final name, then rename it."""
        tensors = {}
        for name, parameter, average in zip(self.names, self.parameters, self.ema, strict=True):
            state = self.optimizer.state[parameter]
            tensors[f"model.{name}"], tensors[f"ema.{name}"] = parameter.detach(), average
            tensors[f"m.{name}"], tensors[f"v.{name}"] = state["exp_avg"], state["exp_avg_sq"]
        for name, parameter in self.model.named_parameters():
            if not parameter.requires_grad:  # part of the result all the same
                tensors[f"ema.{name}"] = parameter.detach()
        facts = {"step": str(self.step), "seconds": json.dumps(self.seconds)}
        part = self.path.with_suffix(".part")
        part.parent.mkdir(parents=True, exist_ok=True)
        save_file(tensors, part, metadata=facts)
        os.replace(part, self.path)

    def _load(self) -> None:
        with safe_open(self.path, "pt") as file:
            facts = file.metadata()
            self.step, self.seconds = int(facts["step"]), json.loads(facts["seconds"])
            for name, parameter, average in zip(self.names, self.parameters, self.ema, strict=True):
                with torch.no_grad():
                    parameter.copy_(file.get_tensor(f"model.{name}"))
                    average.copy_(file.get_tensor(f"ema.{name}"))
                self.optimizer.state[parameter] = {
                    "step": torch.tensor(float(self.step)),
                    "exp_avg": file.get_tensor(f"m.{name}"),
                    "exp_avg_sq": file.get_tensor(f"v.{name}"),
                }


def load_average(model: nn.Module, path: Path) -> nn.Module:
    """Put the averaged weights of a checkpoint into the model."""
    with safe_open(path, "pt") as file, torch.no_grad():
        for name, parameter in model.named_parameters():
            if f"ema.{name}" in file.keys():  # noqa: SIM118 - the handle is no mapping
                parameter.copy_(file.get_tensor(f"ema.{name}"))
    return model
