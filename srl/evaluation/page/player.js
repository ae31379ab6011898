"use strict";
// Plays recorded episodes on a canvas: time line, keys, and a panel for the chosen agent. What is
// drawn and told is up to `stage`, which the environment's own script defines.

// One recorded episode: numbers by name and step.
class Episode {
  constructor({ title, steps, tracks }, agents) {
    this.title = title;
    this.agents = agents;
    this.steps = steps;
    this.tracks = {};
    for (const [name, track] of Object.entries(tracks)) this.tracks[name] = decoded(track);
  }

  // The numbers of a name at a step, in a row; of what never changes, always the same.
  at(name, step) {
    const { size, rows, values } = this.tracks[name];
    const row = Math.min(Math.max(Math.floor(step), 0), rows - 1);
    return values.subarray(row * size, (row + 1) * size);
  }

  // The numbers at a time between two steps.
  between(name, time) {
    const share = time - Math.floor(time);
    const before = this.at(name, time);
    if (share === 0) return before;
    const after = this.at(name, time + 1);
    return before.map((value, i) => value + share * (after[i] - value));
  }
}

// Arrays are recorded as differences to the step before, in whole numbers.
function decoded({ shape, scale, deltas }) {
  const size = shape.slice(1).reduce((a, b) => a * b, 1);
  const values = new Float64Array(deltas);
  for (let i = size; i < values.length; i++) values[i] += values[i - size];
  return { size, rows: shape[0], values: values.map((value) => value / scale) };
}

class Player {
  constructor(data) {
    this.data = data;
    this.time = 0; // in steps
    this.playing = false;
    this.chosen = null; // an agent
    this.speed = 1;
    this.parts = {};
    for (const part of document.querySelectorAll("[id]")) this.parts[part.id] = part;
    this.parts.title.textContent = data.title;
    this.parts.about.textContent = data.about;
    this.fill(this.parts.speed, [0.25, 0.5, 1, 2, 4, 8].map((speed) => [speed, `${speed}×`]));
    this.parts.speed.value = 1;
    this.episodes = data.episodes.map((episode) => new Episode(episode, data.agents));
    this.fill(this.parts.episode, this.episodes.map((episode, i) => {
      const place = `${i + 1} of ${this.episodes.length}`;
      return [i, [place, episode.title, stage.result(episode)].filter(Boolean).join(", ")];
    }));
    this.agentButtons();
    this.listen();
    this.open(0);
  }

  fill(select, options) {
    select.replaceChildren(...options.map(([value, text]) => new Option(text, value)));
  }

  agentButtons() {
    this.parts.agents.replaceChildren(...this.data.agents.map((name, agent) => {
      const button = document.createElement("button");
      button.textContent = name;
      button.onclick = () => this.choose(this.chosen === agent ? null : agent);
      return button;
    }));
  }

  // ---- what a person can do ----

  listen() {
    const { play, back, on, speed, episode, time, view } = this.parts;
    play.onclick = () => this.toggle();
    back.onclick = () => this.seek(this.step - 1);
    on.onclick = () => this.seek(this.step + 1);
    speed.onchange = () => { this.speed = Number(speed.value); };
    episode.onchange = () => this.open(Number(episode.value));
    time.oninput = () => this.seek(Number(time.value));
    view.onclick = (event) => this.choose(this.agentAt(event));
    document.addEventListener("keydown", (event) => this.key(event));
    // Else a focused button would take the key for a click as well.
    document.addEventListener("keyup", (event) => event.key === " " && event.preventDefault());
    new ResizeObserver(() => { this.bands(); this.draw(); }).observe(view);
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target instanceof HTMLSelectElement) return;
    const far = event.shiftKey ? 10 : 1;
    const actions = {
      " ": () => this.toggle(),
      ArrowLeft: () => this.seek(this.step - far),
      ArrowRight: () => this.seek(this.step + far),
      Home: () => this.seek(0),
      End: () => this.seek(this.last),
      Escape: () => this.choose(null),
    };
    const action = actions[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  }

  open(number) {
    this.episode = this.episodes[number];
    this.last = this.episode.steps - 1;
    this.parts.time.max = this.last;
    this.parts.legend.replaceChildren(...stage.legend(this.episode).map(([color, text]) => {
      const entry = document.createElement("span");
      const mark = document.createElement("i");
      mark.style.background = color;
      entry.append(mark, text);
      return entry;
    }));
    [...this.parts.agents.children].forEach((button, agent) =>
      button.style.setProperty("--team", stage.color(this.episode, agent)));
    this.parts.rows.replaceChildren(...stage.bands(this.episode).map(({ name }) =>
      element({ text: name })));
    this.bands();
    this.seek(0);
  }

  get step() { return Math.floor(this.time); }

  seek(step) {
    this.pause();
    this.time = Math.min(Math.max(step, 0), this.last);
    this.draw();
  }

