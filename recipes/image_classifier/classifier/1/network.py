"""The network, for training and for serving."""

import torch
from torch import nn


class Network(nn.Module):
    """Grey images, UINT8 of shape (n, 32, 32), to one number for each of four shapes, FP32 of shape (n, 4)."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Flatten(), nn.Linear(512, 4)),
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.layers(images.unsqueeze(1).float() / 255)
