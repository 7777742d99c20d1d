"""`samples.parquet`: every sample of a run, one a row."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import numpy as np

from testbed.analysis.samples import Series
from testbed.core.metrics import METRICS


def write_parquet(series: Series, path: Path) -> None:
    """Write (t_s DOUBLE, metric VARCHAR, labels MAP(VARCHAR, VARCHAR), value DOUBLE), ordered by all but the value."""
    keys = sorted(series.points)
    connection = duckdb.connect(config={"threads": 1})
    connection.execute("CREATE TABLE series (id INTEGER, metric VARCHAR, labels VARCHAR)")
    for index, (name, labels) in enumerate(keys):
        row = [index, METRICS[name].series, json.dumps(dict(sorted(labels)))]
        connection.execute("INSERT INTO series VALUES (?, ?, ?)", row)
    lengths = [len(series.points[key]) for key in keys]
    columns = {
        "id": np.repeat(np.arange(len(keys), dtype=np.int32), lengths),
        "t_ms": np.fromiter((t_ms for key in keys for t_ms in series.points[key]), np.int64, sum(lengths)),
        "value": np.fromiter(
            (value for key in keys for value in series.points[key].values()), np.float64, sum(lengths)
        ),
    }
    # Values take part in no cast or arithmetic: what the record says is what the file holds.
    connection.register("samples", columns)
    target = str(path).replace("'", "''")
    connection.execute(
        "COPY (SELECT t_ms / 1000 AS t_s, metric, CAST(labels::JSON AS MAP(VARCHAR, VARCHAR)) AS labels, value"
        " FROM samples JOIN series USING (id) ORDER BY t_ms, id)"
        f" TO '{target}' (FORMAT parquet, COMPRESSION zstd)"
    )
    connection.close()
