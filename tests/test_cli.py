"""The command line as a user meets it: output, exit codes, sidecars and Ctrl-C, over a stand-in for the engine."""

import json
import os
import signal
import subprocess
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace

import pytest

from videoinfer import __version__
from videoinfer.apps import cli
from videoinfer.apps import generate as command
from videoinfer.apps.flags import Flags, build_request
from videoinfer.apps.interrupt import interruptible
from videoinfer.apps.media_kind import media_kind
from videoinfer.errors import Cancelled, GenerationError, MediaError, ModelError, RequestError
from videoinfer.request import Adjustment, RequestAdjusted

PNG = b"\x89PNG\r\n\x1a\n"


class Engine:
    """Goes through the stages as the engine does; `during` is called at the stage of that name."""

    def __init__(self):
        self.during = {}
        self.opened: list[tuple[str, dict]] = []
        self.requests = []
        self.closed = 0
        self.made_with = {"model": {"name": "mine", "revision": "1"}, "dtype": "bfloat16", "threads": 2}

    def open(self, model: str, **options):
        self.opened.append((model, options))
        return self

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.closed += 1

    def at(self, stage: str) -> None:
        if stage in self.during:
            self.during[stage]()

    def describe(self, request, *, strict=False):
        references = [{"path": str(r.path), "sha256": r.digest()} for r in request.references]
        return {"request": json.loads(request.model_dump_json()), "references": references} | self.made_with

    def generate(self, request, *, strict, on_stage, on_step, cancel):
        self.requests.append(request)
        adjustment = Adjustment("num_frames", 120, 124, "frames come as 17*n+5 at 24 fps")
        warnings.warn(str(adjustment), RequestAdjusted, stacklevel=2)
        for stage in ("encode", "denoise", "decode", "write"):
            on_stage(stage)
            self.at(stage)
            for step in range(1, 3 if stage == "denoise" else 0):
                if cancel.is_set():
                    raise Cancelled
                on_step(step, 2, 0.5)
        path = request.output.target(request.request_id)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"clip")
        sidecar = path.with_suffix(".json")
        sidecar.write_text(json.dumps(self.describe(request)))
        resolved = SimpleNamespace(
            request=request,
            workflow=request.workflow,
            width=160,
            height=96,
            num_frames=124,
            steps=2,
            seed=request.seed,
            adjustments=(adjustment,),
        )
        return SimpleNamespace(
            path=path, sidecar_path=sidecar, extras=(), resolved=resolved, timings={"denoise": 1.0}, peak_memory_mb=1.0
        )


@pytest.fixture
def engine(monkeypatch, tmp_path) -> Engine:
    stand_in = Engine()
    monkeypatch.setattr(command, "open_engine", stand_in.open)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    return stand_in


def run(*arguments: str) -> int:
    return cli.main(["generate", *arguments])


def failed_json(capsys) -> dict:
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    return json.loads(out)["error"]


def test_generate_prints_the_path_and_says_the_stages_in_plain_lines(engine, capsys):
    assert run("a red circle") == 0
    shown = capsys.readouterr()
    path = Path(shown.out.strip())
    assert path.parent == Path("out") and path.stem == engine.requests[0].request_id and path.is_file()
    lines = shown.err.splitlines()
    assert [line for line in lines if "note" not in line and "step" not in line] == [
        "load", "encode", "denoise", "decode", "write",
    ]  # fmt: skip
    assert any("denoise step 2/2" in line for line in lines) and "\x1b" not in shown.err
    assert sum("asked 120, making 124" in line for line in lines) == 1
    assert engine.closed == 1 and engine.opened[0][0] == "demo"


def test_json_is_one_object(engine, capsys):
    assert run("a red circle", "--json", "--seed", "7", "-o", "here") == 0
    out = json.loads(capsys.readouterr().out)
    assert out["path"] == f"here/{out['id']}.mp4" and out["sidecar"] == f"here/{out['id']}.json"
    assert (out["seed"], out["num_frames"], out["model"], out["timings"]) == (7, 124, "demo", {"denoise": 1.0})
    assert out["adjustments"][0]["actual"] == 124


