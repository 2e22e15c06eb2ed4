"""Shared fixtures: the smallest MiniMax-H3 folders that run, built once for a test session."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from videoinfer.engine import VideoEngine

WORDS = ("a", "small", "red", "circle", "moves", "right", "on", "the", "black", "background", "Picture", "Video")


@pytest.fixture(scope="session", autouse=True)
def no_cache_of_the_user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What a batch remembers is kept apart from what the user's own batches do, also in processes that tests start."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def tiny_h3_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A float32 pipeline folder of some hundred kilobytes; one DiT serves all workflows. Do not write into it."""
    import torch

    from videoinfer.demo.architecture import TINY, make_components, write_pipeline_folder

    folder = tmp_path_factory.mktemp("tiny-h3")
    return write_pipeline_folder(folder, make_components(TINY, WORDS), TINY, dtype=torch.float32)


@pytest.fixture(scope="session")
def tiny_h3_two_partitions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As `tiny_h3_folder`, with a DiT of its own weights in `transformer_ref`, as the released model has it."""
    import torch

    from videoinfer.demo.architecture import TINY, make_components, make_transformer, write_pipeline_folder

    components = make_components(TINY, WORDS)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        components["transformer_ref"] = make_transformer(TINY)
    return write_pipeline_folder(tmp_path_factory.mktemp("tiny-h3-two"), components, TINY, dtype=torch.float32)


@pytest.fixture(scope="session")
def tiny_engine(tiny_h3_folder: Path) -> "Iterator[VideoEngine]":
    """One engine on `tiny_h3_folder` for all tests; whoever changes its weights or frees them puts them back."""
    from videoinfer.engine import VideoEngine

    with VideoEngine.from_pretrained(str(tiny_h3_folder), device="cpu") as engine:
        yield engine
