"""From options to a plan, and what a batch leaves for the next dry run; no model and no worker process."""

import json
import os
import time
from dataclasses import replace
from multiprocessing import Pipe
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from videoinfer.apps import batch, batch_plan
from videoinfer.apps.batch_plan import describe_dry_run, known_rate, make_plan_for, remember_rate
from videoinfer.errors import RequestError
from videoinfer.jobs import NewJob, State, open_journal
from videoinfer.jobs.protocol import Message, Task
from videoinfer.jobs.runners import registered
from videoinfer.placement.footprint import Footprint
from videoinfer.placement.plan import Wish, make_plan
from videoinfer.placement.topology import TopologyError, load_facts
from videoinfer.request import GenerationRequest

FACTS = Path(__file__).parent / "facts"
TINY = Footprint("tiny", 1, 1, 1, 0, 1, host=10**8)


def engine(name: str = "tiny", device: str = "cpu"):
    model = SimpleNamespace(name=name, device=SimpleNamespace(type=device), dtype="torch.float32")
    return SimpleNamespace(model=model, close=lambda: None)


class Worker:
    """Answers at once, in the runner's own process: a task to make a clip leaves an empty file, or fails."""

    exitcode = 0

    def __init__(self, fails: bool) -> None:
        self.fails = fails
        self.connection, self._other = Pipe()
        self._other.send(Message("ready"))

    def send(self, task: Task) -> None:
        if task.kind == "make" and self.fails:
            self._other.send(Message("error", job=task.job, error="generation", text="no"))
        elif task.kind == "make":
            Path(task.output).touch()
            self._other.send(Message("done", job=task.job))
        else:
            self._other.send(Message("beat"))

    def cancel(self, job: str) -> None: ...

    def kill(self) -> None:
        self._other.close()


def make(folder: Path, costs: list[float], fails: bool = False) -> list[NewJob]:
    """What `videoinfer batch` does from the plan on, with one `Worker`."""
    text = GenerationRequest(prompt="x").model_dump_json(exclude_none=True)
    jobs = [NewJob(f"id{k}", k, text, f"c{k}", f"e{k}", f"n{k}", "t2va", cost) for k, cost in enumerate(costs)]
    plan = make_plan(load_facts(FACTS / "laptop-cpu.json"), TINY, Wish(instances=1))
    launcher = SimpleNamespace(instances=1, start_after=lambda k: 0.0, launch=lambda k: Worker(fails))
    state = folder / ".videoinfer"
    options = batch.BatchOptions(folder, max_attempts=1)
    with registered(open_journal(state / "journal.sqlite", create=True)) as queue:
        queue.add(jobs)
        intake, place = SimpleNamespace(engine=engine()), lambda key: state / key
        console = Console(stderr=True)
        batch._work(queue, plan, intake, "tiny", options, place, state, console, True, lambda *_: launcher)  # type: ignore[arg-type]
        assert set(queue.counts()) == {State.FAILED if fails else State.DONE}
    return jobs


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "videoinfer" / "rates.json"


def test_a_batch_tells_the_next_dry_run_how_long_it_takes(tmp_path):
    plan = make_plan(load_facts(FACTS / "laptop-cpu.json"), TINY, Wish(instances=2))
    began = time.monotonic()
    jobs = make(tmp_path, [2.0, 3.0, 5.0])
    took = time.monotonic() - began
    told = describe_dry_run(plan, jobs, engine(), tmp_path)
    assert 0 < told["expected_seconds"] <= took / 2  # ten units on two instances; it took one that long at most
    assert "expected time: " in told["text"] and "not known" not in told["text"]
    assert "not known yet" in describe_dry_run(plan, jobs, engine("other"), tmp_path)["text"]


def test_a_batch_that_made_nothing_leaves_nothing(tmp_path, cache):
    make(tmp_path, [1.0], fails=True)
    assert known_rate(engine()) is None and not cache.exists()


def test_rates_are_kept_by_model_and_device(cache):
    remember_rate(engine(), 2.0)
    remember_rate(engine(device="cuda"), 0.5)
    remember_rate(engine(), 3.0)
    assert (known_rate(engine()), known_rate(engine(device="cuda"))) == (3.0, 0.5)
    assert os.listdir(cache.parent) == ["rates.json"]


@pytest.mark.parametrize("content", ["", "{", "[1]", '{"tiny cpu float32": "fast"}', '{"tiny cpu float32": -1}'])
def test_a_spoilt_cache_is_no_error_and_is_written_anew(cache, content):
    cache.parent.mkdir(parents=True)
    cache.write_text(content)
    assert known_rate(engine()) is None
    remember_rate(engine(), 2.0)
    assert json.loads(cache.read_text()) == {"tiny cpu float32": 2.0}


def test_a_cache_that_cannot_be_written_is_no_error(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    remember_rate(engine(), 2.0)
    assert known_rate(engine()) is None


def test_a_write_that_is_cut_off_leaves_the_old_rates(monkeypatch, cache):
    remember_rate(engine(), 2.0)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    remember_rate(engine(), 3.0)
    assert known_rate(engine()) == 2.0 and os.listdir(cache.parent) == ["rates.json"]


@pytest.fixture
def box(monkeypatch):
    """Eight cards, of which CUDA shows those with the numbers 2, 5 and 1, in this order."""
    whole = load_facts(FACTS / "8x96gb-pcie.json")
    shown = replace(whole, gpus=tuple(whole.gpus[k] for k in (2, 5, 1)))
    monkeypatch.setattr(batch_plan, "read_topology", lambda facts, cards: shown if cards else replace(whole, gpus=()))
    monkeypatch.setattr(batch_plan, "estimate_footprint", lambda engine: TINY)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,5,1")


def cards(device: str, gpus: tuple[int, ...] | None = None) -> list[int | None]:
    options = batch.BatchOptions(Path("out"), device=device, gpus=gpus)
    plan = make_plan_for(engine(device="cpu" if device == "cpu" else "cuda"), options)
    return [one.gpu_index for one in plan.instances]


@pytest.mark.parametrize(
    ("device", "gpus", "expected"),
    [
        ("auto", None, [2, 5, 1]),
        ("cuda", None, [2, 5, 1]),
        ("cuda:0", None, [2]),
        ("cuda:1", None, [5]),
        ("cuda:2", (1,), [1]),
        ("auto", (1, 2), [1, 2]),
        ("cuda", (5,), [5]),
    ],
)
def test_a_device_with_a_number_is_one_card_as_torch_counts(box, device, gpus, expected):
    assert cards(device, gpus) == expected


@pytest.mark.parametrize("gpus", [(1,), (5, 2)])
def test_a_device_and_other_cards_contradict(box, gpus):
    named = ",".join(map(str, gpus))
    with pytest.raises(RequestError, match=f"--device cuda:1 is card 5 as nvidia-smi counts, and --gpus {named} "):
        cards("cuda:1", gpus)


def test_a_device_that_is_not_there_is_named(box):
    with pytest.raises(TopologyError, match=r"--device cuda:3: .* there are 3"):
        cards("cuda:3")


def test_a_cpu_asks_for_no_cards(box):
    assert set(cards("cpu")) == {None}
