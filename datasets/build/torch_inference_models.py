"""PyTorch workloads of the corpus that only run forward: the networks of the training steps, as they answer requests.

Family and lineage are those of the network's training step, so that no split parts the two.
"""

from __future__ import annotations

from datasets.build import (
    convnext,
    densenet,
    mobilenet,
    swin,
    torch_dense_prediction,
    torch_models,
    torch_others,
    torch_speech,
    torch_transformers,
    torch_vision,
    vit,
    wavenet,
    whisper,
)
from datasets.build.torch_workload import Workload, without_labels
from gnnplace.frontends.torch.step import TorchInference


def bert_base(batch: int = 8, length: int = 128) -> TorchInference:
    """BERT base with its masked-language head; Devlin et al. 2019."""
    step = torch_models.bert_base(batch, length)
    return TorchInference(step.module, {"input_ids": step.inputs[0]})


def gru_lm(batch: int = 16, steps: int = 35) -> TorchInference:
    """The GRU language model scores given text: the mean cross entropy of what follows."""
    step = torch_models.gru_lm(batch, steps)
    return TorchInference(step.module, step.inputs)


def retinanet(batch: int = 1) -> TorchInference:
    """Every box of the image, before those that overlap are dropped."""
    step = torch_dense_prediction.detector(batch)
    return TorchInference(step.module, step.inputs[:1])


TRAINED: dict[str, Workload] = {
    **torch_models.WORKLOADS,
    **torch_vision.WORKLOADS,
    **torch_others.WORKLOADS,
    **torch_transformers.WORKLOADS,
    **torch_dense_prediction.WORKLOADS,
    **torch_speech.WORKLOADS,
}


WORKLOADS: dict[str, Workload] = {
    "bert-base-inference": TRAINED["bert-base"].inference(
        bert_base, "transformers BertForMaskedLM, default configuration, eager attention; batch 8, length 128; forward"
    ),
    "gpt2-inference": TRAINED["gpt2"].inference(
        lambda: without_labels(torch_models.gpt2(1)), "datasets/build/gpt2.py, 124 M parameters; batch 1, length 1024; forward"
    ),
    "moe-8e-inference": TRAINED["moe-8e"].inference(
        lambda: without_labels(torch_models.moe_8e(1)),
        "datasets/build/mixture_of_experts.py, 6 layers of 8 experts; batch 1, length 512; forward",
    ),
    "dlrm-inference": TRAINED["dlrm"].inference(
        lambda: without_labels(torch_models.dlrm(128)), "datasets/build/dlrm.py, 26 tables of width 64; batch 128; forward"
    ),
    "gru-lm-inference": TRAINED["gru-lm"].inference(
        gru_lm,
        "datasets/build/gru.py, 3 layers of 1024, 35 steps, vocabulary 10000, full softmax at each step; batch 16; forward",
    ),
    "unet-inference": TRAINED["unet"].inference(
        lambda: without_labels(torch_models.unet(2)), "datasets/build/unet.py, channels 128-256-512, 64 x 64 images; batch 2; forward"
    ),
    "densenet-121-inference": TRAINED["densenet-121"].inference(
        lambda: without_labels(torch_vision.classifier(densenet.DenseNet(densenet.LAYERS_121), 8)),
        "datasets/build/densenet.py, 7,978,856 parameters, 224 x 224 images; batch 8; forward",
    ),
    "mobilenet-v2-inference": TRAINED["mobilenet-v2"].inference(
        lambda: without_labels(torch_vision.classifier(mobilenet.mobilenet_v2(), 1)),
        "datasets/build/mobilenet.py, 3,504,872 parameters, 224 x 224 images; batch 1; forward",
    ),
    "convnext-tiny-inference": TRAINED["convnext-tiny"].inference(
        lambda: without_labels(torch_vision.classifier(convnext.ConvNeXt(), 8)),
        "datasets/build/convnext.py, 28,589,128 parameters, 224 x 224 images; batch 8; forward",
    ),
    "swin-t-inference": TRAINED["swin-t"].inference(
        lambda: without_labels(torch_vision.classifier(swin.Swin(), 8)),
        "datasets/build/swin.py, 28,288,354 parameters, 224 x 224 images; batch 8; forward",
    ),
    "vit-b16-inference": TRAINED["vit-b16"].inference(
        lambda: without_labels(torch_transformers.vit(vit.BASE, 8)),
        "datasets/build/vit.py, 86 M parameters, 224 x 224 images; batch 8; forward",
    ),
    "wavenet-2x18-inference": TRAINED["wavenet-2x18"].inference(
        lambda: without_labels(torch_others.wavenet(wavenet.SMALL, 1)),
        "datasets/build/wavenet.py, 2 stacks, 18 layers, the logits of every sample of given audio; batch 1, 6144 samples; forward",
    ),
    "whisper-base-inference": TRAINED["whisper-base"].inference(
        lambda: without_labels(torch_speech.whisper_step(whisper.BASE, 1)),
        "datasets/build/whisper.py, 6 + 6 layers, 30 s and the logits of 448 given tokens; batch 1; forward",
    ),
    "retinanet-inference": TRAINED["retinanet"].inference(
        retinanet, "datasets/build/retinanet.py, logits and offsets of all boxes, 800 x 1280 images; batch 1; forward"
    ),
    "deeplab-v3-inference": TRAINED["deeplab-v3"].inference(
        lambda: without_labels(torch_dense_prediction.segmented_scenes(1)),
        "datasets/build/deeplab_v3.py, ResNet-50, output stride 16, 513 x 513 images; batch 1; forward",
    ),
}
