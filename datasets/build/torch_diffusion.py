"""The networks of the corpus that draw images by diffusion in a latent space.

DiT draws as the U-Nets do, but what is placed is a row of transformer layers: its lineage is the transformer's.
"""

from __future__ import annotations

import torch

from datasets.build import dit, latent_unet
from datasets.build.losses import squared_loss
from datasets.build.torch_workload import Workload, without_labels
from gnnplace.frontends.torch.step import TorchStep

TEXT_LENGTH = 77


def diffusion_transformer(batch: int = 16, sizes: dit.Sizes = dit.XL) -> TorchStep:
    """DiT: the noise in latents of images of known classes, and its variance."""
    latents, noise = torch.rand(2, batch, sizes.channels, sizes.side, sizes.side).unbind()
    inputs = (latents, torch.rand(batch, dit.WAVES), torch.randint(sizes.classes + 1, (batch,)), noise, torch.rand(3, batch))
    return TorchStep(dit.DiT(sizes), dit.loss, inputs)


def latent_diffusion(batch: int = 4, side: int = 64, sizes: latent_unet.Sizes = latent_unet.FULL) -> TorchStep:
    """The U-Net of Stable Diffusion: the noise in latents of images of which a text tells."""
    latents, noise = torch.rand(2, batch, sizes.latent, side, side).unbind()
    inputs = (latents, torch.rand(batch, sizes.channels[0]), torch.rand(batch, TEXT_LENGTH, sizes.context), noise)
    return TorchStep(latent_unet.LatentUNet(sizes), squared_loss, inputs)


LATENT_DIFFUSION = Workload(
    latent_diffusion, "latent-diffusion", "diffusion",
    "datasets/build/latent_unet.py, 859,520,964 parameters, latents of 64 x 64, texts of 77 tokens; batch 4; Adam",
)  # fmt: skip

WORKLOADS: dict[str, Workload] = {
    "dit-xl-2": Workload(
        diffusion_transformer, "dit", "transformer",
        "datasets/build/dit.py, XL/2, 675 M parameters, latents of 32 x 32; batch 16; Adam",
    ),
    "stable-diffusion": LATENT_DIFFUSION,
    "stable-diffusion-inference": LATENT_DIFFUSION.inference(
        lambda: without_labels(latent_diffusion(2)),
        "datasets/build/latent_unet.py, 859,520,964 parameters, latents of 64 x 64; batch 2; forward",
    ),
}  # fmt: skip
