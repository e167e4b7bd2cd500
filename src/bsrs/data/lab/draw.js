"use strict";
/* Drawing: a board (values, arrows, bonuses) and the chart of residuals. Everything is given, nothing is kept. */
const labNumbers = labSolver();
const labDraw = (() => {
  const SHADES = 128, DARK = "#14181c", LIGHT = "#ffffff";

  /* The colours of the style sheet, as the canvas wants them. */
  function palette() {
    const style = getComputedStyle(document.documentElement), get = (name) => style.getPropertyValue(`--${name}`).trim();
    const rgb = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
    const pack = (c) => ((255 << 24) | (Math.round(c[2]) << 16) | (Math.round(c[1]) << 8) | Math.round(c[0])) >>> 0;
    const ink = (c) => (0.299 * c[0] + 0.587 * c[1] + 0.114 * c[2] > 140 ? DARK : LIGHT);
    const ramp = (stops) =>
      Array.from({ length: SHADES + 1 }, (_, i) => {
        const at = (i / SHADES) * (stops.length - 1), k = Math.min(Math.floor(at), stops.length - 2), t = at - k;
        const c = stops[k].map((x, j) => x + t * (stops[k + 1][j] - x));
        return { packed: pack(c), ink: ink(c) };
      });
    const list = (name) => get(name).split(",").map((hex) => rgb(hex.trim()));
    const names = ["plain", "shaped", "chosen", "wall", "grid", "card", "ink", "soft", "line", "more", "less", "none", "bad", "good"];
    const colours = Object.fromEntries(names.map((name) => [name, get(name)]));
    return {
      ...colours, wallPacked: pack(rgb(colours.wall)), gridPacked: pack(rgb(colours.grid)), inkIs: ink(rgb(colours.none)), value: ramp(list("value")), below: ramp(list("below")),
      more: ramp([rgb(colours.none), rgb(colours.more)]), less: ramp([rgb(colours.none), rgb(colours.less)]),
    };
  }

  /* A root, so that what is far from the goal shows too; NaN and infinities are at the end of the ramp. */
  function shade(up, down, x, scale) {
    const share = Math.sqrt(Math.min(Math.abs(x) / scale, 1));
    return (x >= 0 ? up : down)[Math.round((Number.isNaN(share) ? 1 : share) * SHADES)];
  }

  function fit(canvas, width, height) {
    const ratio = window.devicePixelRatio || 1, w = Math.round(width * ratio), h = Math.round(height * ratio);
    if (canvas.width !== w || canvas.height !== h) { canvas.width = w; canvas.height = h; }
    const ctx = canvas.getContext("2d");
    ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
    ctx.clearRect(0, 0, width, height);
    return ctx;
  }

  const minus = (x) => String(x).replace("-", "−");
  const number = (x) => {
    if (!Number.isFinite(x) || Math.abs(x) >= 1e4) return Number.isFinite(x) ? minus(x.toExponential(0).replace("+", "")) : "∞";
    return minus(x.toFixed(Math.abs(x) >= 100 ? 0 : Math.abs(x) >= 10 ? 1 : 2));
  };

  /* Cells and arrows are written pixel by pixel, which keeps three boards of 20 x 20 at 60 frames a second without a
     graphics card; what is rare, signs and numbers, is drawn by the canvas on top.
     what: {mdp, value, q, policy, bonus, scale, bonusScale, view, cursor, colours} */
  function board(canvas, what) {
    const { mdp, colours, view } = what, { height, width } = mdp, cells = height * width;
    const size = canvas.clientWidth / width, pixels = Math.max(3, Math.round(size * (window.devicePixelRatio || 1)));
    if (canvas.width !== pixels * width || canvas.height !== pixels * height) {
      canvas.width = pixels * width;
      canvas.height = pixels * height;
      canvas.style.aspectRatio = `${width} / ${height}`;
    }
    const ctx = canvas.getContext("2d"), { image, buffer, part } = raster(width, height, pixels);
    const paint = new Uint32Array(4 * cells + 1), numbers = size >= 34 && view !== "bonus", inks = new Array(mdp.n);
    paint[0] = colours.gridPacked;
    for (let c = 0; c < cells; c++) {
      const s = mdp.stateOf[c], look = s < 0 || view === "bonus" ? null : shade(colours.value, colours.below, what.value[s], what.scale);
      if (s >= 0) inks[s] = look ? look.ink : colours.inkIs;
      for (let a = 0; a < 4; a++)
        paint[4 * c + a + 1] = s < 0 ? colours.wallPacked : (look || shade(colours.more, colours.less, what.bonus[4 * s + a], what.bonusScale)).packed;
    }
    for (let i = 0; i < part.length; i++) buffer[i] = paint[part[i]];
    for (let s = 0; s < mdp.n; s++) if (points(what, s)) stamp(buffer, mask(what.policy[s], pixels, numbers), mdp.cellOf[s], width, pixels, inks[s] === LIGHT ? 255 : 24);
    ctx.putImageData(image, 0, 0);
    ctx.setTransform(pixels / size, 0, 0, pixels / size, 0, 0);
    faces(ctx, size, numbers, inks, what);
    if (what.cursor == null) return;
    ctx.strokeStyle = colours.ink;
    ctx.lineWidth = 2;
    ctx.strokeRect((what.cursor % width) * size + 1, Math.floor(what.cursor / width) * size + 1, size - 2, size - 2);
  }

  /* Which triangle of which cell each pixel belongs to, plus one; 0 for the lines between cells. */
  const rasters = new Map();
  function raster(width, height, pixels) {
    const key = `${width} ${height} ${pixels}`;
    if (!rasters.has(key)) {
      if (rasters.size > 8) rasters.clear();
      const image = new ImageData(width * pixels, height * pixels), part = new Uint16Array(width * height * pixels * pixels);
      for (let i = 0; i < part.length; i++) {
        const column = i % (width * pixels), row = Math.floor(i / (width * pixels)), x = column % pixels, y = row % pixels;
        const edge = (x === 0 && column > 0) || (y === 0 && row > 0), below = y > x, right = x + y >= pixels;
        const move = below ? (right ? 2 : 3) : right ? 1 : 0;
        part[i] = edge ? 0 : 4 * (Math.floor(row / pixels) * width + Math.floor(column / pixels)) + move + 1;
      }
      rasters.set(key, { image, buffer: new Uint32Array(image.data.buffer), part });
    }
    return rasters.get(key);
  }

  /* Whether the best move of a state is better than another, and no goal or pit stands there. */
  function points({ mdp, q, policy }, s) {
    const best = q[4 * s + policy[s]], least = Math.min(q[4 * s], q[4 * s + 1], q[4 * s + 2], q[4 * s + 3]);
    return mdp.letters[s] !== "G" && mdp.letters[s] !== "P" && best - least > 1e-12 * Math.abs(best);
  }

  /* The pixels of an arrow in a cell, and how much of each it covers. */
  const masks = new Map();
  function mask(move, pixels, raised) {
    const key = `${move} ${pixels} ${raised}`;
    if (!masks.has(key)) {
      const ctx = Object.assign(document.createElement("canvas"), { width: pixels, height: pixels }).getContext("2d");
      arrow(ctx, pixels, move, raised ? -0.12 * pixels : 0);
      const { data } = ctx.getImageData(0, 0, pixels, pixels), at = [], cover = [];
      for (let i = 0; i < pixels * pixels; i++) if (data[4 * i + 3]) { at.push(i); cover.push(data[4 * i + 3] / 255); }
      masks.set(key, { at, cover });
    }
    return masks.get(key);
  }

  function stamp(buffer, { at, cover }, cell, width, pixels, grey) {
    const corner = Math.floor(cell / width) * pixels * width * pixels + (cell % width) * pixels;
    for (let k = 0; k < at.length; k++) {
      const i = corner + Math.floor(at[k] / pixels) * width * pixels + (at[k] % pixels), old = buffer[i], t = cover[k];
      const mix = (shift) => { const c = (old >>> shift) & 255; return (c + t * (grey - c)) << shift; };
      buffer[i] = ((255 << 24) | (mix(16) & 0xff0000) | (mix(8) & 0xff00) | (mix(0) & 0xff)) >>> 0;
    }
  }

  /* Signs, and the values as numbers where there is room. */
  function faces(ctx, size, numbers, inks, { mdp, value, colours }) {
    ctx.textAlign = "center";
    ctx.textBaseline = "middle";
    const font = `${Math.round(Math.min(size * 0.25, 13))}px system-ui`;
    for (let s = 0; s < mdp.n; s++) {
      const letter = mdp.letters[s];
      if (!numbers && letter === "F") continue;
      const c = mdp.cellOf[s], x = (c % mdp.width) * size, y = Math.floor(c / mdp.width) * size;
      if (letter !== "F") {
        ctx.save();
        ctx.translate(x, y - (numbers && (letter === "G" || letter === "P") ? 0.12 * size : 0));
        sign(ctx, letter, size, inks[s], colours);
        ctx.restore();
      }
      if (!numbers) continue;
      ctx.fillStyle = inks[s];
      ctx.font = font;
      ctx.fillText(number(value[s]), x + size / 2, y + size * 0.8);
    }
  }

  function sign(ctx, letter, size, ink, colours) {
    const reward = labNumbers.rewardOf(letter);
    if (letter === "G") star(ctx, size / 2, size / 2, size * 0.26, "#ffb000");
    else if (letter === "P") pit(ctx, size / 2, size / 2, size * 0.2, ink);
    else if (letter === "S") {
      ctx.lineWidth = Math.max(1.5, size * 0.05);
      ctx.strokeStyle = colours.shaped;
      ctx.beginPath();
      ctx.roundRect(2.5, 2.5, size - 5, size - 5, size * 0.16);
      ctx.stroke();
    } else if (size >= 24) {
      ctx.fillStyle = ink;
      ctx.font = `700 ${Math.round(size * 0.2)}px system-ui`;
      ctx.fillText(`${reward > 0 ? "+" : "−"}.${Math.round(Math.abs(reward) * 10)}`, size * 0.27, size * 0.17);
    } else {
      ctx.fillStyle = reward > 0 ? colours.good : colours.bad;
      ctx.fillRect(1, 1, size * 0.3, size * 0.3);
    }
  }

  function arrow(ctx, size, move, shift) {
    const [dy, dx] = labNumbers.MOVES[move], x = size / 2, y = x + shift, r = size * 0.26;
    ctx.lineWidth = Math.max(1.2, size * 0.045);
    ctx.lineCap = ctx.lineJoin = "round";
    ctx.beginPath();
    ctx.moveTo(x - dx * r * 0.9, y - dy * r * 0.9);
    ctx.lineTo(x + dx * r * 0.9, y + dy * r * 0.9);
    ctx.moveTo(x + dx * r * 0.25 - dy * r * 0.6, y + dy * r * 0.25 - dx * r * 0.6);
    ctx.lineTo(x + dx * r * 0.9, y + dy * r * 0.9);
    ctx.lineTo(x + dx * r * 0.25 + dy * r * 0.6, y + dy * r * 0.25 + dx * r * 0.6);
    ctx.stroke();
  }

  function star(ctx, x, y, r, colour) {
    ctx.beginPath();
    for (let i = 0; i < 10; i++) {
      const angle = (i * Math.PI) / 5 - Math.PI / 2, length = i % 2 ? r * 0.45 : r;
      ctx.lineTo(x + length * Math.cos(angle), y + length * Math.sin(angle));
    }
    ctx.closePath();
    ctx.lineJoin = "round";
    ctx.lineWidth = Math.max(1, r * 0.2);
    ctx.strokeStyle = "#14181c";
    ctx.stroke();
    ctx.fillStyle = colour;
    ctx.fill();
  }

  function pit(ctx, x, y, r, colour) {
    ctx.strokeStyle = colour;
    ctx.lineWidth = Math.max(1.5, r * 0.4);
    ctx.lineCap = "round";
    ctx.beginPath();
    ctx.moveTo(x - r, y - r);
    ctx.lineTo(x + r, y + r);
    ctx.moveTo(x + r, y - r);
    ctx.lineTo(x - r, y + r);
    ctx.stroke();
  }

  /* Residuals on a logarithmic axis: lines = [{residuals, colour, label}] */
  function chart(canvas, lines, colours, tol) {
    const width = canvas.clientWidth, height = canvas.clientHeight, ctx = fit(canvas, width, height);
    const box = { left: 34, right: width - 10, top: 8, bottom: height - 22 };
    const longest = Math.max(20, ...lines.map((line) => line.residuals.length));
    const peak = Math.max(1, ...lines.map((line) => line.residuals.reduce((m, r) => (r > m && r < 1e12 ? r : m), 0)));
    const top = Math.ceil(Math.log10(peak) + 0.01), bottom = Math.log10(tol) - 0.7;
    const X = (i) => box.left + ((box.right - box.left) * i) / longest;
    const Y = (r) => box.top + ((box.bottom - box.top) * (top - Math.max(Math.min(Math.log10(r), top), bottom))) / (top - bottom);
    ctx.font = "11px system-ui";
    ctx.textBaseline = "middle";
    ctx.textAlign = "right";
    const every = top - bottom > 10 ? 4 : 2;
    for (let power = Math.floor(top); power > bottom; power--) {
      if ((power + 6) % every) continue;
      ctx.strokeStyle = power === -6 ? colours.good : colours.line;
      ctx.lineWidth = 1;
      ctx.setLineDash(power === -6 ? [4, 3] : []);
      ctx.beginPath();
      ctx.moveTo(box.left, Y(10 ** power));
      ctx.lineTo(box.right, Y(10 ** power));
      ctx.stroke();
      ctx.fillStyle = colours.soft;
      ctx.fillText(power === 0 ? "1" : `10${[...String(power)].map((d) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[d] || "⁻").join("")}`, box.left - 5, Y(10 ** power));
    }
    ctx.setLineDash([]);
    ctx.textAlign = "center";
    const unit = 10 ** Math.floor(Math.log10(longest / 2)), tick = longest / unit > 8 ? 5 * unit : longest / unit > 4 ? 2 * unit : unit;
    for (let i = 0; i <= longest; i += tick) if (X(i) < box.right - 40) ctx.fillText(i, X(i), height - 9);
    ctx.textAlign = "right";
    ctx.fillText("steps", box.right, height - 9);
    lines.forEach(({ residuals, colour, label }) => {
      if (!residuals.length) return;
      ctx.strokeStyle = ctx.fillStyle = colour;
      ctx.lineWidth = 2;
      ctx.lineJoin = "round";
      ctx.beginPath();
      residuals.forEach((r, i) => ctx.lineTo(X(i + 1), Y(Number.isFinite(r) && r > 0 ? r : r > 0 ? Infinity : tol / 10)));
      ctx.stroke();
      const last = residuals[residuals.length - 1];
      ctx.beginPath();
      const x = X(residuals.length), y = Y(last > 0 ? last : tol / 10);
      ctx.arc(x, y, 3.5, 0, 7);
      ctx.fill();
      const inside = x > box.right - 80;
      ctx.textAlign = inside ? "right" : "left";
      ctx.fillText(label, inside ? x - 8 : x + 8, Math.max(y, box.top + 8) - (inside ? 12 : 0));
    });
  }

  return { palette, board, chart, number, minus };
})();
