"""Names of methods, what they expand to, and the requests that they stand for."""

import json

import pytest

from videoinfer.cache_policies import POLICIES, make_policy
from videoinfer.calibration import Calibration
from videoinfer.errors import RequestError
from videoinfer.eval.report.clips import clip, job_lines
from videoinfer.eval.report.methods import Method, base, expand, resolve, split_names
from videoinfer.eval.report.prompts import Prompt, file_prompts, suite_prompts
from videoinfer.eval.report.settings import SETTINGS
from videoinfer.jobs.lines import read_lines
from videoinfer.request import GenerationRequest

STEPS = 50


def entry(steps: int = STEPS) -> dict:
    return {
        "workflow": "t2va",
        "steps": steps,
        "magcache": [1.0] * steps,
        "teacache": [2.5, -1e-05, 0.125],
        "static": {str(count): list(range(count)) for count in range(2, steps)},
    }


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("dense", ["dense"]),
        (" dense , first-block@0.1,", ["dense", "first-block@0.1"]),
        ("magcache@0.1,max_skips=2,dense", ["magcache@0.1,max_skips=2", "dense"]),
        ("taylorseer@4,2,seacache", ["taylorseer@4,2", "seacache"]),
        ("static@0;1;2,order=1,fewer-steps@5", ["static@0;1;2,order=1", "fewer-steps@5"]),
        ("cache-dit:F1B0W4MC3R0.08,dense", ["cache-dit:F1B0W4MC3R0.08", "dense"]),
        ("teacache@delta=0.1,polynomial=-1;0,dense", ["teacache@delta=0.1,polynomial=-1;0", "dense"]),
        ("magcache@0.1,retention=.1,max_skips=5", ["magcache@0.1,retention=.1,max_skips=5"]),
        ("", []),
    ],
)
def test_a_list_is_split_at_names_only(text, names):
    assert split_names(text) == names


def test_dense_comes_first_and_nothing_twice():
    assert expand(["first-block@0.1", "dense", "first-block@0.1"], STEPS, False) == ["dense", "first-block@0.1"]
    assert expand([], STEPS, True) == ["dense"]


def test_bare_names_stand_for_their_settings():
    assert expand(["fewer-steps", "first-block@0.7"], STEPS, False) == ["dense", "fewer-steps@25", "first-block@0.7"]
    sweep = expand(["fewer-steps", "first-block@0.7"], STEPS, True)
    assert sweep[:5] == ["dense", *(f"fewer-steps@{k}" for k in (25, 33, 17, 12))] and sweep[-1] == "first-block@0.7"
    few = expand(["fewer-steps"], 4, True)
    assert [name for name in few if "," not in name] == ["dense", "fewer-steps@2", "fewer-steps@3"]  # a third: too few


def test_unknown_names_are_all_listed_with_the_known_ones():
    with pytest.raises(RequestError, match=r"'first-blok@1', 'turbo'.*first-block.*cache-dit"):
        expand(["dense", "first-blok@1", "turbo"], STEPS, False)


@pytest.mark.parametrize("steps", [5, 50])
def test_every_policy_has_settings_that_can_be_run(steps):
    assert set(SETTINGS) == set(POLICIES) | {"fewer-steps", "cache-dit"}
    names = expand(SETTINGS, steps, sweep=True)
    methods = resolve(names, steps, entry(steps), "", blocks=6)
    assert {base(method.name) for method in methods} == set(SETTINGS)
    for method in methods:
        request = clip(Prompt("t2va", 0, GenerationRequest(prompt="x"), {}), method).request
        assert GenerationRequest.model_validate(request.model_dump()) == request  # valid, and normalised already
    assert len({method.setting for method in methods}) == len(methods)
    assert len(expand(SETTINGS, steps, sweep=False)) == len(SETTINGS)


