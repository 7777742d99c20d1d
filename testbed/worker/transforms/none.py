from __future__ import annotations

from testbed.worker.interfaces.transform import Transform


class Unchanged(Transform):
    """Leave the model as it is: the baseline."""

    changes_the_model = False
