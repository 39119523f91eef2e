"""Registration of a trained policy in MLflow's registry: its code, its checkpoint, and the form of its tables.

`gnnplace.training.mlflow_model` is the model that MLflow loads. Importing MLflow takes seconds, so only a run that
registers imports this module.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import mlflow
import pandas as pd
from mlflow.models import ModelSignature
from mlflow.types.schema import ColSpec, ParamSchema, ParamSpec, Schema

from gnnplace.cluster import Cluster
from gnnplace.formats.clusters import cluster_document
from gnnplace.formats.graphs import graph_document
from gnnplace.graph import ComputationGraph, Op, Output
from gnnplace.version import VERSION

NAME = "policy"  # of the model in its run
CHECKPOINT = "checkpoint"
CODE = Path(__file__).parents[1] / "mlflow_code.py"
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


def register(client: mlflow.MlflowClient, run_id: str, checkpoint: Path, name: str, cluster: Cluster) -> int:
    """Logs a checkpoint's policy as a model of a run and registers it; returns the version.

    A run registers a name once.

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
    """Points MLflow's functions without a client to this store."""
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
