"use strict";
/* The numbers of the lab: bsrs.tabular in JavaScript, operation by operation, so that both count the same steps.
   tests/test_lab.py compares the two in a browser. One function, so that a worker can be made of its source. */
function labSolver() {
  const MOVES = [[-1, 0], [0, 1], [1, 0], [0, -1]]; // up, right, down, left: neighbours in this order are the sides
  const DIVERGENCE = 1e8;
  const TOL = 1e-6;

  function rewardOf(letter) {
    if (letter === "G") return 1;
    if (letter === "P") return -1;
    if (letter >= "1" && letter <= "9") return Number(letter) / 10;
    if (letter >= "a" && letter <= "i") return -(letter.charCodeAt(0) - 96) / 10;
    return 0;
  }

  /* grids.grid_mdp: rows of letters -> sparse rows (state * 4 + action), sorted by column, duplicates summed. */
  function gridMdp(rows, slip, goal) {
    const height = rows.length, width = rows[0].length;
    const stateOf = new Int32Array(height * width).fill(-1), cellOf = [];
    for (let c = 0; c < height * width; c++)
      if (rows[Math.floor(c / width)][c % width] !== "W") { stateOf[c] = cellOf.length; cellOf.push(c); }
    const n = cellOf.length, letters = cellOf.map((c) => rows[Math.floor(c / width)][c % width]);
    const starts = letters.map((l, s) => (l === "S" ? s : -1)).filter((s) => s >= 0);
    const from = starts.length ? starts : [...cellOf.keys()];
    const pointers = [0], columns = [], weights = [], rewards = new Float64Array(n * 4);
    const go = (cell, move) => {
      const row = Math.floor(cell / width) + MOVES[move][0], column = (cell % width) + MOVES[move][1];
      if (row < 0 || column < 0 || row >= height || column >= width) return stateOf[cell];
      const there = stateOf[row * width + column];
      return there < 0 ? stateOf[cell] : there;
    };
    const moves = slip === 0 ? [[0, 1]] : [[0, 1 - slip], [3, slip / 2], [1, slip / 2]];
    for (let s = 0; s < n; s++)
      for (let a = 0; a < 4; a++) {
        const entries = new Map();
        const add = (to, p) => { if (p > 0 || slip > 0) entries.set(to, (entries.get(to) || 0) + p); };
        rewards[s * 4 + a] = rewardOf(letters[s]);
        if (letters[s] !== "G" && letters[s] !== "P") for (const [turn, p] of moves) add(go(cellOf[s], (a + turn) % 4), p);
        else if (goal === "loop") add(s, 1);
        else if (goal === "reset") for (const to of from) add(to, 1 / from.length);
        for (const to of [...entries.keys()].sort((x, y) => x - y)) { columns.push(to); weights.push(entries.get(to)); }
        pointers.push(columns.length);
      }
    return {
      n, height, width, letters, cellOf, stateOf, rewards, starts,
      mayEnd: goal === "terminate" && letters.some((l) => l === "G" || l === "P"),
      pointers: Int32Array.from(pointers), columns: Int32Array.from(columns), weights: Float64Array.from(weights),
    };
  }

  function expectedNext(mdp, value, row) {
    let total = 0;
    for (let j = mdp.pointers[row]; j < mdp.pointers[row + 1]; j++) total += mdp.weights[j] * value[mdp.columns[j]];
    return total;
  }

  function maxima(q, out) {
    for (let s = 0; s < out.length; s++) {
      let best = q[4 * s];
      for (let a = 1; a < 4; a++) if (q[4 * s + a] > best) best = q[4 * s + a];
      out[s] = best;
    }
    return out;
  }

  function greedy(q, n) {
    const policy = new Int8Array(n);
    for (let s = 0; s < n; s++)
      for (let a = 1; a < 4; a++) if (q[4 * s + a] > q[4 * s + policy[s]]) policy[s] = a;
    return policy;
  }

  /* operators.shaped_bellman, iterated as by iterate.solve_many: one constant eta, stopped on the change of Q. */
  class Constant {
    constructor(mdp, gamma, eta, init) {
      Object.assign(this, { mdp, gamma, eta, applications: 0, residuals: [], outcome: null });
      this.q = init ? Float64Array.from(init) : new Float64Array(4 * mdp.n);
      this._next = new Float64Array(4 * mdp.n);
      this._value = new Float64Array(mdp.n);
      this._potential = new Float64Array(mdp.n);
    }
    step() {
      const { mdp, gamma, eta, q, _next: next, _value: value, _potential: potential } = this;
      const { pointers, columns, weights, rewards, n } = mdp;
      maxima(q, value);
      for (let s = 0; s < n; s++) potential[s] = eta * value[s];
      let residual = 0, broken = false;
      for (let row = 0; row < 4 * n; row++) {
        let nextPotential = 0, nextValue = 0;
        for (let j = pointers[row]; j < pointers[row + 1]; j++) {
          nextPotential += weights[j] * potential[columns[j]];
          nextValue += weights[j] * value[columns[j]];
        }
        next[row] = rewards[row] + gamma * nextPotential - potential[row >> 2] + gamma * nextValue;
        const change = Math.abs(next[row] - q[row]);
        if (change > residual) residual = change;
        else if (!(change <= residual)) broken = true;
      }
      [this.q, this._next] = [next, q];
      this.applications += 1;
      this.residuals.push(broken ? NaN : residual);
      if (residual < TOL && !broken) this.outcome = "converged";
      else if (broken || !(residual <= DIVERGENCE * Math.max(this.residuals[0], TOL))) this.outcome = "diverged";
    }
    /* The value in the unshaped problem, (1 + eta) V. */
    optimalValue() { return maxima(this.q, new Float64Array(this.mdp.n)).map((v) => (1 + this.eta) * v); }
    value() { return maxima(this.q, new Float64Array(this.mdp.n)); }
    actionValues() { return this.q; }
  }

  /* ------------------------------------------------------------------------------------------------------------
     adaptive.accelerate with the rule `anderson`: the same proposals and the same bookkeeping of what may be risked. */
  const SHARE = 0.1, ALLOWANCE = 10, PATIENCE = 1.5, MEMORY = 5;
  const dot = (x, y) => { let t = 0; for (let i = 0; i < x.length; i++) t += x[i] * y[i]; return t; };
  const minus = (x, y) => x.map((v, i) => v - y[i]);

  function backUp(mdp, gamma, value) {
    const q = new Float64Array(4 * mdp.n);
    for (let row = 0; row < q.length; row++) q[row] = mdp.rewards[row] + gamma * expectedNext(mdp, value, row);
    const image = maxima(q, new Float64Array(mdp.n)), change = minus(image, value);
    let low = Infinity, high = -Infinity;
    for (const c of change) { if (c < low) low = c; if (c > high) high = c; }
    return { value, image, change, q, low, high, residual: Math.max(Math.abs(low), Math.abs(high)) };
  }

  function andersonProposal(points) {
    const last = points[points.length - 1], pairs = points.slice(1).map((p, i) => [p, points[i]]);
    const bends = [], images = [], lengths = [];
    for (const [p, before] of pairs) {
      const bend = minus(p.change, before.change), length = Math.sqrt(dot(bend, bend));
      if (length > 0) { bends.push(bend.map((v) => v / length)); images.push(minus(p.image, before.image)); lengths.push(length); }
    }
    if (!bends.length) return null;
    const gram = bends.map((x) => bends.map((y) => dot(x, y)));
    const weights = leastSquares(gram, bends.map((x) => dot(x, last.change))).map((w, i) => w / lengths[i]);
    return last.image.map((v, s) => v - weights.reduce((t, w, i) => t + w * images[i][s], 0));
  }

  /* The least-squares solution of least norm for a symmetric matrix, by Jacobi rotations. */
  function leastSquares(matrix, b) {
    const n = b.length, a = matrix.map((row) => row.slice()), v = a.map((_, i) => a.map((_, j) => (i === j ? 1 : 0)));
    for (let sweep = 0; sweep < 60; sweep++) {
      let off = 0;
      for (let p = 0; p < n; p++) for (let q = p + 1; q < n; q++) off += a[p][q] ** 2;
      if (off < 1e-300) break;
      for (let p = 0; p < n; p++)
        for (let q = p + 1; q < n; q++) {
          if (a[p][q] === 0) continue;
          const theta = (a[q][q] - a[p][p]) / (2 * a[p][q]);
          const t = Math.sign(theta || 1) / (Math.abs(theta) + Math.sqrt(theta * theta + 1));
          const c = 1 / Math.sqrt(t * t + 1), s = t * c;
          for (let k = 0; k < n; k++) [a[k][p], a[k][q]] = [c * a[k][p] - s * a[k][q], s * a[k][p] + c * a[k][q]];
          for (let k = 0; k < n; k++) [a[p][k], a[q][k]] = [c * a[p][k] - s * a[q][k], s * a[p][k] + c * a[q][k]];
          for (let k = 0; k < n; k++) [v[k][p], v[k][q]] = [c * v[k][p] - s * v[k][q], s * v[k][p] + c * v[k][q]];
        }
    }
    const largest = Math.max(...a.map((_, i) => Math.abs(a[i][i]))), x = new Array(n).fill(0);
    for (let i = 0; i < n; i++) {
      if (!(Math.abs(a[i][i]) > 1e-12 * largest)) continue;
      const weight = v.reduce((t, row, k) => t + row[i] * b[k], 0) / a[i][i];
      for (let k = 0; k < n; k++) x[k] += weight * v[k][i];
    }
    return x;
  }

  class Anderson {
    constructor(mdp, gamma, init) {
      Object.assign(this, { mdp, gamma, applications: 0, residuals: [], outcome: null, schedule: [] });
      this._points = [];
      this._refused = this._wait = this._plainSteps = this._atLeast = 0;
      this._start = init ? maxima(init, new Float64Array(mdp.n)) : new Float64Array(mdp.n);
      this._plain = this.best = null;
    }
    step() {
      if (!this.best) {
        this._plain = this.best = this._accept(this._evaluate(this._start, []));
        this._countPlain();
      } else this._onwards();
      if (this.best.residual < TOL) this.outcome = "converged";
    }
    _onwards() {
      const proposal = this._proposal();
      if (proposal) this._try(proposal);
      else if (this.best !== this._plain && this._covers(this.best.residual, 0)) {
        this._wait -= 1;
        this.best = this._accept(this._evaluate(this.best.image, [...this.best.trail, 0]));
      } else {
        const leads = this.best === this._plain;
        this._wait -= 1;
        this._plain = this._evaluate(this._plain.image, [...this._plain.trail, 0]);
        this._countPlain();
        if (leads || this._plain.residual <= this.best.residual) this.best = this._accept(this._plain);
      }
    }
    _proposal() {
      if (this._wait > 0 || this._points.length < 2) return null;
      const beside = this.applications - this._plainSteps + 1 <= SHARE * this._plainSteps + ALLOWANCE;
      return this._covers(this.best.residual, 1) || beside ? andersonProposal(this._points) : null;
    }
    _try(proposal) {
      const origin = this.best, step = minus(proposal, origin.value);
      const eta = dot(step, origin.change) / dot(origin.change, origin.change) - 1;
      const point = this._evaluate(proposal, [...origin.trail, eta]);
      if (point.residual <= this.gamma * origin.residual) { this.best = this._accept(point); this._refused = 0; }
      else { this._refused += 1; this._wait = Math.floor(PATIENCE ** this._refused); }
    }
    _evaluate(value, trail) {
      this.applications += 1;
      const point = Object.assign(backUp(this.mdp, this.gamma, value), { trail });
      this.residuals.push(point.residual);
      return point;
    }
    _accept(point) {
      this._points = [...this._points, point].slice(-(MEMORY + 1));
      return point;
    }
    _countPlain() {
      this._plainSteps += 1;
      const bound = this.mdp.mayEnd ? 0 : Math.max(this._plain.low, -this._plain.high);
      this._atLeast = Math.max(this._atLeast, this._plainSteps + this._stepsFrom(bound));
    }
    _covers(residual, lost) {
      return this.applications + lost + this._stepsFrom(residual) <= (1 + SHARE) * this._atLeast + ALLOWANCE;
    }
    _stepsFrom(residual) {
      if (residual < TOL) return 0;
      return this.gamma === 0 ? 1 : Math.floor(Math.log(TOL / residual) / Math.log(this.gamma)) + 1;
    }
    /* eta of the last step that was kept */
    get eta() { const trail = this.best ? this.best.trail : []; return trail.length ? trail[trail.length - 1] : 0; }
    optimalValue() { return this.best ? this.best.image : this._start; }
    value() { return this.optimalValue(); }
    actionValues() { return this.best ? this.best.q : new Float64Array(4 * this.mdp.n); }
  }

  function run(racer, maxSteps) {
    while (!racer.outcome && racer.applications < maxSteps) racer.step();
    if (!racer.outcome) racer.outcome = "exhausted";
    return racer;
  }

  /* ------------------------------------------------------------------------------------------------------------
     rng.stream(seed, "q init").random(): NumPy's SeedSequence and PCG64. */
  const Q_INIT = 0x574d6bab; // crc32("q init")
  function uniforms(seed, count) {
    const mul = Math.imul, pool = [], entropy = [seed >>> 0, 0, 0, 0, Q_INIT];
    let hash = 0x43b0d7e5;
    const hashmix = (x) => { x ^= hash; hash = mul(hash, 0x931e8875); x = mul(x, hash); return (x ^ (x >>> 16)) >>> 0; };
    const mix = (x, y) => { const r = mul(0xca01f9dd, x) - mul(0x4973f715, y); return ((r >>> 0) ^ ((r >>> 0) >>> 16)) >>> 0; };
    for (let i = 0; i < 4; i++) pool.push(hashmix(entropy[i]));
    for (let i = 0; i < 4; i++) for (let j = 0; j < 4; j++) if (i !== j) pool[j] = mix(pool[j], hashmix(pool[i]));
    for (let j = 0; j < 4; j++) pool[j] = mix(pool[j], hashmix(entropy[4]));
    hash = 0x8b51f9dd;
    const words = Array.from({ length: 8 }, (_, i) => {
      let x = pool[i % 4] ^ hash;
      hash = mul(hash, 0x58f38ded);
      x = mul(x, hash);
      return BigInt((x ^ (x >>> 16)) >>> 0);
    });
    const [a, b, c, d] = [0, 2, 4, 6].map((i) => words[i] | (words[i + 1] << 32n));
    const M128 = (1n << 128n) - 1n, M64 = (1n << 64n) - 1n, MULTIPLIER = 0x2360ed051fc65da44385df649fccf645n;
    const inc = ((((c << 64n) | d) << 1n) | 1n) & M128;
    const advance = (s) => (s * MULTIPLIER + inc) & M128;
    let state = advance((inc + ((a << 64n) | b)) & M128);
    const out = new Float64Array(count);
    for (let i = 0; i < count; i++) {
      state = advance(state);
      const x = (state >> 64n) ^ (state & M64), rotation = state >> 122n;
      const word = ((x >> rotation) | (x << ((64n - rotation) & 63n))) & M64;
      out[i] = Number(word >> 11n) / 9007199254740992;
    }
    return out;
  }

  /* ------------------------------------------------------------------------------------------------------------
     theory: the limits of a constant eta. */
  const provenLimit = (gamma) => (1 - gamma) / (1 + gamma);

  /* The eigenvalues of the optimal policy's chain, class by class; those of lone states are their loops. */
  function spectrum(mdp, gamma) {
    const exact = new Constant(mdp, gamma, 0);
    for (let i = 0; i < 100000; i++) { exact.step(); if (exact.residuals[i] < 1e-10) break; }
    const policy = greedy(exact.q, mdp.n), rows = [...policy].map((a, s) => 4 * s + a), found = [];
    for (const members of classes(mdp, rows)) {
      const place = new Map(members.map((s, i) => [s, i]));
      const block = members.map(() => new Float64Array(members.length));
      members.forEach((s, i) => {
        for (let j = mdp.pointers[rows[s]]; j < mdp.pointers[rows[s] + 1]; j++)
          if (place.has(mdp.columns[j])) block[i][place.get(mdp.columns[j])] += mdp.weights[j];
      });
      if (members.length === 1) found.push([block[0][0], 0]);
      else found.push(...eigenvalues(block));
    }
    return found;
  }

  function spectralLimit(eigen, gamma) {
    let omega = Infinity;
    for (const [re, im] of eigen) {
      const x = 1 - gamma * re, y = -gamma * im;
      omega = Math.min(omega, (2 * x) / (x * x + y * y));
    }
    return omega - 1;
  }

  /* Strongly connected components of the chain with these rows (Tarjan, without recursion). */
  function classes(mdp, rows) {
    const n = mdp.n, index = new Int32Array(n).fill(-1), low = new Int32Array(n), onStack = new Uint8Array(n);
    const stack = [], found = [];
    let count = 0;
    for (let root = 0; root < n; root++) {
      if (index[root] >= 0) continue;
      const work = [[root, mdp.pointers[rows[root]]]];
      while (work.length) {
        const top = work[work.length - 1], [s] = top;
        if (index[s] < 0) { index[s] = low[s] = count++; stack.push(s); onStack[s] = 1; }
        if (top[1] < mdp.pointers[rows[s] + 1]) {
          const to = mdp.columns[top[1]++];
          if (index[to] < 0) work.push([to, mdp.pointers[rows[to]]]);
          else if (onStack[to]) low[s] = Math.min(low[s], index[to]);
        } else {
          work.pop();
          if (work.length) { const up = work[work.length - 1][0]; low[up] = Math.min(low[up], low[s]); }
          if (low[s] === index[s]) {
            const members = [];
            let m;
            do { m = stack.pop(); onStack[m] = 0; members.push(m); } while (m !== s);
            found.push(members);
          }
        }
      }
    }
    return found;
  }

  /* Eigenvalues of a real matrix: Hessenberg form by elimination, then the shifted QR iteration (EISPACK elmhes, hqr). */
  function eigenvalues(a) {
    const n = a.length, found = [];
    for (let m = 1; m < n - 1; m++) {
      let pivot = m;
      for (let j = m; j < n; j++) if (Math.abs(a[j][m - 1]) > Math.abs(a[pivot][m - 1])) pivot = j;
      if (pivot !== m) {
        for (let j = m - 1; j < n; j++) [a[pivot][j], a[m][j]] = [a[m][j], a[pivot][j]];
        for (let j = 0; j < n; j++) [a[j][pivot], a[j][m]] = [a[j][m], a[j][pivot]];
      }
      if (a[m][m - 1] === 0) continue;
      for (let i = m + 1; i < n; i++) {
        const y = a[i][m - 1] / a[m][m - 1];
        if (y === 0) continue;
        a[i][m - 1] = 0;
        for (let j = m; j < n; j++) a[i][j] -= y * a[m][j];
        for (let j = 0; j < n; j++) a[j][m] += y * a[j][i];
      }
    }
    let norm = 0;
    for (let i = 0; i < n; i++) for (let j = Math.max(i - 1, 0); j < n; j++) norm += Math.abs(a[i][j]);
    let hi = n - 1, shifted = 0, rounds = 0;
    while (hi >= 0) {
      let l = hi;
      for (; l > 0; l--) {
        const s = Math.abs(a[l - 1][l - 1]) + Math.abs(a[l][l]) || norm;
        if (Math.abs(a[l][l - 1]) <= 2.3e-16 * s) { a[l][l - 1] = 0; break; }
      }
      let x = a[hi][hi];
      if (l === hi) { found.push([x + shifted, 0]); hi -= 1; rounds = 0; continue; }
      let y = a[hi - 1][hi - 1], w = a[hi][hi - 1] * a[hi - 1][hi];
      if (l === hi - 1) {
        const p = 0.5 * (y - x), q = p * p + w, z = Math.sqrt(Math.abs(q));
        x += shifted;
        if (q >= 0) { const r = p + (p >= 0 ? z : -z); found.push([x + r, 0], [r ? x - w / r : x + r, 0]); }
        else found.push([x + p, z], [x + p, -z]);
        hi -= 2; rounds = 0;
        continue;
      }
      if (rounds === 10 || rounds === 20 || rounds === 40) {
        shifted += x;
        for (let i = 0; i <= hi; i++) a[i][i] -= x;
        const s = Math.abs(a[hi][hi - 1]) + Math.abs(a[hi - 1][hi - 2]);
        x = y = 0.75 * s;
        w = -0.4375 * s * s;
      }
      if (++rounds > 200) throw new Error("the eigenvalues do not converge");
      let m, p, q, r;
      for (m = hi - 2; m >= l; m--) {
        const z = a[m][m], rr = x - z, ss = y - z;
        p = (rr * ss - w) / a[m + 1][m] + a[m][m + 1];
        q = a[m + 1][m + 1] - z - rr - ss;
        r = a[m + 2][m + 1];
        const scale = Math.abs(p) + Math.abs(q) + Math.abs(r);
        p /= scale; q /= scale; r /= scale;
        if (m === l) break;
        const u = Math.abs(a[m][m - 1]) * (Math.abs(q) + Math.abs(r));
        const v = Math.abs(p) * (Math.abs(a[m - 1][m - 1]) + Math.abs(z) + Math.abs(a[m + 1][m + 1]));
        if (u <= 2.3e-16 * v) break;
      }
      for (let i = m + 2; i <= hi; i++) { a[i][i - 2] = 0; if (i !== m + 2) a[i][i - 3] = 0; }
      for (let k = m; k < hi; k++) {
        if (k !== m) {
          p = a[k][k - 1]; q = a[k + 1][k - 1]; r = k !== hi - 1 ? a[k + 2][k - 1] : 0;
          x = Math.abs(p) + Math.abs(q) + Math.abs(r);
          if (x !== 0) { p /= x; q /= x; r /= x; }
        }
        const s = (p >= 0 ? 1 : -1) * Math.sqrt(p * p + q * q + r * r);
        if (s === 0) continue;
        if (k === m) { if (l !== m) a[k][k - 1] = -a[k][k - 1]; }
        else a[k][k - 1] = -s * x;
        p += s; x = p / s; y = q / s;
        const z = r / s;
        q /= p; r /= p;
        for (let j = k; j <= hi; j++) {
          let t = a[k][j] + q * a[k + 1][j];
          if (k !== hi - 1) { t += r * a[k + 2][j]; a[k + 2][j] -= t * z; }
          a[k + 1][j] -= t * y; a[k][j] -= t * x;
        }
        for (let i = l; i <= Math.min(hi, k + 3); i++) {
          let t = x * a[i][k] + y * a[i][k + 1];
          if (k !== hi - 1) { t += z * a[i][k + 2]; a[i][k + 2] -= t * r; }
          a[i][k + 1] -= t * q; a[i][k] -= t;
        }
      }
    }
    return found;
  }

  /* theory.empirical_limit: the largest eta, by bisection, for which 20 random starts all converge. */
  function empiricalLimit(mdp, gamma, tell) {
    const inits = Array.from({ length: 20 }, (_, seed) => uniforms(seed, 4 * mdp.n));
    const slowest = (eta, maxSteps) => {
      let most = 0;
      for (const init of inits) {
        const racer = run(new Constant(mdp, gamma, eta, init), maxSteps);
        if (racer.outcome !== "converged") return null;
        most = Math.max(most, racer.applications);
      }
      return most;
    };
    const plain = slowest(0, 1000000);
    let low = 0, high = (1 + gamma) / (1 - gamma);
    while (high - low > 1e-3) {
      const middle = (low + high) / 2;
      if (slowest(middle, 10 * plain) === null) high = middle;
      else low = middle;
      if (tell) tell(low, high);
    }
    return low;
  }

  return {
    MOVES, TOL, rewardOf, gridMdp, greedy, expectedNext, Constant, Anderson, run, uniforms,
    provenLimit, spectrum, spectralLimit, empiricalLimit,
  };
}