def test_a_second_run_gets_the_next_name(engine, capsys):
    assert [run("x"), run("x")] == [0, 0]
    one, two = capsys.readouterr().out.split()
    assert two == one.replace(".mp4", "-2.mp4")


def test_every_flag_reaches_the_request(engine, tmp_path):
    making = "--seconds 5.17 --size 160x96 --steps 4 --crf 30 --gif --frames-png --latents --soundscape rain"
    running = "-o a/b.mp4 --model some/model --device cpu --dtype float32 --offline --accept-licence"
    assert run("x", "--music", "drums", *making.split(), *running.split()) == 0
    request = engine.requests[0]
    assert (request.duration, request.size, request.steps) == (5.17, (160, 96), 4)
    output = request.output
    assert (output.crf, output.gif, output.frames, output.latents) == (30, True, True, True)
    assert request.prompt.model_dump() == {
        "integrated_multimodal_description": "x",
        "overall_soundscape": "rain",
        "non_diegetic_music": "drums",
    }
    assert Path("a/b.mp4").is_file()
    options = {"device": "cpu", "dtype": "float32", "offline": True, "accept_licence": True}
    assert engine.opened == [("some/model", options)]


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        ((), "request"),
        (("",), "request"),
        (("x", "--seconds", "5", "--frames", "124"), "request"),
        (("x", "--size", "big"), "request"),
        (("x", "--aspect", "wide"), "request"),
        (("x", "--seed", "-1"), "request"),
        (("x", "--crf", "52"), "request"),
        (("x", "--reference", "missing.png"), "request"),
        (("x", "--fit", "contain"), "request"),
        (("x", "--soundscape", "a\0"), "request"),
        (("x", "-o", "clip.mov"), "request"),
        (("x", "-o", ""), "request"),
        (("x", "--from", "missing.json"), "media"),
        (("--music", "drums"), "request"),
        (("x", "--model", "MiniMaxAI/MiniMax-H3"), "model"),
        (("x", "--seed", "one"), "usage"),
        (("x", "--sed", "1"), "usage"),
    ],
)
def test_bad_usage_is_2_and_never_opens_the_engine(engine, capsys, arguments, kind):
    assert run(*arguments, "--json") == 2
    assert failed_json(capsys)["kind"] == kind
    assert run(*arguments) == 2
    shown = capsys.readouterr()
    assert shown.out == "" and "rror: " in shown.err and "Traceback" not in shown.err
    assert engine.opened == []


@pytest.mark.parametrize(
    ("error", "stage", "code", "kind"),
    [
        (RequestError("too long"), "encode", 2, "request"),
        (ModelError("too big"), "encode", 2, "model"),
        (MediaError("corrupt"), "encode", 2, "media"),
        (MediaError("disk full"), "write", 1, "generation"),
        (GenerationError("all black"), "decode", 1, "generation"),
        (RuntimeError("boom"), "denoise", 1, "internal"),
    ],
)
def test_errors_of_the_engine(engine, capsys, error, stage, code, kind):
    def fail():
        raise error

    engine.during[stage] = fail
    assert run("x", "--json") == code
    told = failed_json(capsys)
    assert told["kind"] == kind and str(error) in told["message"]
    assert run("x", "--debug") == code
    assert "Traceback" in capsys.readouterr().err
    assert engine.closed == 2


def test_an_existing_file_is_refused_before_any_work(engine, capsys):
    Path("mine.mp4").write_bytes(b"keep")
    assert run("x", "-o", "mine.mp4") == 2
    assert "exists already" in capsys.readouterr().err
    assert Path("mine.mp4").read_bytes() == b"keep" and engine.opened == []


