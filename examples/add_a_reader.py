"""A reader of a file format of your own: here text with one layer a line, `NAME KIND INPUTS SHAPE FLOPS WEIGHT_BYTES`.

A reader of the package is a folder in gnnplace/frontends/ and one line in the table `ENDINGS` of gnnplace/sources/graphs.py.
"""

import math
import tempfile
from pathlib import Path

import gnnplace as gp
from gnnplace.sources import graphs
from gnnplace.sources.graphs import Form, Reading

FLOAT32_BYTES = 4
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
    """The graph of a forward pass. Raises ValueError (one line, the path first) for a line that breaks a rule."""
    ops: list[gp.Op] = []
    edges: list[tuple[int, int, int]] = []
    index: dict[str, int] = {}
    for number, line in enumerate(Path(path).read_text().splitlines(), 1):
        try:
            name, kind, inputs, shape, flops, weight_bytes = line.split()
            sources = [index[source] for source in inputs.split(",") if source != "-"]
            dims = tuple(map(int, shape.split("x")))
            output = gp.Output(math.prod(dims) * FLOAT32_BYTES, dims, "float32")
            op = gp.Op(
                name, kind, (output,), flops=int(flops), persistent_bytes=int(weight_bytes), kernel=kind != "input",
                layer=name, phase="forward", canonical_kind=CANONICAL.get(kind, "other"),
            )  # fmt: skip
        except ValueError as error:
            raise ValueError(f"{path}: line {number}: {error}") from error
        except KeyError as error:
            raise ValueError(f"{path}: line {number}: no earlier line has the name {error}") from None
        edges += [(source, 0, len(ops)) for source in sources]  # (op that gives, its output, op that takes)
        index[name] = len(ops)
        ops.append(op)
    return gp.ComputationGraph.from_ops(Path(path).stem, ops, edges)


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
