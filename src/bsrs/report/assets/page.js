"use strict";
// The page's life: one state, and functions that draw it. Elements are changed in place, so that focus stays.
const data = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);
const state = {
  task: 0, metric: "score", comparison: "area", hidden: new Set(), each: false, dark: false,
  axis: "steps", logX: false, logY: false, smoothing: 0, allRuns: false, sort: null,
};
const ROWS_AT_FIRST = 100;

// ---- plots

const task = () => data.tasks[state.task];
const shown = () => task().series.filter((series) => !state.hidden.has(series.label));
const colour = (series) => series.colour[state.dark ? 1 : 0];
const faded = (hex) => hex + "26";
const isProfile = () => state.metric === "profile";
const inMinutes = () => state.axis === "minutes" && !isProfile();

function layout(extra) {
  const css = getComputedStyle(document.documentElement);
  const [ink, line, card] = ["--ink", "--line", "--card"].map((name) => css.getPropertyValue(name).trim());
  const axis = { gridcolor: line, linecolor: ink, zeroline: false, ticks: "outside", automargin: true };
  return {
    paper_bgcolor: card, plot_bgcolor: card, font: { color: ink, size: 13 },
    margin: { l: 62, r: 18, t: 18, b: 52 }, showlegend: false, hovermode: "closest", hoverlabel: { namelength: -1 },
    xaxis: { ...axis, ...extra.xaxis, title: { text: extra.xaxis.title, standoff: 10 } },
    yaxis: { ...axis, ...extra.yaxis, title: { text: extra.yaxis.title, standoff: 10 } },
  };
}

/** Running mean over `state.smoothing` points to either side; what is unknown stays unknown. */
function smooth(values) {
  if (!state.smoothing) return values;
  return values.map((value, i) => {
    if (value === null) return null;
    const near = values.slice(Math.max(0, i - state.smoothing), i + state.smoothing + 1).filter((each) => each !== null);
    return near.reduce((sum, each) => sum + each, 0) / near.length;
  });
}

/** The record of the quantity on show, on the axes on show; without points where the series has none. */
function record(series) {
  const found = series.metrics[state.metric] ?? { steps: [], middle: [], each: [] };
  const minutes = inMinutes() ? series.seconds_per_step / 60 : 1;
  const lines = (name) => (found[name] ? smooth(found[name]) : undefined);
  return {
    x: found.steps.map((step) => step * minutes), middle: lines("middle"), low: lines("low"), high: lines("high"),
    each: (found.each ?? []).map(smooth),
  };
}

function curveTraces(series) {
  const drawn = record(series);
  const base = { x: drawn.x, type: "scatter", mode: "lines", name: series.label };
  const edge = { ...base, hoverinfo: "skip", line: { width: 0 } };
  const traces = [];
  if (drawn.low && drawn.low.some((low) => low !== null) && !state.each) {
    traces.push({ ...edge, y: drawn.low });
    traces.push({ ...edge, y: drawn.high, fill: "tonexty", fillcolor: faded(colour(series)) });
  }
  for (const run of state.each ? drawn.each : []) {
    traces.push({ ...base, y: run, hoverinfo: "skip", line: { width: 0.8, color: colour(series) }, opacity: 0.45 });
  }
  traces.push({
    ...base, y: drawn.middle, mode: drawn.x.length > 1 ? "lines" : "markers",
    line: { width: 2.2, color: colour(series), dash: series.dash }, marker: { color: colour(series), size: 8 },
    hovertemplate: inMinutes() ? "%{y:.4g} after %{x:.3g} min" : isProfile() ? "%{y:.0%} above %{x:.3g}" : "%{y:.4g} at step %{x:,}",
  });
  return traces;
}

const xTitle = () => (isProfile() ? "human-normalised score" : inMinutes() ? "minutes of training" : "env steps");
const yTitle = () => (isProfile() ? "share of runs above" : data.metrics[state.metric]);
const plotOptions = { responsive: true, displayModeBar: false };

/** What the runs on show reached, with a margin: bands that reach further end there, so that the lines stay legible. */
function reached() {
  const values = shown().map(record).flatMap((drawn) => [drawn.middle ?? [], ...drawn.each].flat()).filter((y) => y !== null);
  if (!values.length || state.logY) return undefined;
  const [low, high] = [Math.min, Math.max].map((pick) => values.reduce((a, b) => pick(a, b)));
  const margin = 0.05 * (high - low || 1);
  return [low - margin, high + margin];
}

