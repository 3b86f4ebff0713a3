"""The families of models whose Hugging Face folders are read and written, one declaration a file."""

from __future__ import annotations

from tinyxp.formats.families.gpt2 import GPT2
from tinyxp.formats.families.llama import LLAMA
from tinyxp.formats.families.mistral import MISTRAL
from tinyxp.formats.families.qwen2 import QWEN2
from tinyxp.formats.family import Family

FAMILIES: dict[str, Family] = {family.model_type: family for family in (GPT2, LLAMA, MISTRAL, QWEN2)}
"""model_type -> family. A config is written as the first family that can say it."""
