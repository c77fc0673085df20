/* Shows the grid world: draws its map on a canvas, finds the clicked object, and describes it. */

const FACING = [[-1, 0], [1, 0], [0, -1], [0, 1]]; // orientation → row, column: up, down, left, right
const WINDOW = 5; // cells that an agent sees to each side
const TRAIL = 24; // steps of the selected agent's path that are drawn
const PHASES = ["idle", "working", "cooling down"];

class GridWorld {
  constructor(recording) {
    this.r = recording;
    this.f = recording.world.facts;
    this.t = recording.tracks;
    this.cut();
    this.objects = this.f.object_type.map((type) => this.f.types[type]);
    this.still = document.createElement("canvas"); // floor and walls
  }

  /** Computes the visible part of the map: of a thick border of walls, one row is shown. */
  cut() {
    const inside = [];
    this.f.walls.forEach((line, row) => [...line].forEach((c, col) => { if (c !== "#") inside.push([row, col]); }));
    const rows = inside.map(([row]) => row), cols = inside.map(([, col]) => col);
    const least = (values) => Math.max(0, values.reduce((a, b) => Math.min(a, b), Infinity) - 1);
    const most = (values, size) => Math.min(size - 1, values.reduce((a, b) => Math.max(a, b), 0) + 1);
    [this.top, this.left] = [least(rows), least(cols)];
    this.rows = most(rows, this.f.height) - this.top + 1;
    this.columns = most(cols, this.f.width) - this.left + 1;
  }

  agentCell(step, k) { return [this.t.agent_row.at(step, k), this.t.agent_col.at(step, k)]; }
  objectCell(step, j) { return [this.t.object_row.at(step, j), this.t.object_col.at(step, j)]; }
  wall(row, col) { return this.f.walls[row]?.[col] === "#"; }

  /** Returns the device pixels of a cell's side for which the map fits. */
  fit(width, height) {
    return Math.max(4, Math.min(48, Math.floor(Math.min(width / this.columns, height / this.rows))));
  }

  draw(canvas, step, picked, cell) {
    const ctx = canvas.getContext("2d");
    canvas.width = this.columns * cell;
    canvas.height = this.rows * cell;
    const key = `${cell} ${theme("floor")}`;
    if (this.still.key !== key) this.paintStill(cell, key);
    ctx.translate(-this.left * cell, -this.top * cell);
    ctx.drawImage(this.still, 0, 0);
    this.paintThings(ctx, step, picked, cell);
  }

  paintStill(cell, key) {
    const canvas = this.still, ctx = canvas.getContext("2d");
    canvas.key = key;
    canvas.width = this.f.width * cell;
    canvas.height = this.f.height * cell;
    const colors = { a: theme("floor"), b: theme("floor2"), wall: theme("wall"), top: theme("wall-top") };
    for (let row = 0; row < this.f.height; row++)
      for (let col = 0; col < this.f.width; col++) {
        const wall = this.wall(row, col);
        ctx.fillStyle = wall ? colors.wall : (row + col) % 2 ? colors.a : colors.b;
        ctx.fillRect(col * cell, row * cell, cell, cell);
        if (wall && !this.wall(row - 1, col)) {
          ctx.fillStyle = colors.top;
          ctx.fillRect(col * cell, row * cell, cell, Math.max(1, cell * 0.16));
        }
      }
  }

  paintThings(ctx, step, picked, cell) {
    const agent = picked?.agent;
    if (agent !== undefined) {
      const [row, col] = this.agentCell(step, agent), side = (2 * WINDOW + 1) * cell;
      ctx.fillStyle = theme("accent-soft");
      ctx.fillRect((col - WINDOW) * cell, (row - WINDOW) * cell, side, side);
      ctx.strokeStyle = theme("accent");
      ctx.setLineDash([cell / 4, cell / 4]);
      ctx.strokeRect((col - WINDOW) * cell + 0.5, (row - WINDOW) * cell + 0.5, side - 1, side - 1);
      ctx.setLineDash([]);
      this.paintTrail(ctx, step, agent, cell);
    }
    this.objects.forEach((name, j) => this.paintObject(ctx, step, j, name, cell, picked?.object === j));
    for (let k = 0; k < this.r.agents; k++) this.paintDeed(ctx, step, k, cell);
    for (let k = 0; k < this.r.agents; k++) this.paintAgent(ctx, step, k, cell, agent === k);
  }

