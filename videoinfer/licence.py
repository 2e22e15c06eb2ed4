"""Licences of weights that not everybody may use: the notice, and the acceptance that is asked for once."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from .errors import ModelError


@dataclass(frozen=True)
class Licence:
    """A licence that has to be accepted before the first use. `key` names it in the record of acceptances."""

    key: str
    name: str
    url: str
    notice: str


MINIMAX_H3 = Licence(
    key="minimax-h3-community",
    name="MiniMax H3 Community License",
    url="https://huggingface.co/MiniMaxAI/MiniMax-H3",
    notice=(
        "The MiniMax-H3 weights are under the MiniMax H3 Community License. Unless MiniMax has authorised you, it does "
        "not cover the European Union, the United Kingdom, South Korea and the United States, neither for the weights "
        "nor for what they make. Companies above 20 million USD of yearly revenue need an authorisation too. Training "
        "other models on the outputs is not allowed, and products must name the model. Read the licence before use."
    ),
)


def licence_for(name: str, folder: Path | None = None) -> Licence | None:
    """The licence of a model, by its hub id and, once it is on disk, by its configuration. None: free to use.

    A toy model of the same architecture that somebody trained is not under MiniMax's licence; what tells the released
    weights and everything derived from them (pruned, quantised, fine-tuned) is the depth of 50 blocks.
    """
    if folder is None:
        return MINIMAX_H3 if "minimax-h3" in name.lower() else None
    for partition in ("transformer", "transformer_ref"):
        try:
            config = json.loads((folder / partition / "config.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if isinstance(config, dict) and str(config.get("_class_name", "")).startswith("MiniMaxH3"):
            return MINIMAX_H3 if config.get("num_layers", 50) >= 50 else None
    return None


def ensure_accepted(
    licence: Licence,
    *,
    accept: bool = False,
    ask: Callable[[Licence], bool] | None = None,
    config_dir: Path | None = None,
) -> None:
    """Returns when the licence is accepted now or was before; the acceptance is recorded for this user.

    Args:
        accept: accepted by the caller (`--accept-licence`, `accept_licence=True`).
        ask: asks the person at the terminal, True for yes. Left out, nobody is asked.
        config_dir: folder of the record, by default the user's configuration folder for videoinfer.

    Raises:
        ModelError: not accepted; the message holds the notice and how to accept.
    """
    record = _record_file(config_dir)
    accepted = _read(record)
    if licence.key in accepted:
        return
    if not accept and (ask is None or not ask(licence)):
        raise ModelError(
            f"the {licence.name} has not been accepted.\n{licence.notice}\n{licence.url}\n"
            "To accept it, pass --accept-licence on the command line, or accept_licence=True in Python."
        )
    accepted[licence.key] = datetime.now(UTC).isoformat(timespec="seconds")
    try:
        record.parent.mkdir(parents=True, exist_ok=True)
        record.write_text(json.dumps(accepted, indent=2) + "\n", encoding="utf-8")
    except OSError:
        pass  # A read-only home must not forbid the use: the acceptance then counts for this run only.


def is_accepted(licence: Licence, config_dir: Path | None = None) -> bool:
    """Whether this user has accepted the licence before."""
    return licence.key in _read(_record_file(config_dir))


def _record_file(config_dir: Path | None) -> Path:
    if config_dir is None:
        from platformdirs import user_config_path

        config_dir = user_config_path("videoinfer", appauthor=False)
    return config_dir / "licences.json"


def _read(record: Path) -> dict[str, str]:
    try:
        data = json.loads(record.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}