def test_output_folders_that_cannot_be_written(engine, capsys, monkeypatch, tmp_path):
    Path("file").touch()
    for place in ("file", "file/deeper", "file/clip.mp4", "/proc/nothing/here"):
        assert run("x", "-o", place) == 2
        assert "output folder" in capsys.readouterr().err
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=2**20))
    assert run("x") == 2
    assert "1 MiB free; 64 MiB are needed" in capsys.readouterr().err
    assert engine.opened == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_output_folder(engine, capsys, tmp_path):
    (tmp_path / "locked").mkdir(mode=0o500)
    assert run("x", "-o", "locked") == 2
    assert "cannot be written" in capsys.readouterr().err


def press() -> None:
    os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("stage", ["encode", "denoise", "decode", "write"])
@pytest.mark.parametrize("as_json", [False, True])
def test_ctrl_c_is_130_and_leaves_nothing(engine, capsys, stage, as_json):
    before = signal.getsignal(signal.SIGINT)
    engine.during[stage] = press
    assert run("x", *["--json"] * as_json) == 130
    assert ("interrupted" in capsys.readouterr().out) == as_json
    assert not Path("out").exists() and engine.closed == 1
    assert signal.getsignal(signal.SIGINT) is before


def test_the_first_ctrl_c_lets_a_step_end_and_the_second_stops_at_once(capsys):
    told = []
    with interruptible(told.append) as interrupt:
        interrupt.stage = "denoise"
        press()
        assert interrupt.is_set() and len(told) == 1
        with pytest.raises(KeyboardInterrupt):
            press()
    assert len(told) == 1


def test_ctrl_c_with_the_last_step_does_not_go_on_to_decode(engine, capsys):
    seen = []
    engine.during = {"decode": lambda: seen.append("decode")}
    original = engine.generate

    def generate(request, *, on_step, **rest):
        def last(step, total, sigma):
            if step == total:
                press()

        return original(request, on_step=last, **rest)

    engine.generate = generate
    assert run("x") == 130 and seen == []


def write(name: str, content: bytes) -> str:
    Path(name).write_bytes(content)
    return name


def test_references_keep_their_order_and_are_told_by_content(engine):
    names = [write("b.dat", PNG), write("a.png", b"RIFF\0\0\0\0WAVE"), write("c.png", PNG)]
    arguments = [argument for name in names for argument in ("--reference", name)]
    assert run("x", *arguments, "--fit", "contain") == 0
    found = [(r.kind, r.path.name, r.path.is_absolute(), r.fit) for r in engine.requests[0].references]
    assert [entry[:2] for entry in found] == [("image", "b.dat"), ("audio", "a.png"), ("image", "c.png")]
    assert {entry[2:] for entry in found} == {(True, "contain")}


def test_keyframes(engine, capsys):
    first, last = write("first.png", PNG), write("last.png", PNG)
    assert run("x", "--last-image", last, "--image", first) == 0
    assert [(r.kind, r.path.name) for r in engine.requests[0].references] == [
        ("first_frame", "first.png"),
        ("last_frame", "last.png"),
    ]
    assert run("x", "--image", first, "--reference", last) == 2
    assert "combined" in capsys.readouterr().err
    assert run("x", "--image", write("sound.png", b"fLaC")) == 2
    assert "not a picture" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("start", "name", "kind"),
    [
        (PNG, "a", "image"),
        (b"\xff\xd8\xff\xe0", "a.mp4", "image"),
        (b"RIFF\1\1\1\1WEBPVP8 ", "a", "image"),
        (b"RIFF\1\1\1\1AVI LIST", "a", "video"),
        (b"\0\0\0\x18ftypavif", "a", "image"),
        (b"\0\0\0\x18ftypisom", "a", "video"),
        (b"\0\0\0\x18ftypM4A ", "a", "audio"),
        (b"\0\0\0\x18ftypisom", "a.m4a", "audio"),
        (b"\x1aE\xdf\xa3", "a.mkv", "video"),
        (b"\x1aE\xdf\xa3", "a.mka", "audio"),
        (b"OggS", "a.ogg", "audio"),
        (b"OggS", "a.ogv", "video"),
        (b"ID3\3", "a", "audio"),
        (b"unknown", "a.MP3", "audio"),
    ],
)
def test_kinds_of_files(tmp_path, start, name, kind):
    (tmp_path / name).write_bytes(start)
    assert media_kind(tmp_path / name) == kind


