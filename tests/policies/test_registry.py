"""Policies leave nothing of what PyG generates for them."""

import os
import subprocess

import pytest

from gnnplace.isolation import python

PROGRAM = """
from gnnplace import testing
from gnnplace.policies import registry
for name, encoder in (("hierarchical", "gnn"), ("hsdag", None)):
    config = registry.POLICIES[name]()
    registry.build(config, config.shape([testing.branches()]), 1, 0)
import sys
assert any(name.startswith("torch_geometric.") and name.endswith("_propagate") for name in sys.modules)
"""


@pytest.mark.slow
def test_policies_leave_no_generated_code(tmp_path):
    subprocess.run(python.command("-c", PROGRAM), env=python.environment(TMPDIR=str(tmp_path)), check=True)
    assert set(os.listdir(tmp_path)) <= {"torchinductor_root"}  # PyTorch's cache, one for all
