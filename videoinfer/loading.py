"""From a model's name to a whole folder on disk: the embedded model, a local folder, or a download from the hub."""

import hashlib
import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .errors import ModelError
from .licence import ensure_accepted, licence_for
from .regular_file import expanded, is_utf8
from .weights import GIB, check_files, check_fits, estimate_memory, free_memory

__all__ = ["ModelSource", "check_files", "check_fits", "estimate_memory", "free_memory", "resolve_model"]

EMBEDDED = "demo"
# What says which components a model has. Everything else of a hub model lies in one subfolder for each component.
ROOT_FILES = ("modular_model_index.json", "model_index.json", "config.json", "LICENSE*", "README.md")
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
_SAMPLE = 2**20


@dataclass(frozen=True)
class ModelSource:
    """A model on disk. `revision` is the hub's commit, or `local-` and a hash of the files' content."""

    folder: Path
    name: str
    revision: str


def resolve_model(
    name: str,
    *,
    offline: bool = False,
    cache_dir: str | Path | None = None,
    accept_licence: bool = False,
    revision: str | None = None,
    components: Sequence[str] | None = None,
    config_dir: Path | None = None,
) -> ModelSource:
    """Finds a model, downloads what is missing, and checks that it is whole.

    Args:
        name: "demo" for the embedded model (write ./demo for a folder of that name), a folder, or a hub id "org/name".
        offline: use what is on disk only.
        cache_dir: where downloads are kept; the hub's own cache by default.
        accept_licence: accept the model's licence, where it has one that asks for it.
        revision: branch, tag or commit of a hub model.
        components: subfolders that are needed. Only those are downloaded and checked, so that a workflow does not pull
            in the weights of another; an empty list gives the description of the model alone. None means all.
        config_dir: where acceptances are recorded; the user's configuration folder by default.

    Raises:
        ModelError: no such model, no connection, not enough disk, an incomplete folder, a licence not accepted.
    """
    if not is_utf8(name):
        raise ModelError(f"the model {os.fsencode(name)!r} is not UTF-8, which the sidecar of a clip needs; rename it.")
    if name == EMBEDDED:
        folder = Path(__file__).parent / "demo" / "weights"
        if not folder.is_dir():
            raise ModelError(f"the embedded model is not installed: {folder} is missing. Install videoinfer again.")
    elif (local := expanded(name)).exists() or not _HUB_ID.fullmatch(name):
        folder = _local_folder(local, name)
    else:
        if licence := licence_for(name):
            ensure_accepted(licence, accept=accept_licence, config_dir=config_dir)
        folder = _download(name, offline, cache_dir, revision, components)
    if name != EMBEDDED and (licence := licence_for(name, folder)):
        ensure_accepted(licence, accept=accept_licence, config_dir=config_dir)
    check_files(folder, components)
    commit = folder.name if folder.parent.name == "snapshots" else f"local-{fingerprint(folder, components)}"
    return ModelSource(folder, name, commit)


def _local_folder(path: Path, name: str) -> Path:
    if path.is_dir():
        return path.resolve()
    if path.exists():
        raise ModelError(f"the model {name} is a file. Give the folder that holds modular_model_index.json.")
    raise ModelError(
        f"the model {name!r} is not known: there is no such folder. Use {EMBEDDED!r} for the embedded model, a model "
        "folder, or a hub id such as MiniMaxAI/MiniMax-H3."
    )


def _download(
    name: str, offline: bool, cache_dir: str | Path | None, revision: str | None, components: Sequence[str] | None
) -> Path:
    from huggingface_hub import constants, errors, snapshot_download

    # `*` of these patterns also matches the slash: a component's subfolder comes whole.
    wanted = None if components is None else [*ROOT_FILES, *(f"{component}/*" for component in components)]
    place = expanded(cache_dir or constants.HF_HUB_CACHE)
    try:
        if not offline:
            try:
                plan = snapshot_download(name, revision=revision, cache_dir=place, allow_patterns=wanted, dry_run=True)
            except errors.DryRunError:
                plan = []  # The hub does not answer; the call below takes what is complete on disk, or says why not.
            _check_disk(name, sum(file.file_size or 0 for file in plan if file.will_download), place)
        # A download that was cut off goes on where it stopped; finished files are not fetched again.
        folder = snapshot_download(
            name, revision=revision, cache_dir=place, allow_patterns=wanted, local_files_only=offline
        )
    except errors.GatedRepoError as error:
        raise ModelError(
            f"the model {name} is gated: accept its conditions on the hub, then log in with `hf auth login`."
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise ModelError(
            f"the model {name} is neither a local folder nor on the hub (or it is private; `hf auth login` then)."
        ) from error
    except errors.RevisionNotFoundError as error:
        raise ModelError(f"the model {name} has no revision {revision!r} on the hub.") from error
    except ModelError:
        raise
    except Exception as error:  # The hub's transports raise many types; all of them mean that there is no model.
        if offline:
            raise ModelError(
                f"the model {name} is not, or not completely, on this machine ({place}), and downloads are switched "
                f"off. Run once without offline mode. ({_first_line(error)})"
            ) from error
        raise ModelError(
            f"the model {name} could not be downloaded: {_first_line(error)}. Check the connection and run it again; "
            "finished files are kept."
        ) from error
    return Path(folder)


def _check_disk(name: str, needed: int, place: Path) -> None:
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    # Some room stays, because a disk that is full to the last byte breaks other programs.
    if needed and needed + GIB > free:
        raise ModelError(
            f"the download of {name} needs {needed / GIB:.1f} GiB and 1 GiB to spare; {place} has {free / GIB:.1f} GiB "
            "free. Free some space, or put the cache on another disk (cache_dir)."
        )


def fingerprint(folder: Path, components: Sequence[str] | None = None) -> str:
    """16 hex digits over the content of a model folder (or of some components): equal weights, equal fingerprint.

    Files above 3 MiB count by their length and three samples of 1 MiB (start, middle, end), since reading all of a
    66 GB model would take minutes.
    """
    places = [folder] if components is None else [folder / component for component in components]
    digest = hashlib.sha256()
    files = (path for place in places for path in place.rglob("*") if path.suffix in (".json", ".safetensors"))
    for path in sorted(path for path in files if path.is_file()):
        size = path.stat().st_size
        digest.update(f"{path.relative_to(folder)}:{size}:".encode())
        with path.open("rb") as file:
            if size <= 3 * _SAMPLE:
                digest.update(file.read())
                continue
            for start in (0, (size - _SAMPLE) // 2, size - _SAMPLE):
                file.seek(start)
                digest.update(file.read(_SAMPLE))
    return digest.hexdigest()[:16]


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
