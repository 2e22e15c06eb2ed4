"""Job files: what is read, what is refused, and by which line."""

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from videoinfer.errors import RequestError
from videoinfer.jobs import LineErrors, read_lines
from videoinfer.jobs.intake import job_id
from videoinfer.request import GenerationRequest

BASE = Path("/somewhere")


def read(text: str | bytes, **options):
    raw = text.encode() if isinstance(text, str) else text
    return read_lines(raw.splitlines(keepends=True), "jobs.jsonl", BASE, **options)


def test_lines_become_requests_and_blank_ones_are_skipped():
    lines = read('\ufeff{"prompt": "one"}\n\n   \n{"prompt": "zwei \u00fc \u4e8c", "seed": 4}\r\n')
    assert [(line.number, line.request.prompt, line.request.seed) for line in lines] == [
        (1, "one", 0),
        (4, "zwei ü 二", 4),
    ]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "is not JSON"),
        ("[1]", "found list"),
        ('"a prompt"', "found str"),
        ("null", "found NoneType"),
        ('{"promt": "x"}', "did you mean 'prompt'"),
        ('{"prompt": "x", "prompt": "y"}', "given twice"),
        ('{"prompt": " "}', "is empty"),
        ('{"prompt": "x", "seed": -1}', "seed"),
        ('{"prompt": "x", "output": {"path": "/etc/x.mp4"}}', "output.path"),
        ('{"prompt": "x", "output": {"folder": ".."}}', "output.folder"),
        ('{"prompt": "x", "id": "../x"}', "is no id"),
        ('{"prompt": "x", "seed": NaN}', "seed"),
        (b'{"prompt": "\xff"}', "not UTF-8"),
        ('{"prompt": "' + "x" * (1 << 20) + '"}', "bytes"),
    ],
)
def test_a_bad_line_is_named_by_number_and_reason(line, reason):
    raw = line if isinstance(line, bytes) else line.encode()
    with pytest.raises(LineErrors, match=r"line 2: ") as caught:
        read(b'{"prompt": "good"}\n' + raw + b"\n")
    assert reason in str(caught.value)
    assert [number for number, _ in caught.value.problems] == [2]


def test_every_bad_line_is_told_and_the_message_stays_short():
    with pytest.raises(LineErrors) as caught:
        read("{\n" * 5000)
    assert len(caught.value.problems) == 5000
    assert len(str(caught.value)) < 4000


def test_an_empty_file_is_refused_with_an_example():
    with pytest.raises(RequestError, match="holds no jobs"):
        read("\n\n")


def test_ten_thousand_lines():
    text = "".join(json.dumps({"prompt": f"clip {k}"}) + "\n" for k in range(10_000))
    assert len(read(text)) == 10_000


def test_relative_references_start_at_the_file():
    line = {"prompt": "x", "references": [{"kind": "image", "path": "a/b.png"}, {"kind": "image", "path": "/c.png"}]}
    (found,) = read(json.dumps(line))
    assert [reference.path for reference in found.request.references] == [BASE / "a/b.png", Path("/c.png")]


def test_defaults_fill_only_what_a_line_leaves_open():
    defaults = {"duration": 8.0, "steps": 9, "output": {"crf": 30, "gif": True}}
    plain, other = read('{"prompt": "x"}\n{"prompt": "x", "num_frames": 124, "output": {"crf": 1}}', defaults=defaults)
    assert (plain.request.duration, plain.request.steps, plain.request.output.crf) == (8.0, 9, 30)
    # A length in frames takes the place of a default in seconds.
    assert (other.request.duration, other.request.num_frames) == (None, 124)
    assert (other.request.output.crf, other.request.output.gif) == (1, True)


def test_repeat_counts_seeds_up_and_keeps_names_apart():
    lines = read('{"prompt": "x", "seed": 7, "id": "night"}', repeat=3)
    assert [(line.request.seed, line.request.id) for line in lines] == [(7, "night"), (8, "night-1"), (9, "night-2")]


def test_repeat_past_the_largest_seed_is_an_error_of_the_line():
    with pytest.raises(LineErrors, match="line 1"):
        read(json.dumps({"prompt": "x", "seed": 2**63 - 1}), repeat=2)


def test_the_model_s_refusal_belongs_to_its_line():
    def check(request):
        if request.prompt == "bad":
            raise RequestError("too long")

    with pytest.raises(LineErrors, match="line 2: too long"):
        read('{"prompt": "x"}\n{"prompt": "bad"}', check=check)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # the machine may be busy
@given(st.dictionaries(st.text(max_size=8), st.none() | st.integers() | st.text(max_size=8), max_size=4))
def test_any_object_is_a_request_or_a_named_error(data):
    try:
        (line,) = read(json.dumps(data))
    except RequestError as error:
        assert "line 1" in str(error)
    else:
        assert line.request == GenerationRequest(**data)


def test_an_id_ignores_the_place_of_the_output_and_nothing_else(tmp_path):
    def identity(**changes):
        request = GenerationRequest(**{"prompt": "x", **changes})
        return job_id(request, request.content_hash())

    assert identity() == identity(output={"folder": str(tmp_path)})
    others = [identity(seed=1), identity(steps=3), identity(id="a"), identity(output={"crf": 20}), identity(prompt="y")]
    assert len({identity(), *others}) == 6
