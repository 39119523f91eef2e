import json
from contextlib import suppress
from dataclasses import replace
from itertools import permutations
from multiprocessing import get_context
from threading import BrokenBarrierError

import pytest

from gnnplace.cluster import Cluster
from gnnplace.corpus import clusters, manifest, store
from gnnplace.graph import ComputationGraph, Op, Output

ABOUT = {
    "family": "toy", "lineage": "toy", "split": "train", "mode": "training",
    "source": "written by hand", "licence": "Apache-2.0", "builder": "tests", "builder_version": "tests 1",
}  # fmt: skip


def chain(name, length):
    ops = [Op(f"op{index}", "Add", (Output(4),)) for index in range(length)]
    return ComputationGraph.from_ops(name, ops, [(index, 0, index + 1) for index in range(length - 1)])


@pytest.fixture
def datasets(tmp_path, monkeypatch):
    monkeypatch.setenv("GNNPLACE_DATASETS", str(tmp_path))
    return tmp_path


def test_an_empty_corpus_has_no_names(datasets):
    assert manifest.names() == ()
    with pytest.raises(ValueError, match="'nmt' is no graph of the corpus"):
        manifest.graph("nmt")


def test_what_is_added_is_found(datasets):
    entry = manifest.add(chain("b", 3), **ABOUT)
    manifest.add(chain("a", 2), **ABOUT)
    assert manifest.names() == ("a", "b")
    assert (entry.ops, entry.edges, entry.sha256) == (3, 2, chain("b", 3).sha256)
    assert manifest.graph("b").op_names == ("op0", "op1", "op2")
    assert manifest.entry("b") == entry
    assert sorted(path.name for path in datasets.rglob("*")) == ["a.arrow", "b.arrow", "graphs", "manifest.json"]


def test_adding_again_replaces(datasets):
    for length in (2, 4):
        manifest.add(chain("a", length), **ABOUT)
    assert manifest.names() == ("a",) and manifest.graph("a").num_ops == 4


def test_an_unknown_name_lists_those_that_there_are(datasets):
    for name in ("nmt-2", "rnnlm"):
        manifest.add(chain(name, 2), **ABOUT)
    with pytest.raises(ValueError, match=r"'nmt2' is no graph of the corpus .*; nearest is 'nmt-2'; choose from nmt-2, rnnlm"):
        manifest.graph("nmt2")


def test_a_sibling_in_another_part_of_the_split_is_refused_and_nothing_is_written(datasets):
    manifest.add(chain("a", 2), **ABOUT)
    with pytest.raises(ValueError, match="'b': split is 'test', but 'a' of the same lineage 'toy' is in 'train'"):
        manifest.add(chain("b", 2), **ABOUT | {"split": "test"})
    assert manifest.names() == ("a",) and not (datasets / "graphs" / "b.arrow").exists()
    path = datasets / "manifest.json"
    manifest.add(chain("b", 2), **ABOUT)
    path.write_text(path.read_text().replace('"split": "train"', '"split": "test"', 1))
    with pytest.raises(ValueError, match=r"manifest\.json: 'b': split is 'train', but 'a' of the same lineage 'toy' is in 'test'"):
        manifest.names()


def test_a_file_that_is_not_the_manifests_is_refused(datasets):
    manifest.add(chain("a", 2), **ABOUT)
    store.save(replace(chain("a", 2), name="other"), datasets / "graphs" / "a.arrow")
    with pytest.raises(ValueError, match=r"a\.arrow: sha256 [0-9a-f]{64} is not the manifest's [0-9a-f]{64}; rebuild it with tests"):
        manifest.graph("a")


@pytest.mark.parametrize(("key", "value"), [("split", "held-out"), ("mode", "both"), ("licence", ""), ("family", "")])
def test_a_bad_entry_is_not_added(datasets, key, value):
    with pytest.raises(ValueError, match=f"^{key}: [^\n]*$"):
        manifest.add(chain("a", 2), **ABOUT | {key: value})
    assert list(datasets.iterdir()) == []


@pytest.mark.parametrize("name", ["../a", "a/b", "", ".a", "a b"])
def test_a_name_that_could_be_a_path_is_not_added(datasets, name):
    with pytest.raises(ValueError, match="name"):
        manifest.add(chain(name, 2), **ABOUT)


