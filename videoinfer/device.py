"""Where a model runs, and in which precision."""

from typing import Literal

import torch

from .errors import ModelError

DType = Literal["auto", "float32", "bfloat16"]


def select_device(name: str) -> torch.device:
    """`auto` is the first GPU, else the CPU. ModelError when torch does not see the device that was named."""
    if name == "auto":
        return torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ModelError(f"device {name!r} is not known: use auto, cpu, cuda or cuda:N.") from error
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if device.type == "cpu":
        return device
    if device.type != "cuda":
        raise ModelError(f"device {name!r} is not supported: use auto, cpu, cuda or cuda:N.")
    if (device.index or 0) >= count:
        raise ModelError(f"device {name!r} does not exist: torch sees {count} GPUs here. Use cpu, or check the driver.")
    return torch.device("cuda", device.index or 0)


def select_dtype(name: DType | str | torch.dtype, device: torch.device) -> torch.dtype:
    """`auto` is bfloat16 on a GPU and float32 on a CPU, where bfloat16 is slow."""
    name = str(name).removeprefix("torch.")
    if name == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    if name not in ("float32", "bfloat16"):
        raise ModelError(f"dtype {name!r} is not supported: use auto, float32 or bfloat16 (float16 overflows).")
    return getattr(torch, name)
