"""Glorot initialisation of a module: matrices uniform by their fans, gate by gate in an LSTM; biases 0, forget gates 1.

The paper does not state its initial weights; this is the authors' public code, with a forget bias of 1.
"""

from __future__ import annotations

import torch
from torch import nn

GATES = 4  # of an LSTM in torch's order: input, forget, cell, output


def glorot(module: nn.Module) -> None:
    """Initialise every `Linear` and `LSTM` inside `module`, in place, from torch's generator."""
    for layer in module.modules():
        if isinstance(layer, nn.Linear):
            nn.init.xavier_uniform_(layer.weight)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
        elif isinstance(layer, nn.LSTM):
            _glorot_lstm(layer)


@torch.no_grad()
def _glorot_lstm(lstm: nn.LSTM) -> None:
    for name, weight in lstm.named_parameters():
        if name.startswith("weight"):
            for gate in weight.chunk(GATES):
                nn.init.xavier_uniform_(gate)
        else:
            weight.zero_()
            if name.startswith("bias_ih"):
                weight.chunk(GATES)[1].fill_(1.0)
