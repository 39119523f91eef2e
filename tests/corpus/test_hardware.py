"""The table of hardware: it is consistent, and what is known of some cards by heart."""

import doctest

import pytest

from gnnplace import complaints
from gnnplace.corpus import assembly, cluster_text, hardware
from gnnplace.corpus.hardware import connection, part, plain
from gnnplace.sources import graphs

DEVICES, LINKS = hardware.hardware().devices, hardware.hardware().links


@pytest.mark.parametrize("module", [hardware, cluster_text, graphs, complaints])
def test_examples_of_docstrings_run(module) -> None:
    found = doctest.testmod(module)
    assert found.attempted and not found.failed


@pytest.mark.parametrize(
    ("name", "gflops", "gigabytes_per_s", "memory_gb"),
    [
        ("a100-sxm-80", (19_500, 156_000, 312_000), 2_039, 80),
        ("a100-sxm-40", (19_500, 156_000, 312_000), 1_555, 40),
        ("h100-sxm", (67_000, 494_000, 989_000), 3_350, 80),
        ("h200-sxm", (67_000, 494_000, 989_000), 4_800, 141),
        ("b200", (75_000, 1_100_000, 2_250_000), 8_000, 180),
        ("l4", (30_300, 60_000, 121_000), 300, 24),
        ("l40s", (91_600, 183_000, 362_000), 864, 48),
        ("t4", (8_100, None, 8_100), 320, 16),
        ("rtx-3090", (35_600, 35_600, 71_000), 936, 24),
        ("rtx-4090", (82_600, 82_600, 165_200), 1_008, 24),
        ("rtx-5090", (104_800, 104_800, 209_500), 1_792, 32),
        ("mi300x", (163_400, 653_700, 1_307_400), 5_300, 192),
    ],
)
def test_published_peaks(name: str, gflops: tuple[int, int | None, int], gigabytes_per_s: int, memory_gb: int) -> None:
    row = part(name)
    assert (row.gflops_per_s["float32"], row.tf32_gflops_per_s, row.gflops_per_s["bfloat16"]) == gflops
    assert (row.gigabytes_per_s, row.memory_gb, row.rates) == (gigabytes_per_s, memory_gb, "published")


def test_names_are_told_apart_however_they_are_spelt() -> None:
    for rows in (DEVICES, LINKS):
        assert len({plain(row.name) for row in rows}) == len(rows)
    reported = [name for row in DEVICES for name in row.reported]
    assert len(set(reported)) == len(reported) and all(hardware.reported(name) is not None for name in reported)
    assert not {plain(row.name) for row in DEVICES} & {plain(row.name) for row in LINKS}


def test_rows_refer_to_links_of_their_role() -> None:
    for row in DEVICES:
        assert row.host is None or connection(row.host).role == "host"
        assert row.peer is None or connection(row.peer.link).role == "peer"
    assert {link.name for link in LINKS if link.role == "peer"} == {row.peer.link for row in DEVICES if row.peer}


def test_no_rate_is_below_that_of_a_wider_dtype_and_no_memory_above_its_label() -> None:
    for row in DEVICES:
        rates = row.gflops_per_s
        assert row.usable_mib <= row.memory_gb * 1024 and row.source
        assert rates.get("float64", 1) <= rates.get("float32", 1) or row.kind == "tpu"
        assert row.kind == "tpu" or all(rates["float32"] <= rates.get(dtype, rates["float32"]) for dtype in ("float16", "bfloat16"))
        assert row.tf32_gflops_per_s is None or rates["float32"] <= row.tf32_gflops_per_s <= rates["bfloat16"]


def test_what_is_assumed_of_a_link_is_less_than_its_peak() -> None:
    for link in LINKS:
        assert (link.gigabytes_per_s is None) == (link.role == "peer")
        assert (link.published_gigabytes_per_s is not None) == (link.rates == "assumed")
        assert link.rates != "assumed" or link.gigabytes_per_s < link.published_gigabytes_per_s


def test_an_unknown_device_names_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"^'rtx-4900' is no device of the table; nearest is 'rtx-4090'; there are \d+"):
        part("rtx-4900")
    assert assembly.through_host(connection("pcie3").wire, connection("pcie5").wire).bandwidth_bytes_per_s == 6 * 10**9
