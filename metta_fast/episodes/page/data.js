/* Expands the recording's JSON for random access. docs/replay.md describes the format. */

const $ = (id) => document.getElementById(id);

/** Holds a track as one typed array of all steps: at(step, i) is number i of the row after `step` steps. */
class Track {
  constructor(given, steps) {
    const kinds = { uint8: Uint8Array, uint16: Uint16Array, int16: Int16Array, int32: Int32Array };
    this.size = given.start.length;
    this.values = new (kinds[given.dtype] || Float64Array)((steps + 1) * this.size);
    this.values.set(given.start);
    given.changes.forEach((change, step) => {
      const from = step * this.size, to = from + this.size;
      this.values.copyWithin(to, from, to);
      for (let k = 0; k < change.length; k += 2) this.values[to + change[k]] = change[k + 1];
    });
  }

  at(step, i) { return this.values[step * this.size + i]; }
}

class Recording {
  constructor(given) {
    Object.assign(this, given);
    this.tracks = {};
    for (const [name, track] of Object.entries(given.world.tracks)) this.tracks[name] = new Track(track, given.steps);
    this.returns = Array.from({ length: this.agents }, () => new Float64Array(this.steps + 1));
    this.reward.forEach((row, step) => row.forEach((value, agent) => {
      this.returns[agent][step + 1] = this.returns[agent][step] + value;
    }));
  }

  /** Returns the reward of step `step`; 0 at the start. */
  rewardAt(step, agent) { return step ? this.reward[step - 1][agent] : 0; }

  /** Returns the numbers of the action that led to step `step`; null at the start and after the agent's end. */
  actionAt(step, agent) {
    const over = this.end[agent] >= 0 && step > this.end[agent];
    if (!step || over) return null;
    const width = this.actions.width, row = this.action[step - 1];
    return row.slice(agent * width, (agent + 1) * width);
  }
}

/** Agents' colours: eight that most people can distinguish, then colours spaced by the golden angle. */
const AGENT_COLORS = ["#e08a00", "#2f8fd8", "#159a6c", "#c2569a", "#7a5bd0", "#d1502c", "#8a8f2a", "#5d7a8c"];
const agentColor = (k) => AGENT_COLORS[k] || `hsl(${(k * 137.508) % 360} 55% 48%)`;

const signed = (value) => (value > 0 ? "+" : value < 0 ? "−" : "") + short(Math.abs(value));
const short = (value) => (Math.abs(value) >= 1000 ? value.toFixed(0) : Number(value.toFixed(3)).toString());
const escaped = (text) => String(text).replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);
