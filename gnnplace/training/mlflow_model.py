"""A trained policy as a model of MLflow: `mlflow.pyfunc.load_model("models:/NAME/1")` places graphs.

The model is code and a checkpoint (models from code, `mlflow_code.py`): nothing is pickled. It needs this package where
it is loaded.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import mlflow
import pandas as pd
from mlflow.models import ModelSignature
from mlflow.pyfunc.model import PythonModel, PythonModelContext
from mlflow.types.schema import ColSpec, ParamSchema, ParamSpec, Schema

from gnnplace.cluster import Cluster
from gnnplace.costs import roofline
from gnnplace.formats.clusters import cluster_document, read_cluster
from gnnplace.formats.graphs import graph_document, read_graph
from gnnplace.formats.placements import Provenance, described_placement
from gnnplace.graph import ComputationGraph, Op, Output
from gnnplace.knobs import at_least
from gnnplace.portfolio.comparison import candidates
from gnnplace.sources import graphs as sources
from gnnplace.sources.code import is_code
from gnnplace.training.run import zero_shot
from gnnplace.training.run.zero_shot import ZeroShot
from gnnplace.version import VERSION

NAME = "policy"  # of the model among those of its run
CHECKPOINT = "checkpoint"
CODE = Path(__file__).with_name("mlflow_code.py")
REQUIREMENTS = [f"gnnplace=={VERSION}"]
SIGNATURE = ModelSignature(
    inputs=Schema([ColSpec("string", "graph"), ColSpec("string", "cluster")]),
    outputs=Schema(
        [
            ColSpec("string", "placement"),
            ColSpec("long", "step_time_ns", required=False),
            ColSpec("string", "infeasible", required=False),
        ]
    ),
    params=ParamSchema([ParamSpec("samples", "long", 0), ParamSpec("seed", "long", 0)]),
)

T = TypeVar("T")


class PlacementModel(PythonModel):
    """Places the graph of each row on its cluster by a trained policy, zero-shot."""

    def load_context(self, context: PythonModelContext) -> None:
        """Reads the checkpoint. Raises ValueError (one line) where it is damaged, or of another version."""
        checkpoint = context.artifacts[CHECKPOINT]
        self._policy = zero_shot.planner(checkpoint)
        self._sha256 = hashlib.sha256(Path(checkpoint).read_bytes()).hexdigest()

    def predict(
        self, context: PythonModelContext, model_input: pd.DataFrame, params: Mapping[str, Any] | None = None
    ) -> pd.DataFrame:
        """What `gnnplace place --checkpoint` finds for every row.

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


def register(client: mlflow.MlflowClient, run_id: str, checkpoint: Path, name: str, cluster: Cluster) -> int:
    """Logs the policy of a checkpoint as a model of a run and registers it; returns the version. A run registers a name
    once.

    `cluster` is one that the policy can place on: the model's input example is two ops on it. Raises MlflowException
    where the store refuses.
    """
    versions = client.search_model_versions(f"name = '{name}' and run_id = '{run_id}'")
    if versions:
        return int(versions[0].version)
    with _tracking(client.tracking_uri), mlflow.start_run(run_id, nested=True):
        logged = mlflow.pyfunc.log_model(
            name=NAME, python_model=str(CODE), artifacts={CHECKPOINT: str(checkpoint)}, signature=SIGNATURE,
            input_example=_example(cluster), pip_requirements=REQUIREMENTS,
        )  # fmt: skip
    if not client.search_registered_models(f"name = '{name}'"):
        client.create_registered_model(name)
    return int(client.create_model_version(name, logged.model_uri, run_id, model_id=logged.model_id).version)


@contextmanager
def _tracking(store: str) -> Iterator[None]:
    """MLflow's functions that take no client track in this store."""
    before = mlflow.get_tracking_uri() if mlflow.is_tracking_uri_set() else None
    mlflow.set_tracking_uri(store)
    try:
        yield
    finally:
        mlflow.set_tracking_uri(before)  # type: ignore[arg-type] # None: it is set no longer


def _example(cluster: Cluster) -> pd.DataFrame:
    ops = [Op("x", "MatMul", (Output(4096),), flops=10**9), Op("y", "Relu", (Output(4096),), flops=1024)]
    documents = graph_document(ComputationGraph.from_ops("two ops", ops, [(0, 0, 1)])), cluster_document(cluster)
    return pd.DataFrame([[json.dumps(document) for document in documents]], columns=["graph", "cluster"])


def _read(column: str, text: str, document: Callable[[bytes], T], named: Callable[[str], T]) -> T:
    """JSON text as `document` reads it, any other as `named` does."""
    try:
        return document(text.encode()) if text.lstrip().startswith("{") else named(text)
    except (ValueError, OSError) as error:
        raise ValueError(f"{column}: {error}") from error


def _graph(text: str) -> ComputationGraph:
    if is_code(text):  # whoever may ask a served model must not choose what its machine runs
        raise ValueError(f"{text}: a registered model runs no code; give the graph as JSON text")
    return sources.graph(text)
