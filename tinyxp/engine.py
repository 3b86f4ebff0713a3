"""Engines: how a library runs the model fast. Above the model, which knows nothing of them.

An engine is found in the entry-point group ``tinyxp.engines`` under its backend's name, as a function from
the backend to the engine. A library that names none gets the plain ``Engine``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar

from tinyxp import plugins
from tinyxp.decoding import Decoder
from tinyxp.inputs import as_kernels
from tinyxp.joint import lay_together, project
from tinyxp.model import forward
from tinyxp.params import Params
from tinyxp.registry import Backend, available_backends, backend
from tinyxp.typing import Array

Kernel = Callable[..., Any]


class Engine:
    """One library's fast path: its kernels, its form of the parameters, its compiler, its decoder.

    The methods of this class serve any library. A subclass sets the class attributes, and replaces what its
    library does differently.
    """

    kernels: Mapping[str, Kernel] = {}
    """Faster functions for names in ``tinyxp.ops``, for inference; ``write_cache`` may write in place."""
    training_kernels: Mapping[str, Kernel] = {}
    """The kernels that are faster with gradients too."""
    references: Mapping[str, Kernel] = {}
    """The library's own forms of functions in ``tinyxp.ops``, of the same signatures, to compare with."""
    has_int8: ClassVar[bool] = False
    """Whether the library multiplies by matrices of eight bits."""
    decoder: ClassVar[type[Decoder]] = Decoder
    """What generation drives."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        if backend.has_views:  # then parts of one matrix can be parameters
            self.kernels = {"project": project, **self.kernels}

    def prepare(self, params: Params) -> Params:
        """Return the parameters in the form that this library generates with fastest.

        They serve generation and ``compile`` alone. They may share memory with the given ones; what they do
        not share is a copy, so drop the given ones if memory is scarce.
        """
        if params.is_joined:
            return params
        return Params(lay_together(dict(params), params.config, self.backend), params.config).join()

    def compile(self, params: Params) -> Callable[..., Array]:
        """Return ``tinyxp.forward`` for these parameters as fast as the library makes it.

        The result is a function (ids, *, positions=None, mask=None) -> logits, with the library's kernels,
        joint projections if it has views, and its compiler if it has one; without gradients. Its logits
        differ from those of ``forward`` by rounding only.
        """
        return partial(forward, self.prepare(params), kernels=as_kernels(self.kernels))

    def quantize(self, params: Params) -> Params:
        """Return the parameters with matrices of eight bits, for generation and ``compile`` alone.

        Each row of a matrix is rounded to 127 steps on either side of 0. A tied embedding is kept for looking
        up, and rounded as the head. Raise ValueError if the library has no product for them.
        """
        self.check_int8()
        raise NotImplementedError(f"{type(self).__name__} has int8 but no quantize")

    def check_int8(self) -> None:
        """Raise ValueError if the library has no product for matrices of eight bits."""
        if not self.has_int8:
            raise ValueError(f"dtype is 'int8', which {self.backend.name} has no matrix product for")


def engine_of(backend: Backend) -> Engine:
    """Return the engine of a library: its own, or the plain one."""
    engine: Engine = backend.engine
    return engine


def engine_backends() -> list[Backend]:
    """Return the installed backends that have an engine of their own, those with cheap operations first."""
    versions = available_backends()
    names = [name for name in plugins.entries(plugins.ENGINES) if versions.get(name) is not None]
    return sorted(map(backend, names), key=lambda each: (not each.eager, each.name))


def new_decoder(params: Params, batch: int, length: int) -> Decoder:
    """Return a decoder for ``batch`` rows, with room for ``length`` columns at first."""
    engine = engine_of(params.backend)
    return engine.decoder(params, batch, length, kernels=as_kernels(engine.kernels))
