"""Plans for boxes of every shape: what a plan promises is there, and what a refusal offers works."""

import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from videoinfer.placement.footprint import H3_BF16, H3_INT8, Footprint, row_bytes, video_rows
from videoinfer.placement.plan import READ_SPEED, PlacementError, Wish, make_plan
from videoinfer.placement.topology import Gpu, NumaNode, Topology, TopologyError, load_facts
from videoinfer.request import Grid

GB = 10**9
FACTS = Path(__file__).parent / "facts"
TINY = Footprint("tiny", 1, 1, 1, 0, 1, host=10**8)


def box(name: str) -> Topology:
    return load_facts(FACTS / f"{name}.json")


def cpu_box(*cores: int, memory: int = 500 * GB) -> Topology:
    """A box without cards; `cores` of each node, one CPU each."""
    nodes, first = [], 0
    for index, count in enumerate(cores):
        nodes.append(NumaNode(index, tuple((first + k,) for k in range(count)), 64 * GB))
        first += count
    return Topology((), tuple(nodes), memory)


def card(index: int, memory: int, free: int | None = None, node: int | None = 0) -> Gpu:
    free = memory if free is None else free
    return Gpu(
        index, f"GPU-{index}", "card", memory, free, f"0000:{index + 1:02x}:00.0", (f"0000:00:{index:02x}.0",), node
    )


@st.composite
def boxes(draw, cards: int = 6) -> Topology:
    """Nodes of unequal size with interleaved CPU numbers, unequal cards, some on no known node."""
    sizes = draw(st.lists(st.integers(1, 9), min_size=1, max_size=4))
    threads = draw(st.integers(1, 2))
    width, total = len(sizes), max(sizes) * len(sizes)
    nodes = tuple(
        NumaNode(n, tuple(tuple(n + width * k + total * t for t in range(threads)) for k in range(size)), GB)
        for n, size in enumerate(sizes)
    )
    gpus = []
    for k in range(draw(st.integers(0, cards))):
        memory = draw(st.sampled_from((8, 24, 32, 96))) * GB
        free = draw(st.integers(0, 10)) * memory // 10
        node = draw(st.none() | st.integers(0, 4))
        port = f"0000:{draw(st.integers(0, 3)):02x}:01.0"
        gpus.append(Gpu(k * 2, f"GPU-{k}", "card", memory, free, f"0000:{k + 16:02x}:00.0", (port,), node))
    return Topology(tuple(gpus), nodes, draw(st.integers(0, 400)) * GB)


