"use strict";
/* The page: what is shown, what the controls do, and the address that holds it all. */
(() => {
  const { TOL, gridMdp, greedy, expectedNext, Constant, Anderson, uniforms, provenLimit } = labNumbers;
  const $ = (id) => document.getElementById(id);
  const EXAMPLES = {
    paper: { name: "The paper's map", map: "FFFFFFF.FSFFFFF.WWWWWFF.FFFFFFF.FFWWWWW.FFFFFGF.FFFFFFF", eta: 0.23 },
    "four-rooms": {
      name: "Four rooms", eta: 0.2, gamma: 0.9,
      map: "SFFFFWFFFFF.FFFFFWFFFFF.FFFFFFFFFFF.FFFFFWFFFFF.FFFFFWFFFFF.WFWWWWFFFFF.FFFFFWWWFWW.FFFFFWFFFFF.FFFFFWFFFFF.FFFFFFFFFFF.FFFFFWFFFFG",
    },
    cliff: { name: "Cliff", eta: 0.05, gamma: 0.8, slip: 0.1, goal: "terminate", map: "FFFFFFFFFFFF.FFFFFFFFFFFF.FFFFFFFFFFFF.SPPPPPPPPPPG" },
    maze: { name: "Random maze", eta: 0.1, gamma: 0.95, map: null },
    empty: { name: "Empty", eta: 0.2, map: "SFFFFFFF.FFFFFFFF.FFFFFFFF.FFFFFFFF.FFFFFFFF.FFFFFFFF.FFFFFFFF.FFFFFFFG" },
  };
  const TOOLS = [
    ["look", "Look", ""], ["W", "Wall", "var(--wall)"], ["F", "Floor", "var(--none)"], ["S", "Start", "var(--shaped)"],
    ["G", "Goal +1", "#ffb000"], ["P", "Pit −1", "var(--bad)"], ["reward", "Reward", "var(--good)"],
  ];
  const LANES = [
    { id: "plain", name: "Baseline", colour: "plain" },
    { id: "shaped", name: "Shaped", colour: "shaped" },
    { id: "chosen", name: "Adaptive", colour: "chosen" },
  ];
  const SPEEDS = [["0.3", "slow"], ["1", "normal"], ["5", "fast"]];
  const VIEWS = [["value", "value V"], ["bonus", "bonus γV(s′) − V(s)"]];
  const DEFAULTS = { map: EXAMPLES.paper.map, gamma: 0.8, eta: 0.23, slip: 0, goal: "loop", start: "zero", view: "value" };
  const touch = matchMedia("(pointer: coarse)").matches;
  const HINT = `In each step every learner looks one move ahead from every cell. ${
    touch ? "Tap a cell to read its numbers; to draw, pick Wall." : "Point at a cell to read its numbers; drag on a board to draw walls."}`;
  const BONUS = "Each triangle is a move. <b>Green</b>: the next cell is worth more even after γ, so the move earns a bonus; <b>red</b>: it costs.";
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches;

  const state = { ...DEFAULTS };
  let mdp, racers, optimum, limits = {}, colours, tool, reward = 3, running = true, speed = 1, due = 0;
  let cursor = null, shown = 1, worker = null, dirty = true, walkFrom = 0;

  /* ------------------------------------------------------------------ the experiment */
  const rows = () => state.map.split(".");
  const limitOfSteps = () => 10 * Math.max(100, racers[0].outcome ? racers[0].applications : Infinity);

  function newRacers() {
    const init = state.start === "random" ? uniforms(0, 4 * mdp.n) : null;
    return [new Constant(mdp, state.gamma, 0, init), new Constant(mdp, state.gamma, state.eta, init), new Anderson(mdp, state.gamma, init)];
  }

  /* After the map or a setting has changed: a new table, its optimum for the colours, new limits. */
  function rebuild() {
    mdp = gridMdp(rows(), state.slip, state.goal);
    const exact = new Constant(mdp, state.gamma, 0);
    while (!exact.outcome) exact.step();
    const value = exact.optimalValue(), bonus = bonuses(value);
    optimum = { scale: Math.max(1e-9, ...value.map(Math.abs)), bonusScale: Math.max(1e-9, ...bonus.map(Math.abs)), steps: exact.applications };
    askLimits();
    restart();
  }

  function restart() {
    racers = newRacers();
    due = 0;
    walkFrom = performance.now();
    dirty = true;
    saveAddress();
    describe();
  }

  function stepAll() {
    for (const racer of racers) {
      if (racer.outcome) continue;
      racer.step();
      if (!racer.outcome && racer.applications >= limitOfSteps()) racer.outcome = "exhausted";
    }
    dirty = true;
  }

  const over = () => racers.every((racer) => racer.outcome);

  /* gamma E V(s') - V(s) for every state and move */
  function bonuses(value) {
    const out = new Float64Array(4 * mdp.n);
    for (let row = 0; row < out.length; row++) out[row] = state.gamma * expectedNext(mdp, value, row) - value[row >> 2];
    return out;
  }

  /* The limits take a moment, so a worker computes them, from the source of the solver. */
  function askLimits() {
    if (worker) worker.terminate();
    limits = { proven: provenLimit(state.gamma) };
    const source = `const S = (${labSolver})();
      onmessage = ({ data: { rows, slip, goal, gamma } }) => {
        const mdp = S.gridMdp(rows, slip, goal);
        postMessage({ spectral: S.spectralLimit(S.spectrum(mdp, gamma), gamma) });
        postMessage({ empirical: S.empiricalLimit(mdp, gamma) });
      };`;
    const url = URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
    const mine = (worker = new Worker(url));
    URL.revokeObjectURL(url);
    mine.onmessage = ({ data }) => { if (mine === worker) { Object.assign(limits, data); drawRuler(); } };
    mine.postMessage({ rows: rows(), slip: state.slip, goal: state.goal, gamma: state.gamma });
    drawRuler();
  }

  /* ------------------------------------------------------------------ the address */
  let saving = 0;
  function saveAddress() {
    clearTimeout(saving);
    saving = setTimeout(() => history.replaceState(null, "", address()), 120);
  }

  function address() {
    const changed = Object.entries(state).filter(([key, value]) => key === "map" || value !== DEFAULTS[key]);
    return `#${changed.map(([key, value]) => `${key}=${value}`).join("&")}`;
  }

  function checkMap(text) {
    const lines = text.trim().split(/[\s.]+/);
    if (!text.trim()) throw new Error("The map is empty; expected rows of the letters F, S, G and W.");
    lines.forEach((line, i) => {
      const strange = line.match(/[^FSGPW1-9a-i]/);
      if (strange) throw new Error(`Row ${i + 1} of the map has the unknown letter “${strange[0]}”; expected F, S, G, P, W, 1 to 9 or a to i.`);
      if (line.length !== lines[0].length) throw new Error(`Row ${i + 1} of the map has ${line.length} cells; expected ${lines[0].length} as in row 1.`);
    });
    if (lines.length > 20 || lines[0].length > 20) throw new Error(`The map is ${lines.length} x ${lines[0].length}; the page draws up to 20 x 20.`);
    if (!/[^W.]/.test(lines.join(""))) throw new Error("The map is all wall; expected at least one free cell.");
    return lines.join(".");
  }

  function readAddress() {
    Object.assign(state, DEFAULTS);
    const given = new URLSearchParams(location.hash.slice(1));
    try {
      if (given.has("map")) state.map = checkMap(given.get("map"));
    } catch (problem) { toast(problem.message); }
    for (const [key, low, high] of [["gamma", 0, 0.999], ["eta", -0.99, 10], ["slip", 0, 1]]) {
      const number = Number(given.get(key));
      if (given.has(key) && number >= low && number <= high) state[key] = number;
    }
    for (const [key, allowed] of [["goal", ["loop", "terminate", "reset"]], ["start", ["zero", "random"]], ["view", ["value", "bonus"]]])
      if (allowed.includes(given.get(key))) state[key] = given.get(key);
  }

  /* ------------------------------------------------------------------ painting */
  function letterOf(cell) { return rows()[Math.floor(cell / mdp.width)][cell % mdp.width]; }

  function paint(cell, letter) {
    const grid = rows().map((row) => [...row]), at = [Math.floor(cell / mdp.width), cell % mdp.width];
    if (grid[at[0]][at[1]] === letter) return;
    if (letter === "S") for (const row of grid) row.forEach((l, i) => { if (l === "S") row[i] = "F"; });
    grid[at[0]][at[1]] = letter;
    const map = grid.map((row) => row.join("")).join(".");
    if (!/[^W.]/.test(map)) return toast("A map needs at least one free cell.");
    state.map = map;
    running = true;
    rebuild();
    syncControls();
  }

  /* A brush on a cell that has its letter already takes it away. */
  function brush(cell) {
    const letter = tool === "reward" ? (reward > 0 ? String(reward) : "abcdefghi"[-reward - 1]) : tool;
    return letterOf(cell) === letter && letter !== "F" ? "F" : letter;
  }

  function resize(height, width) {
    const grid = Array.from({ length: height }, (_, i) => (rows()[i] || "").slice(0, width).padEnd(width, "F"));
    if (!/[^W]/.test(grid.join(""))) grid[0] = `F${grid[0].slice(1)}`;
    if (!grid.join("").includes("G")) grid[height - 1] = `${grid[height - 1].slice(0, -1)}G`;
    state.map = grid.join(".");
    rebuild();
  }

  /* A perfect maze with a few walls taken out, by a random walk that backs up. */
  function randomMaze(size = 15) {
    const grid = Array.from({ length: size }, () => new Array(size).fill("W")), stack = [[0, 0]];
    grid[0][0] = "S";
    while (stack.length) {
      const [y, x] = stack[stack.length - 1];
      const open = labNumbers.MOVES.filter(([dy, dx]) => (grid[y + 2 * dy] || [])[x + 2 * dx] === "W");
      if (!open.length) { stack.pop(); continue; }
      const [dy, dx] = open[Math.floor(Math.random() * open.length)];
      grid[y + dy][x + dx] = grid[y + 2 * dy][x + 2 * dx] = "F";
      stack.push([y + 2 * dy, x + 2 * dx]);
    }
    for (let i = 0; i < size; i++) {
      const y = 1 + Math.floor(Math.random() * (size - 2)), x = 1 + Math.floor(Math.random() * (size - 2));
      if ((y + x) % 2) grid[y][x] = "F";
    }
    grid[size - 1][size - 1] = "G";
    return grid.map((row) => row.join("")).join(".");
  }

  function useExample(key) {
    const { name, ...settings } = EXAMPLES[key];
    Object.assign(state, DEFAULTS, { view: state.view, start: state.start }, settings, { map: settings.map || randomMaze() });
    running = true;
    rebuild();
    syncControls();
  }

  /* ------------------------------------------------------------------ what is said */
  const signed = (x) => labDraw.number(x);
  const percent = (racer) => Math.round(100 * (1 - racer.applications / racers[0].applications));

  function describe() {
    const text = sentence();
    if (text !== described) $("sentence").innerHTML = described = text;
  }

  let described = "";
  function sentence() {
    if (cursor != null && cursor < mdp.height * mdp.width) return aboutCell(cursor);
    if (!mdp.rewards.some((r) => r)) return "<b>There is nothing to find.</b> Paint a goal.";
    if (!over()) return state.view === "bonus" ? BONUS : HINT;
    const [plain, ...others] = racers;
    const told = others.map((racer, i) => {
      const name = i === 0 ? `Shaped with η = ${state.eta}` : "Adaptive";
      if (racer.outcome === "diverged") return `<b>${name} diverged</b>: this η is too large here`;
      if (racer.outcome === "exhausted") return `<b>${name} does not converge</b>: this η is too large here`;
      const saved = percent(racer);
      const by = saved > 0 ? `${saved}% fewer` : saved < 0 ? `${-saved}% more` : "as many";
      return `<b>${name}: ${racer.applications}</b> (${by})`;
    });
    if (state.view === "bonus") told[told.length - 1] += `. ${BONUS.slice(0, -1)}`;
    return `<b>Baseline: ${plain.applications} steps.</b> ${told.join(". ")}.`;
  }

  function aboutCell(cell) {
    const s = mdp.stateOf[cell], place = `Row ${Math.floor(cell / mdp.width) + 1}, column ${(cell % mdp.width) + 1}`;
    if (s < 0) return `<b>${place}</b> is a wall.`;
    const racer = racers[shown], q = racer.actionValues(), value = racer.value()[s], best = greedy(q, mdp.n)[s];
    const next = expectedNext(mdp, racer.value(), 4 * s + best), r = mdp.rewards[4 * s], eta = shown === 0 ? 0 : racer.eta;
    const shaped = r + eta * (state.gamma * next - value), arrows = "↑→↓←";
    const all = [...arrows].map((arrow, a) => `${arrow} ${signed(q[4 * s + a])}`).join("  ");
    return `<b>${place}, ${LANES[shown].name.toLowerCase()}:</b> V = ${signed(value)}; the moves are worth Q = ${all}. ` +
      `Moving ${arrows[best]} earns ${signed(r)}, with the bonus ${signed(r)} + ${signed(eta)} × (${state.gamma} × ${signed(next)} − ${signed(value)}) = <b>${signed(shaped)}</b>.`;
  }

  function verdict() {
    const { eta } = state, { proven, empirical, spectral } = limits;
    if (eta === 0) return ["", "η = 0: no bonus, so Shaped is the baseline."];
    if (eta <= proven && eta > -1) return ["good", eta < 0 ? "A negative bonus: proven to converge, but slower." : "Small enough: proven to converge."];
    if (empirical == null || spectral == null) return ["", "Computing the limits …"];
    if (eta <= empirical) return ["good", "Beyond the proven limit, but it works on this map."];
    if (eta < spectral) return ["bad", "Risky: stable near the solution, but it does not converge from every initialisation."];
    return ["bad", "Too large: errors grow from step to step."];
  }

  /* ------------------------------------------------------------------ drawing */
  function drawRuler() {
    const input = $("eta"), low = Number(input.min), high = Number(input.max);
    const at = (eta) => (100 * (Math.min(Math.max(eta, low), high) - low)) / (high - low);
    const { proven, empirical = proven, spectral = empirical } = limits;
    const zones = [[low, proven, "proven"], [proven, empirical, "works"], [Math.max(proven, empirical), spectral, "near"]];
    $("zones").innerHTML = zones.map(([a, b, zone]) => `<i style="left:${at(a)}%;width:${Math.max(at(b) - at(a), 0)}%;background:var(--zone-${zone})"></i>`).join("");
    const marks = [["proven", limits.proven], ["works here up to", limits.empirical], ["never beyond", limits.spectral]];
    const ends = [], space = $("marks").clientWidth / 100; // labels go to the first line with room
    $("marks").innerHTML = marks.filter(([, eta]) => eta != null).map(([name, eta]) => {
      const text = eta > high ? `${eta.toFixed(1)} →` : eta.toFixed(2), length = 7.2 * (name.length + text.length) + 20;
      const place = at(eta), left = place * space + length > 100 * space, from = left ? place * space - length : place * space;
      let line = ends.findIndex((end) => end < from);
      if (line < 0) line = ends.length;
      ends[line] = from + length;
      return `<span class="${left ? "left" : ""}" style="${left ? `right:${100 - place}%` : `left:${place}%`};top:${20 * line}px">${name} <b>${text}</b></span>`;
    }).join("");
    $("marks").style.height = `${20 * Math.max(ends.length, 1)}px`;
    const [level, text] = verdict();
    $("verdict").textContent = text;
    $("verdict").dataset.level = level;
  }

  /* The way that the arrows lead from the start, if it gets to a goal. */
  function pathOf(policy) {
    if (!mdp.starts.length) return null;
    const path = [mdp.starts[0]], seen = new Set(path);
    for (;;) {
      const s = path[path.length - 1], row = 4 * s + policy[s];
      if (mdp.letters[s] === "G") return path;
      let likely = mdp.pointers[row];
      for (let j = likely; j < mdp.pointers[row + 1]; j++) if (mdp.weights[j] > mdp.weights[likely]) likely = j;
      const next = mdp.columns[likely];
      if (mdp.pointers[row] === mdp.pointers[row + 1] || seen.has(next)) return null;
      seen.add(next);
      path.push(next);
    }
  }

  let seenBoards = [];
  function drawAll(now) {
    if (dirty) {
      seenBoards = racers.map((racer) => {
        const q = racer.actionValues(), policy = greedy(q, mdp.n);
        return { q, policy, value: racer.optimalValue(), bonus: state.view === "bonus" ? bonuses(racer.value()) : null, path: racer.applications ? pathOf(policy) : null };
      });
      drawCounters();
      const lines = racers.map((racer, i) => ({ residuals: racer.residuals, colour: colours[LANES[i].colour], label: racer.outcome ? LANES[i].name.toLowerCase() : "" }));
      labDraw.chart($("chart"), lines, colours, TOL);
      describe();
      for (const [i, lane] of LANES.entries())
        if (lane.canvas.clientWidth) labDraw.board(lane.canvas, { mdp, ...seenBoards[i], ...optimum, view: state.view, cursor, colours });
    }
    LANES.forEach((lane, i) => walk(lane, seenBoards[i].path, now));
    dirty = false;
  }

  /* A walker that follows the arrows from the start, again and again. */
  function walk(lane, path, now) {
    lane.walker.hidden = !path || still;
    if (lane.walker.hidden) return;
    const phase = ((now - walkFrom) / 130) % (path.length + 4), at = Math.min(Math.floor(phase), path.length - 1);
    const here = mdp.cellOf[path[at]], there = mdp.cellOf[path[Math.min(at + 1, path.length - 1)]], t = Math.min(phase - at, 1);
    const size = lane.canvas.clientWidth / mdp.width, mix = (f) => (f(here) + t * (f(there) - f(here)) + 0.5) * size;
    lane.walker.style.transform = `translate(${mix((c) => c % mdp.width)}px, ${mix((c) => Math.floor(c / mdp.width))}px) scale(${Math.min(Math.max(size / 46, 0.5), 1.2)})`;
  }

  function drawCounters() {
    const done = racers.filter((racer) => racer.outcome === "converged");
    const fewest = over() ? Math.min(...done.map((racer) => racer.applications)) : -1;
    LANES.forEach((lane, i) => {
      const racer = racers[i], last = racer.residuals[racer.residuals.length - 1];
      const saved = racer.outcome === "converged" && i > 0 && racers[0].outcome ? percent(racer) : 0;
      const words = { converged: `✓ done${saved ? `, ${saved > 0 ? "−" : "+"}${Math.abs(saved)}%` : ""}`, diverged: "✗ diverged", exhausted: "✗ not converged" };
      lane.number.textContent = racer.applications;
      lane.note.textContent = words[racer.outcome] || "steps";
      lane.element.dataset.outcome = racer.outcome || "";
      lane.element.classList.toggle("won", racer.applications === fewest && racer.outcome === "converged");
      lane.long.textContent = ["no bonus, ", "bonus from its own values, ", "chooses its own, now "][i];
      lane.what.textContent = `η = ${["0", labDraw.minus(state.eta), signed(racer.eta || 0)][i]}`;
      const first = Math.log10(Math.max(racer.residuals[0] || 1, 10 * TOL)), now = Math.log10(Math.max(last || 1, TOL / 10));
      lane.bar.style.width = racer.outcome === "converged" ? "100%" : `${last == null || !(now < first) ? 0 : (100 * (first - now)) / (first - Math.log10(TOL))}%`;
    });
    $("run").textContent = over() ? "Run again" : running ? "Pause" : "Run";
  }

  let before = 0;
  function frame(now) {
    const passed = Math.min(now - before, 100);
    before = now;
    if (running && !over()) {
      // plain iteration, the longest, takes about six seconds at the normal speed
      due += (passed / 1000) * speed * Math.max(9, optimum.steps / 6);
      for (; due >= 1; due -= 1) stepAll();
    }
    drawAll(now);
    requestAnimationFrame(frame);
  }

  /* ------------------------------------------------------------------ controls */
  function button(parent, label, on, attributes = {}) {
    const element = document.createElement("button");
    element.type = "button";
    element.innerHTML = label;
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.addEventListener("click", on);
    return parent.appendChild(element);
  }

  function choices(parent, options, current, choose) {
    for (const [key, label] of options)
      button(parent, label, () => { choose(key); mark(); }, { role: "radio", "data-key": key });
    const mark = () => parent.querySelectorAll("button").forEach((b) => b.setAttribute("aria-checked", b.dataset.key === current()));
    mark();
    return mark;
  }

  function buildLanes() {
    LANES.forEach((lane, i) => {
      const element = (lane.element = document.createElement("article"));
      element.className = `lane${i === shown ? " shown" : ""}`;
      element.style.setProperty("--colour", `var(--${lane.colour})`);
      element.innerHTML = `<button type="button" class="head"><span class="name">${lane.name}</span><span class="about"><span class="long"></span><span class="what"></span></span>
        <span class="count"><span class="number">0</span><small>steps</small></span></button>
        <div class="progress"><i></i></div><div class="stage"><canvas class="board" tabindex="0" role="application" aria-label="Board of ${lane.name}: arrow keys move, Enter paints"></canvas><i class="walker" hidden></i></div>`;
      $("lanes").append(element);
      for (const part of ["number", "what", "long"]) lane[part] = element.querySelector(`.${part}`);
      lane.note = element.querySelector("small");
      lane.bar = element.querySelector(".progress i");
      lane.walker = element.querySelector(".walker");
      lane.canvas = element.querySelector("canvas");
      element.querySelector(".head").addEventListener("click", () => show(i));
      listenToBoard(lane.canvas, i);
    });
  }

  function show(i) {
    shown = i;
    LANES.forEach((lane, k) => lane.element.classList.toggle("shown", k === i));
    dirty = true;
  }

  function listenToBoard(canvas, i) {
    let letter = null;
    const cellAt = (event) => {
      const box = canvas.getBoundingClientRect();
      const x = Math.floor(((event.clientX - box.left) / box.width) * mdp.width), y = Math.floor(((event.clientY - box.top) / box.height) * mdp.height);
      return x >= 0 && y >= 0 && x < mdp.width && y < mdp.height ? y * mdp.width + x : null;
    };
    const point = (cell) => { if (shown !== i) show(i); if (cursor !== cell) { cursor = cell; dirty = true; } };
    canvas.addEventListener("pointerdown", (event) => {
      const cell = cellAt(event);
      point(cell);
      if (tool === "look" || cell == null || event.button) return;
      canvas.setPointerCapture(event.pointerId);
      paint(cell, (letter = brush(cell)));
    });
    canvas.addEventListener("pointermove", (event) => {
      const cell = cellAt(event);
      point(cell);
      if (letter != null && cell != null) paint(cell, letter);
    });
    const lift = () => { letter = null; };
    canvas.addEventListener("pointerup", lift);
    canvas.addEventListener("pointercancel", lift);
    canvas.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") point(null); });
    canvas.addEventListener("keydown", (event) => {
      const move = { ArrowUp: [-1, 0], ArrowRight: [0, 1], ArrowDown: [1, 0], ArrowLeft: [0, -1] }[event.key];
      const picked = { w: "W", f: "F", s: "S", g: "G", p: "P" }[event.key];
      if (move) {
        const y = cursor == null ? 0 : Math.floor(cursor / mdp.width) + move[0], x = cursor == null ? 0 : (cursor % mdp.width) + move[1];
        if (y >= 0 && x >= 0 && y < mdp.height && x < mdp.width) point(y * mdp.width + x);
      } else if (picked) pick(picked);
      else if (event.key === "Enter" && cursor != null && tool !== "look") paint(cursor, brush(cursor));
      else return;
      event.preventDefault();
      event.stopPropagation();
    });
  }

  function pick(key) {
    if (key === "reward" && tool === "reward") reward = reward === 3 ? 9 : reward === 9 ? -1 : reward === -1 ? -5 : 3;
    tool = key;
    $("tools").querySelectorAll("button").forEach((b) => {
      b.setAttribute("aria-checked", b.dataset.key === tool);
      if (b.dataset.key === "reward") b.lastChild.textContent = `Reward ${reward > 0 ? "+" : "−"}0.${Math.abs(reward)}`;
    });
    LANES.forEach((lane) => lane.canvas.classList.toggle("look", tool === "look"));
  }

  function syncControls() {
    for (const key of ["eta", "gamma", "slip", "goal", "start"]) $(key).value = state[key];
    for (const key of ["eta", "gamma", "slip"]) $(`${key}-out`).textContent = Number(state[key]).toFixed(2).replace("-", "−");
    $("rows").value = rows().length;
    $("columns").value = rows()[0].length;
    markView();
    drawRuler();
  }

  let markView = () => {};
  function buildControls() {
    $("examples").innerHTML = '<span class="title">Maps</span>';
    $("tools").innerHTML = '<span class="title">Draw</span>';
    for (const [key, { name }] of Object.entries(EXAMPLES)) button($("examples"), name, () => useExample(key), { "data-key": key });
    for (const [key, name, colour] of TOOLS) {
      const chip = colour ? `<span class="chip" style="background:${colour}"></span>` : "";
      button($("tools"), `${chip}<span>${name}</span>`, () => pick(key), { role: "radio", "data-key": key });
    }
    choices($("speed"), SPEEDS, () => String(speed), (key) => { speed = Number(key); });
    markView = choices($("view"), VIEWS, () => state.view, (key) => { state.view = key; dirty = true; saveAddress(); });
    for (const key of ["eta", "gamma", "slip"])
      $(key).addEventListener("input", () => {
        state[key] = Number($(key).value);
        running = true;
        if (key === "eta") restart();
        else rebuild();
        syncControls();
      });
    for (const key of ["goal", "start"]) $(key).addEventListener("change", () => { state[key] = $(key).value; running = true; rebuild(); });
    for (const key of ["rows", "columns"])
      $(key).addEventListener("change", () => {
        const [height, width] = ["rows", "columns"].map((id) => Math.min(20, Math.max(1, Math.round(Number($(id).value)) || 1)));
        resize(height, Math.max(width, height === 1 ? 2 : 1));
        syncControls();
      });
    $("run").addEventListener("click", toggle);
    $("step").addEventListener("click", () => { running = false; stepAll(); });
    $("reset").addEventListener("click", () => { running = false; restart(); });
    $("share").addEventListener("click", () => { history.replaceState(null, "", address()); copy(location.href, "Link copied: it holds the maze and all settings."); });
    $("export-map").addEventListener("click", () => openDialog("map"));
    $("export-python").addEventListener("click", () => { openDialog("python"); copy(pythonText(), "Python copied."); });
    $("theme").addEventListener("click", () => setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));
    document.addEventListener("keydown", (event) => {
      if (event.target.matches("input, select, textarea") || $("dialog").open || event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.key === " " && !event.target.matches("button, summary")) toggle();
      else if (event.key === ".") $("step").click();
      else if (event.key === "r") $("reset").click();
      else return;
      event.preventDefault();
    });
    addEventListener("resize", () => { drawRuler(); dirty = true; }); // labels that had room may have none now
    addEventListener("hashchange", () => { readAddress(); running = true; rebuild(); syncControls(); });
  }

  function toggle() {
    if (over()) { restart(); running = true; } else running = !running;
    dirty = true;
  }

  function setTheme(theme) {
    document.documentElement.dataset.theme = theme;
    colours = labDraw.palette();
    dirty = true;
  }

  /* ------------------------------------------------------------------ taking it along */
  function mapText() { return `${rows().join("\n")}\n`; }

  function pythonText() {
    const random = state.start === "random";
    const init = random ? ", init=random_inits(mdp, range(1))[0]" : "";
    return `from bsrs.tabular import grid_mdp, solve
${random ? "from bsrs.tabular.theory import random_inits\n" : ""}
maze = """
${rows().join("\n")}
"""
mdp = grid_mdp(maze, slip=${state.slip}, goal="${state.goal}")
for eta in (0, ${state.eta}, "anderson"):
    solution = solve(mdp, gamma=${state.gamma}, eta=eta${init})
    print(eta, solution.outcome, solution.applications, solution.optimal_value.round(3))
`;
  }

  function openDialog(kind) {
    const isMap = kind === "map", settings = `--gamma ${state.gamma} --slip ${state.slip} --goal ${state.goal} --eta 0 ${state.eta} anderson`;
    $("dialog-title").textContent = isMap ? "The map as text" : "The same in Python";
    $("dialog-note").textContent = isMap
      ? `F free, S start, G goal, P pit, W wall, 1 to 9 and a to i rewards. Save it as maze.txt, then: bsrs tabular solve --map maze.txt ${settings}. Or change it here.`
      : "Install bsrs, then run this. It counts the same steps.";
    $("dialog-text").value = isMap ? mapText() : pythonText();
    $("dialog-text").readOnly = !isMap;
    $("dialog-problem").textContent = "";
    $("dialog-use").hidden = !isMap;
    $("dialog").dataset.file = isMap ? "maze.txt" : "maze.py";
    $("dialog").showModal();
  }

  function buildDialog() {
    $("dialog-copy").addEventListener("click", () => copy($("dialog-text").value, "Copied."));
    $("dialog-save").addEventListener("click", () => {
      const link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob([$("dialog-text").value], { type: "text/plain" }));
      link.download = $("dialog").dataset.file;
      link.click();
    });
    $("dialog-use").addEventListener("click", () => {
      try {
        state.map = checkMap($("dialog-text").value);
        $("dialog").close();
        running = true;
        rebuild();
        syncControls();
      } catch (problem) { $("dialog-problem").textContent = problem.message; }
    });
  }

  async function copy(text, done) {
    try {
      await navigator.clipboard.writeText(text);
      toast(done);
    } catch {
      toast("The browser does not allow copying. Select the text or the address and copy it yourself.");
    }
  }

  let fading = 0;
  function toast(text) {
    $("toast").textContent = text;
    $("toast").classList.add("shown");
    clearTimeout(fading);
    fading = setTimeout(() => $("toast").classList.remove("shown"), 2600);
  }

  readAddress();
  buildLanes();
  buildControls();
  buildDialog();
  pick(touch ? "look" : "W");
  setTheme(matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", (event) => setTheme(event.matches ? "dark" : "light"));
  rebuild();
  syncControls();
  requestAnimationFrame(frame);

  /* For the tests: the experiment as it stands, and the whole race at once. */
  window.lab = {
    state, examples: EXAMPLES,
    finish() { while (!over()) stepAll(); dirty = true; return this.results(); },
    results: () => racers.map((r) => ({ steps: r.applications, outcome: r.outcome, value: [...r.value()], optimal: [...r.optimalValue()] })),
    limits: () => ({ ...limits }),
    address,
  };
})();
