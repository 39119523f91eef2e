"""A reader of a file format of your own: here text with one layer a line, `NAME KIND INPUTS SHAPE FLOPS WEIGHT_BYTES`.

A reader of the package is a folder in gnnplace/frontends/ and one line in the table `ENDINGS` of gnnplace/sources/graphs.py.
"""

import math
import tempfile
from pathlib import Path

import gnnplace as gp
from gnnplace.formats.strict_json import shown
from gnnplace.isolation import regular_file
from gnnplace.sources import graphs
from gnnplace.sources.graphs import Form, Reading

FLOAT32_BYTES, MOST_BYTES, MOST_DIGITS = 4, 2**24, 18
FIELDS = ("name", "kind", "inputs", "shape", "flops", "weight_bytes")
# the kinds that all front-ends share (gnnplace/graph.py: CANONICAL_KINDS); a kind that is not in the table is "other"
CANONICAL = {"input": "input", "dense": "matmul", "relu": "activation", "softmax": "softmax"}
EXAMPLE = """\
x       input   -       64x1024 0         0
up      dense   x       64x4096 536870912 16777216
act     relu    up      64x4096 262144    0
left    dense   act     64x1024 536870912 16777216
right   dense   act     64x1024 536870912 16777216
sum     add     left,right 64x1024 65536  0
out     softmax sum     64x1024 327680    0
"""


def read_layers(path: str) -> gp.ComputationGraph:
    """The graph of a forward pass. Raises ValueError (one line: path, place, value, rule) for a file that breaks a rule."""
    try:
        return _graph(regular_file.read(path, MOST_BYTES).decode(), Path(path).stem)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _graph(text: str, name: str) -> gp.ComputationGraph:
    lines = [line.split() for line in text.splitlines()]
    for number, fields in enumerate(lines, 1):
        if len(fields) != len(FIELDS):
            raise ValueError(f"line {number}: {len(fields)} fields; {len(FIELDS)} are due: {' '.join(FIELDS)}")
    index: dict[str, int] = {}
    ops: list[gp.Op] = []
    edges: list[tuple[int, int, int]] = []  # (op that gives, its output, op that takes)
    read = {source for fields in lines for source in fields[2].split(",")}
    for number, (layer, kind, inputs, shape, flops, weight_bytes) in enumerate(lines, 1):
        sources = [source for source in inputs.split(",") if source != "-"]
        for source in sources:
            if source not in index:
                raise ValueError(f"line {number}: inputs: {shown(source)} is no name of an earlier line")
        if layer in index:
            raise ValueError(f"line {number}: name: {shown(layer)} stands in line {index[layer] + 1}, too")
        dims = tuple(_whole(number, "shape", part) for part in shape.split("x"))
        output = gp.Output(math.prod(dims) * FLOAT32_BYTES, dims, "float32", is_result=layer not in read)
        op = gp.Op(
            layer, kind, (output,), flops=_whole(number, "flops", flops),
            persistent_bytes=_whole(number, "weight_bytes", weight_bytes), kernel=kind != "input",
            layer=layer, phase="forward", canonical_kind=CANONICAL.get(kind, "other"),
        )  # fmt: skip
        edges += [(index[source], 0, len(ops)) for source in sources]
        index[layer] = len(ops)
        ops.append(op)
    return gp.ComputationGraph.from_ops(name, ops, edges)


def _whole(line: int, field: str, text: str) -> int:
    if not text.isdecimal() or len(text) > MOST_DIGITS:
        raise ValueError(f"line {line}: {field}: {shown(text)} is no whole number of at most {MOST_DIGITS} digits")
    return int(text)


def main() -> None:
    def read(path: str, options: Reading) -> gp.ComputationGraph:
        return read_layers(path)

    graphs.ENDINGS[".layers"] = Form("layer list", read)  # the line
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "two-towers.layers"
        path.write_text(EXAMPLE)
        problem = gp.problem(path, cluster="k40-2")
    print(f"{problem.graph.name}: {problem.graph.num_ops} ops, {problem.graph.num_edges} edges")
    for row in gp.compare(problem, evaluations=50)[:3]:
        print(f"{(row.step_time_ns or 0) / 1e6:8.3f} ms  {row.planner}")


if __name__ == "__main__":
    main()
