import pickle

import numpy as np
import pyarrow as pa
import pytest
from support.slow import slow

from gnnplace.corpus import store
from gnnplace.graph import CONTROL, ComputationGraph, GraphError, Op, Output
from gnnplace.transformations.micro_batches import micro_batches


@pytest.fixture
def graph():
    ops = [
        Op("x", "Placeholder", (Output(8, (2,), "float32"), Output(0)), kernel=False),
        Op("név/w", "VariableV2", (Output(16, (2, 2), "float32"),), persistent_bytes=16, colocation="w", layer="név"),
        Op(
            "y", "MatMul", (Output(8, (2,), "float32", alias_of=(0, 0), is_result=True),), flops=8, bytes_accessed=32,
            workspace_bytes=3, time_ns={"gpu": 7, "cpu:0": 9}, allowed=("cpu", "gpu"), phase="forward", block=3, time_step=0,
            canonical_kind="matmul",
        ),
        Op("z", "NoOp"),
    ]  # fmt: skip
    return ComputationGraph.from_ops("small", ops, [(0, 0, 2), (1, 0, 2), (2, CONTROL, 3)])


def test_what_is_loaded_is_what_was_saved(graph, tmp_path):
    store.save(graph, tmp_path / "g.arrow")
    loaded = store.load(tmp_path / "g.arrow")
    assert loaded.name == "small" and loaded.sha256 == graph.sha256
    assert loaded.op_names == ("x", "név/w", "y", "z") and loaded.shape(0) == (2,) and loaded.shape(1) is None
    assert loaded.edge_src.tolist() == [0, 1, 2] and loaded.level.tolist() == [0, 0, 1, 2]
    assert not loaded.flops.flags.writeable


def test_one_op_without_outputs_or_edges(tmp_path):
    lonely = ComputationGraph.from_ops("lonely", [Op("a", "NoOp")], [])
    store.save(lonely, tmp_path / "g.arrow")
    assert store.load(tmp_path / "g.arrow").sha256 == lonely.sha256


def test_a_step_of_several_micro_batches_is_refused_with_the_graph_to_save(graph, tmp_path):
    step = micro_batches(graph, 3)
    with pytest.raises(ValueError, match=r"^micro_batches: the file of a graph holds one, and 'small' is a step of 3; save its `orig"):
        store.save(step, tmp_path / "g.arrow")
    assert not list(tmp_path.iterdir())
    store.save(step.original, tmp_path / "g.arrow")
    assert store.load(tmp_path / "g.arrow").sha256 == graph.sha256


def test_the_same_graph_gives_the_same_bytes_and_nothing_else_is_left(graph, tmp_path):
    for name in ("a.arrow", "b.arrow"):
        store.save(graph, tmp_path / name)
    assert (tmp_path / "a.arrow").read_bytes() == (tmp_path / "b.arrow").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.arrow", "b.arrow"]


@pytest.mark.slow
def test_a_large_graph_is_small(tmp_path, benchmark_graph):
    path = tmp_path / "g.arrow"
    store.save(benchmark_graph, path)
    assert path.stat().st_size < 3_000_000 and store.load(path).sha256 == benchmark_graph.sha256


