"""Profiles: what they keep, how they merge, and files that are refused."""

import json

import pytest

from tfplace.core.device import Device
from tfplace.cost.profile import DeviceProfile, OpTime, Profile, ProfiledStep
from tfplace.errors import InputError

KEY = ("one core of X", "CPU", "2.21.0", "1 intra-op, 1 inter-op")


def step(fingerprint="f", **changes):
    values = {"step_s": 10e-3, "empty_s": 1e-3, "ops_s": 7e-3, "executions": 1000, **changes}
    return ProfiledStep("net", fingerprint, "2026-01-02T03:04:05+00:00", **values)


def profile(ops=(("A() -> () {}", 1e-6),), steps=None, key=KEY):
    times = {name: OpTime(seconds, seconds / 10, 3, 10) for name, seconds in ops}
    return DeviceProfile(*key, times, tuple(steps or [step()]))


def device(model="one core of X", kind="CPU"):
    return Device("CPU:0", kind, 2**30, {"float32": 1e9}, 1e9, 1e-6, model=model)


def test_overhead_is_what_steps_took_beyond_calls_and_kernels():
    assert profile().overhead_s == pytest.approx(2e-6)
    both = profile(steps=[step(), step("g", step_s=30e-3, ops_s=23e-3, executions=3000)])
    assert both.overhead_s == pytest.approx((2e-3 + 6e-3) / 4000)
    assert profile(steps=[step(ops_s=20e-3)]).overhead_s == 0.0


def test_a_device_finds_its_model_and_the_latest_setting():
    new = profile([("B", 2.0)], key=(*KEY[:2], "2.22.0", KEY[3]))
    both = Profile().updated(profile()).updated(new)
    assert both.of(device()) == new
    assert both.updated(profile()).of(device()).ops == profile().ops
    assert both.of(device("another")) is None
    assert both.of(device(kind="GPU")) is None
    assert both.find(KEY) == profile()
    assert both.find((*KEY[:3], "other threads")).ops == {}


def test_merging_keeps_both_and_prefers_the_newer():
    merged = Profile((profile([("A", 1.0), ("B", 2.0)]),)).updated(profile([("B", 3.0), ("C", 4.0)], [step("g")]))
    (only,) = merged.devices
    assert {name: time.seconds for name, time in only.ops.items()} == {"A": 1.0, "B": 3.0, "C": 4.0}
    assert [s.fingerprint for s in only.steps] == ["f", "g"]


def test_round_trip(tmp_path):
    path = tmp_path / "profile.json"
    kept = Profile((profile(), profile([("B", 0.0)], key=("GPU X", *KEY[1:]))))
    kept.save(path)
    assert Profile.load(path).devices == kept.devices
    assert Profile.load(kept) is kept
    assert not path.with_name("profile.json.part").exists()


def _changed(change):
    data = {
        "format": "tfplace-profile/1",
        "devices": [
            {
                **dict(zip(("model", "type", "tensorflow", "threads"), KEY, strict=True)),
                "op_fields": ["seconds", "spread_s", "ops", "steps"],
                "ops": {"A": [1e-6, 1e-7, 3, 10]},
                "steps": [vars(step())],
            }
        ],
    }
    change(data)
    return data


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.update(format="tfplace-profile/0"), "format 'tfplace-profile/0'.*measured again"),
        (lambda d: d.pop("format"), "format None"),
        (lambda d: d.update(devices={}), "devices as a JSON list"),
        (lambda d: d["devices"].append(3), r"devices\[1\]: int"),
        (lambda d: d["devices"][0].pop("model"), "model as a JSON text"),
        (lambda d: d["devices"][0].update(op_fields=["seconds"]), "op_fields"),
        (lambda d: d["devices"][0]["ops"].update(A=[-1.0, 0, 1, 1]), r"seconds -1.0; expected seconds of at least 0"),
        (lambda d: d["devices"][0]["ops"].update(A=[float("nan"), 0, 1, 1]), "seconds nan"),
        (lambda d: d["devices"][0]["ops"].update(A=[True, 0, 1, 1]), "seconds True"),
        (lambda d: d["devices"][0]["ops"].update(A=[1.0, 0, 0, 1]), "ops 0; expected a whole number above 0"),
        (lambda d: d["devices"][0]["ops"].update(A=[1.0, 0, 2.5, 1]), "ops 2.5"),
        (lambda d: d["devices"][0]["ops"].update(A=[1.0]), "values of seconds, spread_s, ops, steps"),
        (lambda d: d["devices"][0]["steps"][0].pop("step_s"), "step_s None"),
        (lambda d: d["devices"][0]["steps"][0].update(graph=3), "graph 3; expected a text"),
        (lambda d: d["devices"][0].update(steps=[7]), r"steps\[0\]: 7"),
    ],
)
def test_nonsense_is_refused_with_its_place(change, message, tmp_path):
    path = tmp_path / "bad.json"
    path.write_text(json.dumps(_changed(change)))
    with pytest.raises(InputError, match=message):
        Profile.load(path)


def test_no_file_and_no_json(tmp_path):
    with pytest.raises(InputError, match="tfplace profile"):
        Profile.load(tmp_path / "missing.json")
    (tmp_path / "text").write_text("{")
    with pytest.raises(InputError, match="not JSON"):
        Profile.load(tmp_path / "text")
    (tmp_path / "list").write_text("[]")
    with pytest.raises(InputError, match="format 'list'"):
        Profile.load(tmp_path / "list")
    with pytest.raises(InputError, match=r"(?i)is a directory"):
        Profile.load(tmp_path)
