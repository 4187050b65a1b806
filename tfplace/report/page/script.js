"use strict";

// ---- quantities, as tfplace.formatting writes them ----
function digits(number) {
  const size = Math.abs(number);
  return number.toFixed(size < 9.995 ? 2 : size < 99.95 ? 1 : 0);
}
function seconds(nanoseconds) {
  for (const [factor, unit] of [[1e9, "s"], [1e6, "ms"], [1e3, "us"]]) {
    if (Math.abs(nanoseconds) >= 0.9995 * factor) return `${digits(nanoseconds / factor)} ${unit}`;
  }
  return nanoseconds === 0 ? "0 s" : `${digits(nanoseconds)} ns`;
}
function bytes(size) {
  for (const [power, unit] of [[40, "TiB"], [30, "GiB"], [20, "MiB"], [10, "KiB"]]) {
    if (size >= 2 ** power) return `${digits(size / 2 ** power)} ${unit}`;
  }
  return `${size} B`;
}

// ---- tables that can be sorted and filtered ----
for (const table of document.querySelectorAll("table[data-sorts]")) {
  const body = table.tBodies[0];
  const value = (row, column) => {
    const cell = row.cells[column];
    return cell.dataset.value === undefined ? cell.textContent : Number(cell.dataset.value);
  };
  [...table.tHead.rows[0].cells].forEach((heading, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = heading.textContent;
    heading.replaceChildren(button);
    button.addEventListener("click", () => {
      const numbers = body.rows.length > 0 && typeof value(body.rows[0], column) === "number";
      const before = heading.getAttribute("aria-sort");
      const down = before ? before === "ascending" : numbers;  // numbers: the largest first
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      heading.setAttribute("aria-sort", down ? "descending" : "ascending");
      const order = (a, b) => (numbers ? value(a, column) - value(b, column) : value(a, column).localeCompare(value(b, column)));
      body.append(...[...body.rows].sort((a, b) => (down ? order(b, a) : order(a, b))));
    });
  });
}
const filter = document.getElementById("layers-filter");
if (filter) {
  const rows = [...document.getElementById("layers-table").tBodies[0].rows];
  const count = document.getElementById("layers-count");
  document.getElementById("layers-tools").hidden = false;
  filter.addEventListener("input", () => {
    const wanted = filter.value.trim().toLowerCase();
    for (const row of rows) row.hidden = !row.textContent.toLowerCase().includes(wanted);
    count.textContent = `${rows.filter((row) => !row.hidden).length} of ${rows.length} layers`;
  });
}

// ---- the step, from its compact form ----
function readStep(data) {
  const names = [];
  data.names.rest.forEach((rest, i) => names.push((names[i - 1] ?? "").slice(0, data.names.shared[i]) + rest));
  const lanes = data.devices.map((name, d) => ({ name, colour: data.colours[d], ops: [], moves: [] }));
  const { ops, moves } = data, none = data.layers.length - 1;  // the last stands for no layer
  let v = 0, device = -1, at = 0;
  for (const [d, count] of ops.device) {
    for (const stop = v + count; v < stop; v++) {
      const start = (d === device ? at : 0) + ops.gap[v];
      device = d;
      at = start + ops.took[v];
      lanes[d].ops.push({
        name: names[ops.name[v]], type: data.types[ops.type[v]], layer: ops.layer[v] < none ? data.layers[ops.layer[v]] : "",
        lane: d, start, end: at, bytes: ops.bytes[v], critical: false,
      });
    }
  }
  const all = lanes.flatMap((lane) => lane.ops);
  for (const i of ops.critical) all[i].critical = true;
  const sent = moves.name.map((name, m) => ({
    name: names[name], lane: moves.src[m], to: moves.dst[m], start: moves.start[m],
    end: moves.start[m] + moves.took[m], bytes: moves.bytes[m], critical: false,
  }));
  for (const i of moves.critical) sent[i].critical = true;
  for (const one of sent) lanes[one.lane].moves.push(one);
  for (const lane of lanes) lane.reach = furthest(lane.moves);
  const used = new Set([...all.map((op) => op.lane), ...sent.flatMap((one) => [one.lane, one.to])]);
  return { lanes, used: [...used].sort((a, b) => a - b), end: data.end || 1, hasPath: data.hasPath, ops: all, sent };
}
// The latest end of each and all before it: transfers of one device overlap.
function furthest(spans) {
  let most = 0;
  return spans.map((span) => (most = Math.max(most, span.end)));
}
// How many are at most `time`, by a number that ascends.
function upTo(list, time, number) {
  let low = 0, high = list.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (number(list[middle], middle) <= time) low = middle + 1; else high = middle;
  }
  return low;
}