@st.composite
def footprints(draw) -> Footprint:
    encode, denoise, decode = (draw(st.integers(0, limit)) * GB // 4 for limit in (80, 80, 20))
    working = draw(st.integers(1, 8)) * GB // 4
    shared = draw(st.integers(0, 4)) * min(encode, decode) // 4
    return Footprint("a model", encode, denoise, decode, shared, working, host=draw(st.integers(1, 3)) * GB // 2)


wishes = st.builds(
    Wish,
    instances=st.just("auto") | st.integers(1, 24),
    threads=st.none() | st.integers(1, 6),
    two_phase=st.none() | st.booleans(),
    overlap=st.none() | st.booleans(),
    device=st.sampled_from(("auto", "cpu")),
)


def device_bytes(footprint: Footprint, two_phase: bool, offload: bool) -> int:
    """What one instance holds at its fullest moment, counted stage by stage."""
    encode, denoise, decode = footprint.encode, footprint.denoise, footprint.decode
    if offload:
        moments = [encode, denoise, decode]
    elif two_phase:
        moments = [encode, denoise + decode]
    else:
        moments = [encode + denoise + decode - footprint.shared]
    return max(moments) + footprint.working


@settings(deadline=None, max_examples=200)
@given(boxes(), footprints(), wishes)
def test_what_a_plan_promises_is_there(box, footprint, wish):
    try:
        plan = make_plan(box, footprint, wish)
    except PlacementError as error:
        assert "GB" in str(error) and footprint.name in str(error)
        return
    assert plan == make_plan(box, footprint, wish)
    json.dumps(plan.to_json())
    assert max(map(len, plan.table().splitlines())) <= 100
    count = len(plan.instances)
    assert wish.instances in ("auto", count)
    assert [one.index for one in plan.instances] == list(range(count))

    # Whole cores of the box; each used once as long as there are enough.
    node_by_core = {core: node.index for node in box.nodes for core in node.cores}
    uses: Counter[tuple[int, ...]] = Counter()
    for one in plan.instances:
        mine = [core for core in node_by_core if set(core) & set(one.cpus)]
        assert sorted(cpu for core in mine for cpu in core) == sorted(one.cpus) and mine
        assert one.threads == wish.threads or (wish.threads is None and 1 <= one.threads <= len(mine))
        if one.numa_node is not None:
            assert {node_by_core[core] for core in mine} == {one.numa_node}
        uses.update(mine)
    if count <= box.cores:
        assert set(uses.values()) == {1}
    else:
        assert any("share" in note for note in plan.notes)

    # Memory, by hand.
    need = device_bytes(footprint, plan.two_phase, plan.offload)
    assert not (wish.two_phase is not None and plan.two_phase != wish.two_phase)
    cards = {gpu.index: gpu for gpu in box.gpus}
    on_card = Counter(one.gpu_index for one in plan.instances if one.gpu_index is not None)
    for index, times in on_card.items():
        gpu = cards[index]
        assert times * need <= gpu.free_bytes - 0.06 * gpu.memory_bytes - 2**30
    host = footprint.host + (0 if on_card else need)
    if plan.offload:
        host += footprint.encode + footprint.denoise + footprint.decode - footprint.shared
    assert plan.host == count * host <= box.available_memory_bytes
    if not on_card:
        return

    # Spread evenly; near the card where its node has a core for everyone who wants one; one load at a time.
    assert len(on_card) == min(count, len(cards)) and max(on_card.values()) - min(on_card.values()) <= 1
    wanted = Counter(cards[one.gpu_index].numa_node for one in plan.instances)
    room = {node.index: len(node.cores) for node in box.nodes}
    load = (
        footprint.encode
        if plan.two_phase
        else footprint.encode + footprint.denoise + footprint.decode - footprint.shared
    )
    starts: dict[str, list[float]] = {}
    for one in plan.instances:
        gpu = cards[one.gpu_index]
        if len(box.nodes) > 1 and wanted[gpu.numa_node] <= room.get(gpu.numa_node, 0):
            assert one.numa_node == gpu.numa_node
        assert one.gpu_uuid == gpu.uuid
        starts.setdefault(gpu.pci_path[0], []).append(one.start_after_seconds)
    for moments in starts.values():
        gaps = [b - a for a, b in zip(sorted(moments), sorted(moments)[1:], strict=False)]
        assert all(gap >= load / READ_SPEED - 0.11 for gap in gaps)  # seconds are rounded to tenths


@settings(deadline=None, max_examples=200)
@given(boxes(), footprints(), wishes)
def test_what_a_refusal_offers_can_be_had(box, footprint, wish):
    try:
        make_plan(box, footprint, wish)
        return
    except PlacementError as error:
        text = str(error)
    for number in re.findall(r"--instances (\d+)", text):
        assert make_plan(box, footprint, replace(wish, instances=int(number)))
        assert wish.instances == "auto" or int(number) < wish.instances
    for gpus in re.findall(r"--gpus ([\d,]+)", text):
        for index in map(int, gpus.split(",")):
            assert make_plan(box, footprint, replace(wish, gpus=(index,), instances=1))
    if re.search(r"without --(one|two)-phase", text):
        assert make_plan(box, footprint, replace(wish, two_phase=None))


@settings(deadline=None, max_examples=200)
@given(st.lists(st.integers(1, 20), min_size=1, max_size=5), st.integers(2, 40))
def test_instances_on_a_cpu_get_equal_shares_of_one_node_each_and_no_larger_share_fits(cores, count):
    plan = make_plan(cpu_box(*cores), TINY, Wish(instances=count))
    shares = {len(one.cpus) for one in plan.instances}
    assert len(shares) == 1 and {one.threads for one in plan.instances} == shares
    if count <= sum(cores):
        share = shares.pop()
        assert sum(size // (share + 1) for size in cores) < count
        if len(cores) > 1:
            assert None not in {one.numa_node for one in plan.instances}


@settings(deadline=None)
@given(boxes())
def test_any_box_survives_its_facts_file(tmp_path_factory, box):
    path = tmp_path_factory.mktemp("facts") / "box.json"
    path.write_text(json.dumps(box.to_json()))
    assert load_facts(path) == box


def test_the_cores_of_eight_cards_on_two_sockets():
    plan = make_plan(box("8x96gb-pcie"), H3_INT8, Wish())
    # 32 cores a socket, thread siblings 64 apart: eight cores for each of four cards.
    expected = [{c for k in range(8) for c in (8 * i + k, 64 + 8 * i + k)} for i in range(8)]
    assert [set(one.cpus) for one in plan.instances] == expected
    assert [one.numa_node for one in plan.instances] == [0] * 4 + [1] * 4
    assert plan.encode_slots == 16


@pytest.mark.parametrize(("count", "cards"), [(1, [0]), (2, [0, 4]), (4, [0, 2, 4, 6]), (5, [0, 1, 2, 4, 6])])
def test_few_instances_take_cards_that_share_least(count, cards):
    plan = make_plan(box("8x96gb-pcie"), H3_INT8, Wish(instances=count))
    assert [one.gpu_index for one in plan.instances] == cards
    if count < 5:
        assert all(one.start_after_seconds == 0 for one in plan.instances)


@pytest.mark.parametrize(
    ("footprint", "asked", "offers"),
    [
        (H3_BF16, 9, {"8"}),
        (H3_BF16, 16, {"8"}),
        (H3_INT8, 24, {"16", "8"}),
    ],
)
def test_too_many_h3_are_refused_with_what_fits_instead(footprint, asked, offers):
    with pytest.raises(PlacementError) as caught:
        make_plan(box("8x96gb-pcie"), footprint, Wish(instances=asked))
    text = str(caught.value)
    assert set(re.findall(r"--instances (\d+)", text)) == offers
    assert "beside denoising" in text and "quantised" in text and "102.6 GB" in text and "729.6 GB of host" in text


def test_h3_in_int8_fits_a_96_gb_card_whole_and_a_32_gb_card_not_at_all():
    assert not make_plan(box("8x96gb-pcie"), H3_INT8, Wish()).two_phase
    with pytest.raises(PlacementError, match=r"34\.2 GB"):
        make_plan(box("8x32gb-pcie"), H3_INT8, Wish())


def test_the_fullest_card_decides_not_the_one_with_the_least_free():
    # 24 GB free of 96 leaves less above the reserve than 23 free of 24.
    topology = Topology((card(0, 24 * GB, 23 * GB), card(1, 96 * GB, 24 * GB)), cpu_box(8).nodes, 200 * GB)
    model = Footprint("model", 3 * GB, 13 * GB, 2 * GB, 0, GB)
    plan = make_plan(topology, model, Wish())
    assert plan.two_phase  # 19 GB in one piece would fit card 0 alone
    with pytest.raises(PlacementError, match="--gpus 0"):
        make_plan(topology, model, Wish(two_phase=False))


def test_too_little_host_memory_is_the_reason_that_is_given():
    poor = replace(box("8x32gb-pcie"), available_memory_bytes=64 * GB)
    model = Footprint("model", 20 * GB, 26 * GB, 4 * GB, 0, 2 * GB)
    with pytest.raises(PlacementError, match=r"412\.0 GB of the host.*--instances 1, weights moved in"):
        make_plan(poor, model, Wish())
    assert make_plan(poor, model, Wish(instances=1)).offload


def test_a_cpu_gets_one_instance_a_core_as_far_as_memory_goes():
    plan = make_plan(box("2x64-cpu"), TINY, Wish())
    assert len(plan.instances) == 128 and {one.threads for one in plan.instances} == {1}
    assert [one.numa_node for one in plan.instances] == [0] * 64 + [1] * 64
    model = Footprint("model", 2 * GB, 6 * GB, GB, 0, GB, host=0)
    plan = make_plan(cpu_box(8, memory=35 * GB), model, Wish())
    assert len(plan.instances) == 3 and plan.notes == ("memory allows 3 instances on 8 cores",)
    assert {len(one.cpus) for one in plan.instances} == {2}
    assert not make_plan(cpu_box(8, memory=80 * GB), model, Wish(threads=2)).notes


def test_a_cpu_with_little_memory_gets_the_encoders_as_a_phase():
    model = Footprint("model", 6 * GB, 6 * GB, GB, 0, GB, host=0)
    assert make_plan(cpu_box(2, memory=12 * GB), model, Wish()).two_phase
    with pytest.raises(PlacementError, match="without --one-phase"):
        make_plan(cpu_box(2, memory=12 * GB), model, Wish(two_phase=False))
    with pytest.raises(PlacementError, match=r"14\.0 GB.*8\.0 GB.*does not fit.*quantised"):
        make_plan(cpu_box(2, memory=7 * GB), model, Wish())


def test_more_instances_than_cores_share_them_in_turn_and_say_so():
    plan = make_plan(cpu_box(2, 1), TINY, Wish(instances=5))
    assert [one.cpus for one in plan.instances] == [(0,), (1,), (2,), (0,), (1,)]
    assert plan.notes == ("5 instances share 3 cores: more than one on a core gains nothing",)
    plan = make_plan(cpu_box(4), TINY, Wish(instances=2, threads=3))
    assert plan.notes == ("an instance has 3 threads on 2 cores: more than one on a core slows it",)


def test_an_instance_without_a_core_near_its_card_gets_one_far_away():
    gpus = tuple(card(k, 96 * GB, node=0) for k in range(3))
    plan = make_plan(replace(cpu_box(2, 6), gpus=gpus), TINY, Wish())
    assert [one.numa_node for one in plan.instances] == [0, 0, 1]
    assert any("instances 2 run away from their card" in note for note in plan.notes)


def test_an_instance_near_its_card_leaves_cores_to_one_that_is_near_none():
    gpus = (card(0, 96 * GB, node=0), card(1, 96 * GB, node=None))
    plan = make_plan(replace(cpu_box(4), gpus=gpus), TINY, Wish())
    assert [one.cpus for one in plan.instances] == [(0, 1), (2, 3)]


def test_no_node_of_a_cpu_is_idle_while_another_has_two_instances():
    plan = make_plan(cpu_box(4, 4, 4, 4), TINY, Wish(instances=5))
    assert [one.numa_node for one in plan.instances] == [0, 0, 1, 2, 3]


def test_a_long_plan_is_wrapped_at_100_columns():
    name = "a-model-folder/with-a-long-name/that-somebody-gave-it/on-a-disk-far-away"
    model = Footprint(name, 10 * GB, 18 * GB, 6 * GB, 0, GB)
    plan = make_plan(box("1x24gb"), model, Wish())
    assert plan.offload and plan.overlap
    assert max(map(len, plan.table().splitlines())) <= 100
    assert "weights moved in stage by stage, decoding beside denoising" in " ".join(plan.table().split())


def test_core_lists_that_are_long_are_wrapped_whole():
    node = [NumaNode(n, tuple((n + 2 * k,) for k in range(60)), GB) for n in range(2)]  # CPU numbers take turns
    plan = make_plan(Topology((card(0, 96 * GB, node=1),), tuple(node), 9 * GB), TINY, Wish())
    lines = plan.table().splitlines()
    assert max(map(len, lines)) <= 100
    listed = "".join(line[35:] for line in lines[3:] if not line.startswith("note"))
    assert [int(cpu) for cpu in re.findall(r"\d+", listed)] == list(range(1, 120, 2))


@pytest.mark.parametrize(
    ("wish", "reason"),
    [
        ({"instances": 0}, "--instances 0 .* 1 or more"),
        ({"instances": -3}, "--instances -3"),
        ({"threads": 0}, "--threads 0"),
        ({"device": "cuda:1"}, "cuda:1.*auto, cpu or cuda; --gpus"),
        ({"device": "mps"}, "mps"),
    ],
)
def test_wishes_that_mean_nothing_are_named(wish, reason):
    with pytest.raises(PlacementError, match=reason):
        Wish(**wish)


def test_no_cards_at_all_are_no_choice():
    with pytest.raises(TopologyError, match=r"names no card; there are 0,1,2,3,4,5,6,7\."):
        make_plan(box("8x96gb-pcie"), TINY, Wish(gpus=()))


def test_rows_of_h3_are_those_that_are_published():
    # 1344x768: 124 frames are 37.3k rows and 362 are 107.9k (37 and 107 latent frames of 24 x 42 patches).
    grid = Grid(24, 17, 5, 120, 362, 32, 768, 768 * 1344, 50, 1000)
    transformer = {
        "patch_size": [1, 2, 2],
        "hidden_size": 5376,
        "num_attention_heads": 56,
        "attention_head_dim": 128,
        "ffn_dim": 14336,
    }
    vae = {"temporal_downsample_factors": [1, 2, 2, 1], "spatial_downsample_factors": [2, 2, 2, 2]}
    assert video_rows(grid, 1344 * 768, 124, transformer, vae) == 37 * 24 * 42
    assert video_rows(grid, 1344 * 768, 362, transformer, vae) == 107 * 24 * 42
    assert row_bytes(transformer, 2) == 2 * (2 * 5376 + 3 * 14336)
