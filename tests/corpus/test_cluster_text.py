"""Machines in a line of text: every text of table entries gives the cluster that it says, any other gives one line."""

from itertools import combinations, permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnplace.cluster import Cluster
from gnnplace.corpus import clusters, hardware
from gnnplace.corpus.cluster_text import HOST, MOST_DEVICES, described_cluster, description
from gnnplace.formats.clusters import cluster_document, cluster_of

TABLE = hardware.hardware()
ACCELERATORS = [row for row in TABLE.devices if row.kind != "cpu"]
HOSTS = [row for row in TABLE.devices if row.kind == "cpu"]
SLOTS = [link for link in TABLE.links if link.role == "host"]
NETWORKS = [link for link in TABLE.links if link.role == "network"]
GIGA = 10**9


def rate(cluster: Cluster, src: str, dst: str) -> tuple[float, int]:
    """GB/s and latency of a link."""
    (link,) = [link for link in cluster.links if (link.src, link.dst) == (src, dst)]
    return link.bandwidth_bytes_per_s / GIGA, link.latency_ns


def spelt(draw: st.DrawFn, name: str) -> str:
    """A name in another spelling."""
    return draw(st.sampled_from([name, name.upper(), name.replace("-", " "), name.replace("-", "")]))


@settings(max_examples=25)
@given(st.data())
def test_a_text_of_table_entries_is_the_cluster_that_it_says(data: st.DataObject) -> None:
    terms = data.draw(st.lists(st.tuples(st.integers(1, 3), st.sampled_from(ACCELERATORS)), min_size=1, max_size=2))
    host, nodes = data.draw(st.sampled_from([None, *HOSTS])), data.draw(st.integers(1, 2))
    slot, network = data.draw(st.sampled_from(SLOTS)), data.draw(st.sampled_from(NETWORKS))
    devices = [f"{count} x {spelt(data.draw, row.name)}" if count > 1 else spelt(data.draw, row.name) for count, row in terms]
    words = [" + ".join([*devices, *([host.name] if host else [])]), slot.name, *([network.name] if nodes > 1 else [])]
    text = (f"{nodes} nodes of " if nodes > 1 else "") + data.draw(st.sampled_from([", ", ",", " , "])).join(words)
    cluster = described_cluster(text)
    parts = [row for count, row in terms for _ in range(count)] * nodes
    assert [device.kind for device in cluster.devices] == ["cpu"] * nodes + [row.kind for row in parts]
    assert cluster.devices[0] == (host or hardware.part(HOST)).device("cpu:0")
    for device, row in zip(cluster.devices[nodes:], parts, strict=True):
        assert device == row.device(device.name)
    assert {(link.src, link.dst) for link in cluster.links} == set(permutations(cluster.device_names, 2))
    assert rate(cluster, "cpu:0", cluster.device_names[nodes])[0] == slot.gigabytes_per_s
    assert cluster_of(cluster_document(cluster)) == cluster and described_cluster(cluster.name) == cluster


WORDS = ("2x", "l4", "rtx-4090", "+", ",", "pcie4", "nvlink4", "nodes of", "haswell", "tf32", "0x", "9" * 8, "\n", "ici")


@settings(max_examples=60)
@given(st.text(max_size=40) | st.lists(st.sampled_from(WORDS), max_size=9).map(" ".join))
def test_any_text_is_a_cluster_or_one_line(text: str) -> None:
    try:
        assert 2 <= clusters.cluster(text).num_devices <= MOST_DEVICES or text in clusters.names()
    except ValueError as refused:
        assert "\n" not in str(refused) and 0 < len(str(refused)) < 400 + 2 * len(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("2x rtx-4900, pcie4", "'rtx-4900' is no device of the table; nearest is 'rtx-4090'"),
        ("2x l4, pcie6", "'pcie6' is no link of the table; nearest is 'pcie"),
        ("2x rtx-4090, l4", "'l4' is a device where a link is due: a '+' joins devices"),
        ("2x rtx-4090 ", "names no link; add one, such as ', pcie4'"),
        ("l4, pcie4, pcie5", "pcie4 and pcie5 both join hosts and devices; name one"),
        ("2x l4, nvlink4", "'nvlink4' joins no two devices here: 2x l4 (no direct link)"),
        ("h100-sxm, nvlink4", "'nvlink4' joins no two devices here: 1x h100-sxm (nvlink4)"),
        ("2x h100-sxm, nvlink3", "'nvlink3' joins no two devices here: 2x h100-sxm (nvlink4)"),
        ("4x tpu-v4, ici", "the table has none for tpu-v4; add one, such as ', pcie4'"),
        ("l4, pcie4, infiniband-ndr", "'infiniband-ndr' joins nodes, and there is one; begin with '2 nodes of'"),
        ("2 nodes of l4, pcie4", "names no link between the 2 nodes"),
        ("0x l4, pcie4", "0 is not between 1 and 128"),
        ("999999999x l4, pcie4", "999999999 is not between 1 and 128"),
        ("128x l4, pcie4", "129 devices, hosts included; at most 128"),
        ("64 nodes of 2x l4, pcie4, ethernet-10", "192 devices"),
        ("haswell, pcie3", "names no accelerator, only a host"),
        ("l4 + haswell + alder-lake, pcie4", "haswell + alder-lake: a node has one host"),
        ("l4 + 2x haswell, pcie4", "2x haswell: a node has one host"),
        ("l4 +, pcie4", "a device is missing"),
        ("l4, , pcie4", "a link is missing after a comma"),
        ("t4, pcie3, tf32", "'tf32': t4 has no such rate"),
        ("l4, pcie4, tf32, tf32", "'tf32' stands there twice"),
        ("l4," + "x" * 2000, "longer than the 1000 characters"),
    ],
)
def test_a_wrong_text_names_value_and_rule(text: str, message: str) -> None:
    with pytest.raises(ValueError) as refused:
        clusters.cluster(text)
    assert message in str(refused.value) and str(refused.value).startswith(("'", '"'))


