"""OpenVINO models for tests, written layer by layer."""

from __future__ import annotations

from pathlib import Path
from xml.sax.saxutils import quoteattr


def layer(kind, name, inputs="", outputs=(), version="opset1", **data):
    """A layer; inputs are layers' names (`split#1`: the second output), outputs are `(shape, precision)` or a shape of FP32."""
    ports = [output if isinstance(output, tuple) else (output, "FP32") for output in outputs]
    return {"kind": kind, "name": name, "inputs": inputs.split(), "outputs": ports, "version": version, "data": data}


def parameter(name, shape, precision="FP32"):
    return layer("Parameter", name, "", [(shape, precision)], shape=",".join(map(str, shape)))


def const(name, shape, precision="FP32"):
    """A constant; what it holds would lie in the file of weights."""
    return layer("Const", name, "", [(shape, precision)], offset="0")


def result(value, name="result"):
    return layer("Result", name, value)


def model(*layers, version="11"):
    """The text of a model; inputs have the ports 0, 1, ..., outputs those after them, as OpenVINO writes them."""
    ids = {made["name"]: index for index, made in reversed(list(enumerate(layers)))}
    rows, edges = [], []
    for index, made in enumerate(layers):
        inputs = "".join(f'<port id="{port}"/>' for port in range(len(made["inputs"])))
        outputs = "".join(_port(len(made["inputs"]) + port, *output) for port, output in enumerate(made["outputs"]))
        data = " ".join(f"{key}={quoteattr(str(value))}" for key, value in made["data"].items())
        rows.append(
            f'<layer id="{index}" name={quoteattr(made["name"])} type={quoteattr(made["kind"])} version="{made["version"]}">'
            f"<data {data}/><input>{inputs}</input><output>{outputs}</output></layer>"
        )
        for port, value in enumerate(made["inputs"]):
            source, _, number = value.partition("#")
            first = len(layers[ids[source]]["inputs"])
            edges.append(f'<edge from-layer="{ids[source]}" from-port="{first + int(number or 0)}" to-layer="{index}" to-port="{port}"/>')
    body = "\n".join(["<layers>", *rows, "</layers>", "<edges>", *edges, "</edges>"])
    return f'<?xml version="1.0"?>\n<net name="net" version="{version}">\n{body}\n<rt_info><info value="1"/></rt_info></net>\n'


def saved(folder: Path, text, name="net.xml") -> Path:
    """The file of a model, as it is."""
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def _port(number, shape, precision):
    dims = "".join(f"<dim>{size}</dim>" for size in shape)
    return f'<port id="{number}" precision="{precision}">{dims}</port>'
