/* Plots what an agent sees, does and expects, by step: observation, action and value. For worlds without a map. */

class Charts {
  constructor(recording) {
    this.r = recording;
    this.all = [...this.leaves(), this.actions(), ...this.value()];
    this.images = new Map();
  }

  leaves() {
    const { steps, agents } = this.r;
    return Object.entries(this.r.observation || {}).map(([name, { shape, rows }]) => {
      const size = rows[0].length / agents;
      return { title: name === "obs" ? "observation" : `observation: ${name}`, size, last: steps, after: 0, shape,
        at: (step, agent, i) => rows[step][agent * size + i], label: (i) => (size > 1 ? i : "") };
    });
  }

  actions() {
    const { steps, actions } = this.r, { width, kind, start } = actions;
    return { title: kind === "discrete" ? "action: number of the choice" : "action", size: width, last: steps - 1, after: 1,
      discrete: kind === "discrete", label: (i) => (width > 1 ? i : ""),
      at: (step, agent, i) => this.r.actionAt(step + 1, agent)?.[i] + (start[i] || 0) };
  }

  value() {
    const { value, steps } = this.r;
    if (!value) return [];
    return [{ title: "value that the policy expects", size: 1, last: steps - 1, after: 0, label: () => "",
      at: (step, agent) => value[step][agent] ?? NaN }];
  }

  /** Makes a canvas with a heading for each chart. */
  build(place) {
    place.innerHTML = this.all.map((chart, k) => `<figure data-chart="${k}"><figcaption><b>${escaped(chart.title)}</b>
      <span></span></figcaption><canvas></canvas></figure>`).join("");
    this.place = place;
  }

  /** Draws all charts of an agent. room: CSS pixels of height for them together. */
  draw(step, agent, ratio, room) {
    const figures = [...this.place.children], height = Math.max(60, Math.min(300, room / figures.length - 32));
    this.all.forEach((chart, k) => {
      const canvas = figures[k].querySelector("canvas");
      canvas.style.height = `${height}px`;
      figures[k].querySelector("span").innerHTML = this.now(chart, Math.max(0, Math.min(step, chart.last + chart.after) - chart.after), agent);
      this.plot(chart, canvas, step, agent, ratio);
    });
  }

  /** Returns the values at a step, each in its line's colour. */
  now(chart, step, agent) {
    const shown = Array.from({ length: Math.min(chart.size, Charts.LINES) }, (_, i) => chart.at(step, agent, i));
    if (chart.size > Charts.LINES) return `${chart.shape ? chart.shape.join(" × ") : chart.size} numbers`;
    return shown.map((value, i) => `<i style="color:${agentColor(i)}">${chart.label(i)}</i> ${number(value)}`).join(" ");
  }

  plot(chart, canvas, step, agent, ratio) {
    const width = canvas.clientWidth, height = canvas.clientHeight;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    const ctx = canvas.getContext("2d"), left = Plot.LEFT, inside = width - left - Plot.RIGHT;
    ctx.scale(ratio, ratio);
    ctx.font = "11px system-ui, sans-serif";
    const x = (t) => left + (t / Math.max(this.r.steps, 1)) * inside, bottom = height - 6;
    if (chart.size > Charts.LINES) this.heat(ctx, chart, agent, x, bottom);
    else {
      const [low, high] = this.range(chart, agent), thick = chart.discrete ? Math.min(14, (bottom - 16) / (high - low + 1)) : 0;
      const y = (value) => bottom - 4 - thick / 2 - ((value - low) / (high - low)) * (bottom - 12 - thick);
      this.axis(ctx, low, high, y, width);
      if (chart.discrete) this.bars(ctx, chart, agent, x, y, thick);
      else this.lines(ctx, chart, agent, x, y);
    }
    Plot.cursor(ctx, x(step), bottom);
  }

  axis(ctx, low, high, y, width) {
    ctx.strokeStyle = theme("line");
    ctx.fillStyle = theme("muted");
    ctx.textAlign = "right";
    ctx.textBaseline = "middle";
    for (const value of [low, high]) {
      ctx.beginPath();
      ctx.moveTo(Plot.LEFT, y(value));
      ctx.lineTo(width - Plot.RIGHT, y(value));
      ctx.stroke();
      ctx.fillText(number(value), Plot.LEFT - 6, y(value));
    }
  }