function drawCurves() {
  const scale = (log) => (log ? "log" : "linear");
  const axes = {
    xaxis: { title: xTitle(), type: scale(state.logX) },
    yaxis: { title: yTitle(), type: scale(state.logY), range: reached() },
  };
  Plotly.react("curves", shown().flatMap(curveTraces), layout(axes), plotOptions);
}

function drawComparison() {
  const known = (value, end) => (value[end] === null ? 0 : Math.abs(value[end] - value[0]));
  const compared = shown().filter((series) => series.compare[state.comparison]);
  const traces = compared.map((series) => {
    const value = series.compare[state.comparison];
    return {
      x: [series.short], y: [value[0]], name: series.label, type: "scatter", mode: "markers",
      marker: { color: colour(series), size: 10 },
      error_y: { type: "data", symmetric: false, array: [known(value, 2)], arrayminus: [known(value, 1)],
        color: colour(series), thickness: 1.6 },
      hovertemplate: value[1] === null ? "%{y:.4g}" : `%{y:.4g} [${value[1]}, ${value[2]}]`,
    };
  });
  const format = { improvement: { range: [0, 1] }, advantage: { tickformat: "+.0%" } }[state.comparison] ?? {};
  const axes = {
    xaxis: { title: "η", type: "category" },
    yaxis: { title: data.comparisons[state.comparison], ...format },
  };
  Plotly.react("sensitivity", traces, layout(axes), plotOptions);
}

// ---- what there is to choose from

function makeChips() {
  $("chips").replaceChildren(...task().series.map((series) => {
    const chip = document.createElement("button");
    chip.type = "button";
    chip.className = "chip";
    chip.append(document.createElement("i"), series.label);
    chip.onclick = () => {
      if (!state.hidden.delete(series.label)) state.hidden.add(series.label);
      draw();
    };
    return chip;
  }));
}

function paintChips() {
  task().series.forEach((series, i) => {
    const chip = $("chips").children[i];
    chip.firstChild.style.borderColor = colour(series);
    chip.firstChild.style.borderTopStyle = { solid: "solid", dot: "dotted" }[series.dash] ?? "dashed";
    chip.setAttribute("aria-pressed", String(!state.hidden.has(series.label)));
  });
}

function options(select, names, chosen) {
  select.replaceChildren(...names.map(([value, text]) => new Option(text, value)));
  select.value = chosen;
}

/** Only what some series of the task has: a metric that was never recorded is no choice. */
function offer(id, key, names, has) {
  const offered = Object.entries(names).filter(([name]) => task().series.some((series) => has(series, name)));
  if (!offered.some(([name]) => name === state[key])) state[key] = offered[0][0];
  options($(id), offered, state[key]);
}

function chooseTask(index) {
  state.task = index;
  makeChips();
  offer("metric", "metric", data.metrics, (series, name) => series.metrics[name]?.steps.length);
  offer("comparison", "comparison", data.comparisons, (series, name) => series.compare[name]);
  const timed = task().series.every((series) => series.seconds_per_step !== null);
  $("axis").disabled = !timed;
  if (!timed) $("axis").value = state.axis = "steps";
}

function draw() {
  if (!data.tasks.length) return;
  paintChips();
  drawCurves();
  drawComparison();
}

// ---- downloads

const fileName = (what) => `${document.title.split(" · ")[0]} ${what}`.replace(/[^\p{L}\p{N}.]+/gu, "-");

