"""What lies in a model folder, read from file sizes and safetensors headers alone: is it whole, and does it fit."""

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from .errors import ModelError

GIB = 2**30
BITS = {"F64": 64, "F32": 32, "F16": 16, "BF16": 16, "I64": 64, "I32": 32, "I16": 16, "I8": 8, "U8": 8, "BOOL": 8}
DTYPE_BITS = {"float64": 64, "float32": 32, "float16": 16, "bfloat16": 16}
MAX_HEADER = 100_000_000  # the limit of the safetensors library itself
_SHARD = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.safetensors$")


def read_header(path: Path) -> dict[str, Any]:
    """The tensors of a safetensors file, name -> {dtype, shape, data_offsets}, with the file's length checked.

    Raises ValueError with the reason: not a safetensors file, a Git LFS pointer, or shorter or longer than its header
    says.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        start = file.read(8)
        if start == b"version ":
            raise ValueError("is a Git LFS pointer, not the file itself; run `git lfs pull`")
        length = int.from_bytes(start, "little")
        if len(start) < 8 or length > MAX_HEADER or 8 + length > size:
            raise ValueError(f"is truncated or no safetensors file: {size} bytes do not hold its header")
        try:
            header = json.loads(file.read(length))
            header.pop("__metadata__", None)
            end = max((tensor["data_offsets"][1] for tensor in header.values()), default=0)
        except (ValueError, AttributeError, KeyError, TypeError, IndexError):
            raise ValueError("is no safetensors file: its header is not readable") from None
    if size != 8 + length + end:
        state = "truncated" if size < 8 + length + end else "longer than it should be"
        raise ValueError(f"is {state}: {size} bytes of {8 + length + end}")
    return header


def check_files(folder: Path, components: Sequence[str] | None = None) -> None:
    """Checks that a model folder is whole: every shard that an index names is there, every file has its full length.

    Args:
        folder: the model folder, one subfolder for each component.
        components: subfolders that must be there and hold weights where they have a `config.json`; the others are not
            looked at. None checks what is there and lets absent components be.

    Raises:
        ModelError: lists every missing, truncated or unreadable file.
    """
    if not folder.is_dir():
        raise ModelError(f"{folder} is not a folder. A model is a folder with modular_model_index.json in it.")
    if not any(folder.iterdir()):
        raise ModelError(f"the model folder {folder} is empty. Download the model again.")
    problems: list[str] = []
    places = sorted(path for path in folder.iterdir() if path.is_dir()) if components is None else []
    for name in components or ():
        place = folder / name
        if not place.is_dir():
            problems.append(f"{name}/ is missing")
            continue
        places.append(place)
        if (place / "config.json").is_file() and not _weight_files(place) and not any(place.glob("*.index.json")):
            problems.append(f"{name}/ has a config.json and no *.safetensors")
        if _weight_files(place) and not (place / "config.json").is_file():
            problems.append(f"{name}/config.json is missing")
    for place in (folder, *places):
        problems += [f"{path.relative_to(folder)} {reason}" for path, reason in _check_place(place)]
    if problems:
        listed = "\n".join(f"  {problem}" for problem in problems)
        raise ModelError(
            f"the model folder {folder} is not complete:\n{listed}\n"
            "The download probably stopped half way. Download it again; finished files are kept."
        )


def _check_place(place: Path) -> Iterator[tuple[Path, str]]:
    expected: set[str] = set()
    for path in sorted(place.glob("*.json")):
        # Vocabularies are large and are read by their own library; what says how to build the model is checked here.
        if not path.name.endswith(("config.json", "index.json")):
            continue
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            if path.name.endswith(".safetensors.index.json"):
                expected |= set(content["weight_map"].values())
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            yield path, "is not readable JSON of the expected form"
    for path in _weight_files(place):
        shard = _SHARD.match(path.name)
        if shard and path.name not in expected:
            index = f"{shard[1]}.safetensors.index.json"
            expected |= {f"{shard[1]}-{n:05d}-of-{shard[3]}.safetensors" for n in range(1, int(shard[3]) + 1)}
            if not (place / index).is_file():
                yield place / index, "is missing"
        try:
            read_header(path)
        except OSError as error:
            yield path, f"cannot be read: {error.strerror}"
        except ValueError as error:
            yield path, str(error)
    for name in sorted(expected):
        if not (place / name).is_file():
            yield place / name, "is missing"


def estimate_memory(folder: Path, components: Iterable[str], dtype: Any = "auto") -> dict[str, int]:
    """Bytes that the weights of each component take once loaded, from the safetensors headers alone.

    Args:
        components: subfolders of the model; one without weights counts 0.
        dtype: what floating point weights are loaded as ("bfloat16", torch.bfloat16, ...); "auto" keeps what is stored.

    Raises:
        ModelError: an unknown dtype, or a file that is not whole.
    """
    name = str(dtype).removeprefix("torch.")
    if name not in (*DTYPE_BITS, "auto"):
        raise ModelError(f"dtype {name!r} is not known; use auto, {', '.join(DTYPE_BITS)}.")
    estimate = {}
    for component in components:
        bits = 0
        for path in _loaded_files(folder / component):
            try:
                tensors = read_header(path).values()
            except (OSError, ValueError) as error:
                raise ModelError(f"{path} {error}. Download the model again; finished files are kept.") from error
            bits += sum(math.prod(tensor["shape"]) * _bits(tensor["dtype"], name) for tensor in tensors)
        estimate[component] = bits // 8
    return estimate


def _bits(stored: str, dtype: str) -> int:
    # Every float type of the format, the 8-bit and 4-bit ones too, has a name with an F and its number of bits.
    floating = re.match(r"B?F(\d+)", stored)
    if floating:
        return DTYPE_BITS.get(dtype, int(floating[1]))
    return BITS.get(stored, 8)


def _weight_files(place: Path) -> list[Path]:
    return sorted(place.glob("*.safetensors"))


def _loaded_files(place: Path) -> list[Path]:
    """The files that are loaded: not the variants (`model.fp16.safetensors`) that may lie beside the plain ones."""
    files = _weight_files(place)
    plain = [path for path in files if "." not in path.name.removesuffix(".safetensors")]
    return plain or files


def check_fits(estimate: Mapping[str, int], device: Any, available: int | None = None) -> None:
    """Refuses, with the numbers, weights that cannot fit the free memory of a device.

    Args:
        estimate: bytes of each component, as `estimate_memory` gives them.
        device: "cpu", "cuda", "cuda:1", "mps" or a torch.device.
        available: free bytes; measured when left out. The working memory of a run comes on top of the weights.

    Raises:
        ModelError: the weights alone need more than is free.
    """
    free = free_memory(device) if available is None else available
    total = sum(estimate.values())
    if total > free:
        parts = " + ".join(f"{name} {_gib(size)}" for name, size in estimate.items() if size)
        raise ModelError(
            f"the weights need {_gib(total)} ({parts}), and {device} has {_gib(free)} free. Use a smaller dtype or "
            "model, a device with more memory, or stop other programs that hold memory."
        )


def free_memory(device: Any) -> int:
    """Free bytes on a device now."""
    kind = str(device).partition(":")[0]
    if kind == "cuda":
        import torch

        return torch.cuda.mem_get_info(torch.device(device))[0]
    # Other accelerators that torch runs on a laptop share the memory of the machine.
    import psutil

    return psutil.virtual_memory().available


def _gib(size: int) -> str:
    return f"{size / GIB:.2f} GiB"
