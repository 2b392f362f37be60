"""Runs on disk, by content hash: entries, netCDF, checksums, locks, provenance. No JAX."""

# fmt: off
from descentlab.store._files import (
    write_entry as write_entry, write_whole as write_whole, writing as writing,
)
from descentlab.store._netcdf import decode as decode, encode as encode
from descentlab.store._provenance import provenance as provenance
from descentlab.store._store import (
    Busy as Busy, run_id as run_id, Store as Store, SWEEPS as SWEEPS, WORK as WORK,
)
