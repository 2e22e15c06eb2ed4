"""Plans: boxes from facts files, instances on disjoint cores, memory that is never promised twice, and refusals."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from videoinfer.placement.affinity import bind
from videoinfer.placement.footprint import H3_BF16, H3_INT8, Footprint
from videoinfer.placement.plan import RESERVE, RESERVE_SHARE, PlacementError, Wish, make_plan
from videoinfer.placement.slots import Slots
from videoinfer.placement.topology import Topology, TopologyError, link, load_facts

FACTS = Path(__file__).parent / "facts"
BOXES = {path.stem: load_facts(path) for path in FACTS.glob("*.json")}
SMALL = Footprint("small", 2 * 10**9, 6 * 10**9, 10**9, 5 * 10**8, 10**9)


def cores_of(plan) -> list[int]:
    return [cpu for one in plan.instances for cpu in one.cpus]


def test_facts_survive_a_round_trip(tmp_path):
    for box in BOXES.values():
        path = tmp_path / "box.json"
        path.write_text(json.dumps(box.to_json()))
        assert load_facts(path) == box


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda box: box.update(gpu=[]), "unknown key 'gpu'"),
        (lambda box: box.pop("nodes"), "nodes is missing"),
        (lambda box: box.update(available_memory_bytes="64 GB"), "whole number"),
        (lambda box: box["gpus"][0].update(memory_bytes=True), "whole number"),
        (lambda box: box["gpus"][0].pop("uuid"), r"gpus\[0\]: uuid is missing"),
        (lambda box: box.update(nodes=[]), "at least one core"),
    ],
)
def test_facts_that_are_wrong_are_named(tmp_path, change, reason):
    box = json.loads((FACTS / "1x24gb.json").read_text())
    change(box)
    path = tmp_path / "box.json"
    path.write_text(json.dumps(box))
    with pytest.raises(TopologyError, match=reason):
        load_facts(path)


def test_links_are_named_as_nvidia_smi_does():
    gpus = BOXES["8x96gb-pcie"].gpus
    assert [link(gpus[0], gpu) for gpu in gpus] == ["SELF", "PIX", "NODE", "NODE", "SYS", "SYS", "SYS", "SYS"]


def test_eight_cards_get_one_instance_each_on_the_cores_of_their_socket():
    box = BOXES["8x96gb-pcie"]
    plan = make_plan(box, H3_INT8, Wish())
    assert [one.gpu_index for one in plan.instances] == list(range(8))
    for one in plan.instances:
        node = box.nodes[one.numa_node or 0]
        assert set(one.cpus) <= {cpu for core in node.cores for cpu in core}
        assert len(one.cpus) == 16  # eight physical cores with two threads each
    assert len(set(cores_of(plan))) == len(cores_of(plan))
    assert not plan.two_phase and not plan.offload and plan.overlap


def test_bfloat16_h3_needs_two_phases_on_96_gb():
    plan = make_plan(BOXES["8x96gb-pcie"], H3_BF16, Wish())
    assert plan.two_phase and not plan.offload
    assert plan.per_device == H3_BF16.denoise + H3_BF16.decode + H3_BF16.working


def test_sixteen_h3_on_eight_cards_are_refused_with_numbers_and_what_fits():
    with pytest.raises(PlacementError) as caught:
        make_plan(BOXES["8x96gb-pcie"], H3_BF16, Wish(instances=16))
    text = str(caught.value)
    for part in (
        "16 instances",
        "2 on a card of 102.6 GB",
        "159.0 GB",
        "phase of their own",
        "--instances 8",
        "beside",
    ):
        assert part in text


def test_sixteen_int8_h3_fit_in_two_phases():
    plan = make_plan(BOXES["8x96gb-pcie"], H3_INT8, Wish(instances=16))
    assert len(plan.instances) == 16 and plan.two_phase
    assert sorted(one.gpu_index or 0 for one in plan.instances) == sorted([*range(8)] * 2)


def test_h3_does_not_fit_32_gb_in_bfloat16_and_names_quantising():
    with pytest.raises(PlacementError, match=r"34\.2 GB.*quantised"):
        make_plan(BOXES["8x32gb-pcie"], H3_BF16, Wish())
    plan = make_plan(BOXES["8x32gb-pcie"], Footprint("fp4", 16 * 10**9, 17 * 10**9, 5 * 10**9, 0, 4 * 10**9), Wish())
    assert plan.two_phase


def test_one_24_gb_card_moves_weights_only_when_nothing_else_fits():
    box = BOXES["1x24gb"]
    assert not make_plan(box, SMALL, Wish()).two_phase
    stage = Footprint("stages", 10**10, 18 * 10**9, 6 * 10**9, 0, 10**9)
    assert make_plan(box, stage, Wish()).offload
    with pytest.raises(PlacementError):
        make_plan(box, H3_INT8, Wish())


def test_cpus_get_one_thread_and_core_per_instance():
    plan = make_plan(BOXES["laptop-cpu"], SMALL, Wish(instances=1))
    assert [(one.cpus, one.threads) for one in plan.instances] == [((0, 1), 2)]
    plan = make_plan(BOXES["laptop-cpu"], Footprint("tiny", 1, 1, 1, 0, 1, host=10**8), Wish())
    assert [(one.cpus, one.threads) for one in plan.instances] == [((0,), 1), ((1,), 1)]
    plan = make_plan(BOXES["2x64-cpu"], Footprint("tiny", 1, 1, 1, 0, 1, host=10**8), Wish(instances=16))
    assert [one.numa_node for one in plan.instances] == [0] * 8 + [1] * 8
    assert all(one.threads == 8 for one in plan.instances)


def test_wishes_that_cannot_be_are_refused():
    with pytest.raises(TopologyError, match=r"no card 9; there are 0,1,2,3,4,5,6,7"):
        make_plan(BOXES["8x96gb-pcie"], SMALL, Wish(gpus=(0, 9)))
    with pytest.raises(TopologyError, match="twice"):
        make_plan(BOXES["8x96gb-pcie"], SMALL, Wish(gpus=(1, 1)))
    with pytest.raises(TopologyError, match="CPU"):
        make_plan(BOXES["laptop-cpu"], SMALL, Wish(gpus=(0,)))
    with pytest.raises(TopologyError, match="no GPU"):
        make_plan(BOXES["laptop-cpu"], SMALL, Wish(device="cuda"))
    with pytest.raises(PlacementError, match="at most --instances"):
        make_plan(BOXES["laptop-cpu"], SMALL, Wish(instances=50))


def test_starts_behind_one_root_take_turns():
    plan = make_plan(BOXES["8x96gb-pcie"], H3_INT8, Wish())
    by_card = {one.gpu_index: one.start_after_seconds for one in plan.instances}
    assert by_card[0] == by_card[2] == by_card[4] == 0.0 and by_card[1] == by_card[3] > 0.0


@settings(deadline=None)
@given(
    st.sampled_from(sorted(BOXES)),
    st.integers(1, 40),
    st.integers(0, 40),
    st.integers(0, 40),
    st.integers(0, 8),
    st.none() | st.booleans(),
)
def test_a_plan_never_promises_what_is_not_there(name, count, encode, denoise, decode, two_phase):
    box: Topology = BOXES[name]
    footprint = Footprint("any", encode * 10**9, denoise * 10**9, decode * 10**9, 0, 10**9)
    wish = Wish(instances=count, two_phase=two_phase)
    try:
        plan = make_plan(box, footprint, wish)
    except PlacementError as error:
        assert "GB" in str(error)
        return
    assert plan == make_plan(box, footprint, wish)
    assert [one.index for one in plan.instances] == list(range(count))
    assert all(one.cpus and one.threads >= 1 for one in plan.instances)
    if count <= min(len(node.cores) for node in box.nodes):
        assert len(set(cores_of(plan))) == len(cores_of(plan))
    assert plan.host <= box.available_memory_bytes
    for gpu in box.gpus:
        assert plan.per_device <= gpu.free_bytes - RESERVE_SHARE * gpu.memory_bytes - RESERVE
    assert max(map(len, plan.table().splitlines()[2:])) <= 100 or plan.notes


def test_bind_sets_cores_and_threads():
    code = (
        "import os; from videoinfer.placement.affinity import bind; "
        "print(bind([0], None, 1), os.sched_getaffinity(0), os.environ['OMP_NUM_THREADS'])"
    )
    out = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.split("\n")[0] == "[] {0} 1"


def test_bind_says_what_it_could_not_do():
    before = os.environ.copy(), os.sched_getaffinity(0)
    try:
        assert "999999" in bind([999_999], None, 1)[0]
    finally:
        os.environ.clear()
        os.environ.update(before[0])
        os.sched_setaffinity(0, before[1])


def test_a_child_does_not_outlive_a_killed_parent(tmp_path):
    child = (
        "import os, time; from videoinfer.placement.affinity import die_with_parent; "
        "die_with_parent(os.getppid()); time.sleep(600)"
    )
    parent = (
        f"import subprocess, sys, time; p = subprocess.Popen([sys.executable, '-P', '-c', {child!r}]); "
        "print(p.pid, flush=True); time.sleep(600)"
    )
    process = subprocess.Popen([sys.executable, "-P", "-c", parent], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    pid = int(process.stdout.readline())
    time.sleep(1.0)  # the child asks for its signal
    process.kill()
    process.wait()
    _, alive = psutil.wait_procs([psutil.Process(pid)] if psutil.pid_exists(pid) else [], timeout=10)
    assert not alive


def test_slots_are_held_one_by_one(tmp_path):
    one, two = Slots(tmp_path, 1), Slots(tmp_path, 1)
    with one.one():
        assert two._take() is None
    with two.one():
        pass


def test_a_worker_that_was_stopped_at_its_very_start_dies_with_its_runner(tmp_path):
    code = (
        "import os, sys; from pathlib import Path\n"
        "from videoinfer.placement.local import LocalProcess; from videoinfer.placement.worker import WorkerSetup\n"
        "p = LocalProcess(WorkerSetup(0, os.getpid(), 'no:thing'), {}, Path(sys.argv[1]))\n"
        "os.kill(p.pid, 19); print(p.pid, flush=True); os.kill(os.getpid(), 9)"
    )
    command = [sys.executable, "-P", "-c", code, str(tmp_path / "log")]
    pid = int(subprocess.run(command, stdout=subprocess.PIPE, text=True).stdout)
    _, alive = psutil.wait_procs([psutil.Process(pid)] if psutil.pid_exists(pid) else [], timeout=10)
    assert not alive
