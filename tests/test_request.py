"""The schema: what is refused at construction and how it is said, and what the content hash depends on."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from videoinfer import GenerationRequest, Output, Reference, RequestError, StructuredPrompt


def refused(**data) -> str:
    with pytest.raises(RequestError) as error:
        GenerationRequest(**data)
    return str(error.value)


def refs(*kinds: str) -> Any:
    return [{"kind": kind, "path": f"{number}.bin"} for number, kind in enumerate(kinds)]


def test_defaults():
    request = GenerationRequest(prompt="a red circle")
    assert (request.workflow, request.seed, request.steps, request.output.crf) == ("t2va", 0, None, 18)


def test_unknown_keys_are_named_with_the_valid_ones_and_the_nearest():
    message = refused(promt="x", zzz=1)
    assert "'promt' (did you mean 'prompt'?)" in message and "'zzz'" in message
    assert all(key in message for key in GenerationRequest.model_fields)


@pytest.mark.parametrize(
    ("data", "place", "valid"),
    [
        ({"references": [{"kind": "image", "pth": "a"}]}, "references.0: unknown key 'pth'", "fit"),
        ({"output": {"crff": 1}}, "output: unknown key 'crff' (did you mean 'crf'?)", "folder"),
        ({"prompt": {"overal_soundscape": "x"}}, "prompt: unknown key 'overal_soundscape'", "non_diegetic_music"),
    ],
)
def test_unknown_keys_of_the_inner_parts(data, place, valid):
    message = refused(**{"prompt": "x", **data})
    assert place in message and valid in message


@pytest.mark.parametrize("build", [GenerationRequest.model_validate, lambda data: GenerationRequest(**data)])
def test_every_way_of_building_raises_request_errors(build):
    with pytest.raises(RequestError):
        build({"prompt": "x", "seed": -1})


def test_json_that_is_none():
    with pytest.raises(RequestError, match="JSON"):
        GenerationRequest.model_validate_json("{")


@pytest.mark.parametrize(
    "prompt",
    [
        "一只红色的猫在跳舞",
        "شكل أحمر",
        "👩‍🚀 🟥 e\u0301 \u202e",
        "x" * 10_000,
        "line\nline\ttab",
        "  padded  ",
    ],
)
def test_prompts_of_any_script_and_length_stay_as_they_are(prompt):
    request = GenerationRequest(prompt=prompt)
    assert request.prompt_text == prompt
    assert GenerationRequest.model_validate_json(request.model_dump_json()) == request
    assert len(request.request_id) == 16 and request.request_id.isascii()


@pytest.mark.parametrize(
    ("prompt", "reason"),
    [
        ("", "empty"),
        (" \n", "empty"),
        ("a\0", "NUL"),
        ("a\ud800", "Unicode"),
        (3, "StructuredPrompt"),
        (None, "got None"),
    ],
)
def test_prompts_that_are_none(prompt, reason):
    message = refused(prompt=prompt)
    assert message.startswith("prompt: ") and reason in message


def test_structured_prompt_is_one_text_with_the_three_named_parts():
    parts: Any = {"integrated_multimodal_description": "A room.", "overall_soundscape": "Rain."}
    request = GenerationRequest(prompt=parts)
    assert isinstance(request.prompt, StructuredPrompt)
    assert request.prompt_text == (
        "integrated_multimodal_description: A room.\n\noverall_soundscape: Rain.\n\nnon_diegetic_music: N/A"
    )
    assert "empty" in refused(prompt={"integrated_multimodal_description": ""})


def test_one_broken_request_lists_everything_that_is_wrong_with_it():
    message = refused(prompt="", seed=-1, steps=0, size="big", references=refs("picture"))
    assert len(message.splitlines()) == 5


@pytest.mark.parametrize("seed", [-1, 2**63, 1.5, "x"])
def test_seeds_out_of_range(seed):
    assert "seed" in refused(prompt="x", seed=seed)


def test_largest_seed():
    assert GenerationRequest(prompt="x", seed=2**63 - 1).seed == 2**63 - 1


@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf")])
def test_durations_that_are_none(value):
    assert "duration" in refused(prompt="x", duration=value)


@pytest.mark.parametrize("value", [0, -1, 124.5])
def test_frame_counts_that_are_none(value):
    assert "num_frames" in refused(prompt="x", num_frames=value)


@pytest.mark.parametrize("text", ["640x352", "640X352", " 640 x 352 ", "640*352", "640×352"])
def test_sizes_in_words(text):
    assert GenerationRequest(prompt="x", size=text).size == (640, 352)


@pytest.mark.parametrize("size", ["640", "640x", "x352", "-1x2", "0x2", "1x2x3", "", (1, 2, 3), (0, 5), (99999, 5)])
def test_sizes_that_are_none(size):
    assert "size" in refused(prompt="x", size=size)


@pytest.mark.parametrize(
    ("text", "kept"),
    [("16:9", "16:9"), ("16x9", "16:9"), ("16/9", "16:9"), (" 9 : 16 ", "9:16"), ("2.39:1", "2.39:1")],
)
def test_aspect_ratios(text, kept):
    assert GenerationRequest(prompt="x", aspect_ratio=text).aspect_ratio == kept


@pytest.mark.parametrize("text", ["", "16", "0:1", "1:0", "-1:1", "a:b", "16:9:4", "nan:1", "1e3:1", "wide"])
def test_aspect_ratios_that_are_none(text):
    assert "16:9" in refused(prompt="x", aspect_ratio=text)


@pytest.mark.parametrize("pair", [{"duration": 5, "num_frames": 124}, {"size": "640x352", "aspect_ratio": "16:9"}])
def test_two_ways_to_say_one_thing(pair):
    message = refused(prompt="x", **pair)
    assert all(key in message for key in pair)


@pytest.mark.parametrize("text", ["a", "A-1_b.c", "x" * 64])
def test_ids(text):
    assert GenerationRequest(prompt="x", id=text).request_id == text


@pytest.mark.parametrize("text", ["", "x" * 65, "a/b", "..", ".hidden", "ü", "a b", "a\n"])
def test_ids_that_are_none(text):
    assert "id" in refused(prompt="x", id=text)


@pytest.mark.parametrize(
    ("kinds", "workflow"),
    [
        ((), "t2va"),
        (("first_frame",), "fl2va"),
        (("last_frame",), "fl2va"),
        (("first_frame", "last_frame"), "fl2va"),
        (("image",), "ref2va"),
        (("audio", "image"), "ref2va"),
        (("video",), "ref2va"),
    ],
)
def test_workflows(kinds, workflow):
    assert GenerationRequest(prompt="x", references=refs(*kinds)).workflow == workflow


@pytest.mark.parametrize(
    ("kinds", "word"),
    [
        (("first_frame", "image"), "combined"),
        (("video", "last_frame"), "combined"),
        (("first_frame", "first_frame"), "first_frame"),
        (("last_frame", "last_frame"), "last_frame"),
    ],
)
def test_references_that_contradict(kinds, word):
    assert word in refused(prompt="x", references=refs(*kinds))


def test_the_order_of_references_is_kept():
    kinds = ("video", "image", "audio", "image")
    request = GenerationRequest(prompt="x", references=refs(*kinds))
    back = GenerationRequest.model_validate_json(request.model_dump_json())
    assert [(r.kind, r.path.name) for r in back.references] == [(k, f"{n}.bin") for n, k in enumerate(kinds)]


def test_json_round_trip_of_everything(tmp_path):
    request = GenerationRequest(
        prompt=StructuredPrompt(integrated_multimodal_description="é", non_diegetic_music="drums"),
        id="mine",
        references=(Reference(kind="image", path=tmp_path / "ü.png", fit="contain"),),
        duration=5.17,
        size=(640, 352),
        seed=7,
        steps=4,
        guidance=1.5,
        negative_prompt="blur",
        output=Output(folder=tmp_path, crf=0, gif=True),
    )
    assert GenerationRequest.model_validate(json.loads(request.model_dump_json())) == request


def test_frozen():
    request = GenerationRequest(prompt="x")
    with pytest.raises(ValidationError, match="frozen"):
        request.seed = 1  # pyright: ignore[reportAttributeAccessIssue]


def test_a_blank_negative_prompt_is_none():
    assert GenerationRequest(prompt="x", negative_prompt=" ").negative_prompt is None


def with_file(path: Path, **data) -> str:
    return GenerationRequest(prompt="x", references=(Reference(kind="image", path=path),), **data).content_hash()


def test_the_hash_is_by_content_not_by_place(tmp_path):
    one, copy, other = tmp_path / "one.png", tmp_path / "copy.jpg", tmp_path / "other.png"
    one.write_bytes(b"pixels")
    copy.write_bytes(b"pixels")
    other.write_bytes(b"pixel")
    assert with_file(one) == with_file(copy, id="named", output=Output(folder=tmp_path, crf=3))
    assert with_file(one) != with_file(other)
    assert Reference(kind="image", path=one).digest() == hashlib.sha256(b"pixels").hexdigest()


def test_the_hash_knows_everything_else(tmp_path):
    file = tmp_path / "a"
    file.write_bytes(b"a")
    image, audio = {"kind": "image", "path": file}, {"kind": "audio", "path": file}
    variants = [
        {},
        {"seed": 1},
        {"steps": 4},
        {"duration": 5},
        {"num_frames": 120},
        {"size": (640, 352)},
        {"size": (352, 640)},
        {"aspect_ratio": "16:9"},
        {"guidance": 1.0},
        {"negative_prompt": "blur"},
        {"prompt": "y"},
        {"prompt": {"integrated_multimodal_description": "x"}},
        {"references": [image]},
        {"references": [{**image, "fit": "contain"}]},
        {"references": [{**image, "kind": "first_frame"}]},
        {"references": [image, audio]},
        {"references": [audio, image]},
    ]
    hashes = [GenerationRequest(**{"prompt": "x", **variant}).content_hash() for variant in variants]
    assert len(set(hashes)) == len(hashes)


def test_the_hash_is_the_same_in_every_version():
    # Ids of finished clips and keys of job stores hang on this value.
    assert GenerationRequest(prompt="a red circle", seed=3).request_id == PINNED_ID


PINNED_ID = hashlib.sha256(b'{"prompt": "a red circle", "references": [], "seed": 3}').hexdigest()[:16]


@pytest.mark.parametrize("place", ["missing.png", ".", "nul\0.png"])
def test_a_reference_that_cannot_be_read(tmp_path, place):
    with pytest.raises(RequestError, match="cannot be read"):
        with_file(tmp_path / place)


def test_targets_never_name_an_existing_file(tmp_path):
    output = Output(folder=tmp_path)
    assert output.target("a") == tmp_path / "a.mp4"
    (tmp_path / "a.mp4").touch()
    (tmp_path / "a-2.json").touch()
    assert output.target("a") == tmp_path / "a-3.mp4"
    assert Output(path=tmp_path / "a.mp4").target("a") == tmp_path / "a.mp4"


@pytest.mark.parametrize("field", ["seed", "steps", "num_frames", "duration", "guidance", "shift"])
def test_a_truth_value_is_no_number(field):
    with pytest.raises(RequestError, match=f"{field}: true is no number"):
        GenerationRequest(prompt="a", **{field: True})


def test_a_home_is_expanded_in_every_path_of_a_request(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert Output(folder="~/a", path="~/a/b.mp4").folder == tmp_path / "a"
    assert Output(folder="~/a", path="~/a/b.mp4").path == tmp_path / "a" / "b.mp4"
    assert Reference(kind="image", path="~/c.png").path == tmp_path / "c.png"