// ---- the timeline ----
function timeline(step) {
  const element = (id) => document.getElementById(id);
  const canvas = element("timeline-canvas"), tip = element("tip"), picked = element("picked"), view = element("timeline-view");
  const LABEL = 18, OPS = 24, MOVES = 10, GAP = 10, AXIS = 22, LANE = LABEL + OPS + 2 + MOVES + GAP;
  const height = AXIS + step.used.length * LANE;
  const path = [...step.ops, ...step.sent].filter((one) => one.critical).sort((a, b) => a.start - b.start);
  let from = 0, to = step.end, selected = null, hovered = null, width = 1;
  element("timeline-still").hidden = true;
  view.hidden = false;

  const x = (time) => ((time - from) / (to - from)) * width;
  const time = (pixel) => from + (pixel / width) * (to - from);
  const top = (lane) => AXIS + step.used.indexOf(lane) * LANE + LABEL;
  const isMove = (one) => one.to !== undefined;
  const box = (one) => (isMove(one) ? [top(one.lane) + OPS + 2, MOVES] : [top(one.lane), OPS]);

  function show(a, b) {
    const least = Math.max(step.end * 1e-6, 20);
    const span = Math.min(Math.max(b - a, least), step.end);
    const middle = (a + b) / 2;
    from = Math.min(Math.max(middle - span / 2, 0), step.end - span);
    to = from + span;
    draw();
  }
  function zoom(times, around = (from + to) / 2) {
    show(around - (around - from) * times, around + (to - around) * times);
  }
  const channels = (colour) => [1, 3, 5].map((i) => parseInt(colour.slice(i, i + 2), 16));
  // Mixed here and not drawn transparent: short ops on one another would look dark.
  function pale(colour, page) {
    const mixed = channels(colour).map((part, i) => Math.round(0.38 * part + 0.62 * channels(page)[i]));
    return `rgb(${mixed.join()})`;
  }
  function contrast(colour) {
    const [r, g, b] = channels(colour).map((part) => (part / 255) ** 2.2);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.18 ? "#000000" : "#ffffff";
  }

  function draw() {
    const style = getComputedStyle(document.documentElement), ratio = window.devicePixelRatio || 1;
    const text = style.getPropertyValue("--text").trim(), quiet = style.getPropertyValue("--quiet").trim();
    const line = style.getPropertyValue("--line").trim(), accent = style.getPropertyValue("--accent").trim();
    const page = style.getPropertyValue("--page").trim();
    width = canvas.clientWidth || 1;
    canvas.style.height = `${height}px`;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    const pen = canvas.getContext("2d");
    pen.scale(ratio, ratio);
    pen.font = "12px system-ui, sans-serif";
    pen.textBaseline = "middle";
    drawAxis(pen, quiet, line);
    for (const d of step.used) {
      const lane = step.lanes[d];
      pen.fillStyle = text;
      pen.fillText(lane.name, 4, top(d) - LABEL / 2);
      pen.fillStyle = line;
      pen.fillRect(0, top(d) + OPS + 2 + MOVES + 3, width, 1);
      const firstMove = upTo(lane.moves, from, (one, i) => lane.reach[i]);
      spans(lane.ops, upTo(lane.ops, from, (op) => op.end), () => lane.colour, pen, text, page);
      spans(lane.moves, firstMove, (one) => step.lanes[one.to].colour, pen, text, page);
    }
    for (const [one, colour] of [[hovered, quiet], [selected, accent]]) {
      if (!one) continue;
      const [y, tall] = box(one);
      for (const [stroke, thick] of [[page, 5], [colour, 2.5]]) {
        pen.strokeStyle = stroke;
        pen.lineWidth = thick;
        pen.strokeRect(x(one.start) - 1, y - 1, Math.max(x(one.end) - x(one.start), 2) + 2, tall + 2);
      }
    }
  }
  function drawAxis(pen, quiet, line) {
    const rough = ((to - from) / width) * 110, power = 10 ** Math.floor(Math.log10(rough));
    const tick = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough);
    for (let at = Math.ceil(from / tick) * tick; at <= to; at += tick) {
      pen.fillStyle = line;
      pen.fillRect(x(at), AXIS - 4, 1, height - AXIS + 4);
      pen.fillStyle = quiet;
      if (x(at) < width - 50) pen.fillText(seconds(at), x(at) + 3, 9);
    }
  }
  function spans(list, first, colour, pen, text, page) {
    let covered = -1;
    for (let i = first; i < list.length && list[i].start < to; i++) {
      const one = list[i], [y, tall] = box(one);
      const left = Math.max(x(one.start), -2), right = Math.min(Math.max(x(one.end), x(one.start) + 0.5), width + 2);
      if (right <= covered && !one.critical && !isMove(one)) continue;
      const beside = step.hasPath && !one.critical;
      pen.fillStyle = beside ? pale(colour(one), page) : colour(one);
      pen.fillRect(left, y, Math.max(right - left - (right - left > 3 ? 0.5 : 0), 0.5), tall);
      if (one.critical) {
        pen.fillStyle = text;
        pen.fillRect(left, y + tall - 2, Math.max(right - left, 1), 2);
      }
      if (right - left > 48 && !isMove(one)) {
        pen.fillStyle = beside ? text : contrast(colour(one));
        const name = one.name.split("/").at(-1), fits = Math.floor((right - left - 8) / 6.5);
        pen.fillText(name.length > fits ? `${name.slice(0, fits - 1)}…` : name, left + 4, y + tall / 2);
      }
      covered = Math.max(covered, right);
    }
  }

  function facts(one) {
    const path = one.critical ? ", on the critical path" : "";
    const when = `from ${seconds(one.start)}, takes ${seconds(one.end - one.start)}`;
    if (isMove(one)) {
      return [one.name, `sent from ${step.lanes[one.lane].name} to ${step.lanes[one.to].name}, ${bytes(one.bytes)}, ${when}${path}`];
    }
    return [one.name, `${one.type}, ${one.layer ? `layer ${one.layer}` : "no layer"}, on ${step.lanes[one.lane].name}, ${when}, results of ${bytes(one.bytes)}${path}`];
  }
  function tell(target, one) {
    const [name, rest] = facts(one), strong = document.createElement("b");
    strong.textContent = name;
    target.replaceChildren(strong, document.createElement("br"), rest);
  }
  function select(one) {
    selected = one;
    if (!one) {
      picked.textContent = "Nothing is selected.";
      return draw();
    }
    tell(picked, one);
    if (one.start < from || one.end > to) {
      const span = Math.max(to - from, one.end - one.start), middle = (one.start + one.end) / 2;
      show(middle - span / 2, middle + span / 2);
    } else draw();
    const [y] = box(one), board = canvas.parentElement;
    if (y < board.scrollTop || y + OPS > board.scrollTop + board.clientHeight) board.scrollTop = y - board.clientHeight / 2;
  }
  function at(pixel, y) {
    const d = step.used[Math.floor((y - AXIS) / LANE)], when = time(pixel), slack = (to - from) / width;
    if (d === undefined || y < AXIS) return null;
    const lane = step.lanes[d], within = (y - AXIS) % LANE;
    if (within < LABEL + OPS + 1) {
      const i = upTo(lane.ops, when, (op) => op.start) - 1;
      return [lane.ops[i], lane.ops[i + 1]].find((op) => op && op.start - 2 * slack <= when && when <= op.end + 2 * slack) ?? null;
    }
    for (let i = upTo(lane.moves, when + slack, (one) => one.start) - 1; i >= 0 && lane.reach[i] >= when - slack; i--) {
      if (lane.moves[i].end >= when - slack) return lane.moves[i];
    }
    return null;
  }
  function next(step_) {
    if (!path.length) return;
    const i = path.indexOf(selected);
    const now = i < 0 ? upTo(path, selected ? selected.start : from - 1, (one) => one.start) - (step_ > 0 ? 1 : 0) : i;
    select(path[Math.min(Math.max(now + step_, 0), path.length - 1)]);
  }
  function beside(by) {
    if (!selected || isMove(selected)) return select(at(width / 2, AXIS + LABEL + 1) ?? step.lanes[step.used[0]].ops[0] ?? null);
    const { ops } = step.lanes[selected.lane];
    select(ops[Math.min(Math.max(ops.indexOf(selected) + by, 0), ops.length - 1)]);
  }
  function elsewhere(by) {
    if (!selected) return beside(0);
    for (let i = step.used.indexOf(selected.lane) + by; i >= 0 && i < step.used.length; i += by) {
      const { ops } = step.lanes[step.used[i]];
      if (ops.length) return select(ops[Math.max(upTo(ops, selected.start, (op) => op.start) - 1, 0)]);
    }
  }

  const middle = () => (selected && selected.end > from && selected.start < to ? (selected.start + selected.end) / 2 : (from + to) / 2);
  const pan = (part) => show(from + part * (to - from), to + part * (to - from));
  const deeds = {
    in: () => zoom(0.5, middle()), out: () => zoom(2, middle()), all: () => show(0, step.end),
    earlier: () => pan(-0.4), later: () => pan(0.4), next: () => next(1),
  };
  for (const button of view.querySelectorAll("button[data-do]")) {
    button.hidden = button.dataset.do === "next" && !path.length;
    button.addEventListener("click", deeds[button.dataset.do]);
  }
  const keys = {
    ArrowLeft: () => beside(-1), ArrowRight: () => beside(1), ArrowUp: () => elsewhere(-1), ArrowDown: () => elsewhere(1),
    "+": deeds.in, "=": deeds.in, "-": deeds.out, 0: deeds.all, c: () => next(1), C: () => next(-1), Escape: () => select(null),
    PageUp: deeds.earlier, PageDown: deeds.later,
  };
  canvas.addEventListener("keydown", (event) => {
    if (!keys[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    keys[event.key]();
  });

  const pointers = new Map();
  let moved = 0;
  canvas.addEventListener("pointerdown", (event) => {
    pointers.set(event.pointerId, event.offsetX);
    moved = 0;
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (pointers.has(event.pointerId)) return drag(event);
    hover(event);
  });
  function drag(event) {
    const before = pointers.get(event.pointerId), others = [...pointers].filter(([id]) => id !== event.pointerId);
    pointers.set(event.pointerId, event.offsetX);
    moved += Math.abs(event.offsetX - before);
    if (!others.length) return pan((before - event.offsetX) / width);
    const other = others[0][1];
    zoom(Math.max(Math.abs(before - other), 8) / Math.max(Math.abs(event.offsetX - other), 8), time(other));
  }
  function hover(event) {
    const found = at(event.offsetX, event.offsetY);
    if (found !== hovered) {
      hovered = found;
      draw();
    }
    tip.hidden = !found;
    if (!found) return;
    tell(tip, found);
    tip.style.left = `${Math.min(event.offsetX + 12, width - tip.offsetWidth - 4)}px`;
    const below = event.offsetY + 18;
    tip.style.top = `${below + tip.offsetHeight > height ? Math.max(event.offsetY - tip.offsetHeight - 8, 0) : below}px`;
  }
  canvas.addEventListener("pointerup", (event) => {
    pointers.delete(event.pointerId);
    if (moved < 4) select(at(event.offsetX, event.offsetY));
  });
  canvas.addEventListener("pointercancel", (event) => pointers.delete(event.pointerId));
  canvas.addEventListener("pointerleave", () => {
    tip.hidden = true;
    hovered = null;
    draw();
  });
  canvas.addEventListener("wheel", (event) => {
    if (event.ctrlKey || event.metaKey) zoom(Math.exp(event.deltaY / 200), time(event.offsetX));
    else if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) pan(event.deltaX / width);
    else return;
    event.preventDefault();
  }, { passive: false });

  const find = element("find");
  find.addEventListener("keydown", (event) => {
    const wanted = find.value.trim().toLowerCase();
    if (event.key !== "Enter" || !wanted) return;
    const fits = (op) => op.name.toLowerCase().includes(wanted) || op.layer.toLowerCase().includes(wanted);
    const begin = step.ops.indexOf(selected) + 1;
    const found = [...step.ops.slice(begin), ...step.ops.slice(0, begin)].find(fits);
    if (found) select(found);
    else picked.textContent = `No op or layer has ${find.value.trim()} in its name.`;
  });

  new ResizeObserver(draw).observe(canvas);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  draw();
}

const stepData = JSON.parse(document.getElementById("step-data").textContent);
if (stepData) timeline(readStep(stepData));