  /** Draws a bar for each choice; where steps are closer than pixels, the paler the rarer it was. */
  bars(ctx, chart, agent, x, y, thick) {
    const wide = x(1) - x(0), tall = Math.max(2, thick / chart.size);
    ctx.globalAlpha = Math.min(1, Math.max(0.15, wide));
    for (let i = 0; i < chart.size; i++) {
      ctx.fillStyle = agentColor(i);
      for (let t = 0; t <= chart.last; t++) {
        const value = chart.at(t, agent, i);
        if (Number.isFinite(value)) ctx.fillRect(x(t), y(value) - thick / 2 + i * tall, Math.max(wide, 1), tall);
      }
    }
    ctx.globalAlpha = 1;
  }

  lines(ctx, chart, agent, x, y) {
    ctx.lineWidth = x(1) - x(0) < 2 ? 1 : 1.5;
    for (let i = 0; i < chart.size; i++) {
      ctx.strokeStyle = agentColor(i);
      ctx.beginPath();
      let before = NaN;
      for (let t = 0; t <= chart.last; t++) {
        const value = chart.at(t, agent, i);
        if (Number.isFinite(value)) {
          if (!Number.isFinite(before)) ctx.moveTo(x(t), y(value));
          ctx.lineTo(x(t), y(value));
        }
        before = value;
      }
      ctx.stroke();
    }
  }

  /** Draws many numbers as an image: a column for each step, a row for each number, the darker the larger. */
  heat(ctx, chart, agent, x, bottom) {
    const key = `${this.all.indexOf(chart)} ${agent} ${theme("accent")}`;
    if (!this.images.has(key)) {
      const [low, high] = this.range(chart, agent), columns = chart.last + 1;
      const canvas = Object.assign(document.createElement("canvas"), { width: columns, height: chart.size });
      const inside = canvas.getContext("2d"), image = inside.createImageData(columns, chart.size);
      const color = theme("accent").match(/\w\w/g).map((part) => parseInt(part, 16));
      for (let t = 0; t < columns; t++) {
        for (let i = 0; i < chart.size; i++) {
          const place = 4 * (i * columns + t);
          image.data.set(color, place);
          image.data[place + 3] = 255 * ((chart.at(t, agent, i) - low) / (high - low)) || 0;
        }
      }
      inside.putImageData(image, 0, 0);
      this.images.set(key, canvas);
    }
    ctx.imageSmoothingEnabled = false;
    ctx.drawImage(this.images.get(key), x(0), 2, x(chart.last) - x(0), bottom - 2);
    ctx.fillStyle = theme("muted");
    ctx.textAlign = "right";
    ctx.textBaseline = "middle";
    ctx.fillText("0", Plot.LEFT - 6, 8);
    ctx.fillText(chart.size - 1, Plot.LEFT - 6, bottom - 6);
  }

  range(chart, agent) {
    let low = Infinity, high = -Infinity;
    for (let t = 0; t <= chart.last; t++) {
      for (let i = 0; i < chart.size; i++) {
        const value = chart.at(t, agent, i);
        if (value < low) low = value;
        if (value > high) high = value;
      }
    }
    if (!Number.isFinite(low) || !Number.isFinite(high)) return [0, 1];
    return low === high ? [low - 0.5, high + 0.5] : [low, high];
  }
}
Charts.LINES = 8;

/** Returns the numbers that an agent sees at a step, for the list beside the charts: at most `most` of each leaf. */
const seen = (recording, step, agent, most = 16) => Object.fromEntries(
  Object.entries(recording.observation || {}).flatMap(([name, { rows }]) => {
    const size = rows[0].length / recording.agents, shown = rows[step].slice(agent * size, agent * size + Math.min(size, most));
    const more = size > most ? [[`${escaped(name)} …`, `${size - most} more`]] : [];
    return [...shown.map((value, i) => [size > 1 ? `${escaped(name)} ${i}` : escaped(name), number(value ?? NaN)]), ...more];
  }));

const number = (value) => (Number.isFinite(value) ? short(Number(value.toPrecision(3))) : "–");