@pytest.fixture
def benchmark_graph():
    """80,000 ops with names as TensorFlow gives them and 130,000 edges."""
    generator = np.random.default_rng(0)
    kinds = ("MatMul", "Add", "Mul", "Sigmoid", "Tanh", "ConcatV2", "Split", "Identity", "ReadVariableOp", "BiasAdd", "Sum")
    ops = []
    for i in range(80_000):
        kind, width = kinds[generator.integers(len(kinds))], int(generator.integers(1, 65)) * 16
        scope = f"{'gradients/' if i > 40_000 else ''}decoder/rnn/multi_rnn_cell/cell_{i // 50 % 8}/basic_lstm_cell/step_{i // 400 % 40}"
        output = Output(256 * width, (64, width), "float32")
        ops.append(Op(f"{scope}/{kind}_{i}", kind, (output,), flops=width * 1024, layer=scope, block=i // 50 % 8, phase="forward"))
    dst = generator.integers(1, 80_000, size=150_000)
    src = np.maximum(0, dst - 1 - generator.geometric(0.01, size=150_000))
    distinct = np.unique(np.stack([src, np.zeros_like(src), dst], axis=1), axis=0)
    edges = generator.permutation(distinct)[:130_000]
    assert len(edges) == 130_000
    return ComputationGraph.from_ops("large", ops, [tuple(edge) for edge in edges.tolist()])


def rewritten(graph, path, change):
    """The file of `graph` after `change` was applied to its columns (a dict of lists)."""
    store.save(graph, path)
    table = pa.ipc.open_file(path).read_all()
    columns = {name: table.column(name)[0].as_py() for name in table.column_names}
    metadata = {key.decode(): value.decode() for key, value in table.schema.metadata.items()}
    change(columns, metadata)
    fields = [field for field in table.schema.remove_metadata() if field.name in columns]
    schema = pa.schema(fields, metadata=metadata)
    batch = pa.record_batch([pa.array([columns[field.name]], type=field.type) for field in schema], schema=schema)
    with pa.ipc.new_file(path, schema) as writer:
        writer.write_batch(batch)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda columns, metadata: columns["flops"].append(1), "flops: 5 entries where 4 are due"),
        (lambda columns, metadata: columns.update({"kind.index": [0, 1, 2, 9]}), r"kind.index\[3\]: 9 is not between -1 and 3"),
        (lambda columns, metadata: columns.update({"edge_dst": [2, 2, 4]}), r"edge_dst\[2\]: 4 is not between 0 and 3"),
        (lambda columns, metadata: columns.update({"edge_src": [1, 0, 2]}), "edges: not sorted and distinct"),
        (lambda columns, metadata: columns.update({"output_ptr": [0, 5, 3, 4, 4]}), "output_ptr: does not rise from 0 to 4"),
        (lambda columns, metadata: columns.update({"output_rank": [1, -1, 2, 2]}), "output_dims: 4 entries where 5 are due"),
        (lambda columns, metadata: columns["given_keys"].append("tpu"), "given_time_ns: 8 values for 4 ops and 3 keys"),
        (lambda columns, metadata: columns.update({"output_alias": [-1, -1, -1, 7]}), r"output_alias\[3\]: 7 is not between -1 and 3"),
        (lambda columns, metadata: columns.update({"flops": [0, 0, -1, 0]}), r"ops\[2\].flops: -1 is not between 0 and"),
        (lambda columns, metadata: columns.update({"op_names": ["x", "x", "y", "z"]}), r"ops\[1\].name: 'x' is not unique"),
        (lambda columns, metadata: columns.update({"flops": [0, 0, None, 0]}), "without nulls"),
        (lambda columns, metadata: columns.pop("block"), "schema: the columns are not those of a graph"),
        (lambda columns, metadata: metadata.update(version="2"), "version: '2' is not '1'"),
        (lambda columns, metadata: metadata.pop("format"), "format: None is not 'gnnplace.graph.arrow'"),
        (lambda columns, metadata: metadata.update(author="me"), "metadata: author, format, name, version are not"),
    ],
)
def test_a_changed_file_is_refused_in_one_line(graph, tmp_path, change, message):
    path = tmp_path / "g.arrow"
    rewritten(graph, path, change)
    with pytest.raises(ValueError, match=message) as caught:
        store.load(path)
    assert str(caught.value).startswith(f"{path}: ") and "\n" not in str(caught.value)


def test_a_pickled_graph_can_be_written_to_no_more_than_before(graph):
    again = pickle.loads(pickle.dumps(graph))
    assert again.sha256 == graph.sha256
    for array in (again.flops, again.edge_src, again.layer.index, again.order, again.level):
        with pytest.raises(ValueError, match="read-only"):
            array[:] = 0


@pytest.mark.parametrize("tries", [100, slow(3000)])
def test_damaged_bytes_are_refused_and_never_crash(graph, tmp_path, tries):
    path = tmp_path / "g.arrow"
    store.save(graph, path)
    data = path.read_bytes()
    generator = np.random.default_rng(1)
    for _ in range(tries):
        damaged = bytearray(data)
        damaged[int(generator.integers(len(data)))] ^= 1 << int(generator.integers(8))
        path.write_bytes(damaged[: int(generator.integers(1, len(data) + 1))] if generator.random() < 0.3 else damaged)
        try:
            loaded = store.load(path)
        except ValueError as error:
            assert "\n" not in str(error)
        else:
            assert isinstance(loaded, ComputationGraph)


def test_a_cycle_in_a_file_is_refused(graph, tmp_path):
    path = tmp_path / "g.arrow"
    rewritten(graph, path, lambda columns, metadata: columns.update(edge_src=[0, 1, 3], edge_dst=[2, 2, 3]))
    with pytest.raises(ValueError, match=r"ops\[3\] \('z'\): lies on or behind a cycle"):
        store.load(path)


def test_a_missing_file_is_an_os_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        store.load(tmp_path / "none.arrow")


def test_graph_errors_are_value_errors():
    assert issubclass(GraphError, ValueError)
