"""Weights that a workload's model begins with: trained here once, and kept in the clone's .cache.

Nothing is drawn but from a recipe's seed, and there is one thread: the same machine makes the same bits again. Other
processors round otherwise, so the weights' hash goes into specs. Whoever comes while another process trains waits.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

import testbed
from testbed.worker.model import chain, transformer_block

CACHE = Path(testbed.__file__).resolve().parents[1] / ".cache" / "pretrained"
State = dict[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """All that weights depend on beside the packages that compute them."""

    name: str
    """Of the model; begins the file's name."""
    steps: int
    batch_size: int
    learning_rate: float
    """At its highest: it rises over the first 50 steps, and falls to nothing over the last half."""
    seed: int
    data: str
    """The hash of what it is trained on."""
    source: Path
    """The file that says how."""

    @property
    def key(self) -> str:
        numbers = (self.name, self.steps, self.batch_size, self.learning_rate, self.seed, self.data, torch.__version__)
        digest = hashlib.sha256(repr(numbers).encode())
        for path in (Path(__file__), Path(chain.__file__), Path(transformer_block.__file__), self.source):
            digest.update(path.read_bytes())
        return digest.hexdigest()[:24]

    def rate(self, step: int) -> float:
        """The learning rate of a step, counted from 0."""
        return self.learning_rate * min(1, (step + 1) / 50, 2 * (self.steps - step) / self.steps)


def pretrained(
    recipe: Recipe,
    make: Callable[[torch.Generator], nn.Module],
    loss: Callable[[nn.Module, torch.Generator], Tensor],
    cache: Path = CACHE,
) -> State:
    """From the cache, or trained and kept there.

    Args:
        make: the model; parameters under "readout.head" are for its task alone, and are not kept.
        loss: of a batch that it draws.
    """
    with _locked(cache, recipe):
        state = _kept(cache, recipe)
        if state is None:
            state = trained_weights(recipe, make, loss)
            _keep(cache, recipe, state)
    return state


def trained_weights(
    recipe: Recipe, make: Callable[[torch.Generator], nn.Module], loss: Callable[[nn.Module, torch.Generator], Tensor]
) -> State:
    """AdamW (Loshchilov and Hutter, "Decoupled Weight Decay Regularization", ICLR 2019), in one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        random = torch.Generator().manual_seed(recipe.seed)
        model = make(random)
        optimizer = torch.optim.AdamW(model.parameters(), lr=recipe.learning_rate, betas=(0.9, 0.98))
        for step in range(recipe.steps):
            optimizer.param_groups[0]["lr"] = recipe.rate(step)
            optimizer.zero_grad()
            loss(model, random).backward()
            optimizer.step()
    finally:
        torch.set_num_threads(threads)
    return {
        name: value.detach().clone()
        for name, value in model.state_dict().items()
        if not name.startswith("readout.head.")
    }


def weights_hash(state: Mapping[str, Tensor]) -> str:
    """SHA-256 of names and bits, in the order of names."""
    digest = hashlib.sha256()
    for name in sorted(state):
        digest.update(f"{name} {list(state[name].shape)}\n".encode())
        digest.update(state[name].contiguous().numpy().data)
    return digest.hexdigest()


@contextlib.contextmanager
def _locked(cache: Path, recipe: Recipe) -> Iterator[None]:
    """One process at a time, where the cache can be written to."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            _make_folder(cache)
            file = stack.enter_context((cache / f"{recipe.name}.lock").open("w"))
            _give_away(cache / f"{recipe.name}.lock", cache)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _kept(cache: Path, recipe: Recipe) -> State | None:
    for path in cache.glob(f"{recipe.name}-{recipe.key}-*.pt"):
        # whatever a file that is something else makes torch raise: it is trained again
        with contextlib.suppress(Exception):
            state: State = torch.load(path, map_location="cpu", weights_only=True)
            if path.stem.endswith(weights_hash(state)):
                return state
    return None


def _keep(cache: Path, recipe: Recipe, state: State) -> None:
    """In one step, in place of what was kept before; for whom the tree belongs to, whoever runs this."""
    draft = cache / f"draft-{os.getpid()}"
    with contextlib.suppress(OSError):  # a tree that cannot be written to trains again each time
        _make_folder(cache)
        torch.save(state, draft)
        _give_away(draft, cache)
        draft.replace(cache / f"{recipe.name}-{recipe.key}-{weights_hash(state)}.pt")
        for path in cache.glob(f"{recipe.name}-*.pt"):
            if not path.name.startswith(f"{recipe.name}-{recipe.key}"):
                path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        draft.unlink(missing_ok=True)


def _make_folder(cache: Path) -> None:
    new = [folder for folder in (cache.parent, cache) if not folder.exists()]
    cache.mkdir(parents=True, exist_ok=True)
    for folder in new:
        _give_away(folder, cache)


def _give_away(path: Path, cache: Path) -> None:
    """To whom the tree belongs."""
    owner = cache.parent.parent.stat()
    if os.geteuid() == 0:
        os.chown(path, owner.st_uid, owner.st_gid)