def test_fewer_steps_is_dense_with_other_forwards():
    assert resolve(["fewer-steps@25", "fewer-steps@400"], STEPS, None, "") == [
        Method("fewer-steps@25", 25),
        Method("fewer-steps@400", 400),
    ]
    assert Method("fewer-steps@25", 25).setting == "steps=25"
    assert resolve(["dense", "fewer-steps@50"], STEPS, None, "") == [Method("dense", STEPS)]
    (other,) = resolve(["fewer-steps@25,shift=6,solver=ab2"], STEPS, None, "")
    assert (other.shift, other.solver, other.setting) == (6.0, "ab2", "steps=25,shift=6,solver=ab2")
    prompt = Prompt("t2va", 0, GenerationRequest(prompt="x", shift=3.0), {})
    assert (clip(prompt, other).request.shift, clip(prompt, other).request.solver) == (6.0, "ab2")
    assert clip(prompt, Method("dense", STEPS)).request.shift == 3.0


def test_a_number_alone_is_a_schedule_of_the_calibration_and_a_list_is_itself():
    calibration = {**entry(), "static": {"3": [0, 4, 30]}}
    one, two, three, four = resolve(
        ["static@3", "static@3,order=1", "static@0;7", "cache-dit:F1B0W4MC3R0.2SCM@3"], STEPS, calibration, ""
    )
    assert sorted(make_policy(one.cache or "").steps) == [0, 4, 30]
    assert make_policy(two.cache or "").order == 1 and make_policy(two.cache or "").steps == {0, 4, 30}
    assert make_policy(three.cache or "").steps == {0, 7}
    mask = (four.cache or "").partition("SCM")[2]
    assert [step for step, digit in enumerate(mask) if digit == "1"] == [0, 4, 30] and len(mask) == STEPS
    assert [m.name for m in (one, four)] == ["static@3", "cache-dit:F1B0W4MC3R0.2SCM@3"]


def test_what_was_calibrated_goes_into_the_request_unless_it_is_given():
    magcache, teacache, given = resolve(
        ["magcache@0.06", "teacache@0.1", "teacache@0.1,polynomial=1;0"], STEPS, entry(), ""
    )
    assert make_policy(magcache.cache or "").ratios == [1.0] * STEPS
    assert make_policy(teacache.cache or "").polynomial == [2.5, -1e-05, 0.125]
    assert make_policy(given.cache or "").polynomial == [1, 0]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("magcache@0.06", "calibrate"),
        ("teacache@0.06", "calibrate"),
        ("static@25", "calibrate"),
        ("cache-dit:F1B0W4MC3R0.2SCM@25", "calibrate"),
        ("fewer-steps@0", "fewer-steps@25"),
        ("fewer-steps@many", "fewer-steps@25"),
        ("fewer-steps@25,shift=0", "shift"),
        ("fewer-steps@25,solver=rk4", "solver"),
        ("first-block@x", "number"),
        ("first-block@-1", "0 or more"),
        ("static@0;50", "only 50"),
        ("dense@1", "dense"),
        ("cache-dit:F1", "Usage"),
        ("cache-dit:F1B0W4MC3R0.08SCM111", "3 digits"),
        ("cache-dit:F5B1W4MC3R0.08", "6 blocks"),
        ("cache-dit:F0B1W4MC3R0.08", "1 or more"),
    ],
)
def test_what_cannot_run_is_told_before_anything_runs(name, reason):
    with pytest.raises(RequestError, match=reason) as caught:
        resolve(["dense", "nothing-here@1", name], STEPS, None, "calibrate first", blocks=6)
    assert "nothing-here" in str(caught.value) and name in str(caught.value)


def test_calibrations_of_other_runs_do_not_serve(tmp_path):
    path = tmp_path / "c.json"
    path.write_text(json.dumps({"entries": [entry(4), {**entry(), "static": {"2": [0, 9]}}]}))
    calibration = Calibration.read(path, "demo", must_exist=True)
    assert calibration.entry("t2va", 50)["static"] == {"2": [0, 9]}
    assert calibration.entry("ref2va", 50) is None and calibration.entry("t2va", 49) is None
    told = calibration.missing("ref2va", 49)
    assert "videoinfer cache calibrate --model demo --workflow ref2va --steps 49" in told and str(path) in told
    with pytest.raises(RequestError, match="best 2 to 2 steps, not 25"):
        resolve(["static@25"], STEPS, calibration.entry("t2va", 50), told)
    with pytest.raises(RequestError, match="cannot be read"):
        Calibration.read(tmp_path / "none", "demo", must_exist=True)
    assert Calibration.read(tmp_path / "none", "demo", must_exist=False).entries == ()
    for text in ("{", "[]", '{"entries": [1]}', '{"entries": [{"steps": 1}]}'):
        path.write_text(text)
        with pytest.raises(RequestError, match="no calibration file"):
            Calibration.read(path, "demo", must_exist=True)


