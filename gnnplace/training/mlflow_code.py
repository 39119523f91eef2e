"""What MLflow copies into a registered policy and runs when it loads it (models from code)."""

from __future__ import annotations

from mlflow.models import set_model

from gnnplace.training.mlflow_model import PlacementModel

set_model(PlacementModel())
