"""The one text form of engines."""

from __future__ import annotations

import importlib.util

import pytest

from tfplace.engines import dask_workers
from tfplace.engines.choose import chosen_engine
from tfplace.engines.cores import own_cores
from tfplace.engines.dask_workers import DaskEngine
from tfplace.engines.in_process import InProcessEngine
from tfplace.engines.process_workers import ProcessEngine
from tfplace.errors import InputError, MissingExtraError


def test_texts_and_engines():
    processes = chosen_engine("processes:3")
    assert isinstance(processes, ProcessEngine) and processes.count == 3
    assert isinstance(chosen_engine("dask:tcp://127.0.0.1:8786"), DaskEngine)
    here = chosen_engine("dask")
    assert isinstance(here, DaskEngine) and here.count == len(own_cores())
    own = InProcessEngine(2)
    assert chosen_engine(own) is own


WRONG = ["", "processes", "processes:0", "processes:two", "processes:1001", "dask:", "ray", "127.0.0.1:8786", 3, None]


@pytest.mark.parametrize("wrong", WRONG)
def test_anything_else_is_refused_with_the_forms_there_are(wrong):
    with pytest.raises(InputError) as refused:
        chosen_engine(wrong)
    assert repr(wrong) in refused.value.received and "processes:NUMBER" in refused.value.expected


def test_certificates_come_with_the_address(tmp_path):
    pem = {name: tmp_path / f"{name}.pem" for name in ("ca", "cert", "key")}
    text = ",".join(["dask:tls://127.0.0.1:8786", *(f"{name}={path}" for name, path in pem.items())])
    with pytest.raises(InputError, match=r"ca=.*ca\.pem"):
        chosen_engine(text)
    for path in pem.values():
        path.touch()
    security = chosen_engine(text)._security
    assert security.tls_ca_file == str(pem["ca"]) and security.tls_client_key == str(pem["key"])
    assert security.require_encryption
    with pytest.raises(InputError, match="ca=FILE,cert=FILE,key=FILE"):
        chosen_engine("dask:tls://127.0.0.1:8786,ca=ca.pem")


def test_dask_that_is_not_installed_is_said_with_the_command(monkeypatch):
    assert importlib.util.find_spec("distributed")
    monkeypatch.setattr(dask_workers, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"pip install 'tfplace\[dask\]'"):
        chosen_engine("dask")