def test_clips_are_named_by_what_they_are(tmp_path):
    request = GenerationRequest(prompt="a red circle", seed=3, id="mine", steps=7, cache="first-block@0.5")
    prompt = Prompt("t2va", 12, request, {})
    methods = resolve(["dense", "first-block@0.1,warmup=2", "static@0;1;2;3;4;5;6;7;8;9;10;11;12;13"], STEPS, None, "")
    clips = [clip(prompt, method) for method in methods]
    assert [one.name[:-7] for one in clips] == [
        "t2va-012-dense",
        "t2va-012-first-block-0.1-warmup-2",
        "t2va-012-static-0-1-2-3-4-5-6-7-8-9-10-11-12",
    ]
    assert clips[0].request.steps == STEPS and clips[0].request.cache is None
    # A changed setting is another clip, the same one has the same name.
    assert clip(prompt, Method("dense", 49)).name != clips[0].name == clip(prompt, methods[0]).name
    lines = read_lines(job_lines(clips).encode().splitlines(), "jobs", tmp_path)
    assert [line.request.id for line in lines] == [one.name for one in clips]
    assert all(line.request.output.latents for line in lines)
    assert [line.request.content_hash() for line in lines] == [one.request.content_hash() for one in clips]


def test_prompts_of_the_embedded_model_are_the_same_each_time(tmp_path):
    prompts = suite_prompts(["ref2va", "t2va"], 3, tmp_path / "references")
    assert [(p.workflow, p.number) for p in prompts] == [(w, k) for w in ("ref2va", "t2va") for k in range(3)]
    assert all(p.request.workflow == p.workflow and len(p.expected) == 5 for p in prompts)
    hashes = [p.request.content_hash() for p in prompts]
    assert [p.request.content_hash() for p in suite_prompts(["ref2va"], 2, tmp_path / "references")] == hashes[:2]
    with pytest.raises(RequestError, match="'t2v' is not one of"):
        suite_prompts(["t2v"], 1, tmp_path)


def test_prompts_of_a_file_are_counted_within_their_workflow(tmp_path, monkeypatch):
    from PIL import Image

    monkeypatch.chdir(tmp_path)
    Image.new("RGB", (8, 8), "red").save("a.png")
    picture = [{"kind": "image", "path": "a.png"}]
    lines = [{"prompt": "red circle"}, {"prompt": "moves up", "references": picture}, {"prompt": "x", "seed": 1}]
    path = tmp_path / "prompts.jsonl"
    path.write_text("\n\n".join(json.dumps(line) for line in lines), encoding="utf-8")
    prompts = file_prompts(path.relative_to(tmp_path), ["t2va", "ref2va"], None)
    assert [(p.workflow, p.number) for p in prompts] == [("t2va", 0), ("ref2va", 0), ("t2va", 1)]
    assert prompts[0].expected == {"colour": "red", "shape": "circle"} and prompts[2].expected == {}
    assert prompts[1].request.references[0].path == tmp_path / "a.png"
    assert [p.request.seed for p in file_prompts(path, ["t2va"], 1)] == [0]
    with pytest.raises(RequestError, match="no prompt for fl2va"):
        file_prompts(path, ["t2va", "fl2va"], None)
    with pytest.raises(RequestError, match="cannot be read"):
        file_prompts(tmp_path / "none", ["t2va"], None)
    path.write_text('{"prompt": "x"}\n{"prompt": ""}\n[]\n')
    with pytest.raises(RequestError, match=r"(?s)2 bad lines.*line 2.*line 3"):
        file_prompts(path, ["t2va"], None)