function saveCsv(what, header, rows) {
  const cell = (value) => (/[",\n]/.test(value ?? "") ? `"${String(value).replaceAll('"', '""')}"` : (value ?? ""));
  const text = [header, ...rows].map((row) => row.map(cell).join(",")).join("\n") + "\n";
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
  link.download = `${fileName(what)}.csv`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

function savePng(id) {
  const { width, height } = $(id).getBoundingClientRect();
  Plotly.downloadImage(id, { format: "png", scale: 3, width, height, filename: fileName(`${task().name} ${id}`) });
}

function curvesCsv() {
  const rows = shown().flatMap((series) => {
    const drawn = record(series);
    const at = (values, i) => (values ? values[i] : null);
    return drawn.x.map((x, i) => [series.label, x, drawn.middle[i], at(drawn.low, i), at(drawn.high, i),
      ...drawn.each.map((run) => run[i])]);
  });
  const runs = Math.max(0, ...shown().map((series) => record(series).each.length));
  saveCsv(`${task().name} ${state.metric}`,
    ["setting", xTitle(), yTitle(), "low", "high", ...Array.from({ length: runs }, (_, i) => `run ${i + 1}`)], rows);
}

function statisticsCsv() {
  const names = Object.keys(data.comparisons);
  const rows = data.tasks.flatMap((each) => each.series.map((series) => [each.name, series.label, series.runs,
    series.diverged, series.steps_to_level, ...names.flatMap((name) => series.compare[name] ?? [null, null, null])]));
  const columns = names.flatMap((name) => [name, `${name} low`, `${name} high`]);
  saveCsv("statistics", ["task", "setting", "runs", "diverged", "steps to level", ...columns], rows);
}

function runsCsv() {
  const fields = ["folder", "env", "algorithm", "eta", "seed", "step", "score", "seconds", "outcome", "reason"];
  const settings = [...new Set(data.runs.flatMap((run) => Object.keys(run.config)))].filter((name) => !fields.includes(name));
  const text = (value) => (value !== null && typeof value === "object" ? JSON.stringify(value) : value);
  saveCsv("runs", [...fields, ...settings],
    data.runs.map((run) => [...fields.map((name) => run[name]), ...settings.map((name) => text(run.config[name]))]));
}

// ---- tables

/** Numbers before words, and what is unknown last whatever the direction. */
function ordered(items, key, descending) {
  const known = (item) => key(item) !== null && key(item) !== undefined && key(item) !== "";
  const number = (item) => (Number.isNaN(Number(key(item))) ? null : Number(key(item)));
  const compare = (a, b) => (number(a) !== null && number(b) !== null
    ? number(a) - number(b) : String(key(a)).localeCompare(String(key(b))));
  const sorted = items.filter(known).sort((a, b) => (descending ? compare(b, a) : compare(a, b)));
  return [...sorted, ...items.filter((item) => !known(item))];
}

/** Make a heading a button that sorts: up, down, as it was. */
function sortable(heading, sort) {
  const button = document.createElement("button");
  button.type = "button";
  button.append(...heading.childNodes);
  heading.append(button);
  button.onclick = () => {
    const next = { ascending: "descending", descending: null }[heading.getAttribute("aria-sort")];
    const direction = next === undefined ? "ascending" : next;
    for (const other of heading.parentElement.children) other.removeAttribute("aria-sort");
    if (direction) heading.setAttribute("aria-sort", direction);
    sort(direction);
  };
}

function makeSortable(table) {
  const bodies = [...table.tBodies].map((body) => ({ body, rows: [...body.rows].filter((row) => row.className !== "group") }));
  [...table.tHead.rows[0].cells].forEach((heading, column) => sortable(heading, (direction) => {
    const key = (row) => row.cells[column].dataset.sort ?? row.cells[column].textContent.trim();
    for (const { body, rows } of bodies) body.append(...(direction ? ordered(rows, key, direction === "descending") : rows));
  }));
}

function cell(content, className) {
  const element = document.createElement("td");
  element.className = className ?? "";
  element.append(content);
  return element;
}

function outcomeOf(run) {
  const box = document.createElement("div");
  const badge = document.createElement("span");
  badge.className = `badge ${run.outcome}`;
  badge.textContent = run.outcome;
  box.append(badge);
  if (run.reason) {
    const reason = document.createElement("div");
    reason.className = "reason";
    reason.textContent = run.reason;
    box.append(reason);
  }
  return box;
}

function configOf(run) {
  const details = document.createElement("details");
  const summary = document.createElement("summary");
  summary.textContent = "show";
  details.append(summary);
  details.ontoggle = () => {
    if (details.childElementCount > 1) return;
    const text = document.createElement("pre");
    text.textContent = `${run.folder}\n${JSON.stringify(run.config, null, 1)}`;
    details.append(text);
  };
  return details;
}

const rowsMade = new Map();

/** A run's row, made once: it keeps its open config when the table is sorted or searched. */
function rowOf(run) {
  if (rowsMade.has(run)) return rowsMade.get(run);
  const row = document.createElement("tr");
  row.append(
    cell(run.env), cell(run.algorithm), cell(String(run.eta), "n"), cell(String(run.seed), "n"),
    cell(`${run.step.toLocaleString("en")} / ${run.steps.toLocaleString("en")}`, "n"),
    cell(run.score === null ? "–" : run.score.toPrecision(5), "n"),
    cell(run.seconds === null ? "–" : (run.seconds / 60).toFixed(1), "n"), cell(outcomeOf(run)), cell(configOf(run)),
  );
  rowsMade.set(run, row);
  return row;
}

function drawRuns() {
  const words = $("find").value.toLowerCase().split(/\s+/).filter(Boolean);
  const text = (run) => `${run.env} ${run.algorithm} η=${run.eta} eta=${run.eta} seed=${run.seed} ${run.outcome} ${run.reason}`;
  const found = data.runs.filter((run) => words.every((word) => text(run).toLowerCase().includes(word)));
  const sorted = state.sort ? ordered(found, (run) => run[state.sort.key], state.sort.descending) : found;
  const rows = state.allRuns ? sorted : sorted.slice(0, ROWS_AT_FIRST);
  $("run-table").tBodies[0].replaceChildren(...rows.map(rowOf));
  $("count").textContent = `${found.length} of ${data.runs.length} runs`;
  $("more").hidden = rows.length === found.length;
}

function showAllRuns() {
  state.allRuns = true;
  drawRuns();
  $("run-table").tBodies[0].rows[ROWS_AT_FIRST]?.querySelector("summary").focus(); // the button is gone
}

// ---- what the reader can do

function setTheme(dark) {
  state.dark = dark;
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  draw();
}

async function copyCommand() {
  const text = $("command").textContent;
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    getSelection().selectAllChildren($("command")); // no leave to write: the reader copies what is marked
    document.execCommand("copy");
  }
  $("copy").textContent = "copied";
  setTimeout(() => { $("copy").textContent = "copy"; }, 1500);
}

options($("task"), data.tasks.map((each, i) => [i, each.name]), 0);
$("task").parentElement.hidden = data.tasks.length < 2;
if (data.tasks.length) chooseTask(0);
$("task").onchange = (event) => { chooseTask(Number(event.target.value)); draw(); };
$("metric").onchange = (event) => { state.metric = event.target.value; drawCurves(); };
$("comparison").onchange = (event) => { state.comparison = event.target.value; drawComparison(); };
$("axis").onchange = (event) => { state.axis = event.target.value; drawCurves(); };
$("log-x").onchange = (event) => { state.logX = event.target.checked; drawCurves(); };
$("log-y").onchange = (event) => { state.logY = event.target.checked; drawCurves(); };
$("smoothing").oninput = (event) => { state.smoothing = Number(event.target.value); drawCurves(); };
$("each").onchange = (event) => { state.each = event.target.checked; drawCurves(); };
$("all").onclick = () => { state.hidden.clear(); draw(); };
$("none").onclick = () => { task().series.forEach((series) => state.hidden.add(series.label)); draw(); };
$("curves-png").onclick = () => savePng("curves");
$("sensitivity-png").onclick = () => savePng("sensitivity");
$("curves-csv").onclick = curvesCsv;
if ($("statistics-csv")) $("statistics-csv").onclick = statisticsCsv;
$("runs-csv").onclick = runsCsv;
document.querySelectorAll("table.sortable").forEach(makeSortable);
document.querySelectorAll("#run-table th[data-key]").forEach((heading) => sortable(heading, (direction) => {
  state.sort = direction ? { key: heading.dataset.key, descending: direction === "descending" } : null;
  drawRuns();
}));
$("find").oninput = drawRuns;
$("more").onclick = showAllRuns;
$("copy").onclick = copyCommand;
$("theme").onclick = () => setTheme(!state.dark);
const prefersDark = matchMedia("(prefers-color-scheme: dark)");
prefersDark.onchange = (event) => setTheme(event.matches);
drawRuns();
setTheme(prefersDark.matches);
