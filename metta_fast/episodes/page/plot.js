/* Plots return and rewards by step: lines of each agent's return above, bars of the rewards below. */

class Plot {
  constructor(recording) { this.r = recording; }

  /** Returns the step at the canvas's CSS pixel x. */
  stepAt(canvas, x) {
    const inside = canvas.clientWidth - Plot.LEFT - Plot.RIGHT;
    return Math.round(((x - Plot.LEFT) / inside) * this.r.steps);
  }

  draw(canvas, step, picked, ratio) {
    const width = canvas.clientWidth, height = canvas.clientHeight, r = this.r;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    const ctx = canvas.getContext("2d");
    ctx.scale(ratio, ratio);
    const left = Plot.LEFT, inside = width - left - Plot.RIGHT, upper = height * 0.6, lower = height - 16;
    const x = (t) => left + (t / Math.max(r.steps, 1)) * inside;
    const ends = r.returns.flatMap((sums) => [Math.min(...sums), Math.max(...sums)]);
    const low = Math.min(0, ...ends), high = Math.max(low + 1e-9, ...ends);
    const y = (value) => upper - 4 - ((value - low) / (high - low)) * (upper - 16);
    ctx.font = "11px system-ui, sans-serif";
    ctx.strokeStyle = theme("line");
    ctx.fillStyle = theme("muted");
    ctx.textAlign = "right";
    ctx.textBaseline = "middle";
    for (const value of [low, high]) {
      ctx.beginPath();
      ctx.moveTo(left, y(value));
      ctx.lineTo(width - Plot.RIGHT, y(value));
      ctx.stroke();
      ctx.fillText(short(Number(value.toPrecision(4))), left - 6, y(value));
    }
    ctx.textAlign = "left";
    const agent = picked?.agent;
    r.returns.forEach((sums, k) => {
      ctx.strokeStyle = agentColor(k);
      ctx.globalAlpha = agent === undefined || agent === k ? 1 : 0.3;
      ctx.lineWidth = agent === k ? 2.5 : 1.5;
      ctx.beginPath();
      ctx.moveTo(x(0), y(sums[0]));
      for (let t = 1; t <= r.steps; t++) {
        if (sums[t] !== sums[t - 1]) ctx.lineTo(x(t), y(sums[t - 1]));
        if (sums[t] !== sums[t - 1] || t === r.steps) ctx.lineTo(x(t), y(sums[t]));
      }
      ctx.stroke();
    });
    ctx.globalAlpha = 1;
    this.bars(ctx, x, upper + 16, lower, agent);
    ctx.textAlign = "left";
    const all = r.agents > 1 ? "reward, all agents" : "reward";
    this.label(ctx, "return", left + 4, 8);
    this.label(ctx, agent === undefined ? all : `reward, agent ${agent}`, left + 4, upper + 8);
    ctx.fillStyle = theme("muted");
    ctx.fillText("0", left, height - 6);
    ctx.textAlign = "right";
    ctx.fillText(r.steps, width - Plot.RIGHT, height - 6);
    Plot.cursor(ctx, x(step), lower);
  }

  /** Marks the step that is shown, from the top down to `bottom`. */
  static cursor(ctx, x, bottom) {
    ctx.strokeStyle = theme("accent");
    ctx.lineWidth = 1.5;
    ctx.beginPath();
    ctx.moveTo(x, 0);
    ctx.lineTo(x, bottom);
    ctx.stroke();
  }

  /** Writes a text over lines, with the panel's colour around it. */
  label(ctx, text, x, y) {
    ctx.strokeStyle = theme("panel");
    ctx.lineWidth = 4;
    ctx.lineJoin = "round";
    ctx.strokeText(text, x, y);
    ctx.fillStyle = theme("muted");
    ctx.fillText(text, x, y);
  }

  bars(ctx, x, top, bottom, agent) {
    const r = this.r;
    const rewards = r.reward.map((row) => (agent === undefined ? row.reduce((a, b) => a + b, 0) : row[agent]));
    const most = Math.max(1e-9, ...rewards.map(Math.abs)), negative = rewards.some((value) => value < 0);
    const zero = negative ? (top + bottom) / 2 : bottom, scale = (negative ? (bottom - top) / 2 : bottom - top) / most;
    ctx.strokeStyle = theme("line");
    ctx.lineWidth = 1;
    ctx.strokeRect(x(0), zero, x(r.steps) - x(0), 0);
    const wide = Math.max(1, x(1) - x(0) - 0.5);
    rewards.forEach((value, t) => {
      if (!value) return;
      ctx.fillStyle = theme(value > 0 ? "good" : "bad");
      const tall = Math.max(1, Math.abs(value) * scale);
      ctx.fillRect(x(t + 1) - wide / 2, value > 0 ? zero - tall : zero, wide, tall);
    });
  }
}
Plot.LEFT = 46;
Plot.RIGHT = 10;
