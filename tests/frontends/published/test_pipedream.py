"""PipeDream's profiles: a small one by hand, as inference and as training, and bad ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from gnnplace.frontends.published import pipedream
from gnnplace.frontends.published.pipedream import read_pipedream
from gnnplace.graph import ComputationGraph

COSTS = "forward_compute_time=1.500, backward_compute_time=2.250, activation_size=4096.0, parameter_size=7168.000"
FREE = "forward_compute_time=0.000, backward_compute_time=0.000, activation_size=16.0, parameter_size=0.000"
LIST = "forward_compute_time=0.001, backward_compute_time=1e-3, activation_size=[32.0; 8.0], parameter_size=0"
PROFILE = f"""input -- Input0 -- {FREE}
node1 -- Conv2d(3, 64, kernel_size=(3, 3)) -- {COSTS}
node2 -- Add(inplace) -- {LIST} -- stage_id=1
\tinput -- node1
\tnode1 -- node2
\tinput -- node2
"""


def read(text: str, mode: str = "training") -> ComputationGraph:
    return read_pipedream(text.encode(), name="small", mode=mode)


def edges(graph: ComputationGraph) -> set[tuple[str, int, str]]:
    columns = zip(graph.edge_src.tolist(), graph.edge_output.tolist(), graph.edge_dst.tolist(), strict=True)
    return {(graph.op_names[source], output, graph.op_names[target]) for source, output, target in columns}


FORWARD = {("input", 0, "node1"), ("node1", 0, "node2"), ("input", 0, "node2")}


def test_inference_is_a_node_an_op() -> None:
    graph = read(PROFILE, "inference")
    assert (graph.name, graph.op_names) == ("small", ("input", "node1", "node2"))
    assert [graph.kind[op] for op in range(3)] == ["Input0", "Conv2d", "Add"]
    assert graph.given_keys == ("gpu",)
    assert graph.given_time_ns[:, 0].tolist() == [0, 1_500_000, 1000]
    assert graph.kernel.tolist() == [False, True, True]
    assert graph.output_bytes.tolist() == [16, 4096, 40]
    assert graph.persistent_bytes.tolist() == [0, 7168, 0]
    assert set(graph.phase.values) == {"forward"}
    assert edges(graph) == FORWARD


def test_training_runs_every_node_backwards() -> None:
    graph = read(PROFILE)
    assert graph.op_names[3:] == ("input/backward", "node1/backward", "node2/backward")
    assert graph.given_time_ns[3:, 0].tolist() == [0, 2_250_000, 1000]
    assert [graph.phase[op] for op in range(6)] == ["forward"] * 3 + ["backward_data"] * 3
    assert [graph.colocation[op] for op in range(6)] == ["input", "node1", "node2"] * 2
    assert graph.persistent_bytes.sum() == 7168


def test_gradients_have_the_size_of_activations() -> None:
    graph = read(PROFILE)
    activations = {
        ("input", 0, "input/backward"), ("node1", 0, "node1/backward"), ("node2", 0, "node2/backward"),
        ("input", 0, "node1/backward"), ("node1", 0, "node2/backward"), ("input", 0, "node2/backward"),
    }  # fmt: skip
    gradients = {("node1/backward", 0, "input/backward"), ("node2/backward", 0, "node1/backward"), ("node2/backward", 1, "input/backward")}
    assert edges(graph) == FORWARD | activations | gradients
    assert graph.output_bytes[3:].tolist() == [16, 4096, 16]  # of node1's input; of node2's two


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ("", "ops: a graph has at least one op"),
        ("node1 -- Conv2d\n", "line 1: 'node1 -- Conv2d': expected a node"),
        (f"a -- B -- {COSTS} -- stage=1\n", "line 1: 'a -- B -- forward"),
        (f"a -- B -- {COSTS}\na -- B -- {COSTS}\n", "line 2: node 'a' is not unique"),
        (f"a -- B -- {COSTS}\n\ta -- b\n", "line 2: 'b' is no node of the profile"),
        (f"a -- B -- {COSTS}\n\ta\n", "line 2: 'a': expected an edge"),
        (f"a -- B -- {COSTS.replace('1.500', '-1.5')}\n", "line 1: forward_compute_time: '-1.5' is no number from 0 to"),
        (f"a -- B -- {COSTS.replace('2.250', '1e300')}\n", "line 1: backward_compute_time: '1e300' is no number"),
        (f"a -- B -- {COSTS.replace('4096.0', '[1.0; 1e99]')}\n", "line 1: activation_size: '1e99' is no number"),
        (f"a -- B -- {COSTS.replace('7168.000', '1.2.3')}\n", "line 1: parameter_size: '1.2.3' is no number"),
        (f"a -- B -- {COSTS.replace('7168.000', 'nan')}\n", "line 1: 'a -- B"),
        (f"a -- B -- {COSTS}\nb -- B -- {COSTS}\n\ta -- b\n\tb -- a\n", "('a'): lies on or behind a cycle"),
        (f"a -- B -- {COSTS}\n\ta -- a\n", "('a'): lies on or behind a cycle"),
    ],
)
def test_bad_profiles_are_refused_with_their_line(bad: str, said: str) -> None:
    for mode in ("inference", "training"):
        with pytest.raises(ValueError) as raised:
            read(bad, mode)
        assert said in str(raised.value)
        assert "\n" not in str(raised.value)


def test_what_is_no_text_and_what_is_too_long_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "profile.txt").write_bytes(PROFILE.encode() + b"\xff")
    with pytest.raises(ValueError, match=rf"profile\.txt: byte {len(PROFILE)}: not UTF-8"):
        read_pipedream(tmp_path / "profile.txt", name="p", mode="training")
    monkeypatch.setattr(pipedream, "MAX_DOCUMENT_BYTES", 100)
    with pytest.raises(ValueError, match=r"profile\.txt: longer than the 100 bytes"):
        read_pipedream(tmp_path / "profile.txt", name="p", mode="training")
