"""Damage: to bytes, to JSON, to protocol buffers, to arrays. The same generator always does the same."""

from __future__ import annotations

import contextlib
import copy
import math

import numpy as np

DEEP = object()
"""Stands for a value that nests too deeply for `json.dumps`; see `told`."""

ODD = [
    None,
    True,
    -1,
    0,
    1,
    99,
    2**31,
    2**63,
    -(2**63),
    10**13,
    10**30,
    10**400,
    0.5,
    1e-320,
    1e308,
    -1e308,
    math.nan,
    math.inf,
    -math.inf,
    "",
    " ",
    "x",
    "*",
    "GPU:[0]",
    "a\nb",
    "Ünïcödé 目",
    "\ud800",
    "9" * 400,
    "9" * 5000,
    "1e400",
    "x" * 10_000,
    "../../etc/passwd",
    [],
    {},
    [[]],
    [None],
    {"a": {}},
    DEEP,
]


def pick(rng, values):
    return values[int(rng.integers(len(values)))]


def _times(rng):
    """Mostly once: what is damaged twice is mostly refused for the first."""
    return pick(rng, [1, 1, 1, 2, 3])


def damaged_bytes(data, rng):
    """One to three of: a byte changed, a span cut out, doubled, overwritten or exchanged, the end cut off."""
    data = bytearray(data)
    for _ in range(_times(rng)):
        start, size = int(rng.integers(len(data) + 1)), int(rng.integers(1, 17))
        other = int(rng.integers(len(data) + 1))
        match int(rng.integers(7)):
            case 0:
                data[start : start + 1] = rng.bytes(1)
            case 1:
                del data[start : start + size]
            case 2:
                data[start:start] = data[start : start + size]
            case 3:
                data[start : start + size] = pick(rng, [b"\xff", b"\x00", b"\x80"]) * size
            case 4:
                data[start : start + size], data[other : other + size] = (
                    data[other : other + size],
                    data[start : start + size],
                )
            case 5:
                del data[start:]
            case 6:
                data[start:start] = rng.bytes(size)
    return bytes(data)


# ---- JSON ------------------------------------------------------------------------------------------------------------


def damaged_json(data, rng):
    """One to three of: a value replaced by an odd one, left out, doubled, exchanged with another, or renamed."""
    data = copy.deepcopy(data)
    for _ in range(_times(rng)):
        places = [*_places(data)]
        if not places:
            return pick(rng, ODD)
        holder, key = pick(rng, places)
        other, other_key = pick(rng, places)
        match int(rng.integers(5)):
            case 0 | 1:
                holder[key] = copy.deepcopy(pick(rng, ODD))
            case 2:
                del holder[key]
            case 3 if isinstance(holder, list):
                holder.insert(key, copy.deepcopy(holder[key]))
            case 3:
                holder[str(pick(rng, ODD))[:50]] = holder.pop(key)
            case 4:
                holder[key] = copy.deepcopy(other[other_key])
    return data


def _places(value):
    """(container, key) of everything in it."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in [*items]:
        yield value, key
        yield from _places(item)


def told(value):
    """JSON text, also of what nests deeply."""
    import json

    marker = "@deep@"
    text = json.dumps(value, default=lambda _: marker)
    return text.replace(f'"{marker}"', "[" * 100_000 + "]" * 100_000)


# ---- protocol buffers ------------------------------------------------------------------------------------------------


def damage_message(message, rng):
    """One to three fields, somewhere inside, are set to something odd, cleared, doubled, exchanged or left out."""
    for _ in range(_times(rng)):
        _damage_field(*pick(rng, [*_fields(message)]), rng)


def _fields(message):
    """(message, descriptor) of all fields of it and of what it holds; of those that are not set every tenth."""
    for number, field in enumerate(message.DESCRIPTOR.fields):
        value = getattr(message, field.name)
        repeated = field.label == field.LABEL_REPEATED
        if not (len(value) if repeated else not field.has_presence or message.HasField(field.name)):
            if number % 10 == 0:
                yield message, field
            continue
        yield message, field
        if field.message_type is None:
            continue
        if repeated and field.message_type.GetOptions().map_entry:
            inner = [*value.values()] if field.message_type.fields_by_name["value"].message_type else []
        else:
            inner = value if repeated else [value]
        for one in inner:
            yield from _fields(one)


def _damage_field(message, field, rng):
    value, what = getattr(message, field.name), int(rng.integers(4))
    if field.label != field.LABEL_REPEATED:
        if field.message_type is not None or what == 0:
            message.ClearField(field.name)
        else:
            _set(lambda odd: setattr(message, field.name, odd), field, rng)
    elif field.message_type is not None and field.message_type.GetOptions().map_entry:
        keys = sorted(value, key=str)
        if keys and what:
            value.pop(pick(rng, keys), None)
        elif keys and field.message_type.fields_by_name["value"].message_type is not None:
            value[pick(rng, keys)].CopyFrom(value[pick(rng, keys)])
    elif len(value):
        at, other = int(rng.integers(len(value))), int(rng.integers(len(value)))
        if what == 0:
            del value[at]
        elif field.message_type is not None:
            value.add().CopyFrom(value[at]) if what == 1 else value[at].CopyFrom(copy.deepcopy(value[other]))
        elif what == 1:
            value.append(value[at])
        else:
            _set(lambda odd: value.__setitem__(at, odd), field, rng)


def _set(assign, field, rng):
    """An odd value of the field's kind: the first of several that it takes."""
    if field.cpp_type == field.CPPTYPE_STRING:
        odd = [value for value in ODD if isinstance(value, str)]
        odd = odd if field.type == field.TYPE_STRING else [value.encode(errors="surrogatepass") for value in odd]
    else:
        odd = [value for value in ODD if isinstance(value, int | float) and not isinstance(value, bool)]
        odd = [*odd, True] if field.cpp_type == field.CPPTYPE_BOOL else odd
    for value in (pick(rng, odd) for _ in range(20)):
        with contextlib.suppress(TypeError, ValueError, OverflowError):
            assign(value)
            return


# ---- arrays ----------------------------------------------------------------------------------------------------------


def damage_arrays(parts, rng):
    """One array is left out, replaced, cut, doubled, of another type or shape, or has a few odd numbers."""
    name = pick(rng, sorted(parts))
    array = parts[name]
    match int(rng.integers(7)):
        case 0:
            del parts[name]
        case 1:
            parts[name] = parts[pick(rng, sorted(parts))]
        case 2:
            parts[name] = array[..., : int(rng.integers(array.shape[-1] + 1))] if array.ndim else array
        case 3:
            parts[name] = np.concatenate([array, array], -1) if array.ndim else array
        case 4:
            parts[name] = array.astype(pick(rng, ["i1", "<i8", "<f8", "?", "<U3", "<c16"]), copy=True)
        case 5:
            parts[name] = array.reshape(pick(rng, [(-1,), (1, *array.shape), array.shape[::-1]]))
        case _:
            changed = np.array(array)
            for _ in range(int(rng.integers(1, 4))):
                if changed.size:
                    limits = np.iinfo(changed.dtype) if changed.dtype.kind in "iu" else None
                    odd = [0, 1] if limits is None else [limits.min, limits.max, 0, 1, 2, limits.max // 2]
                    changed.flat[int(rng.integers(changed.size))] = pick(rng, odd)
            parts[name] = changed