def test_a_bad_manifest_is_refused_at_its_place(datasets):
    manifest.add(chain("a", 2), **ABOUT)
    path = datasets / "manifest.json"
    document = json.loads(path.read_text())
    for change, message in (
        ({"graphs": [document["graphs"][0] | {"sha256": "0"}]}, r"manifest\.json: graphs\[0\]\.sha256: '0'"),
        ({"graphs": document["graphs"] * 2}, r"manifest\.json: graphs\[1\]\.name: 'a' is not unique"),
        ({"version": 2}, r"manifest\.json: version: 2 is not known"),
    ):
        path.write_text(json.dumps(document | change))
        with pytest.raises(ValueError, match=message):
            manifest.names()


def test_the_presets_are_those_of_the_formats_and_fully_linked():
    assert clusters.names() == (
        "a100-4", "cpu-2", "flex170-1", "h100-8", "h200-8", "k40-2", "k40-4", "k40-8", "mixed-4", "p100-8", "rtx4090-2", "v100-8",
    )  # fmt: skip
    for name in clusters.names():
        preset = clusters.cluster(name)
        assert isinstance(preset, Cluster) and preset.name == name and preset.device_names[0] == "cpu:0"
        assert {(link.src, link.dst) for link in preset.links} == set(permutations(preset.device_names, 2))
        kinds = [device.kind for device in preset.devices]
        assert kinds == (["cpu", "cpu"] if name == "cpu-2" else ["cpu"] + ["gpu"] * int(name[-1]))


def test_the_figures_of_the_k40():
    card = clusters.cluster("k40-2").devices[1]
    assert (card.rate("float32"), card.rate("float64")) == (4_290 * 10**9, 1_430 * 10**9)
    assert (card.memory_bytes_per_s, card.launch_ns) == (288 * 10**9, 5000)
    assert 11 * 2**30 < card.memory_bytes < 11.25 * 2**30


def test_a_v100_has_six_nvlinks():
    preset = clusters.cluster("v100-8")
    for device in preset.device_names[1:]:
        rates = [link.bandwidth_bytes_per_s for link in preset.links if link.src == device]
        assert sum(rate // (25 * 10**9) for rate in rates) == 6


def test_mixed_has_two_slow_and_two_fast_gpus_and_unequal_links():
    preset = clusters.cluster("mixed-4")
    assert [device.rate("float32") for device in preset.devices[1:]] == [4_290 * 10**9] * 2 + [15_700 * 10**9] * 2
    assert len({link.bandwidth_bytes_per_s for link in preset.links}) == 5


def test_clusters_keep_the_names_of_old_that_placements_and_results_hold():
    assert clusters.cluster("k40-2").sha256 == "2bc440daeea610e7022b8c6c95323e07625ba111acdcaf43d33405935fc9646a"
    cpu = clusters.cluster("cpu-2")
    assert cpu.sha256 == "2c00c7d1e7ce9b628e83516f3a63dfa215007cd3b6b39942a4abe294e7f407bb"
    shared = replace(cpu, devices=tuple(replace(device, memory="host") for device in cpu.devices))
    received = replace(cpu, links=tuple(replace(link, receive_channel=link.dst) for link in cpu.links))
    assert len({cpu.sha256, shared.sha256, received.sha256}) == 3


def test_what_several_processes_add_at_once_is_all_there(datasets, monkeypatch):
    entries, together = manifest.entries, get_context("fork").Barrier(4, timeout=1)

    def slowly():
        found = entries()
        with suppress(BrokenBarrierError):
            together.wait()  # all have read before any writes, unless they wait for each other
        return found

    monkeypatch.setattr(manifest, "entries", slowly)
    processes = [get_context("fork").Process(target=manifest.add, args=(chain(f"g{number}", 2),), kwargs=ABOUT) for number in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert sorted(entry.name for entry in entries()) == ["g0", "g1", "g2", "g3"]
    assert sorted(path.name for path in datasets.iterdir()) == ["graphs", "manifest.json"]


def test_a_graph_whose_entry_can_not_be_written_is_not_left(datasets, monkeypatch):
    def full(path, text):
        raise OSError(28, "No space left on device", str(path))

    manifest.add(chain("a", 2), **ABOUT)
    monkeypatch.setattr(manifest.atomic, "write_text", full)
    with pytest.raises(OSError, match="No space"):
        manifest.add(chain("b", 2), **ABOUT)
    assert sorted(path.name for path in datasets.rglob("*")) == ["a.arrow", "graphs", "manifest.json"]


def test_a_name_that_is_taken_may_be_refused(datasets):
    manifest.add(chain("a", 2), **ABOUT)
    with pytest.raises(ValueError, match="'a' is in the corpus already"):
        manifest.add(chain("a", 3), **ABOUT, replaces=False)
    assert manifest.graph("a").num_ops == 2
