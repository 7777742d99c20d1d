"""Models that replays stand for, as torchvision, timm and transformers build them, with batches and losses.

The libraries are optional (requirements/models.txt) and loaded by name when a model of theirs is asked for.
"""

from __future__ import annotations

import importlib
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from testbed.core.errors import InputError
from testbed.core.models.catalogue import Model
from testbed.worker.interfaces.workload import trained

_CLASSES = 1000
_VOCABULARY = {"bert": 30_522, "gpt2": 50_257}
_TORCHVISION = {
    **{name: name for name in ("alexnet", "densenet121", "densenet201", "mobilenet_v2", "vgg16", "vgg19")},
    **{name: name for name in ("resnet18", "resnet34", "resnet50", "resnet101", "resnet152")},
    "swin-t": "swin_t",
    "vit-b": "vit_b_16",
    "vit-l": "vit_l_16",
}
_TIMM = {"inception_v4": "inception_v4"}
_TRANSFORMERS: dict[str, dict[str, int]] = {
    "bert-base": {},
    "bert-large": {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096},
    "gpt2": {},
    "gpt2-medium": {"n_embd": 1024, "n_layer": 24, "n_head": 16},
    "gpt2-large": {"n_embd": 1280, "n_layer": 36, "n_head": 20},
    "gpt2-xl": {"n_embd": 1600, "n_layer": 48, "n_head": 25},
}
MODELS = (*_TORCHVISION, *_TIMM, *_TRANSFORMERS)
_ADAMW = ("swin-t", "vit-b", "vit-l", *_TRANSFORMERS)
"""The others are trained by SGD with momentum."""


@dataclass(frozen=True)
class LibraryModel:
    """A model that is really computed."""

    model: nn.Module
    library: str
    version: str
    batch: Any
    """Drawn once: values do not change how long a step takes."""
    loss: Callable[[nn.Module, Any], Tensor]
    optimizer: str
    """sgd or adamw."""


def library_model(table: Model, batch_size: int, device: torch.device) -> LibraryModel:
    """Return the model of a table, on a device, with one batch.

    Raises:
        InputError: No library has it, the library is not installed, or its tensors are not those of the table.
    """
    name = table.name
    if name in _TORCHVISION:
        library = _loaded("torchvision", name)
        model = getattr(library.models, _TORCHVISION[name])()
    elif name in _TIMM:
        library = _loaded("timm", name)
        model = library.create_model(_TIMM[name])
    elif name in _TRANSFORMERS:
        library = _loaded("transformers", name)
        model = _transformer(library, name)
    else:
        raise InputError(
            f"workload.model={name}: no library has it, so it cannot be measured; they have {', '.join(MODELS)}; for"
            " others give a trace: longhaul profile --trace"
        )
    _require_same(model, table, library.__name__)
    model = model.to(device).train()
    if name in _TRANSFORMERS:
        length = _size(table)
        batch: Any = torch.randint(0, _VOCABULARY[name.partition("-")[0]], (batch_size, length), device=device)
        loss = _language_loss if name.startswith("gpt2") else _encoder_loss
    else:
        side = _size(table)
        batch = (
            torch.randn(batch_size, 3, side, side, device=device),
            torch.randint(0, _CLASSES, (batch_size,), device=device),
        )
        loss = _image_loss
    optimizer = "adamw" if name in _ADAMW else "sgd"
    return LibraryModel(model, library.__name__, str(library.__version__), batch, loss, optimizer)


def _size(table: Model) -> int:
    """Return the side of a sample's image in pixels, or its number of tokens."""
    if (found := re.fullmatch(r"(\d+) (?:x \1 pixels|tokens)", table.sample)) is None:
        raise InputError(
            f"workload.model={table.name}: its table is for samples of {table.sample!r}, which must be 'N x N pixels'"
            " or 'N tokens' for the model of a library; for others give a trace: longhaul profile --trace"
        )
    return int(found[1])


def _loaded(library: str, name: str) -> Any:
    try:
        return importlib.import_module(library)
    except ImportError as error:
        raise InputError(
            f"workload.model={name}: {library} is needed to compute it, and cannot be loaded ({error}); install it:"
            " pip install -r requirements/models.txt"
        ) from error


def _transformer(library: Any, name: str) -> nn.Module:
    if name.startswith("bert"):
        model: nn.Module = library.BertModel(library.BertConfig(**_TRANSFORMERS[name]))
        return model
    config = library.GPT2Config(**_TRANSFORMERS[name])
    config._attn_implementation = "sdpa"
    found: nn.Module = library.GPT2LMHeadModel(config)
    return found


def _require_same(model: nn.Module, table: Model, library: str) -> None:
    """
    Raises:
        InputError: The library's model has other tensors; a line for each.
    """
    named = [
        (name, _sorted(parameter.shape)) for name, parameter in model.named_parameters() if parameter.requires_grad
    ]
    ours, theirs = Counter(map(_sorted, table.shapes)), Counter(shape for _, shape in named)
    if ours == theirs:
        return
    names = {shape: name for name, shape in named}
    raise InputError(
        *(
            f"workload.model={table.name}: {library} has {theirs[shape]} tensors of shape {shape} up to order"
            f" ({names.get(shape, 'none')}), and the table {ours[shape]}"
            for shape in sorted(ours.keys() | theirs.keys())
            if ours[shape] != theirs[shape]
        )
    )


def _sorted(shape: Any) -> tuple[int, ...]:
    """Return a matrix's shape without its direction, in which libraries differ."""
    return tuple(sorted(shape)) if len(shape) == 2 else tuple(shape)


def _image_loss(model: nn.Module, batch: Any) -> Tensor:
    images, labels = batch
    return nn.functional.cross_entropy(model(images).float(), labels)


def _language_loss(model: nn.Module, batch: Any) -> Tensor:
    loss: Tensor = model(input_ids=batch, labels=batch).loss
    return loss


def _encoder_loss(model: nn.Module, batch: Any) -> Tensor:
    """Return a loss that reaches each parameter, the pooler's too."""
    found = model(input_ids=batch)
    loss: Tensor = found.pooler_output.float().pow(2).mean() + found.last_hidden_state.float().pow(2).mean()
    return loss


def optimizer_of(found: LibraryModel) -> torch.optim.Optimizer:
    parameters = trained(found.model)
    if found.optimizer == "sgd":
        return torch.optim.SGD(parameters, 1e-3, momentum=0.9)
    return torch.optim.AdamW(parameters, 1e-4)
