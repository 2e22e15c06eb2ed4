"""Boxes: what a facts file may hold, and how cards are linked."""

import json
from pathlib import Path

import pytest

from videoinfer.placement.topology import Gpu, TopologyError, link, load_facts

FACTS = Path(__file__).parent / "facts"

# `nvidia-smi topo -m` of a box with two sockets, two switches on each, two cards on each switch.
MATRIX = """
SELF PIX  NODE NODE SYS  SYS  SYS  SYS
PIX  SELF NODE NODE SYS  SYS  SYS  SYS
NODE NODE SELF PIX  SYS  SYS  SYS  SYS
NODE NODE PIX  SELF SYS  SYS  SYS  SYS
SYS  SYS  SYS  SYS  SELF PIX  NODE NODE
SYS  SYS  SYS  SYS  PIX  SELF NODE NODE
SYS  SYS  SYS  SYS  NODE NODE SELF PIX
SYS  SYS  SYS  SYS  NODE NODE PIX  SELF
"""


def card(bus: str, *path: str, node: int | None = 0) -> Gpu:
    return Gpu(0, f"GPU-{bus}", "card", 10, 10, bus, path, node)


@pytest.mark.parametrize("name", ["8x96gb-pcie", "8x32gb-pcie"])
def test_links_of_a_box_are_those_of_nvidia_smi(name):
    gpus = load_facts(FACTS / f"{name}.json").gpus
    assert [[link(a, b) for b in gpus] for a in gpus] == [row.split() for row in MATRIX.strip().splitlines()]


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        # Two ports of one switch; a switch behind a switch; two root ports of one host bridge; one of each kind.
        (
            card("0000:03:00.0", "0000:00:01.0", "0000:01:00.0", "0000:02:00.0"),
            card("0000:04:00.0", "0000:00:01.0", "0000:01:00.0", "0000:02:01.0"),
            "PIX",
        ),
        (
            card("0000:03:00.0", "0000:00:01.0", "0000:01:00.0", "0000:02:00.0"),
            card("0000:07:00.0", "0000:00:01.0", "0000:01:00.0", "0000:02:01.0", "0000:05:00.0", "0000:06:00.0"),
            "PXB",
        ),
        (card("0000:01:00.0", "0000:00:01.0"), card("0000:02:00.0", "0000:00:02.0"), "PHB"),
        (card("0000:21:00.0", "0000:20:01.0"), card("0000:41:00.0", "0000:40:01.0"), "NODE"),
        (card("0000:21:00.0", "0000:20:01.0"), card("0000:81:00.0", "0000:80:01.0", node=1), "SYS"),
        (card("0000:21:00.0", "0000:20:01.0", node=None), card("0000:41:00.0", "0000:40:01.0", node=None), "SYS"),
        (card("0000:21:00.0", "0000:20:01.0"), card("0001:21:00.0", "0001:20:01.0"), "NODE"),  # another PCI domain
    ],
)
def test_links(a, b, expected):
    assert link(a, b) == link(b, a) == expected


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda box: box["nodes"][0].update(cores=[0, 1]), r"nodes\[0\]: cores is \[0, 1\]; expected a list of cores"),
        (lambda box: box["nodes"][0].update(cores=[["a"]]), "cores is"),
        (lambda box: box["nodes"][0].update(cores=[[]]), "cores is"),
        (lambda box: box["nodes"][0].update(cores=[[True]]), "cores is"),
        (lambda box: box["nodes"][0].update(cores=[[0, 8], [8, 9]]), "CPU 8 is there more than once"),
        (lambda box: box["nodes"].append(box["nodes"][0]), "node 0 is there more than once"),
        (lambda box: box["gpus"].append(box["gpus"][0]), "card 0 is there more than once"),
        (lambda box: box["gpus"].append({**box["gpus"][0], "index": 1}), "card GPU-.* is there more than once"),
        (lambda box: box["gpus"][0].update(memory_bytes=-1), "memory_bytes is -1; expected a whole number, 0 or more"),
        (lambda box: box["gpus"][0].update(memory_bytes=2.5), "memory_bytes is 2.5"),
        (lambda box: box["gpus"][0].update(free_bytes=10**15), "card 0 has .* free of"),
        (lambda box: box["gpus"][0].update(numa_node=-1), "numa_node is -1; expected .* null where it is not known"),
        (lambda box: box["gpus"][0].update(pci_path=[1]), r"pci_path is \[1\]; expected a list of text"),
        (lambda box: box["gpus"].append(3), r"gpus\[1\]: expected an object, found int"),
        (lambda box: box.update(nodes={}), r"nodes is \{\}; expected a list"),
        (lambda box: box.update(notes=[1]), "notes is"),
    ],
)
def test_facts_that_no_box_can_have_are_named(tmp_path, change, reason):
    box = json.loads((FACTS / "1x24gb.json").read_text())
    change(box)
    (tmp_path / "box.json").write_text(json.dumps(box))
    with pytest.raises(TopologyError, match=reason):
        load_facts(tmp_path / "box.json")


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"", "not JSON"), (b"\xff\xfe", "not JSON"), (b"[]", "expected an object, found list"), (b"{", "not JSON")],
)
def test_files_that_are_no_facts_are_named(tmp_path, content, reason):
    (tmp_path / "box.json").write_bytes(content)
    with pytest.raises(TopologyError, match=reason):
        load_facts(tmp_path / "box.json")
    with pytest.raises(TopologyError, match="cannot be read"):
        load_facts(tmp_path / "none.json")
