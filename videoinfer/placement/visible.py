"""Which cards CUDA shows to a process, and how it counts them."""

import os
import re
from collections.abc import Mapping, Sequence

from .topology import Gpu, TopologyError


def visible(gpus: Sequence[Gpu], environment: Mapping[str, str]) -> tuple[tuple[Gpu, ...], list[str]]:
    """The cards that CUDA_VISIBLE_DEVICES leaves of `gpus` (in PCI order), and a note when a word of it is not valid.

    As CUDA and torch read it: all numbers or all beginnings of UUIDs, as the first word is; a word that is not valid
    hides itself and all behind it. Raises TopologyError for a card that is named twice (CUDA then shows none), a
    beginning of several UUIDs, numbers whose order is not known, and a MIG slice.
    """
    wanted = environment.get("CUDA_VISIBLE_DEVICES")
    if wanted is None:
        return tuple(gpus), []
    if wanted.strip() in ("", "-1"):  # the usual way to hide all
        return (), []
    what = f"CUDA_VISIBLE_DEVICES={wanted}"
    chosen: list[Gpu] = []
    words = [word.strip() for word in wanted.split(",")]
    for word in words:
        number = re.match(r"\+?\d+", word)  # CUDA reads `1x` as 1
        if word.startswith("MIG-"):
            raise TopologyError(f"{what} names a MIG slice ({word}): give whole cards.")
        if words[0].startswith("GPU-"):
            fitting = [gpu for gpu in gpus if word.startswith("GPU-") and gpu.uuid.startswith(word)]
        elif number and int(number[0]) < len(gpus):
            check_order(gpus, environment, what)
            fitting = [gpus[int(number[0])]]
        else:
            fitting = []
        if not fitting:
            return tuple(chosen), [f"{what}: {word!r} names no card; CUDA hides all from there on"]
        if len(fitting) > 1:
            raise TopologyError(f"{what}: {word} is the beginning of {len(fitting)} UUIDs. Write more of it.")
        if fitting[0] in chosen:
            raise TopologyError(f"{what} names the card {word} twice, and CUDA then shows none at all. Name it once.")
        chosen.append(fitting[0])
    return tuple(chosen), []


def check_order(gpus: Sequence[Gpu], environment: Mapping[str, str], what: str) -> None:
    """Raises TopologyError when `what` counts cards in an order that only CUDA knows: fastest first, unless told
    otherwise. Cards of one model are in PCI order either way."""
    models = sorted({gpu.name for gpu in gpus})
    if len(models) > 1 and environment.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID":
        raise TopologyError(
            f"{what} counts the cards in CUDA's order, fastest first, and there are several models here "
            f"({', '.join(models)}). Set CUDA_DEVICE_ORDER=PCI_BUS_ID, or give UUIDs in CUDA_VISIBLE_DEVICES."
        )


def cuda_card(gpus: Sequence[Gpu], number: int, environment: Mapping[str, str] = os.environ) -> Gpu:
    """The card that torch calls cuda:`number`, of those that `read_gpus` gives: CUDA counts the visible ones only.

    Raises TopologyError when there is none, or when its place in CUDA's order is not known.
    """
    if number >= len(gpus):
        raise TopologyError(
            f"--device cuda:{number}: CUDA counts the cards that it may see from 0, and there are {len(gpus)}."
        )
    if "CUDA_VISIBLE_DEVICES" not in environment:
        check_order(gpus, environment, f"--device cuda:{number}")
    return gpus[number]