  choose(agent) {
    this.chosen = agent;
    [...this.parts.agents.children].forEach((button, i) =>
      button.setAttribute("aria-pressed", String(i === agent)));
    this.draw();
  }

  toggle() {
    if (this.playing) return this.pause();
    if (this.time >= this.last) this.seek(0);
    this.playing = true;
    this.parts.play.textContent = "Pause";
    this.before = performance.now();
    requestAnimationFrame((now) => this.tick(now));
  }

  pause() {
    this.playing = false;
    this.parts.play.textContent = "Play";
    this.time = this.step;
    this.draw();
  }

  tick(now) {
    if (!this.playing) return;
    const seconds = Math.max(0, Math.min(now - this.before, 250)) / 1000;
    this.before = now;
    this.time += seconds * this.speed * stage.stepsPerSecond;
    if (this.time >= this.last) return this.seek(this.last);
    this.draw();
    requestAnimationFrame((next) => this.tick(next));
  }

  // ---- what there is to see ----

  draw() {
    const pen = fitted(this.parts.view);
    // An agent observes at whole steps only.
    const shown = this.chosen === null ? this.time : this.step;
    stage.draw(pen, this.transform(), this.episode, shown, this.chosen);
    const told = [this.episodes.indexOf(this.episode), this.step, this.chosen].join();
    if (told !== this.told) this.tell();
    this.told = told;
  }

  // The words and numbers, which change from step to step.
  tell() {
    const { time, step, status, panel } = this.parts;
    time.value = this.step;
    step.textContent = `step ${this.step} of ${this.last}`;
    status.replaceChildren(...stage.status(this.episode, this.step).map(element));
    const sections = stage.panel(this.episode, this.step, this.chosen);
    panel.replaceChildren(...sections.flatMap(({ title, text, rows }) => [
      element({ tag: "h2", text: title }),
      ...(text ? [element({ tag: "p", text })] : []),
      ...(rows ? [table(rows)] : []),
    ]));
  }

  // From metres to pixels of the canvas: the whole of what the episode needs, y upwards.
  transform() {
    const { width, height } = this.parts.view;
    const { x, y, size } = stage.extent(this.episode);
    const scale = Math.min(width, height) / size;
    const left = (width - scale * size) / 2 - scale * x;
    const bottom = height - (height - scale * size) / 2 + scale * y;
    return { scale, at: (px, py) => [left + scale * px, bottom - scale * py] };
  }

  agentAt(event) {
    const { view } = this.parts;
    const ratio = view.width / view.clientWidth;
    const { scale, at } = this.transform();
    let nearest = null;
    let least = Math.max(20 * ratio, scale * stage.reach); // a finger is wide
    this.data.agents.forEach((_, agent) => {
      const [x, y] = at(...stage.place(this.episode, this.time, agent));
      const away = Math.hypot(x - event.offsetX * ratio, y - event.offsetY * ratio);
      if (away < least) [nearest, least] = [agent, away];
    });
    return nearest;
  }

  // The time line: a row for each thing that it tells, coloured step by step.
  bands() {
    const { bands } = this.parts;
    const pen = fitted(bands);
    const rows = stage.bands(this.episode);
    const wide = bands.width / this.episode.steps;
    const high = bands.height / rows.length;
    rows.forEach(({ color }, row) => {
      for (let step = 0; step < this.episode.steps; step++) {
        pen.fillStyle = color(step);
        pen.fillRect(step * wide, row * high, wide + 1, high - 1);
      }
    });
  }
}

// The canvas's pen, after the canvas has got as many pixels as the screen shows of it.
function fitted(canvas) {
  const ratio = window.devicePixelRatio || 1;
  const [width, height] = [canvas.clientWidth, canvas.clientHeight].map((x) =>
    Math.max(1, Math.round(x * ratio)));
  if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
  const pen = canvas.getContext("2d");
  pen.clearRect(0, 0, width, height);
  return pen;
}

function element({ tag = "span", text = "", kind = "", color, background }) {
  const made = document.createElement(tag);
  made.textContent = text;
  made.className = kind;
  if (color) made.style.color = color;
  if (background) made.style.background = background;
  return made;
}

// Rows of a name and a value; a share from -1 to 1 is shown as a bar beside it.
function table(rows) {
  const list = document.createElement("dl");
  for (const { name, value, share, color } of rows) {
    const told = element({ tag: "dd", text: value, color });
    if (share !== undefined) {
      told.replaceChildren(element({ text: value, kind: "beside" }));
      const bar = element({ kind: "bar" });
      const fill = document.createElement("i");
      fill.style.left = `${50 + 50 * Math.min(share, 0)}%`;
      fill.style.width = `${50 * Math.abs(share)}%`;
      bar.append(fill);
      told.prepend(bar);
    }
    list.append(element({ tag: "dt", text: name }), told);
  }
  return list;
}

const player = new Player(JSON.parse(document.getElementById("data").textContent));