def test_files_of_no_kind(tmp_path):
    (tmp_path / "a.txt").write_text("words")
    (tmp_path / "empty.png").touch()
    for path, word in (("a.txt", "no known kind"), ("empty.png", "empty"), ("none", "cannot be read"), (".", "cannot")):
        with pytest.raises(RequestError, match=word):
            media_kind(tmp_path / path)
    with pytest.raises(RequestError, match="address"):
        media_kind(Path("https://example.org/a.png"))


def test_from_a_sidecar_repeats_the_run(engine, capsys):
    image = write("first.png", PNG)
    assert run("x", "--image", image, "--seconds", "5", "--seed", "3", "--crf", "30", "--music", "drums") == 0
    clip = capsys.readouterr().out.strip()
    sidecar = clip.replace(".mp4", ".json")
    assert run("--from", sidecar, "-o", "again") == 0
    one, two = engine.requests
    assert two.content_hash() == one.content_hash() and two.output.crf == 30 and two.output.folder == Path("again")
    assert engine.opened[1][0] == "mine" and engine.opened[1][1]["dtype"] == "bfloat16"
    assert "another way" not in capsys.readouterr().err


def test_from_a_sidecar_tells_what_is_another_now(engine, capsys):
    image = write("first.png", PNG)
    assert run("x", "--image", image) == 0
    sidecar = capsys.readouterr().out.strip().replace(".mp4", ".json")
    write("first.png", PNG + b"other")
    engine.made_with |= {"model": {"name": "mine", "revision": "2"}, "threads": 1}
    assert run("--from", sidecar) == 0
    (note,) = [line for line in capsys.readouterr().err.splitlines() if "another way" in line]
    assert "model revision was 1 and is 2; threads was 2 and is 1; the content of" in note and "dtype" not in note
    assert run("--from", sidecar, "--strict") == 2
    assert "another way" in capsys.readouterr().err and len(engine.requests) == 2


@pytest.mark.parametrize(
    ("field", "value"), [("model", 5), ("model", {"nam": "x"}), ("dtype", "float8"), ("dtype", 5), ("references", 5)]
)
def test_a_sidecar_that_says_nonsense_is_refused(engine, capsys, field, value):
    write("a.json", json.dumps({"request": {"prompt": "x"}, field: value}).encode())
    assert run("--from", "a.json") == 2
    assert f"{field}" in capsys.readouterr().err and engine.requests == []


@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_a_full_standard_output_is_told_and_the_clip_is_there(tmp_path, flags):
    script = (
        "import sys, types; from pathlib import Path; from videoinfer.apps import cli, generate as command\n"
        "command.run = lambda *a, **k: {'path': 'clip.mp4'}\n"
        "sys.exit(cli.main())"
    )
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-P", "-c", script, "generate", "x", "-o", str(tmp_path / "clip.mp4"), *flags]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1
    assert "clip.mp4 is complete, but standard output: No space left on device" in done.stderr
    assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr


def test_a_closed_standard_error_hinders_nothing(tmp_path):
    script = (
        "import sys; from videoinfer.apps import cli, generate as command\n"
        "from rich.console import Console\n"
        "command.run = lambda *a, **k: (Console(stderr=True).print('note'), {'path': 'clip.mp4'})[1]\n"
        "sys.exit(cli.main())"
    )
    line = f'exec "$0" -P -c "$1" generate x -o {tmp_path}/clip.mp4 2>&-'
    done = subprocess.run(["sh", "-c", line, sys.executable, script], stdout=subprocess.PIPE, text=True)
    assert (done.returncode, done.stdout) == (0, "clip.mp4\n")


