"""Difference of two colours as people see it: CIEDE2000, also with deuteranopia simulated, and in grey.

CIEDE2000: Sharma, Wu, Dalal, "The CIEDE2000 Color-Difference Formula", Color Research and Application 30 (2005).
Deuteranopia: Machado, Oliveira, Fernandes, IEEE Transactions on Visualization 15 (2009), severity 1.0, on linear RGB.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

Vector = tuple[float, float, float]

VISIONS = ("normal", "deuteranopia", "grey")
"""Ways in which a reader may see a figure; grey is a print without colours."""
_TO_XYZ = ((0.4124564, 0.3575761, 0.1804375), (0.2126729, 0.7151522, 0.0721750), (0.0193339, 0.1191920, 0.9503041))
_DEUTERANOPIA = ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881))
_GREY = (_TO_XYZ[1],) * 3
_WHITE = (0.95047, 1.0, 1.08883)
"""D65, which sRGB is made for."""


@functools.cache
def difference(one: str, other: str, vision: str = "normal") -> float:
    """Return the CIEDE2000 difference of two sRGB colours such as "#0077E0", as seen with one of `VISIONS`."""
    return ciede2000(_lab(one, vision), _lab(other, vision))


def _lab(color: str, vision: str) -> Vector:
    """Return CIELAB of a colour."""
    linear = tuple(_linear(int(color[place : place + 2], 16) / 255) for place in (1, 3, 5))
    if vision != "normal":
        seen = _times(_DEUTERANOPIA if vision == "deuteranopia" else _GREY, linear)
        linear = tuple(min(max(value, 0.0), 1.0) for value in seen)
    x, y, z = (_bent(value / white) for value, white in zip(_times(_TO_XYZ, linear), _WHITE, strict=True))
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def _linear(value: float) -> float:
    return value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4


def _bent(value: float) -> float:
    return math.cbrt(value) if value > 216 / 24389 else (24389 / 27 * value + 16) / 116


def _times(matrix: Sequence[Sequence[float]], vector: Sequence[float]) -> Vector:
    x, y, z = (sum(a * b for a, b in zip(row, vector, strict=True)) for row in matrix)
    return x, y, z


def ciede2000(one: Vector, other: Vector) -> float:
    """Return the difference of two CIELAB colours, all weights 1; symbols as in Sharma et al., section 2."""
    (l1, a1, b1), (l2, a2, b2) = one, other
    c7 = ((math.hypot(a1, b1) + math.hypot(a2, b2)) / 2) ** 7
    stretched = 1 + 0.5 * (1 - math.sqrt(c7 / (c7 + 25**7)))
    a1, a2 = a1 * stretched, a2 * stretched
    c1, c2 = math.hypot(a1, b1), math.hypot(a2, b2)
    h1, h2 = (math.degrees(math.atan2(b, a)) % 360 for a, b in ((a1, b1), (a2, b2)))
    turn = h2 - h1
    turn += 360 * ((turn < -180) - (turn > 180))
    if c1 * c2 == 0:
        turn, hue = 0.0, h1 + h2
    elif abs(h1 - h2) <= 180:
        hue = (h1 + h2) / 2
    else:
        hue = (h1 + h2 + (360 if h1 + h2 < 360 else -360)) / 2
    dh = 2 * math.sqrt(c1 * c2) * math.sin(math.radians(turn / 2))
    lightness, chroma = (l1 + l2) / 2, (c1 + c2) / 2
    t = 1.0
    for weight, factor, shift in ((-0.17, 1, -30), (0.24, 2, 0), (0.32, 3, 6), (-0.20, 4, -63)):
        t += weight * math.cos(math.radians(factor * hue + shift))
    sl = 1 + 0.015 * (lightness - 50) ** 2 / math.sqrt(20 + (lightness - 50) ** 2)
    sc, sh = 1 + 0.045 * chroma, 1 + 0.015 * chroma * t
    rc = 2 * math.sqrt(chroma**7 / (chroma**7 + 25**7))
    rt = -rc * math.sin(math.radians(60 * math.exp(-(((hue - 275) / 25) ** 2))))
    l_part, c_part, h_part = (l2 - l1) / sl, (c2 - c1) / sc, dh / sh
    return math.sqrt(l_part**2 + c_part**2 + h_part**2 + rt * c_part * h_part)
