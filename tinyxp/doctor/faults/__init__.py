"""The catalogue of faults: what each says, how to fix it, and what it changes in a right model."""

from __future__ import annotations

from tinyxp.config import Config
from tinyxp.doctor.faults.attention import attention_faults, product_faults
from tinyxp.doctor.faults.blocks import mlp_faults, stream_faults
from tinyxp.doctor.faults.fault import Fault, NumberFault, Row, Scope
from tinyxp.doctor.faults.matrices import matrix_faults
from tinyxp.doctor.faults.norms import norm_faults
from tinyxp.doctor.faults.positions import position_faults
from tinyxp.doctor.faults.rows import row_faults
from tinyxp.doctor.faults.tables import extra_token_faults, layer_faults, table_faults

__all__ = ["Fault", "NumberFault", "Row", "Scope", "list_faults", "list_rows"]

TABLES = (
    norm_faults,
    position_faults,
    attention_faults,
    mlp_faults,
    stream_faults,
    row_faults,
    matrix_faults,
    table_faults,
    layer_faults,
    product_faults,
    extra_token_faults,
)


def list_rows(config: Config) -> list[Row]:
    """Every row of the catalogue that a model of this config can have."""
    return [row for table in TABLES for row in table(config)]


def list_faults(config: Config) -> list[Fault]:
    """Every fault of the catalogue, and each number's common values."""
    faults: list[Fault] = []
    for row in list_rows(config):
        faults += row.faults() if isinstance(row, NumberFault) else [row]
    return faults
