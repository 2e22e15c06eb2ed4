"""The latents of a clip as a file beside it, `<clip>.latents.safetensors`: what its decoders were given."""

from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from .errors import MediaError
from .media import published
from .result import Latents

STREAMS = ("video", "audio")


def write_latents(path: str | Path, latents: Latents) -> None:
    """Writes both streams as they are: whole or not at all, and never over an existing file.

    Raises MediaError when `path` exists or the disk refuses.
    """
    streams = {name: getattr(latents, name).detach().cpu().contiguous() for name in STREAMS}
    content = save(streams, {"workflow": latents.workflow})
    with published(Path(path)) as part:
        part.write_bytes(content)


def read_latents(path: str | Path) -> Latents:
    """The latents that `write_latents` wrote, bit for bit. Raises MediaError when there is no such file, or another."""
    path = Path(path)
    try:
        with safe_open(path, framework="pt") as file:
            # Copied: a mapped file leaves tensors at odd addresses, where a CPU adds up in another order.
            video, audio = (file.get_tensor(name).clone() for name in STREAMS)
            return Latents(file.metadata()["workflow"], video, audio)
    except FileNotFoundError as error:
        raise MediaError(f"there are no latents {path}: make the clip again, with output.latents.") from error
    except (OSError, SafetensorError, KeyError, TypeError) as error:
        raise MediaError(f"{path} holds no latents of a clip ({error}): make the clip again.") from error
