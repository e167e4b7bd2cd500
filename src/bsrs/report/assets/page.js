"use strict";
// The page's life: one state, and functions that draw it.
const data = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);
const state = { task: 0, metric: "score", hidden: new Set(), each: false, dark: false, allRuns: false };
const ROWS_AT_FIRST = 100;

// ---- plots

const task = () => data.tasks[state.task];
const shown = () => task().series.filter((series) => !state.hidden.has(series.label));
const colour = (series) => series.colour[state.dark ? 1 : 0];
const faded = (hex) => hex + "26";

function layout(extra) {
  const css = getComputedStyle(document.documentElement);
  const [ink, line] = [css.getPropertyValue("--ink").trim(), css.getPropertyValue("--line").trim()];
  const axis = { gridcolor: line, linecolor: ink, zeroline: false, ticks: "outside", automargin: true };
  return {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { color: ink, size: 12 },
    margin: { l: 62, r: 18, t: 18, b: 58 }, showlegend: false, hovermode: "closest", hoverlabel: { namelength: -1 },
    xaxis: { ...axis, ...extra.xaxis }, yaxis: { ...axis, ...extra.yaxis },
  };
}

function curveTraces(series) {
  const record = series.metrics[state.metric];
  const base = { x: record.steps, type: "scatter", mode: "lines", name: series.label };
  const edge = { ...base, hoverinfo: "skip", line: { width: 0 } };
  const traces = [];
  if (record.low && !state.each) {
    traces.push({ ...edge, y: record.low });
    traces.push({ ...edge, y: record.high, fill: "tonexty", fillcolor: faded(colour(series)) });
  }
  for (const run of state.each ? record.each : []) {
    traces.push({ ...base, y: run, hoverinfo: "skip", line: { width: 0.8, color: colour(series) }, opacity: 0.45 });
  }
  traces.push({
    ...base, y: record.middle, mode: record.steps.length > 1 ? "lines" : "markers",
    line: { width: 2.2, color: colour(series), dash: series.dash }, marker: { color: colour(series), size: 8 },
    hovertemplate: "%{y:.4g} at step %{x:,}",
  });
  return traces;
}

const plotOptions = { responsive: true, displayModeBar: false };

function drawCurves() {
  const axes = { xaxis: { title: { text: "env steps" } }, yaxis: { title: { text: data.metrics[state.metric] } } };
  Plotly.react("curves", shown().flatMap(curveTraces), layout(axes), plotOptions);
}

function drawSensitivity() {
  const known = (value, end) => (value[end] === null ? 0 : Math.abs(value[end] - value[0]));
  const traces = shown().map((series) => ({
    x: [series.short], y: [series.final[0]], name: series.label, type: "scatter", mode: "markers",
    marker: { color: colour(series), size: 10 },
    error_y: { type: "data", symmetric: false, array: [known(series.final, 2)], arrayminus: [known(series.final, 1)],
      color: colour(series), thickness: 1.6 },
    hovertemplate: "%{y:.4g}",
  }));
  const axes = {
    xaxis: { title: { text: "η" }, type: "category" }, yaxis: { title: { text: "final score" } },
  };
  Plotly.react("sensitivity", traces, layout(axes), plotOptions);
}

function drawChips() {
  $("chips").replaceChildren(...task().series.map((series) => {
    const chip = document.createElement("button");
    const mark = document.createElement("i");
    mark.style.borderColor = colour(series);
    mark.style.borderTopStyle = { solid: "solid", dot: "dotted" }[series.dash] ?? "dashed";
    chip.type = "button";
    chip.className = "chip";
    chip.setAttribute("aria-pressed", String(!state.hidden.has(series.label)));
    chip.append(mark, series.label);
    chip.onclick = () => {
      if (!state.hidden.delete(series.label)) state.hidden.add(series.label);
      draw();
    };
    return chip;
  }));
}

function draw() {
  if (!data.tasks.length) return;
  drawChips();
  drawCurves();
  drawSensitivity();
}

// ---- the table of runs

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

function rowOf(run) {
  const row = document.createElement("tr");
  row.append(
    cell(run.env), cell(run.algorithm), cell(String(run.eta), "n"), cell(String(run.seed), "n"),
    cell(`${run.step.toLocaleString("en")} / ${run.steps.toLocaleString("en")}`, "n"),
    cell(run.score === null ? "–" : run.score.toPrecision(5), "n"),
    cell(run.seconds === null ? "–" : (run.seconds / 60).toFixed(1), "n"), cell(outcomeOf(run)), cell(configOf(run)),
  );
  return row;
}

function drawRuns() {
  const words = $("find").value.toLowerCase().split(/\s+/).filter(Boolean);
  const text = (run) => `${run.env} ${run.algorithm} η=${run.eta} eta=${run.eta} seed=${run.seed} ${run.outcome} ${run.reason}`;
  const found = data.runs.filter((run) => words.every((word) => text(run).toLowerCase().includes(word)));
  const rows = state.allRuns ? found : found.slice(0, ROWS_AT_FIRST);
  $("run-table").tBodies[0].replaceChildren(...rows.map(rowOf));
  $("count").textContent = `${found.length} of ${data.runs.length} runs`;
  $("more").hidden = rows.length === found.length;
}

// ---- what the reader can do

function options(select, names) {
  select.replaceChildren(...names.map(([value, text]) => new Option(text, value)));
}

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

options($("task"), data.tasks.map((each, i) => [i, each.name]));
options($("metric"), Object.entries(data.metrics));
$("task").onchange = (event) => { state.task = Number(event.target.value); draw(); };
$("metric").onchange = (event) => { state.metric = event.target.value; drawCurves(); };
$("each").onchange = (event) => { state.each = event.target.checked; drawCurves(); };
$("all").onclick = () => { state.hidden.clear(); draw(); };
$("none").onclick = () => { task().series.forEach((series) => state.hidden.add(series.label)); draw(); };
$("find").oninput = drawRuns;
$("more").onclick = () => { state.allRuns = true; drawRuns(); };
$("copy").onclick = copyCommand;
$("theme").onclick = () => setTheme(!state.dark);
const prefersDark = matchMedia("(prefers-color-scheme: dark)");
prefersDark.onchange = (event) => setTheme(event.matches);
drawRuns();
setTheme(prefersDark.matches);
