"""The images of workload `glyphs`: characters from Debian's fonts, distorted by a fixed seed.

Every machine that has the same font files and the pinned Pillow and NumPy renders the same bytes: what is drawn comes
from one counter-based generator, all arithmetic is that of IEEE 754 without a function of the system's library, and the
result is rounded to bytes. The files are checked against the hashes below; of the images the hash is told.
"""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import PIL
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont, features

from testbed.core.errors import InputError
from testbed.worker.data import array_cache
from testbed.worker.data.glyph_fonts import FACES, FOLDER, PACKAGES

CHARACTERS = "0123456789ABCDEFGHJKLMNPQRSTUVWXYZabdefghnqrt"
"""Without those that look like another: I, O, and lower-case letters that are small capitals."""
TRAIN_IMAGES, TEST_IMAGES, UNSEEN_IMAGES = 40_000, 10_000, 2_000
"""The last of these among test images, drawn from fonts that training never sees."""
SIDE = 32
CACHE = array_cache.CACHE / "glyphs"

_CAPITAL, _CANVAS = 28, 72
"""Pixels of a capital's height, and of the square it is drawn on, before it is distorted."""
_SEEDS = {"train": 1, "test": 2}
_CHUNK = 1000
_DISTRACTION = 0.3
"""Share of images into which another character reaches."""

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]


@dataclass(frozen=True)
class GlyphImages:
    """Pixels [n, SIDE, SIDE] and indices into `CHARACTERS`."""

    train: tuple[Bytes, Bytes]
    test: tuple[Bytes, Bytes]
    sha256: str
    """Of all of it."""


def font_faults(folder: Path = FOLDER) -> list[str]:
    """Of each font file that is missing or another than expected, with the package that has it."""
    faults = []
    for face in FACES:
        path, package = folder / face.file, PACKAGES[face.file.split("/")[1]]
        try:
            found = hashlib.sha256(path.read_bytes()).hexdigest()
        except OSError as error:
            faults.append(f"font {path}: {error.strerror}; it is in Debian's package {package}: run make setup")
            continue
        if found != face.sha256:
            faults.append(
                f"font {path}: sha256 {found[:16]}…, expected {face.sha256[:16]}…: other images than elsewhere;"
                f" install {package} of Debian 12"
            )
    return faults


@functools.cache
def glyph_images(cache: Path = CACHE) -> GlyphImages:
    """From the cache, or rendered and kept there.

    Raises:
        InputError: fonts are missing or others than expected.
    """
    if faults := font_faults():
        raise InputError(*(f"workload glyphs: {fault}" for fault in faults))
    key = _key()
    rows = array_cache.kept(cache, key)
    if rows is None:
        rows = np.concatenate([_render("train", TRAIN_IMAGES), _render("test", TEST_IMAGES)])
        array_cache.keep(cache, key, rows, alone=True)
    labels, pixels = rows[:, 0].copy(), rows[:, 1:].reshape(-1, SIDE, SIDE).copy()
    return GlyphImages(
        train=(pixels[:TRAIN_IMAGES], labels[:TRAIN_IMAGES]),
        test=(pixels[TRAIN_IMAGES:], labels[TRAIN_IMAGES:]),
        sha256=array_cache.sha256(rows),
    )


def _key() -> str:
    """Of all that the images depend on; the fonts' own hashes are in `FACES`."""
    versions = (np.__version__, PIL.__version__, features.version("freetype2"))
    digest = hashlib.sha256(Path(__file__).read_bytes())
    digest.update(repr((versions, FACES)).encode())
    return digest.hexdigest()[:24]


def _render(part: str, count: int) -> Bytes:
    """Rows of a label and its pixels."""
    random = np.random.Generator(np.random.Philox(_SEEDS[part]))
    seen = [_glyphs(FOLDER / face.file) for face in FACES if not face.held_out]
    unseen = [_glyphs(FOLDER / face.file) for face in FACES if face.held_out]
    rows = np.empty((count, 1 + SIDE * SIDE), dtype=np.uint8)
    for start in range(0, count, _CHUNK):
        size = min(_CHUNK, count - start)
        fonts = unseen if part == "test" and start >= count - UNSEEN_IMAGES else seen
        labels = random.integers(0, len(CHARACTERS), size)
        rows[start : start + size, 0] = labels
        rows[start : start + size, 1:] = _chunk(fonts, labels, random).reshape(size, -1)
    return rows


def _glyphs(path: Path) -> list[tuple[Image.Image, Image.Image]]:
    """Every character in the middle of a canvas, as the font has it and with a wider stroke."""
    high = 64
    top, bottom = ImageFont.truetype(path, high, layout_engine=ImageFont.Layout.BASIC).getbbox("H")[1::2]
    font = ImageFont.truetype(path, high * _CAPITAL / (bottom - top), layout_engine=ImageFont.Layout.BASIC)
    return [(_glyph(font, character, 0), _glyph(font, character, 1)) for character in CHARACTERS]


def _glyph(font: ImageFont.FreeTypeFont, character: str, stroke: int) -> Image.Image:
    canvas = Image.new("L", (_CANVAS, _CANVAS))
    left, top, right, bottom = font.getbbox(character, stroke_width=stroke)
    place = ((_CANVAS - left - right) / 2, (_CANVAS - top - bottom) / 2)
    ImageDraw.Draw(canvas).text(place, character, fill=255, font=font, stroke_width=stroke)
    return canvas


