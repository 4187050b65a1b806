"""The engine that an option names: one text form for commands and for Python."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from tfplace.core.engine import Engine
from tfplace.errors import InputError

if TYPE_CHECKING:
    from tfplace.engines.dask_workers import DaskEngine

FORM = "processes:NUMBER|dask|dask:ADDRESS"

MOST_PROCESSES = 1000
"""That one machine may be asked for."""

_EXPECTED = "processes:NUMBER, dask, or dask:ADDRESS of a scheduler such as dask:tcp://127.0.0.1:8786"
_CERTIFICATES = {"ca": "tls_ca_file", "cert": "tls_client_cert", "key": "tls_client_key"}
"""What follows an address after a comma, and what Dask calls it."""


def chosen_engine(given: object) -> Engine:
    """The engine meant. Nothing is started or connected.

    Args:
      given: "processes:NUMBER"; "dask" for a cluster of this machine; "dask:ADDRESS" of a scheduler, for TLS such as
        "dask:tls://host:8786,ca=ca.pem,cert=cert.pem,key=key.pem"; a running `distributed.Client`; or an engine.

    Raises:
      InputError: it is something else, or there are no such files.
      MissingExtraError: Dask is not installed.
    """
    if isinstance(given, str):
        return _named(given)
    if type(given).__module__.partition(".")[0] == "distributed":
        from tfplace.engines.dask_workers import DaskEngine

        return DaskEngine(cast("Any", given))
    if callable(getattr(given, "start", None)):
        return cast("Engine", given)
    raise InputError(f"engine={given!r}", f"{_EXPECTED}, a distributed.Client, or an engine")


def _named(text: str) -> Engine:
    kind, colon, rest = text.partition(":")
    if kind == "processes" and rest.isdecimal() and 0 < int(rest) <= MOST_PROCESSES:
        from tfplace.engines.process_workers import ProcessEngine

        return ProcessEngine(int(rest))
    if kind == "processes":
        raise InputError(f"engine={text!r}", f"processes:NUMBER, from 1 to {MOST_PROCESSES}")
    if kind == "dask" and bool(colon) == bool(rest):
        return _on_dask(rest)
    raise InputError(f"engine={text!r}", _EXPECTED)


def _on_dask(rest: str) -> DaskEngine:
    from tfplace.engines.dask_workers import DaskEngine

    address, *more = rest.split(",")
    if not more:
        return DaskEngine(address or None)
    files = dict(pair.partition("=")[::2] for pair in more)
    if {*files} != {*_CERTIFICATES}:
        names = ",".join(f"{name}=FILE" for name in _CERTIFICATES)
        raise InputError(f"engine={f'dask:{rest}'!r}", f"dask:tls://HOST:PORT,{names}")
    for name, path in files.items():
        if not Path(path).is_file():
            raise InputError(f"{name}={path}, which is not a file", f"a file in PEM format as {name}")
    from distributed import Security

    security = Security(require_encryption=True, **{_CERTIFICATES[name]: path for name, path in files.items()})
    return DaskEngine(address, security=security)
