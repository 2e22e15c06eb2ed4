"""CUDA_VISIBLE_DEVICES, read as CUDA's programming guide and torch.cuda have it."""

import pytest

from videoinfer.placement.topology import Gpu, TopologyError
from videoinfer.placement.visible import cuda_card, visible

UUIDS = ("GPU-aa0", "GPU-ab1", "GPU-b2", "GPU-c3")
PCI = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
ALIKE = [Gpu(k, uuid, "L20", 10, 10, f"0000:{k + 1:02x}:00.0") for k, uuid in enumerate(UUIDS)]
MIXED = [*ALIKE[:2], Gpu(2, UUIDS[2], "RTX PRO 6000", 20, 20, "0000:03:00.0")]


def read(value: str, gpus=ALIKE, **more: str) -> tuple[list[int], list[str]]:
    cards, notes = visible(gpus, {"CUDA_VISIBLE_DEVICES": value, **more})
    return [gpu.index for gpu in cards], notes


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("0", [0]),
        ("2,0", [2, 0]),
        (" 3 , 1", [3, 1]),
        ("1x,02", [1, 2]),  # as C's strtoul reads numbers
        ("GPU-b2", [2]),
        ("GPU-b,GPU-aa", [2, 0]),
    ],
)
def test_valid_words_are_followed_in_their_order(value, expected):
    assert read(value) == (expected, [])


@pytest.mark.parametrize(
    ("value", "expected", "word"),
    [
        ("1,-1,2", [1], "'-1'"),
        ("0,9,1", [0], "'9'"),
        ("4", [], "'4'"),
        ("0,,1", [0], "''"),
        ("none", [], "'none'"),
        ("aa0", [], "'aa0'"),
        ("0,GPU-b", [0], "'GPU-b'"),  # either numbers or UUIDs
        ("GPU-b,0", [2], "'0'"),
        ("GPU-b,GPU-x,GPU-c", [2], "'GPU-x'"),
    ],
)
def test_an_invalid_word_hides_what_follows_and_is_told(value, expected, word):
    cards, notes = read(value)
    assert cards == expected
    assert len(notes) == 1 and f"CUDA_VISIBLE_DEVICES={value}: {word} names no card" in notes[0]


@pytest.mark.parametrize("value", ["", " ", "-1"])
def test_hiding_all_cards_is_no_mistake(value):
    assert visible(ALIKE, {"CUDA_VISIBLE_DEVICES": value}) == ((), [])


def test_without_the_variable_all_cards_are_there():
    assert visible(ALIKE, {}) == (tuple(ALIKE), [])
    assert visible(MIXED, {}) == (tuple(MIXED), [])
    assert visible([], {"CUDA_VISIBLE_DEVICES": "0"})[0] == ()


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("0,0", "names the card 0 twice.*shows none"),
        ("1,01", "names the card 01 twice"),
        ("GPU-b,GPU-b2", "names the card GPU-b2 twice"),
        ("GPU-a", "GPU-a is the beginning of 2 UUIDs"),
        ("GPU-", "beginning of 4 UUIDs"),
        ("MIG-1234", r"MIG-1234.*whole cards"),
    ],
)
def test_what_cannot_be_meant_is_refused(value, reason):
    with pytest.raises(TopologyError, match=reason):
        read(value)


def test_numbers_of_unlike_cards_need_a_known_order():
    for more in ({}, {"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}):
        with pytest.raises(TopologyError, match=r"L20, RTX PRO 6000.*CUDA_DEVICE_ORDER=PCI_BUS_ID, or give UUIDs"):
            read("0", MIXED, **more)
    assert read("2,0", MIXED, **PCI) == ([2, 0], [])
    assert read("GPU-b,GPU-aa", MIXED) == ([2, 0], [])
    assert read("-1", MIXED)[0] == []  # no number of a card


def test_torch_counts_the_cards_that_are_visible():
    assert [cuda_card(ALIKE, k, {}).index for k in range(4)] == [0, 1, 2, 3]
    shown = {"CUDA_VISIBLE_DEVICES": "GPU-b,GPU-aa"}
    cards, _ = visible(MIXED, shown)
    assert [cuda_card(cards, k, shown).index for k in (0, 1)] == [2, 0]
    with pytest.raises(TopologyError, match=r"cuda:2: CUDA counts .* there are 2"):
        cuda_card(cards, 2, shown)
    with pytest.raises(TopologyError, match=r"--device cuda:1 counts.*CUDA_DEVICE_ORDER"):
        cuda_card(MIXED, 1, {})
    assert cuda_card(MIXED, 1, PCI).index == 1
