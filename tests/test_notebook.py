"""The notebook of the documents runs as it stands, in a kernel of its own."""

import os
from pathlib import Path

import nbformat
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parents[1] / "docs" / "first_steps.ipynb"


def test_the_notebook_trains_acts_evaluates_and_plots(tmp_path, monkeypatch):
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    monkeypatch.setenv("MPLBACKEND", "agg")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    kept = {cell.id for cell in notebook.cells if cell.get("outputs")}
    resources = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=300, resources=resources).execute()
    results = [
        "".join(output["data"]["text/plain"] for output in cell.outputs if "data" in output)
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]
    assert float(results[2]) > 100  # the return of one episode
    assert os.listdir(tmp_path)
    shown = {
        cell.id for cell in notebook.cells if any("data" in o for o in cell.get("outputs", ()))
    }
    assert kept >= shown, "docs/first_steps.ipynb is to be saved with its outputs"
