"""The font files of workload `glyphs`, as Debian 12 has them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

FOLDER = Path("/usr/share/fonts")


@dataclass(frozen=True)
class Face:
    file: str
    """Below `FOLDER`."""
    sha256: str
    held_out: bool = False
    """In test images only."""


PACKAGES = {
    "comfortaa": "fonts-comfortaa",
    "dejavu": "fonts-dejavu-core",
    "dosis": "fonts-dosis",
    "dustin": "fonts-dustin",
    "fonts-oldstandard": "fonts-oldstandard",
    "freefont": "fonts-freefont-ttf",
    "gentium-basic": "fonts-sil-gentium-basic",
    "jura": "fonts-jura",
    "linux-libertine": "fonts-linuxlibertine",
    "open-sans": "fonts-open-sans",
}
"""By the name of the folder that the files lie in."""

FACES = (
    Face("truetype/dejavu/DejaVuSans.ttf", "abdc775b21b1bc470d50c97e790d276f2054b7504e56e5bd3e64f48d68582322"),
    Face("truetype/dejavu/DejaVuSans-Bold.ttf", "0d977336a6d5fba34eab8e3199eb218327161b5143749f802982c2bc34df0c96"),
    Face("truetype/dejavu/DejaVuSansMono.ttf", "0f5db4f1749979d961019838b160bec74abdf7f9eca69553fe1aa856bbff49a4"),
    Face("truetype/dejavu/DejaVuSerif.ttf", "13e61509f5c81d7c3132810f4f903e3523df89c802bf6e0674621e8f659cdfe1"),
    Face("truetype/dejavu/DejaVuSerif-Bold.ttf", "e2fd85eba2de65ac270d1cdb1685e252eb827f600850cf62af2d20c41b22e945"),
    Face("truetype/freefont/FreeSans.ttf", "0b602f2825b30f9faa772c2ca25b1ce05b6255c9bf02dd8ca088ae51f9f737bb"),
    Face(
        "truetype/freefont/FreeSansBoldOblique.ttf", "69cdc7587112f2b2cf6f460da6ce2c19a983a80905a2863dafe7e5a92ad6e4af"
    ),
    Face("truetype/freefont/FreeSerif.ttf", "12ee050384c99c97a6873708a3aebde3d795de8d8ed069b1a0e3274ab3e5be03"),
    Face("truetype/freefont/FreeSerifItalic.ttf", "3049ffb26ed8140c13e21d612d78e18ff3dc20123b85d1f7353a1564163a5e9b"),
    Face("truetype/freefont/FreeMono.ttf", "1175cc31865a2a1bf011a7711ddab98302343bd679181b360a0e845774c61ecf"),
    Face("truetype/freefont/FreeMonoBold.ttf", "30b4b98748839431a366123f859871549b57e461a8b8ec2d3d65b55b2fb9f22d"),
    Face(
        "opentype/linux-libertine/LinLibertine_R.otf",
        "057bbfa1ac76133c8ae596eff0baf1fd662b2b60e830e6d45cfec5d21489eda3",
    ),
    Face(
        "opentype/linux-libertine/LinLibertine_RI.otf",
        "f0632ade6a312b8cc30c348837e9f72a0768a42fe1c1e1509651a0a1d03ba4ee",
    ),
    Face(
        "opentype/linux-libertine/LinLibertine_RBI.otf",
        "6e4110ae96266811ec3d6473853c6704e9f0e7ff698c0b284acce006344659ca",
    ),
    Face(
        "opentype/linux-libertine/LinBiolinum_R.otf", "f3cf97ba8cc3a511729bb3ff701d9ff038d94c4c72d2998ee9b40aece8d33f52"
    ),
    Face(
        "opentype/linux-libertine/LinBiolinum_RI.otf",
        "bdade79be87ba1e9f53a9ec7e80f9ec5b55aeb16fb801646782c1620387661c9",
    ),
    Face("truetype/open-sans/OpenSans-Regular.ttf", "e64e508b2aa2880f907e470c4550980ec4c0694d103a43f36150ac3f93189bee"),
    Face(
        "truetype/open-sans/OpenSans-CondBold.ttf", "a859a438018739aee16c306586d91a453c208ee500c827d9e9aa063155c8a6e8"
    ),
    Face(
        "truetype/open-sans/OpenSans-CondLightItalic.ttf",
        "78192c6fac88767e8ea1d2b8971af5e9af617f6375bf50b39ead92841f90337c",
    ),
    Face(
        "truetype/open-sans/OpenSans-ExtraBold.ttf", "0fcbdb5cbeea00ae532352c7c94a7d288ebc911ba85f4d595012032dcab64ba8"
    ),
    Face("truetype/dustin/Dustismo.ttf", "f133114a5dc815db119f8bf8fe4eeaa89520ad901c43e5a4919dc9d519288f61"),
    Face("truetype/dustin/Dustismo_Roman.ttf", "2c74987fd63960b15f87f2bbaa097200c9149aba7a035cd390bb1dc5394c3f0f"),
    Face("truetype/dustin/It_wasn_t_me.ttf", "a18f643bfedebb73da16b1fd98f1c2919a524c8a55e6d8391e19b7984f357e54"),
    Face("truetype/dustin/PenguinAttack.ttf", "b0048a03cb65ab9f570c444fdf77075342f38cd37dbc1a3a4be6d7c3e89fc930"),
    Face("truetype/dustin/Junkyard.ttf", "126c49b10dfceae16ce53bf8593956f17853f4ed3d0177d1f724247b27e08636"),
    Face("opentype/dosis/Dosis-ExtraLight.otf", "b0e00710fb3e7ee647b15c71fa29b1737958b2c784800c6b4f0396ae8e56c04f"),
    Face("opentype/dosis/Dosis-Bold.otf", "d8104572bfffb5c1adf4bad50c6d0025a255d184638c7b130d9ee8b9d45d447b"),
    Face("truetype/comfortaa/Comfortaa-Light.ttf", "6c7392e5bcb8b12441a2b2d3fbac08d598d1ec4cf66e4f6f7338b47c8bada638"),
    Face("truetype/comfortaa/Comfortaa-Bold.ttf", "0b82ab5fdba8e0147e38e89237ea4a430f0d7017c313d9b8e56a309acde756c0"),
    Face(
        "truetype/gentium-basic/GenBasR.ttf",
        "f0248c5a6d76dca62c639fdfdde97f9ae60c05c96bec03925d522531d7c0ca37",
        held_out=True,
    ),
    Face(
        "truetype/gentium-basic/GenBkBasBI.ttf",
        "dccbca56a0d1bdbcc440e3b2070ee0ef63fd834454196baeaa8226ead9c82f07",
        held_out=True,
    ),
    Face(
        "opentype/jura/Jura-Light.otf",
        "558d2c4d7c22bc5a4c587662561212e4324dc88737ada4853fddb5872f85601d",
        held_out=True,
    ),
    Face(
        "opentype/jura/Jura-Bold.otf", "1d851c391fd8fab54da67e0bf23c9775b3a465dc7bcde090fab95df7a0b5d7b2", held_out=True
    ),
    Face(
        "truetype/fonts-oldstandard/OldStandard-Regular.ttf",
        "74916923e4f0c26a88d37de10e3b2f50ab26a8c6c369430f55e0574df8d713a5",
        held_out=True,
    ),
    Face(
        "truetype/fonts-oldstandard/OldStandard-Italic.ttf",
        "b49b08875736e850758def3405c4f14ef1488da005dfc4c2bc1ebb1873e09e47",
        held_out=True,
    ),
    Face(
        "truetype/dustin/Domestic_Manners.ttf",
        "7a5a9423f3d612417592ac573af628d7266b0e0c809cdb659614f842c5b92882",
        held_out=True,
    ),
    Face(
        "truetype/dustin/El_Abogado_Loco.ttf",
        "70bc5240027765437bd07a45bb6afebb9fd6e08ec252625ecd8a7f8fbaf5b67a",
        held_out=True,
    ),
)