def test_cards_without_a_direct_link_copy_through_the_host() -> None:
    cluster = described_cluster("2x rtx-4090 + l4, pcie4")
    assert rate(cluster, "cpu:0", "gpu:2") == rate(cluster, "gpu:0", "cpu:0") == (25, 5_000)
    assert rate(cluster, "gpu:0", "gpu:1") == rate(cluster, "gpu:2", "gpu:0") == (12.5, 10_000)


def test_a_named_direct_link_has_the_rate_of_a_pair_and_the_slot_is_the_cards_own() -> None:
    cluster = described_cluster("8x h100-sxm, nvlink4")
    assert {rate(cluster, f"gpu:{a}", f"gpu:{b}") for a, b in permutations(range(8), 2)} == {(450, 5_000)}
    assert rate(cluster, "cpu:0", "gpu:7") == (50, 5_000)


def test_a_bridge_joins_two_by_two_and_unlike_cards_not_at_all() -> None:
    cluster = described_cluster("4x a100-pcie-80 + a100-pcie-40, nvlink3")
    fast = {pair for pair in combinations(range(5), 2) if rate(cluster, f"gpu:{pair[0]}", f"gpu:{pair[1]}") == (300, 5_000)}
    assert fast == {(0, 1), (2, 3)}


def test_nodes_are_joined_by_one_engine_each() -> None:
    cluster = described_cluster("2 nodes of 2x h100-sxm, nvlink4, infiniband-ndr")
    assert cluster.device_names == ("cpu:0", "cpu:1", "gpu:0", "gpu:1", "gpu:2", "gpu:3")
    assert rate(cluster, "gpu:1", "gpu:2") == rate(cluster, "cpu:0", "gpu:3") == (50, 3_000)
    assert rate(cluster, "gpu:2", "gpu:3") == (450, 5_000) and rate(cluster, "cpu:1", "gpu:2") == (50, 5_000)
    sent = {link.channel for link in cluster.links if link.src in ("cpu:0", "gpu:0", "gpu:1") and link.dst in ("cpu:1", "gpu:2", "gpu:3")}
    assert sent == {"network:0"}


def test_tf32_is_a_rate_of_float32_alone() -> None:
    plain, fast = (described_cluster(f"a100-sxm-80, pcie4{more}").devices[1] for more in ("", ", tf32"))
    assert (plain.rate("float32"), fast.rate("float32")) == (19_500 * GIGA, 156_000 * GIGA)
    assert plain.rate("bfloat16") == fast.rate("bfloat16")


def test_a_machine_is_called_the_same_however_it_is_spelt() -> None:
    assert description("RTX 4090 + L4, PCIe4") == description("rtx-4090+l4,pcie-4")
    assert described_cluster("RTX 4090 + L4, PCIe4").sha256 == described_cluster("rtx-4090 + l4 + epyc-milan,pcie4").sha256


def test_the_presets_of_todays_nodes_are_texts() -> None:
    for name, text in (("h100-8", "8x h100-sxm + sapphire-rapids, nvlink4"), ("rtx4090-2", "2x rtx-4090 + raptor-lake, pcie4"),
                       ("a100-4", "4x a100-sxm-80 + epyc-milan, nvlink3")):  # fmt: skip
        assert described_cluster(text, name) == clusters.cluster(name)
