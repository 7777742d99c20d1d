"""Fashion-MNIST from Debian's package: images of clothes as rows of bytes."""

from __future__ import annotations

import gzip
from collections.abc import Mapping

import numpy as np

from testbed.worker.data.array_cache import Array
from testbed.worker.data.published.dataset import Dataset
from testbed.worker.data.published.packages import DebianPackage

TRAIN_IMAGES, TEST_IMAGES, SIDE, CLASSES = 60_000, 10_000, 28, 10
_FOLDER = "usr/share/datasets/fashion-mnist"
_BYTES = 8
"""Code of unsigned bytes in the header of an IDX file."""


def parse(files: Mapping[str, bytes]) -> Array:
    """Return a row for each image, training images first: its class, and its pixels row by row, as bytes."""
    parts = []
    for part in ("train", "t10k"):
        images = read_idx(gzip.decompress(files[f"{_FOLDER}/{part}-images-idx3-ubyte.gz"]))
        labels = read_idx(gzip.decompress(files[f"{_FOLDER}/{part}-labels-idx1-ubyte.gz"]))
        parts.append(np.concatenate([labels[:, None], images.reshape(len(images), -1)], axis=1))
    return np.concatenate(parts)


def read_idx(content: bytes) -> Array:
    """Return the array of unsigned bytes in an IDX file.

    Raises:
        ValueError: It is no such file.
    """
    kind, dimensions = content[2], content[3]
    head = 4 + 4 * dimensions
    shape = tuple(int(size) for size in np.frombuffer(content[4:head], dtype=">u4"))
    if content[:2] != b"\0\0" or kind != _BYTES or len(content) != head + np.prod(shape, dtype=int):
        raise ValueError(f"no IDX file of bytes: it begins with {content[:4].hex()} and has {len(content)} bytes")
    return np.frombuffer(content, dtype=np.uint8, offset=head).reshape(shape)


DATASET = Dataset(
    name="fashion",
    package=DebianPackage(
        name="dataset-fashion-mnist",
        version="0.0~git20200523.55506a9-1",
        filename="dataset-fashion-mnist_0.0~git20200523.55506a9-1_all.deb",
        sha256="39e172fe32dd318ebb3e512220c3beea2fa47d7e20bab348fb4e0922d6beefc0",
        size_bytes=30_900_652,
        files={
            f"{_FOLDER}/{name}-ubyte.gz": sha256
            for name, sha256 in (
                ("train-images-idx3", "b0564c3eedabfbf835052cff8503ea422014ce006caf5b757f851416ee8300c7"),
                ("train-labels-idx1", "0ae29f65d86684f32d1b9c85147786c547b9c6aebcaf235f0400a0cce308b056"),
                ("t10k-images-idx3", "cc1d090a38ace84dfa1aa66e3ada7c336ef481a96936906477e6dd344da56eaa"),
                ("t10k-labels-idx1", "8d3605d196f4be44669e46906da9733c8131fef761fdbfec72c424d5222f1a05"),
            )
        },
    ),
    licence="MIT, Zalando SE 2017",
    sha256="21aad080a5e96a3fcb882b59494caf34246facf76eb482bfc80b62d8b626c88e",
    parse=parse,
)
