/* Runs the page: state, drawing, playing, keys and clicks. The URL's hash holds the step and the selected agent. */

const WORLDS = { grid: GridWorld, frames: FramesWorld };
const FPS = [1, 2, 5, 10, 20, 40, 80];

const recording = new Recording(JSON.parse($("recording").textContent));
const world = new (WORLDS[recording.world.kind] || PlainWorld)(recording);
const plot = new Plot(recording);
const charts = world.charted ? new Charts(recording) : null;
const state = { step: 0, picked: null, playing: false, fps: 10, cell: 1 };

// ── drawing ──

function draw() {
  const ratio = window.devicePixelRatio || 1, map = $("map"), { step, picked } = state;
  const room = $("stage").clientWidth - 30, height = Math.max(260, window.innerHeight - 400);
  state.cell = world.fit(room * ratio, height * ratio);
  world.draw(map, step, picked, state.cell);
  map.style.width = `${map.width / ratio}px`;
  map.dataset.cell = state.cell / ratio;
  plot.draw($("plot"), step, picked, ratio);
  if (charts) charts.draw(step, picked?.agent ?? 0, ratio, chartRoom());
  $("step").innerHTML = `step ${step} <span>of ${recording.steps}</span>`;
  $("scrubber").value = step;
  $("play").querySelector("path").setAttribute("d", state.playing ? "M5 3h5v18H5Zm9 0h5v18h-5Z" : "M6 3v18l15-9Z");
  drawAgents();
  $("detail").innerHTML = world.detail(step, picked);
  world.drawView(step, picked, ratio);
  Object.assign(document.body.dataset, { step, agent: picked?.agent ?? "", playing: state.playing });
}

/** Returns the height that charts may take, so that the page fills the window and no more. */
function chartRoom() {
  const others = document.documentElement.scrollHeight - $("charts").offsetHeight;
  const page = document.querySelector("header").offsetHeight + document.querySelector("footer").offsetHeight;
  const stage = $("stage").offsetHeight - $("charts").offsetHeight - $("world").offsetHeight;
  return Math.max(240, window.innerHeight - Math.min(others, page + stage + 16) - $("world").offsetHeight);
}

function drawAgents() {
  const { step, picked } = state;
  $("rows").innerHTML = recording.returns.map((sums, k) => {
    const reward = recording.rewardAt(step, k), sign = reward > 0 ? "up" : reward < 0 ? "down" : "muted";
    return `<tr data-agent="${k}" aria-selected="${picked?.agent === k}">
      <td><span class="dot" style="background:${agentColor(k)}">${k}</span></td>
      <td class="act">${world.action(step, k)}</td><td class="${sign}">${reward ? signed(reward) : "·"}</td>
      <td>${short(sums[step])}</td></tr>`;
  }).join("");
}

function drawOnce() {
  const about = recording.about, stats = Object.entries(recording.stats);
  $("title").textContent = about.run || about.env || "episode";
  const shown = [about.env, about.player, about.seed !== undefined && `seed ${about.seed}`,
    about.episode !== undefined && `episode ${about.episode}`, about.trained !== undefined && `after ${about.trained.toLocaleString("en")} steps of training`];
  $("about").textContent = shown.filter(Boolean).join(" · ");
  $("about").title = about.checkpoint || "";
  $("agents").innerHTML = `<h2>agents</h2><div><table><thead><tr><th></th><th class="act">action</th><th>reward</th>
    <th>return</th></tr></thead><tbody id="rows"></tbody></table></div>`;
  const mean = (values) => values.filter((v) => v !== null).reduce((a, b, _, all) => a + b / all.length, 0);
  const known = stats.filter(([, values]) => values.some((v) => v !== null));
  const figures = known.length
    ? `<h2>episode, mean per agent</h2><ul>${known.map(([name, values]) => `<li>${escaped(name)} ${short(mean(values))}</li>`).join("")}</ul>` : "";
  $("legend").innerHTML = world.legend() + figures;
  $("scrubber").max = recording.steps;
  $("fps").innerHTML = FPS.map((fps) => `<option value="${fps}">${fps}/s</option>`).join("");
  if (charts) {
    $("charts").hidden = false;
    if (recording.world.kind === "frames") $("stage").append($("charts"));  // below the picture and its controls
    charts.build($("charts"));
  }
  const { step_s } = recording.world.facts;
  if (step_s) state.fps = FPS.filter((fps) => fps <= 1.01 / step_s).at(-1) ?? FPS[0];  // real time, or the nearest slower speed
  $("fps").value = state.fps;
}

