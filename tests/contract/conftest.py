from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from compressors.parts.codec_process import CodecProcess

ROOT = str(Path(__file__).resolve().parents[2])
if ROOT not in sys.path:  # the helpers beside the tests are imported by their place in the tree
    sys.path.insert(0, ROOT)


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a helper process whose codecs do what C codecs may do."""
    from tests.contract.hostile_codecs import HOSTILE

    path = tmp_path_factory.mktemp("codecs") / "malformed.py"
    path.write_text(HOSTILE)
    return path


@pytest.fixture
def helper(script: Path) -> Iterator[CodecProcess]:
    helper = CodecProcess(script)
    yield helper
    helper.close()
