"""Models that are not there, not whole, not licensed or too big, on real safetensors files."""

import json
import shutil
import struct
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import save_file

from videoinfer.errors import ModelError
from videoinfer.licence import MINIMAX_H3, ensure_accepted, is_accepted, licence_for
from videoinfer.loading import _check_disk, check_files, check_fits, estimate_memory, fingerprint, resolve_model
from videoinfer.weights import read_header


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model folder: one component in two shards, one in one file, one without weights."""
    folder = tmp_path / "model"
    for name in ("transformer", "vae", "scheduler"):
        (folder / name).mkdir(parents=True)
    (folder / "modular_model_index.json").write_text("{}")
    (folder / "scheduler" / "scheduler_config.json").write_text("{}")
    (folder / "transformer" / "config.json").write_text("{}")
    (folder / "vae" / "config.json").write_text("{}")
    shards = {
        "weights-00001-of-00002.safetensors": {"a": torch.ones(3, 5), "ids": torch.ones(7, dtype=torch.int64)},
        "weights-00002-of-00002.safetensors": {"b": torch.ones(11, dtype=torch.bfloat16)},
    }
    for name, tensors in shards.items():
        save_file(tensors, folder / "transformer" / name)
    weight_map = {key: name for name, tensors in shards.items() for key in tensors}
    (folder / "transformer" / "weights.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    save_file({"c": torch.ones(2, 2)}, folder / "vae" / "weights.safetensors", metadata={"format": "pt"})
    return folder


def refused(folder: Path, components: list[str] | None = None) -> str:
    with pytest.raises(ModelError) as error:
        check_files(folder, components)
    return str(error.value)


def test_a_whole_folder(model):
    check_files(model)
    check_files(model, ["transformer", "vae", "scheduler"])
    source = resolve_model(str(model))
    assert source.folder == model and source.revision == f"local-{fingerprint(model)}"


def test_a_missing_shard_is_named(model):
    (model / "transformer" / "weights-00002-of-00002.safetensors").unlink()
    message = refused(model)
    assert "transformer/weights-00002-of-00002.safetensors is missing" in message and "00001" not in message


def test_a_missing_index_is_named_and_so_are_the_shards_that_the_names_promise(model):
    (model / "transformer" / "weights.safetensors.index.json").unlink()
    assert "weights.safetensors.index.json is missing" in refused(model)
    (model / "transformer" / "weights-00001-of-00002.safetensors").unlink()
    assert "weights-00001-of-00002.safetensors is missing" in refused(model)


@pytest.mark.parametrize("kept", [0, 4, 8, 20, -1])
def test_a_truncated_file_is_named(model, kept):
    path = model / "vae" / "weights.safetensors"
    path.write_bytes(path.read_bytes()[:kept])
    assert "vae/weights.safetensors is truncated" in refused(model)


def test_every_problem_is_listed(model):
    (model / "transformer" / "weights-00001-of-00002.safetensors").unlink()
    path = model / "vae" / "weights.safetensors"
    path.write_bytes(path.read_bytes() + b"x")
    (model / "vae" / "config.json").write_text('{"a": ')
    message = refused(model)
    assert all(word in message for word in ("00001-of-00002", "longer than", "vae/config.json is not readable"))


def test_files_that_are_something_else(model):
    path = model / "vae" / "weights.safetensors"
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    assert "Git LFS pointer" in refused(model)
    path.write_bytes(struct.pack("<Q", 4) + b"nope")
    assert "no safetensors file" in refused(model)


def test_components_that_are_asked_for_must_be_there(model):
    assert "transformer_ref/ is missing" in refused(model, ["vae", "transformer_ref"])
    (model / "vae" / "weights.safetensors").unlink()
    assert "vae/ has a config.json and no" in refused(model, ["vae"])
    check_files(model, ["transformer"])  # the broken component is not needed


def test_an_empty_folder_and_a_file(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(ModelError, match="empty"):
        resolve_model(str(tmp_path / "empty"))
    (tmp_path / "file.safetensors").touch()
    with pytest.raises(ModelError, match="is a file"):
        resolve_model(str(tmp_path / "file.safetensors"))


@pytest.mark.parametrize("name", ["demoo", "./nowhere", "/nowhere/at/all", "a b/c", ""])
def test_names_that_are_no_model(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelError):
        resolve_model(name, offline=True, cache_dir=tmp_path)


def test_offline_with_nothing_cached(tmp_path):
    with pytest.raises(ModelError, match=r"org/model is not.*downloads are switched off"):
        resolve_model("org/model", offline=True, cache_dir=tmp_path)


def cached(cache: Path, model: Path, name: str = "org/model") -> str:
    """Puts a model into a hub cache as a finished download would; returns its commit."""
    commit = "0123456789abcdef0123456789abcdef01234567"
    place = cache / f"models--{name.replace('/', '--')}"
    shutil.copytree(model, place / "snapshots" / commit)
    (place / "refs").mkdir()
    (place / "refs" / "main").write_text(commit)
    return commit


def test_offline_with_a_cached_model(tmp_path, model):
    commit = cached(tmp_path / "cache", model)
    source = resolve_model("org/model", offline=True, cache_dir=tmp_path / "cache")
    assert (source.name, source.revision) == ("org/model", commit)
    (source.folder / "transformer" / "weights-00001-of-00002.safetensors").unlink()
    with pytest.raises(ModelError, match="00001-of-00002"):
        resolve_model("org/model", offline=True, cache_dir=tmp_path / "cache")


def test_a_download_that_does_not_fit_the_disk(tmp_path):
    _check_disk("org/model", 0, tmp_path)
    with pytest.raises(ModelError, match=r"needs 1048576\.0 GiB .*GiB free"):
        _check_disk("org/model", 2**50, tmp_path / "not" / "yet")


def test_fingerprints_follow_the_content(model, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(model, copy)
    (copy / "notes.txt").write_text("not part of the model")
    assert fingerprint(copy) == fingerprint(model)
    save_file({"c": torch.zeros(2, 2)}, copy / "vae" / "weights.safetensors", metadata={"format": "pt"})
    assert fingerprint(copy) != fingerprint(model)
    assert fingerprint(copy, ["transformer"]) == fingerprint(model, ["transformer"])


def test_a_big_file_is_told_by_its_middle(tmp_path):
    tensor = torch.zeros(4 * 2**20, dtype=torch.uint8)
    save_file({"a": tensor}, tmp_path / "a.safetensors")
    before = fingerprint(tmp_path)
    tensor[tensor.numel() // 2] = 1
    save_file({"a": tensor}, tmp_path / "a.safetensors")
    assert fingerprint(tmp_path) != before


def test_headers_agree_with_the_files(model):
    header = read_header(model / "transformer" / "weights-00001-of-00002.safetensors")
    assert {key: value["shape"] for key, value in header.items()} == {"a": [3, 5], "ids": [7]}


@pytest.mark.parametrize(("dtype", "floats"), [("auto", 4), (torch.float32, 4), ("bfloat16", 2), (torch.float64, 8)])
def test_estimate_is_the_true_size_of_the_tensors(model, dtype, floats):
    estimate = estimate_memory(model, ["transformer", "vae", "scheduler"], dtype)
    last = 2 if dtype == "auto" else floats
    assert estimate == {"transformer": 15 * floats + 7 * 8 + 11 * last, "vae": 4 * floats, "scheduler": 0}


def test_estimate_leaves_variants_out_and_names_an_unknown_dtype(model):
    save_file({"c": torch.ones(2, 2).half()}, model / "vae" / "weights.fp16.safetensors")
    assert estimate_memory(model, ["vae"]) == {"vae": 16}
    with pytest.raises(ModelError, match="int4"):
        estimate_memory(model, ["vae"], "int4")


def test_what_does_not_fit_is_refused_with_the_numbers():
    check_fits({"a": 100, "b": 28}, "cpu", available=128)
    with pytest.raises(
        ModelError, match=r"need 3\.00 GiB \(a 1\.00 GiB \+ b 2\.00 GiB\), and cuda:1 has 2\.50 GiB free"
    ):
        check_fits({"a": 2**30, "b": 2**31, "none": 0}, "cuda:1", available=5 * 2**29)


def test_this_machine_has_room_for_something():
    check_fits({"a": 1}, "cpu")
    with pytest.raises(ModelError, match="cpu has"):
        check_fits({"a": 2**60}, "cpu")


def released(model: Path, layers: int) -> Path:
    config = {"_class_name": "MiniMaxH3Transformer3DModel", "num_layers": layers}
    (model / "transformer" / "config.json").write_text(json.dumps(config))
    return model


def test_which_weights_need_an_acceptance(model):
    assert licence_for("MiniMaxAI/MiniMax-H3") == licence_for("someone/minimax-h3-fp8") == MINIMAX_H3
    assert licence_for("org/model") is None
    assert licence_for("x", released(model, 50)) == MINIMAX_H3
    assert licence_for("MiniMax-H3-toy", released(model, 8)) is None


def test_the_licence_is_refused_then_accepted_once(model, tmp_path):
    folder, record = str(released(model, 50)), tmp_path / "config"
    with pytest.raises(ModelError, match=r"(?s)South Korea.*--accept-licence"):
        resolve_model(folder, config_dir=record)
    resolve_model(folder, accept_licence=True, config_dir=record)
    resolve_model(folder, config_dir=record)
    assert is_accepted(MINIMAX_H3, record)


def test_the_licence_of_a_hub_model_comes_before_its_download(tmp_path):
    with pytest.raises(ModelError, match="Community License"):
        resolve_model("MiniMaxAI/MiniMax-H3", offline=True, cache_dir=tmp_path, config_dir=tmp_path)


def test_a_person_is_asked_once(tmp_path):
    asked = []
    with pytest.raises(ModelError):
        ensure_accepted(MINIMAX_H3, ask=lambda licence: bool(asked.append(licence)), config_dir=tmp_path)
    ensure_accepted(MINIMAX_H3, ask=lambda licence: asked.append(licence) is None, config_dir=tmp_path)
    ensure_accepted(MINIMAX_H3, ask=lambda licence: pytest.fail("asked again"), config_dir=tmp_path)
    assert asked == [MINIMAX_H3, MINIMAX_H3]


@pytest.mark.parametrize("content", ["", "[]", "{", "\x00"])
def test_a_damaged_record_means_not_accepted(tmp_path, content):
    (tmp_path / "licences.json").write_text(content)
    assert not is_accepted(MINIMAX_H3, tmp_path)
    ensure_accepted(MINIMAX_H3, accept=True, config_dir=tmp_path)
    assert is_accepted(MINIMAX_H3, tmp_path)


def test_an_acceptance_that_cannot_be_stored_still_counts_for_the_run(tmp_path):
    (tmp_path / "file").touch()
    ensure_accepted(MINIMAX_H3, accept=True, config_dir=tmp_path / "file")


class Hub:
    """Stands in for the hub: remembers the calls, gives a finished folder, or raises."""

    def __init__(self, folder: Path, error: Exception | None = None, size: int = 0):
        self.folder, self.error, self.size = folder, error, size
        self.calls: list[dict] = []

    def __call__(self, name: str, **options):
        self.calls.append(options)
        if options.get("dry_run"):
            missing = SimpleNamespace(file_size=self.size, will_download=True)
            return [missing, SimpleNamespace(file_size=2**60, will_download=False)]
        if self.error:
            raise self.error
        return str(self.folder)


def test_a_download_takes_the_needed_components_only(model, monkeypatch):
    hub = Hub(model)
    monkeypatch.setattr("huggingface_hub.snapshot_download", hub)
    resolve_model("org/model", components=["vae", "scheduler"], revision="v1")
    patterns = hub.calls[-1]["allow_patterns"]
    assert {"vae/*", "scheduler/*", "modular_model_index.json"} <= set(patterns) and "transformer/*" not in patterns
    assert [call["revision"] for call in hub.calls] == ["v1", "v1"]


def test_a_download_checks_the_disk_before_it_starts(model, monkeypatch):
    hub = Hub(model, size=2**50)
    monkeypatch.setattr("huggingface_hub.snapshot_download", hub)
    with pytest.raises(ModelError, match="GiB free"):
        resolve_model("org/model")
    assert len(hub.calls) == 1


@pytest.mark.parametrize(
    ("error", "word"),
    [
        (OSError("connection reset\nby peer"), "connection reset"),
        (RuntimeError("transport"), "transport"),
    ],
)
def test_a_download_that_breaks_off(model, monkeypatch, error, word):
    monkeypatch.setattr("huggingface_hub.snapshot_download", Hub(model, error))
    with pytest.raises(ModelError, match=f"could not be downloaded: {word}.*finished files are kept"):
        resolve_model("org/model")
