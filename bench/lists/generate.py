#!/usr/bin/env python3
"""Writes resnet50.json and bert.json: the parameter tensors of two well-known models.

The lists follow from the architectures' definitions (ResNet-50 for 1000 classes; BERT-base,
uncased, with its pooler), in the order of the forward pass. A benchmark reduces tensors of these
sizes; names and shapes are there for people.
"""

from __future__ import annotations

import json
from math import prod
from pathlib import Path

Tensors = list[tuple[str, list[int]]]


def resnet50() -> Tensors:
    """Bottleneck blocks of 3, 4, 6 and 3, each convolution followed by a batch normalisation."""
    tensors: Tensors = []

    def convolution(name: str, outputs: int, inputs: int, kernel: int) -> None:
        tensors.append((f"{name}.weight", [outputs, inputs, kernel, kernel]))
        tensors.append((f"{name}.norm.weight", [outputs]))
        tensors.append((f"{name}.norm.bias", [outputs]))

    convolution("stem", 64, 3, 7)
    inputs = 64
    for stage, (width, blocks) in enumerate([(64, 3), (128, 4), (256, 6), (512, 3)], start=1):
        outputs = 4 * width
        for block in range(blocks):
            name = f"stage{stage}.{block}"
            convolution(f"{name}.narrow", width, inputs, 1)
            convolution(f"{name}.middle", width, width, 3)
            convolution(f"{name}.widen", outputs, width, 1)
            if block == 0:
                convolution(f"{name}.shortcut", outputs, inputs, 1)
            inputs = outputs
    tensors.append(("classifier.weight", [1000, inputs]))
    tensors.append(("classifier.bias", [1000]))
    return tensors


def bert() -> Tensors:
    """Twelve layers of width 768; 30522 words, 512 positions, two segments."""
    width, inner = 768, 3072
    tensors: Tensors = [
        ("embeddings.word", [30522, width]),
        ("embeddings.position", [512, width]),
        ("embeddings.segment", [2, width]),
    ]

    def linear(name: str, outputs: int, inputs: int) -> None:
        tensors.append((f"{name}.weight", [outputs, inputs]))
        tensors.append((f"{name}.bias", [outputs]))

    def norm(name: str) -> None:
        tensors.append((f"{name}.weight", [width]))
        tensors.append((f"{name}.bias", [width]))

    norm("embeddings.norm")
    for layer in range(12):
        for part in ("query", "key", "value", "output"):
            linear(f"layer{layer}.attention.{part}", width, width)
        norm(f"layer{layer}.attention.norm")
        linear(f"layer{layer}.inner", inner, width)
        linear(f"layer{layer}.outer", width, inner)
        norm(f"layer{layer}.norm")
    linear("pooler", width, width)
    return tensors


def main() -> None:
    for name, tensors in (("resnet50", resnet50()), ("bert", bert())):
        elements = sum(prod(shape) for _, shape in tensors)
        lines = (
            json.dumps({"name": tensor, "shape": shape, "elements": prod(shape)})
            for tensor, shape in tensors
        )
        head = json.dumps({"name": name, "tensor_count": len(tensors), "elements": elements})
        body = ",\n    ".join(lines)
        path = Path(__file__).with_name(f"{name}.json")
        path.write_text(f'{head[:-1]}, "tensors": [\n    {body}\n]}}\n')
        print(f"{path.name}: {len(tensors)} tensors, {elements:,} elements")


if __name__ == "__main__":
    main()
