"""The examples in the docstrings of PyTorch's front-end run."""

import doctest

import pytest

from gnnplace.frontends.torch import buffers, functional, inference, inputs, optimizers, split_batch, step, strided, updates


@pytest.mark.parametrize("module", [buffers, functional, inference, inputs, optimizers, split_batch, step, strided, updates])
def test_examples_of_docstrings_run(module):
    results = doctest.testmod(module)
    assert results.attempted and not results.failed
