"""The code that MLflow copies into a registered policy, and runs when it loads the policy (models from code)."""

from __future__ import annotations

from mlflow.models import set_model

from gnnplace.training.mlflow_model import PlacementModel

set_model(PlacementModel())