  paintTrail(ctx, step, k, cell) {
    ctx.strokeStyle = agentColor(k);
    ctx.lineWidth = Math.max(1.5, cell / 9);
    for (let t = Math.max(0, step - TRAIL); t < step; t++) {
      const [r1, c1] = this.agentCell(t, k), [r2, c2] = this.agentCell(t + 1, k);
      ctx.globalAlpha = 0.6 * (1 - (step - t) / (TRAIL + 1));
      ctx.beginPath();
      ctx.moveTo((c1 + 0.5) * cell, (r1 + 0.5) * cell);
      ctx.lineTo((c2 + 0.5) * cell, (r2 + 0.5) * cell);
      ctx.stroke();
    }
    ctx.globalAlpha = 1;
    ctx.lineWidth = 1;
  }

  paintObject(ctx, step, j, name, cell, picked) {
    const [row, col] = this.objectCell(step, j), [shape, color] = look(name);
    const x = col * cell, y = row * cell, gap = cell * 0.06;
    ctx.fillStyle = color;
    ctx.beginPath();
    ctx.roundRect(x + gap, y + gap, cell - 2 * gap, cell - 2 * gap, cell * 0.18);
    ctx.fill();
    fillShape(ctx, shape, x + cell * 0.24, y + cell * 0.2, cell * 0.52, "#ffffffe6");
    const phase = this.t.object_phase.at(step, j), recipe = this.f.recipes[name];
    if (phase && recipe) {
      const whole = phase === 1 ? recipe.ticks : recipe.cooldown;
      const left = Math.min(1, Math.max(0, (this.t.object_due.at(step, j) - step) / whole));
      ctx.fillStyle = "#00000059";
      ctx.fillRect(x + cell * 0.14, y + cell * 0.8, cell * 0.72, cell * 0.1);
      ctx.fillStyle = phase === 1 ? "#ffffff" : "#ffffffb0";
      ctx.fillRect(x + cell * 0.14, y + cell * 0.8, cell * 0.72 * (1 - left), cell * 0.1);
    }
    const stock = this.stock(step, j, recipe);
    if (stock) this.badge(ctx, stock, x + cell * 0.84, y + cell * 0.16, cell);
    if (picked) this.ring(ctx, x, y, cell);
  }

  /** Returns how many items can be taken. */
  stock(step, j, recipe) {
    const out = Object.keys(recipe?.out || {});
    return out.reduce((sum, item) => sum + this.t.object_item.at(step, j * this.f.items.length + this.f.items.indexOf(item)), 0);
  }

  badge(ctx, text, x, y, cell) {
    const radius = cell * 0.2;
    ctx.fillStyle = theme("badge");
    ctx.beginPath();
    ctx.arc(x, y, radius, 0, 2 * Math.PI);
    ctx.fill();
    this.write(ctx, text, x, y, radius * 1.45, theme("badge-ink"));
  }

  write(ctx, text, x, y, size, color) {
    if (size < 7) return;
    ctx.fillStyle = color;
    ctx.font = `600 ${size}px system-ui, sans-serif`;
    ctx.textAlign = "center";
    ctx.textBaseline = "middle";
    ctx.fillText(text, x, y + size * 0.05);
  }

  ring(ctx, x, y, cell) {
    ctx.strokeStyle = theme("accent");
    ctx.lineWidth = Math.max(2, cell * 0.08);
    ctx.beginPath();
    ctx.roundRect(x, y, cell, cell, cell * 0.22);
    ctx.stroke();
    ctx.lineWidth = 1;
  }

