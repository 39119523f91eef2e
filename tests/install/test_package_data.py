"""Where configurations and corpus are found, and what an installed package does not let its corpus be used for."""

import shutil

import pytest
from support.fork_on_pair import run

from gnnplace import package_data
from gnnplace.corpus import manifest
from gnnplace.graph import ComputationGraph, Op, Output
from gnnplace.sources import workload

ABOUT = {"family": "toy", "lineage": "toy", "split": "test", "mode": "training", "source": "written by hand", "licence": "Apache-2.0"}


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """The data of an installed package, with the manifest of the checkout's corpus."""
    checkout = package_data.CHECKOUT / "datasets"
    data = tmp_path / "site-packages" / "gnnplace" / "data"
    (data / "datasets").mkdir(parents=True)
    shutil.copy(checkout / "manifest.json", data / "datasets")
    monkeypatch.setattr(package_data, "INSTALLED", data)
    monkeypatch.delenv("GNNPLACE_DATASETS", raising=False)
    return data


def test_a_checkout_has_its_data_beside_the_package(monkeypatch):
    monkeypatch.delenv("GNNPLACE_DATASETS", raising=False)
    assert (package_data.folder("configs") / "hierarchical" / "tuned.yaml").is_file()
    assert manifest.folder() == package_data.CHECKOUT / "datasets" and not manifest.installed()


def test_an_installed_package_has_its_data_inside(installed):
    assert package_data.folder("configs") == installed / "configs"
    assert manifest.folder() == installed / "datasets" and manifest.installed()
    assert manifest.entry("nmt-2").ops > 10_000


def test_nothing_is_added_to_the_corpus_of_an_installed_package(installed, tmp_path, monkeypatch, capsys):
    before = {path: path.read_bytes() for path in installed.rglob("*") if path.is_file()}
    with pytest.raises(ValueError, match=r"datasets: the corpus of an installed package is not changed; add to a copy of it: cp -r "):
        manifest.add(_graph(), **ABOUT, builder="tests", builder_version="tests 1")
    options = [word for key, value in ABOUT.items() for word in (f"--{key}", value)]
    status, out, err = run(capsys, "graphs", "import", "no-such-file.json", *options)  # refused before the file is read
    assert (status, out, err.count("\n")) == (4, "", 1) and "the corpus of an installed package is not changed" in err
    assert {path: path.read_bytes() for path in installed.rglob("*") if path.is_file()} == before


def test_a_graph_is_added_to_the_copy_that_the_refusal_advises(installed, tmp_path, monkeypatch):
    copy = tmp_path / "my-datasets"
    shutil.copytree(manifest.folder(), copy)
    monkeypatch.setenv("GNNPLACE_DATASETS", str(copy))
    manifest.add(_graph(), **ABOUT, builder="tests", builder_version="tests 1")
    assert manifest.graph("single").num_ops == 1 and "nmt-2" in manifest.names()
    assert not (installed / "datasets" / "graphs").exists()


def test_a_network_of_the_corpus_needs_the_scripts_of_a_checkout(installed):
    expected = r"nmt-2: a script builds its network \(python -m datasets\.build_\S+.*\), which an installed package does not hold; set GNN"
    with pytest.raises(ValueError, match=expected):
        workload.load("nmt-2", seed=0)


def _graph():
    return ComputationGraph.from_ops("single", [Op("op", "Add", (Output(4),))], [])
