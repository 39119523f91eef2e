"""Rebuilds the OpenVINO graphs of the corpus: `python -m datasets.build_openvino [NAME ...]`, all of them without a name.

HSDAG (Duan et al. 2024, table 1) counts the layers of the IRs that OpenVINO 2023.3 made of the same networks: 728 (edges 764) for
Inception-V3, 396 (411) for ResNet-50 and 1,009 (1,071) for BERT base. Beside them, layers and edges of the files that we convert, with
weights stored as float16 (the converter's default) and as float32, and ops and edges of the graphs that either kind of file becomes:

| | HSDAG | float16 | float32 | ops of our graph |
|---|---|---|---|---|
| Inception-V3 | 728 (764) | 692 (726) | 502 (536) | 691 (725) |
| ResNet-50 | 396 (411) | 394 (409) | 286 (301) | 393 (408) |
| BERT base | 1,009 (1,071) | 1,052 (1,118) | 840 (906) | 976 (1,034) |

So HSDAG's counts are near those of files with float16 weights, where each float constant is two layers, `Const` and the `Convert` to
float32: 190 converts for Inception-V3, 108 for ResNet-50 and 212 for BERT base are the whole difference of the middle columns. What is
left:

- ResNet-50: 2 layers and 2 edges, as many as a `Reshape` to two dimensions and the constant of its shape add behind the global mean (here
  the mean reduces those dimensions itself).
- Inception-V3: 36 layers and 38 edges: those 2 again, and 31 layers and 33 edges if the network rescales the colours of its images first,
  as published weights ask for (counted by converting ours with that in front); 3 and 3 stay open.
- BERT base: 43 layers and 47 edges too many. It is how transformers computes the attention mask and positions from shapes and constants:
  33 of our layers (version 5.23). The same network of version 4.36.2, of the months of OpenVINO 2023.3, has 998 layers (1,057 edges) in
  all, 11 and 14 too few, and with its head for masked words 1,006 (1,066): 3 and 5 stay open. With fewer inputs, no pooler or other heads
  it is farther away.

Our graphs hold no `Const`, `Convert` of one, or `Result`: a weight is a variable and one read of it (2 ops), a small constant one op, a
result a mark on the output. Batch norm is folded into the weights by the converter: a convolution and an `Add` of its bias. ResNet-50:
286 layers - 109 `Const` - 1 `Result` = 176, + 2 x 108 weights + 1 constant = 393. Inception-V3: 502 - 191 - 1 = 310, + 2 x 190 + 1 = 691.
BERT base: 840 - 373 - 2 = 465, - 33 layers that shapes and constants alone decide, + 2 x 199 weights + 146 constants = 976.
"""

from __future__ import annotations

import sys

from datasets.build.openvino_models import WORKLOADS, converted
from datasets.build.versions import versions
from gnnplace.corpus import manifest, splits
from gnnplace.graph import ComputationGraph


def read(name: str) -> ComputationGraph:
    """The workload of that name as a graph. Raises ValueError for an unknown one."""
    if name not in WORKLOADS:
        raise ValueError(f"workload: {name!r} is none of {', '.join(WORKLOADS)}")
    return converted(WORKLOADS[name], name)


def main(names: list[str]) -> None:
    """Builds and registers the workloads of these names."""
    for name in names or list(WORKLOADS):
        found, workload = read(name), WORKLOADS[name]
        entry = manifest.add(
            found, family=workload.family, lineage=workload.lineage, split=splits.fixed(workload.lineage), mode="inference",
            source=workload.source, licence="Apache-2.0", builder=f"python -m datasets.build_openvino {name}",
            builder_version=versions("openvino", "torch", source=workload.source),
        )  # fmt: skip
        uncounted = f"; costed by bytes alone: {dict(found.uncounted)}" if found.uncounted else ""
        print(f"{name}: {entry.ops} ops, {entry.edges} edges, sha256 {entry.sha256}{uncounted}")


if __name__ == "__main__":
    main(sys.argv[1:])