  /** Draws an agent's last action on the cell that it faces: take, put, swap, shoot. */
  paintDeed(ctx, step, k, cell) {
    const action = this.r.actionAt(step, k);
    if (!action || this.t.agent_failed.at(step, k)) return;
    const name = this.f.actions[action[0]];
    const colors = { put_items: "#e08a00", get_items: "#2fae62", attack: "#e02d2d", swap: "#7a5bd0" };
    if (!colors[name]) return;
    const [row, col] = this.agentCell(step, k), [dr, dc] = FACING[this.t.agent_orientation.at(step, k)];
    const reach = name === "attack" ? 3 : 1;
    ctx.strokeStyle = colors[name];
    ctx.lineWidth = Math.max(2, cell * 0.12);
    ctx.beginPath();
    ctx.moveTo((col + 0.5) * cell, (row + 0.5) * cell);
    ctx.lineTo((col + 0.5 + dc * reach) * cell, (row + 0.5 + dr * reach) * cell);
    ctx.stroke();
    if (reach === 1) ctx.strokeRect((col + dc) * cell + 2, (row + dr) * cell + 2, cell - 4, cell - 4);
    ctx.lineWidth = 1;
  }

  paintAgent(ctx, step, k, cell, picked) {
    const [row, col] = this.agentCell(step, k), [dr, dc] = FACING[this.t.agent_orientation.at(step, k)];
    const x = (col + 0.5) * cell, y = (row + 0.5) * cell, radius = cell * 0.37;
    const frozen = this.t.agent_frozen.at(step, k);
    if (picked) this.ring(ctx, col * cell, row * cell, cell);
    ctx.fillStyle = agentColor(k);
    ctx.beginPath(); // a disc with a beak in the direction it faces
    const angle = Math.atan2(dr, dc);
    ctx.arc(x, y, radius, angle + 0.75, angle - 0.75);
    ctx.lineTo(x + dc * cell * 0.5, y + dr * cell * 0.5);
    ctx.closePath();
    ctx.fill();
    ctx.strokeStyle = frozen ? theme("ice") : "#ffffff";
    ctx.lineWidth = Math.max(1, cell * (frozen ? 0.12 : 0.05));
    ctx.stroke();
    ctx.lineWidth = 1;
    this.write(ctx, k, x, y, cell * (k > 9 ? 0.36 : 0.44), "#ffffff");
    const reward = this.r.rewardAt(step, k);
    if (reward) this.write(ctx, signed(reward), x, y - cell * 0.62, Math.max(9, cell * 0.36), theme(reward > 0 ? "good" : "bad"));
  }

  /** Returns {agent} or {object} in the cell at the canvas's pixel (x, y), or null. */
  pick(step, x, y, cell) {
    const row = Math.floor(y / cell) + this.top, col = Math.floor(x / cell) + this.left;
    const here = ([r, c]) => r === row && c === col;
    for (let k = 0; k < this.r.agents; k++) if (here(this.agentCell(step, k))) return { agent: k };
    for (let j = 0; j < this.objects.length; j++) if (here(this.objectCell(step, j))) return { object: j };
    return null;
  }

  /** Describes an action as HTML. */
  action(step, k) {
    const values = this.r.actionAt(step, k);
    if (!values) return "";
    const name = this.f.actions[values[0]], words = this.f.arguments[name];
    const argument = this.f.plain.includes(name) ? "" : ` ${words?.[values[1]] ?? values[1]}`;
    const text = name.replace("_items", "").replace("_", " ") + argument;
    return this.t.agent_failed.at(step, k) ? `<span class="failed" title="failed">${text} ✗</span>` : text;
  }