def test_sigterm_removes_what_was_begun(tmp_path):
    script = (
        "import os, signal, sys\n"
        "from videoinfer.apps.interrupt import interruptible\n"
        "from videoinfer.media.publish import published\n"
        "from pathlib import Path\n"
        "with interruptible(print), published(Path(sys.argv[1])) as part:\n"
        "    part.write_bytes(b'half')\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
    )
    done = subprocess.run([sys.executable, "-P", "-c", script, str(tmp_path / "clip.mp4")])
    assert done.returncode == 143 and os.listdir(tmp_path) == []


@pytest.mark.parametrize("name", ["clip.mkv", "clip.mp3", "clip.png", "clip.webp"])
def test_an_output_of_another_kind_is_refused(engine, capsys, name):
    assert run("x", "-o", name) == 2
    assert name in capsys.readouterr().err and not Path(name).exists()


def test_a_refused_model_leaves_no_folder(monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    assert run("x", "-m", "nope", "-o", "new/folder") == 2
    assert os.listdir(tmp_path) == []


def test_flags_override_a_sidecar(engine, capsys):
    image = write("first.png", PNG)
    assert run("x", "--image", image, "--seconds", "5", "--size", "160x96", "--gif") == 0
    sidecar = capsys.readouterr().out.strip().replace(".mp4", ".json")
    flags = ("--frames", "124", "--aspect", "1:1", "--no-gif", "--model", "demo", "--reference", image)
    assert run("y", "--from", sidecar, *flags) == 0
    request = engine.requests[1]
    assert (request.prompt, request.num_frames, request.duration) == ("y", 124, None)
    assert (request.size, request.aspect_ratio, request.output.gif) == (None, "1:1", False)
    assert [r.kind for r in request.references] == ["image"] and engine.opened[1][0] == "demo"


def test_a_sidecar_may_be_a_request_alone_and_must_be_one(engine, capsys):
    Path("request.json").write_text(json.dumps({"prompt": "x", "id": "mine", "seed": 5}))
    assert run("--from", "request.json") == 0
    assert engine.requests[0].request_id == "mine" and engine.opened[0][0] == "demo"
    assert run("--from", "request.json", "--seed", "6") == 0
    assert engine.requests[1].id is None  # another clip than the one that the id names
    Path("other.json").write_text(json.dumps({"prompt": "x", "sed": 5}))
    assert run("--from", "other.json") == 2
    assert "'seed'" in capsys.readouterr().err


def test_a_prompt_overrides_the_description_and_keeps_the_other_parts():
    base = {
        "prompt": {"integrated_multimodal_description": "x", "overall_soundscape": "rain", "non_diegetic_music": ""}
    }
    request = build_request(Flags(prompt="y"), base)
    assert request.prompt_text.startswith("integrated_multimodal_description: y\n\noverall_soundscape: rain")
    assert build_request(Flags(music="drums"), {"prompt": "x"}).prompt_text.endswith("non_diegetic_music: drums")


def test_models(capsys):
    assert cli.main(["models", "--json"]) == 0
    listed = {entry["name"]: entry for entry in json.loads(capsys.readouterr().out)["models"]}
    assert listed["demo"]["notice"] is None
    assert "South Korea" in listed["MiniMaxAI/MiniMax-H3"]["notice"]
    assert cli.main(["models"]) == 0
    assert "European Union" in capsys.readouterr().out


def test_help_version_and_no_command(capsys):
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"videoinfer {__version__}\n"
    assert cli.main(["generate", "--help"]) == 0
    assert "integrated_multimodal_description" in capsys.readouterr().out
    assert cli.main([]) == 2
    assert cli.main(["no-such-command"]) == 2


def test_help_loads_nothing_heavy():
    code = (
        "import sys; from videoinfer.apps.cli import main; main(['generate', '--help']); import videoinfer;"
        "videoinfer.GenerationRequest(prompt='x').request_id;"
        "print(sorted(set(sys.modules) & {'torch', 'diffusers', 'transformers', 'av', 'numpy', 'huggingface_hub'}))"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