// ── changes ──

function show(step) {
  state.step = Math.max(0, Math.min(recording.steps, Math.round(step)));
  keepHash();
  draw();
}

function pick(picked) {
  state.picked = picked;
  keepHash();
  draw();
}

let hashTimer = 0;
/** Writes the hash, delayed, since browsers limit how often the URL may change. */
function keepHash() {
  clearTimeout(hashTimer);
  hashTimer = setTimeout(() => {
    const agent = state.picked?.agent;
    history.replaceState(null, "", `#step=${state.step}${agent === undefined ? "" : `&agent=${agent}`}`);
  }, 150);
}

function readHash() {
  const given = new URLSearchParams(location.hash.slice(1)), agent = Number(given.get("agent") ?? NaN);
  state.step = Math.max(0, Math.min(recording.steps, Math.round(Number(given.get("step"))) || 0));
  if (Number.isInteger(agent) && agent >= 0 && agent < recording.agents) state.picked = { agent };
}

function play(on) {
  state.playing = on && recording.steps > 0;
  if (state.playing && state.step === recording.steps) state.step = 0;
  last = performance.now();
  owed = 0;
  draw();
  if (state.playing) requestAnimationFrame(tick);
}

let last = 0, owed = 0;
function tick(now) {
  if (!state.playing) return;
  owed += Math.max(0, now - last) * state.fps / 1000;
  last = now;
  const whole = Math.floor(owed);
  if (whole) {
    owed -= whole;
    if (state.step + whole >= recording.steps) state.playing = false;
    show(state.step + whole);
  }
  if (state.playing) requestAnimationFrame(tick);
}

function speed(change) {
  const at = Math.max(0, Math.min(FPS.length - 1, FPS.indexOf(state.fps) + change));
  state.fps = FPS[at];
  $("fps").value = state.fps;
}

function setTheme(name) {
  document.documentElement.dataset.theme = name;
  draw();
}

// ── keys and clicks ──

function nextAgent(by) {
  const n = recording.agents, agent = state.picked?.agent;
  pick({ agent: agent === undefined ? (by > 0 ? 0 : n - 1) : (agent + by + n) % n });
}

const KEYS = {
  " ": () => play(!state.playing),
  ArrowLeft: (event) => show(state.step - (event.shiftKey ? 10 : 1)),
  ArrowRight: (event) => show(state.step + (event.shiftKey ? 10 : 1)),
  Home: () => show(0),
  End: () => show(recording.steps),
  Escape: () => pick(null),
  n: () => nextAgent(1),
  p: () => nextAgent(-1),
  "+": () => speed(1),
  "=": () => speed(1),
  "-": () => speed(-1),
  t: () => toggleTheme(),
};
const toggleTheme = () => setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark");

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.altKey || event.metaKey || event.target.tagName === "SELECT") return;
  if (!KEYS[event.key]) return;
  event.preventDefault();
  KEYS[event.key](event);
});
$("play").onclick = () => play(!state.playing);
$("first").onclick = () => show(0);
$("back").onclick = () => show(state.step - 1);
$("next").onclick = () => show(state.step + 1);
$("last").onclick = () => show(recording.steps);
$("theme").onclick = () => toggleTheme();
$("fps").onchange = (event) => { state.fps = Number(event.target.value); };
$("scrubber").oninput = (event) => show(Number(event.target.value));
$("map").onclick = (event) => {
  const ratio = window.devicePixelRatio || 1;
  pick(world.pick(state.step, event.offsetX * ratio, event.offsetY * ratio, state.cell));
};
$("agents").onclick = (event) => {
  const row = event.target.closest("tr[data-agent]");
  if (row) pick(state.picked?.agent === Number(row.dataset.agent) ? null : { agent: Number(row.dataset.agent) });
};
$("plot").onpointerdown = $("plot").onpointermove = $("charts").onpointerdown = $("charts").onpointermove = (event) => {
  if (event.buttons & 1 && event.target.tagName === "CANVAS") show(plot.stepAt(event.target, event.offsetX));
};
for (const button of document.querySelectorAll("button")) button.onmousedown = (event) => event.preventDefault(); // buttons do not take the keyboard focus
window.onresize = () => draw();
window.onhashchange = () => { readHash(); draw(); };

const dark = matchMedia("(prefers-color-scheme: dark)");
dark.onchange = () => setTheme(dark.matches ? "dark" : "light");
readHash();
drawOnce();
setTheme(dark.matches ? "dark" : "light");