def _chunk(
    fonts: list[list[tuple[Image.Image, Image.Image]]], labels: NDArray[np.int64], random: np.random.Generator
) -> Bytes:
    """One image for each label: distorted, disturbed by its neighbour, blurred, lit, and noisy."""
    size = len(labels)
    ink = _placed(fonts, labels, _affine(random, size, shift=2.0), random)
    others = random.integers(0, len(CHARACTERS), size)
    beside = _placed(fonts, others, _beside(_affine(random, size, shift=1.0), random), random)
    beside[random.random(size) >= _DISTRACTION] = 0
    image = _blurred(np.maximum(ink, beside), random) * (1 / 255)
    image = np.maximum(image, _bar(size, random))
    image = _lit(image, random)
    # Two draws: a triangle is near enough to a bell, and needs no logarithm.
    noise = random.random((size, SIDE, SIDE), np.float32) - random.random((size, SIDE, SIDE), np.float32)
    image += noise * random.uniform(0.02, 0.2, (size, 1, 1)).astype(np.float32)
    return np.clip(image * 255 + 0.5, 0, 255).astype(np.uint8)


def _affine(random: np.random.Generator, size: int, shift: float) -> NDArray[np.float64]:
    """[size, 2, 3]: from pixels of the image, with the origin in its middle, to those of the canvas."""
    # by the tangent of half the angle, up to 15 degrees, which takes no sine
    tangent = random.uniform(-0.13, 0.13, size)
    cosine, sine = (1 - tangent**2) / (1 + tangent**2), 2 * tangent / (1 + tangent**2)
    shear = random.uniform(-0.25, 0.25, size)
    wide, high = (_CAPITAL / random.uniform(15, 23, size) * random.uniform(0.85, 1.15, size) for _ in range(2))
    rows = [
        [wide * cosine, wide * (shear * cosine - sine)],
        [high * sine, high * (shear * sine + cosine)],
    ]
    matrix = np.array(rows).transpose(2, 0, 1)
    moved = random.uniform(-shift, shift, (size, 2))
    offset = -(matrix * moved[:, None, :]).sum(axis=2)
    return np.concatenate([matrix, offset[:, :, None]], axis=2)


def _beside(matrix: NDArray[np.float64], random: np.random.Generator) -> NDArray[np.float64]:
    """Moved to the left or right, or up or down, so far that a part is still inside."""
    size = len(matrix)
    along = random.integers(0, 2, size)
    moved = np.zeros((size, 2))
    moved[np.arange(size), along] = random.uniform(14, 19, size) * (1 - 2.0 * random.integers(0, 2, size))
    matrix[:, :, 2] -= (matrix[:, :, :2] * moved[:, None, :]).sum(axis=2)
    return matrix


def _placed(
    fonts: list[list[tuple[Image.Image, Image.Image]]],
    labels: NDArray[np.int64],
    matrix: NDArray[np.float64],
    random: np.random.Generator,
) -> Floats:
    size = len(labels)
    # Pillow samples at the middle of pixels: (x + 0.5, y + 0.5)
    offset = _CANVAS / 2 + matrix[:, :, 2] - matrix[:, :, :2].sum(axis=2) * (SIDE / 2)
    coefficients = np.concatenate([matrix[:, :, :2], offset[:, :, None]], axis=2).reshape(size, 6)
    chosen = zip(random.integers(0, len(fonts), size), labels, random.integers(0, 2, size), strict=True)
    placed = np.empty((size, SIDE, SIDE), dtype=np.float32)
    for index, (font, label, stroke) in enumerate(chosen):
        canvas = fonts[font][label][stroke]
        placed[index] = canvas.transform(
            (SIDE, SIDE), Image.Transform.AFFINE, coefficients[index].tolist(), Image.Resampling.BILINEAR
        )
    return placed


def _blurred(image: Floats, random: np.random.Generator) -> Floats:
    """Each pixel with its neighbours, along both axes, twice."""
    share = random.uniform(0, 0.3, (len(image), 1, 1)).astype(np.float32)
    for axis in (1, 2, 1, 2):
        padded = np.pad(image, [(0, 0)] + [(1, 1) if a == axis else (0, 0) for a in (1, 2)])
        before, after = (np.take(padded, range(start, start + SIDE), axis=axis) for start in (0, 2))
        image = image * (1 - 2 * share) + (before + after) * share
    return image


def _bar(size: int, random: np.random.Generator) -> Floats:
    """A straight stroke across some of the images."""
    tangent = random.uniform(-1, 1, (size, 1, 1))  # of half the angle: every direction
    cosine, sine = (1 - tangent**2) / (1 + tangent**2), 2 * tangent / (1 + tangent**2)
    middle = np.arange(SIDE) - (SIDE - 1) / 2
    away = np.abs(middle[None, None, :] * cosine + middle[None, :, None] * sine - random.uniform(-12, 12, (size, 1, 1)))
    strength = random.uniform(0.5, 1, (size, 1, 1)) * (random.random((size, 1, 1)) < 0.2)
    return (np.clip(random.uniform(0.8, 1.6, (size, 1, 1)) - away, 0, 1) * strength).astype(np.float32)


def _lit(image: Floats, random: np.random.Generator) -> Floats:
    """Bright ink on darker paper, with a light from one side."""
    size = len(image)
    paper = random.uniform(0, 0.4, (size, 1, 1))
    contrast = random.uniform(0.35, 0.9, (size, 1, 1))
    slope = random.uniform(-0.01, 0.01, (size, 2, 1, 1))
    middle = np.arange(SIDE) - (SIDE - 1) / 2
    light = slope[:, 0] * middle[None, None, :] + slope[:, 1] * middle[None, :, None]
    return (paper + contrast * image + light).astype(np.float32)