  items(track, step, i) {
    const found = this.f.items.map((name, n) => [name, track.at(step, i * this.f.items.length + n)]).filter(([, count]) => count);
    const shown = found.map(([name, count]) =>
      `<span class="item" data-item="${name}" title="${name}">${icon(name)} ${name.replace("_", " ")} <b>${count}</b></span>`);
    return `<div class="items">${shown.join("") || '<span class="muted">holds nothing</span>'}</div>`;
  }

  detail(step, picked) {
    if (picked?.agent !== undefined) return this.agentDetail(step, picked.agent);
    if (picked?.object !== undefined) return this.objectDetail(step, picked.object);
    return '<p class="muted">Click an agent or a converter on the map.</p>';
  }

  agentDetail(step, k) {
    const [row, col] = this.agentCell(step, k), frozen = this.t.agent_frozen.at(step, k);
    const facing = this.f.arguments.rotate[this.t.agent_orientation.at(step, k)];
    return `<h2>agent ${k}</h2>${facts({
      action: this.action(step, k) || "–",
      reward: signed(this.r.rewardAt(step, k)),
      return: short(this.r.returns[k][step]),
      place: `row ${row}, column ${col}, facing ${facing}${frozen ? `, frozen for ${frozen}` : ""}`,
      group: this.f.agent_group[k],
    })}${this.items(this.t.agent_item, step, k)}<h2>what it sees</h2><canvas id="view"></canvas>`;
  }

  objectDetail(step, j) {
    const name = this.objects[j], [row, col] = this.objectCell(step, j), recipe = this.f.recipes[name];
    const told = { place: `row ${row}, column ${col}` };
    if (recipe) {
      const phase = this.t.object_phase.at(step, j), left = this.t.object_due.at(step, j) - step;
      const list = (counts) => Object.entries(counts).map(([item, count]) => `${count} ${item.replace("_", " ")}`).join(" + ") || "nothing";
      told.state = PHASES[phase] + (phase ? `, ${left} steps more` : "");
      told.recipe = `${list(recipe.in)} → ${list(recipe.out)}`;
      told["cool-down"] = `${recipe.cooldown} steps`;
    }
    return `<h2>${name.replace("_", " ")}</h2>${facts(told)}${recipe ? this.items(this.t.object_item, step, j) : ""}`;
  }

  /** Draws the selected agent's window in the canvas that `detail` made for it. */
  drawView(step, picked, ratio) {
    const view = $("view");
    if (!view || picked?.agent === undefined) return;
    const cell = Math.round(26 * ratio), size = 2 * WINDOW + 1;
    view.width = view.height = size * cell;
    view.style.width = view.style.height = `${(size * cell) / ratio}px`;
    const ctx = view.getContext("2d"), [row, col] = this.agentCell(step, picked.agent);
    const key = `${cell} ${theme("floor")} view`;
    this.near ||= new GridWorld(this.r);
    if (this.near.still.key !== key) this.near.paintStill(cell, key);
    ctx.fillStyle = theme("back");
    ctx.fillRect(0, 0, view.width, view.height);
    ctx.translate((WINDOW - col) * cell, (WINDOW - row) * cell);
    ctx.drawImage(this.near.still, 0, 0);
    this.near.paintThings(ctx, step, null, cell);
  }

  legend() {
    const names = [...new Set(this.objects)];
    const worth = Object.entries(this.f.rewards).map(([item, { weight, cap }]) =>
      `<li class="key">${icon(item)} ${item.replace("_", " ")} ${signed(weight)}${cap === null ? "" : ` up to ${short(cap)}`}</li>`);
    return `<h2>map</h2><ul>${names.map((name) => `<li class="key">${icon(name)} ${name.replace("_", " ")}</li>`).join("")}</ul>
      ${worth.length ? `<h2>reward of holding</h2><ul>${worth.join("")}</ul>` : ""}`;
  }
}

const facts = (told) => `<dl class="facts">${Object.entries(told).map(([name, value]) => `<dt>${name}</dt><dd>${value}</dd>`).join("")}</dl>`;
