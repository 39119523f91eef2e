"""A trained policy as a model of MLflow: `mlflow.pyfunc.load_model("models:/NAME/1")` places graphs.

The model is code and a checkpoint (models from code, `mlflow_code.py`): nothing is pickled. It needs this package where
it is loaded. `run/mlflow_registry.py` registers it.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd
from mlflow.pyfunc.model import PythonModel, PythonModelContext

from gnnplace.costs import roofline
from gnnplace.formats.clusters import read_cluster
from gnnplace.formats.graphs import read_graph
from gnnplace.formats.placements import Provenance, described_placement
from gnnplace.graph import ComputationGraph
from gnnplace.knobs import at_least
from gnnplace.portfolio.comparison import candidates
from gnnplace.sources import graphs as sources
from gnnplace.sources.code import is_code
from gnnplace.training.run import zero_shot
from gnnplace.training.run.mlflow_registry import CHECKPOINT
from gnnplace.training.run.zero_shot import ZeroShot
from gnnplace.version import VERSION

T = TypeVar("T")


class PlacementModel(PythonModel):
    """Places the graph of each row on its cluster by a trained policy, zero-shot."""

    def load_context(self, context: PythonModelContext) -> None:
        """Reads the checkpoint. Raises ValueError (one line) if it is damaged or of another version."""
        checkpoint = context.artifacts[CHECKPOINT]
        self._policy = zero_shot.planner(checkpoint)
        self._sha256 = hashlib.sha256(Path(checkpoint).read_bytes()).hexdigest()

    def predict(
        self, context: PythonModelContext, model_input: pd.DataFrame, params: Mapping[str, Any] | None = None
    ) -> pd.DataFrame:
        """The placement that `gnnplace place --checkpoint` gives for every row.

        Args:
            context: not used: the checkpoint is read when the model is loaded
            model_input: columns `graph` (JSON text of a graph document, a name of the corpus or a file) and `cluster`
                (JSON text, a preset or a file)
            params: `samples`: the fastest of the greedy placement and so many samples, 0 unless given; `seed`: of the
                samples

        Returns columns `placement` (JSON text of a placement document), `step_time_ns` (simulated; none where
        infeasible) and `infeasible` (the reason, or none). Raises ValueError (one line, with the row) for what is no
        graph or no cluster.
        """
        chosen = {"samples": 0, "seed": 0} | dict(params or {})
        at_least(0, "", **chosen)
        policy = replace(self._policy, **chosen)
        pairs = enumerate(zip(model_input["graph"], model_input["cluster"], strict=True))
        rows = [self._row(number, policy, graph, cluster) for number, (graph, cluster) in pairs]
        return pd.DataFrame(rows, columns=["placement", "step_time_ns", "infeasible"]).astype({"step_time_ns": "Int64"})

    def _row(self, number: int, policy: ZeroShot, graph: str, cluster: str) -> tuple[str, int | None, str | None]:
        started = time.perf_counter_ns()
        try:
            problem = roofline.problem(
                _read("graph", graph, read_graph, _graph), _read("cluster", cluster, read_cluster, sources.cluster)
            )
            (candidate,) = candidates(problem, {policy.name: policy}, "given")
        except ValueError as error:
            raise ValueError(f"row {number}: {error}") from error
        provenance = Provenance(
            tool=f"gnnplace {VERSION}", planner=policy.name, encoder=policy.encoder, checkpoint_sha256=self._sha256,
            seed=policy.seed,
            wall_ns=time.perf_counter_ns() - started,
        )  # fmt: skip
        document = described_placement(
            problem.graph, problem.cluster, candidate.placement, candidate.predicted(problem), provenance
        )
        return json.dumps(document), candidate.step_time_ns, candidate.result.infeasible


def _read(column: str, text: str, document: Callable[[bytes], T], named: Callable[[str], T]) -> T:
    """The value of a text: `document` reads JSON, `named` any other text."""
    try:
        return document(text.encode()) if text.lstrip().startswith("{") else named(text)
    except (ValueError, OSError) as error:
        raise ValueError(f"{column}: {error}") from error


def _graph(text: str) -> ComputationGraph:
    if is_code(text):  # a client of a served model must not run code on its machine
        raise ValueError(f"{text}: a registered model runs no code; give the graph as JSON text")
    return sources.graph(text)
