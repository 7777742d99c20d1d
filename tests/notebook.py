"""Code of a page, executed as the cells of a notebook."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import nbformat

_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# In a process of its own: the client leaves sockets to the end of its process. Sockets in a folder take no ports.
_EXECUTE = """
import sys, tempfile
import nbformat
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient

name, folder, timeout_s = sys.argv[1:]
notebook = nbformat.read(name, as_version=4)
with tempfile.TemporaryDirectory(prefix="kernel-") as sockets:
    kernel = AsyncKernelManager(kernel_name="python3", transport="ipc", ip=f"{sockets}/kernel")
    NotebookClient(notebook, km=kernel, timeout=float(timeout_s), resources={"metadata": {"path": folder}}).execute()
nbformat.write(notebook, name)
"""


def python_blocks(page: Path) -> list[str]:
    """Return the Python code blocks of a page of docs/, in their order."""
    return _BLOCK.findall(page.read_text())


def code_cells(notebook: Path) -> list[str]:
    """Return the code of a notebook's cells, in their order."""
    return [cell.source for cell in nbformat.read(notebook, as_version=4).cells if cell.cell_type == "code"]


def executed(cells: list[str], folder: Path, timeout_s: float) -> str:
    """Execute cells in the kernel of this Python, in `folder`, and return what they printed; one that raises fails."""
    file = folder / "notebook.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells]), file)
    command = [sys.executable, "-c", _EXECUTE, str(file), str(folder), str(timeout_s)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s + 60, check=False)
    assert done.returncode == 0, done.stderr[-5000:]
    outputs = [output for cell in nbformat.read(file, as_version=4).cells for output in cell.outputs]
    return "".join(output.text for output in outputs if output.output_type == "stream" and output.name == "stdout")
