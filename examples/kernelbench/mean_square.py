"""Mean of squares of each row, scaled by a learned weight for each column."""

import torch
import torch.nn as nn

batch_size = 8192
features = 4096


class Model(nn.Module):
    def __init__(self, features: int):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(features))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x * x * self.weight).mean(dim=1)


def get_inputs():
    return [torch.randn(batch_size, features)]


def get_init_inputs():
    return [features]
