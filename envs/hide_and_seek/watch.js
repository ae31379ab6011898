"use strict";
// Hide-and-seek from above, and what each of its agents sees. Positions are in metres.

const stage = (() => {
  const HIDERS = 0, SEEKERS = 1;
  const TEAM = ["#266ce4", "#de302c"];
  const TEAM_NAME = ["hiders", "seekers"];
  const INK = "#222831", WHITE = "#ffffff", WALL = "#545c68";
  const GROUND = "#dfe3e8", FLOOR = "#f6f7f9";
  const CUBE = "#9e6e42", LONG_BOX = "#e2963e", RAMP = "#f0ce42";
  const SITE = "#34a06e", CYLINDER = "#aa96c4", FOOD = "#60be3e";
  const PREPARING = "#c9d0d9", SEEKING = "#5b6b80", UNSEEN = "#b9cdf2", SEEN = "#de302c";
  const REWARDED = "#5aa469", PUNISHED = "#d9825b", LOST = "#7a1512", NOTHING = "#e3e7ec";
  const RADIUS = 0.15, HALF_VIEW = 3 / 8 * Math.PI, SHORT_VIEW = 1.0, NO_HIT = 6;
  const RAMP_SIZE = 0.5, CYLINDER_HEIGHT = 0.5;

  // ---- what was recorded ----

  const rows = (numbers, width) =>
    Array.from({ length: numbers.length / width }, (_, i) =>
      numbers.subarray(width * i, width * (i + 1)));

  const agents = (episode, time) => rows(episode.between("agents", time), 4);
  const teams = (episode) => episode.at("teams", 0);
  const there = (episode) => [HIDERS, SEEKERS].filter((team) => teams(episode).includes(team));
  const isGame = (episode) => there(episode).length > 1; // else a task for one agent
  // Whether the action that led to this step, or the first, is of the preparation.
  const preparing = (episode, step) =>
    isGame(episode) && Math.max(step - 1, 0) < episode.at("preparation_steps", 0)[0];
  const resting = (episode, step, agent) =>
    preparing(episode, step) && teams(episode)[agent] === SEEKERS;
  const facing = (angle) => [Math.sin(angle), -Math.cos(angle)];

  // Boxes, then ramps: [x, y, z, angle], size in x and y, and what it is called.
  function objects(episode, time) {
    const boxes = rows(episode.between("boxes", time), 7).map((box, i) => {
      const long = Math.abs(box[4] - box[5]) > 0.01;
      return { pose: box, size: [box[4], box[5]], color: long ? LONG_BOX : CUBE,
        name: `${long ? "long box" : "box"} ${i}` };
    });
    const ramps = rows(episode.between("ramps", time), 4).map((pose, i) =>
      ({ pose, size: [RAMP_SIZE, RAMP_SIZE], color: RAMP, ramp: true, name: `ramp ${i}` }));
    return [...boxes, ...ramps];
  }

  // Bits: agents, then objects.
  const sees = (episode, step, agent, thing) =>
    Boolean(episode.at("sees", step)[agent] & (1 << thing));

  function lockingTeam(episode, step, object) {
    const locker = episode.at("locked_by", step)[object];
    return locker < 0 ? null : teams(episode)[locker];
  }

  // ---- lines of sight, as `Scene.view` has them ----

  // Where an agent's field of view ends on the floor, from its right to its left.
  function view(episode, time, [x, y, height, angle], length, count = 121) {
    const [dx, dy] = facing(angle);
    const middle = Math.atan2(dy, dx);
    const hiding = obstacles(episode, time).filter(({ top }) => height < top);
    return Array.from({ length: count }, (_, k) => {
      const turned = middle + HALF_VIEW * (2 * k / (count - 1) - 1);
      const ray = [Math.cos(turned), Math.sin(turned)];
      const reach = Math.min(length, ...hiding.map(({ at, half, angle, radius }) => {
        const start = [x - at[0], y - at[1]];
        return half ? intoRectangle(start, ray, angle, half) : intoCircle(start, ray, radius);
      }));
      return [x + reach * ray[0], y + reach * ray[1]];
    });
  }

  // What hides things that are behind it from eyes that are lower than its top.
  const obstacles = (episode, time) => [
    ...rows(episode.at("walls", 0), 5).map(([x, y, halfX, halfY, top]) =>
      ({ at: [x, y], half: [halfX, halfY], angle: 0, top })),
    ...rows(episode.between("boxes", time), 7).map(([x, y, z, angle, sizeX, sizeY, sizeZ]) =>
      ({ at: [x, y], half: [sizeX / 2, sizeY / 2], angle, top: z + sizeZ / 2 })),
    ...rows(episode.between("ramps", time), 4).map(([x, y, z, angle]) =>
      ({ at: [x, y], half: [RAMP_SIZE / 2, RAMP_SIZE / 2], angle, top: z + RAMP_SIZE / 2 })),
    ...rows(episode.at("cylinders", 0), 3).map(([x, y, radius]) =>
      ({ at: [x, y], radius, top: CYLINDER_HEIGHT })),
  ];

  // How far a ray goes until it enters a rectangle, whose centre is 0; from inside it does not.
  function intoRectangle(start, ray, angle, half) {
    const turn = ([x, y]) => [x * Math.cos(angle) + y * Math.sin(angle),
      y * Math.cos(angle) - x * Math.sin(angle)];
    const [from, along] = [turn(start), turn(ray)];
    const ends = half.map((side, axis) =>
      [-side, side].map((end) => (end - from[axis]) / along[axis]));
    const enter = Math.max(...ends.map((pair) => Math.min(...pair)));
    const leave = Math.min(...ends.map((pair) => Math.max(...pair)));
    return enter > 0 && enter <= leave ? enter : Infinity;
  }

  function intoCircle([x, y], [dx, dy], radius) {
    const nearest = -(x * dx + y * dy); // the way to the point that is nearest to the centre
    const enter = nearest - Math.sqrt(radius ** 2 - x ** 2 - y ** 2 + nearest ** 2);
    return enter > 0 ? enter : Infinity; // NaN for a ray that misses it
  }

  // ---- drawing ----

  // Draws with positions and lengths in metres.
  class Brush {
    constructor(pen, { scale, at }) { Object.assign(this, { pen, scale, at }); }

    path(points) {
      this.pen.beginPath();
      for (const point of points) this.pen.lineTo(...this.at(...point));
    }
    fill(points, color) {
      this.path(points);
      this.pen.fillStyle = color;
      this.pen.fill();
    }
    line(points, color, width, dashes = []) {
      this.path(points);
      this.pen.setLineDash(dashes.map((x) => x * this.scale));
      Object.assign(this.pen, { strokeStyle: color, lineWidth: width * this.scale,
        lineJoin: "round", lineCap: dashes.length ? "butt" : "round" });
      this.pen.stroke();
      this.pen.setLineDash([]);
    }
    disc([x, y], radius, color) {
      this.pen.beginPath();
      this.pen.arc(...this.at(x, y), radius * this.scale, 0, 2 * Math.PI);
      this.pen.fillStyle = color;
      this.pen.fill();
    }
    text(string, [x, y], size, color) {
      this.pen.font = `600 ${size * this.scale}px sans-serif`;
      Object.assign(this.pen, { fillStyle: color, textAlign: "center", textBaseline: "middle" });
      this.pen.fillText(string, ...this.at(x, y));
    }
    dimmed(share, paint) {
      this.pen.globalAlpha = share;
      paint();
      this.pen.globalAlpha = 1;
    }
  }

  const corner = ([x, y, , angle], a, b) => [
    x + Math.cos(angle) * a - Math.sin(angle) * b, y + Math.sin(angle) * a + Math.cos(angle) * b];

  function draw(pen, transform, episode, time, chosen) {
    const step = Math.floor(time);
    const brush = new Brush(pen, transform);
    pen.fillStyle = GROUND;
    pen.fillRect(0, 0, pen.canvas.width, pen.canvas.height);
    const end = episode.at("floor_size", 0)[0];
    brush.fill([[0, 0], [end, 0], [end, end], [0, end]], FLOOR);
    sites(brush, episode);
    const players = agents(episode, time);
    const things = objects(episode, time);
    const shown = (thing) => (chosen === null || thing === chosen
      || sees(episode, step, chosen, thing) ? 1 : 0.22);
    players.forEach((pose, agent) => {
      if (chosen === null) cone(brush, episode, time, agent, pose);
    });
    if (chosen !== null) sight(brush, episode, time, chosen, players[chosen]);
    things.forEach((thing, i) =>
      brush.dimmed(shown(players.length + i), () => object(brush, episode, step, i, thing)));
    walls(brush, episode);
    food(brush, episode, step, chosen);
    grips(brush, episode, step, players, things);
    if (chosen === null) sightings(brush, episode, step, players);
    players.forEach((pose, agent) => {
      const drawn = [...place(episode, time, agent), pose[2], pose[3]];
      brush.dimmed(shown(agent), () => player(brush, episode, step, agent, drawn, chosen));
    });
    if (chosen !== null) highlights(brush, episode, step, chosen, players, things);
  }

  function cone(brush, episode, time, agent, pose) {
    const share = resting(episode, Math.floor(time), agent) ? "16" : "30";
    const edge = view(episode, time, pose, SHORT_VIEW);
    brush.fill([pose, ...edge], TEAM[teams(episode)[agent]] + share);
  }

  function sight(brush, episode, time, agent, pose) {
    const color = TEAM[teams(episode)[agent]];
    brush.fill([pose, ...view(episode, time, pose, 30, 721)], color + "16"); // however far
    for (const { end, hit } of rays(episode, time, agent, pose)) {
      brush.line([pose, end], color + (hit ? "70" : "30"), 0.012);
    }
  }

  // Where the lidar's rays end; their angles are fixed in the world.
  function rays(episode, step, agent, [x, y]) {
    const lengths = episode.at("rays", step);
    const count = lengths.length / episode.agents.length;
    return [...lengths.subarray(agent * count, (agent + 1) * count)].map((length, k) => {
      const angle = 2 * Math.PI * k / count;
      const end = [x + length * Math.cos(angle), y + length * Math.sin(angle)];
      return { end, length, hit: Math.abs(length - NO_HIT) > 1e-3 };
    });
  }

  function walls(brush, episode) {
    const all = rows(episode.at("walls", 0), 5);
    for (const [first, second] of doors(all)) brush.line([first, second], "#9aa4b0", 0.03,
      [0.06, 0.06]);
    for (const [x, y, halfX, halfY] of all) {
      brush.fill([[x - halfX, y - halfY], [x + halfX, y - halfY], [x + halfX, y + halfY],
        [x - halfX, y + halfY]], WALL);
    }
  }

  // Where two walls in one line leave an opening of a door's width.
  function doors(all) {
    const found = [];
    for (const axis of [0, 1]) {
      const along = all.filter((wall) => wall[2 + axis] > wall[3 - axis]);
      for (const first of along) {
        for (const second of along) {
          const gap = second[axis] - second[2 + axis] - first[axis] - first[2 + axis];
          if (Math.abs(first[1 - axis] - second[1 - axis]) > 0.01 || gap < 0.3 || gap > 1) continue;
          const ends = [first[axis] + first[2 + axis], second[axis] - second[2 + axis]];
          found.push(ends.map((end) => (axis ? [first[0], end] : [end, first[1]])));
        }
      }
    }
    return found;
  }

  // Squares that boxes are to be moved onto, and cylinders that are to be hidden.
  function sites(brush, episode) {
    for (const [x, y] of rows(episode.at("sites", 0), 2)) {
      const square = [[-1, -1], [1, -1], [1, 1], [-1, 1], [-1, -1]].map(([a, b]) =>
        [x + a / 4, y + b / 4]);
      brush.fill(square, SITE + "40");
      brush.line(square, SITE, 0.03);
    }
    for (const [x, y, radius] of rows(episode.at("cylinders", 0), 3)) {
      brush.disc([x, y], radius, CYLINDER);
    }
  }

  // The smaller a piece, the less is left of it, in a ring that stays.
  function food(brush, episode, step, chosen) {
    rows(episode.at("food", step), 4).forEach(([x, y, , left], piece) => {
      const seen = chosen === null || episode.at("sees_food", step)[chosen] & (1 << piece);
      brush.dimmed(seen ? 1 : 0.22, () => {
        brush.disc([x, y], 0.1, FOOD + "60");
        brush.disc([x, y], 0.1 * left, FOOD);
      });
    });
  }

  // A box or ramp, in the colour of the team that locked it.
  function object(brush, episode, step, i, { pose, size, color, ramp }) {
    const team = lockingTeam(episode, step, i);
    const [x, y] = size.map((length) => length / 2);
    const outline = [[-x, -y], [x, -y], [x, y], [-x, y]].map((at) => corner(pose, ...at));
    brush.fill(outline, color);
    if (team !== null) brush.fill(outline, TEAM[team] + "b0");
    brush.line([...outline, outline[0]], team === null ? "#00000055" : TEAM[team],
      team === null ? 0.02 : 0.045);
    if (ramp) { // the arrow goes up the slope, to the thick edge
      const dark = "#4d4216";
      brush.line([corner(pose, 0, 0.17), corner(pose, 0, -0.1)], dark, 0.03);
      brush.fill([[-0.09, -0.05], [0, -0.17], [0.09, -0.05]].map((at) => corner(pose, ...at)), dark);
      brush.line([corner(pose, -0.23, -0.23), corner(pose, 0.23, -0.23)], dark, 0.045);
    }
    if (team !== null) padlock(brush, pose, TEAM[team]);
  }

  function padlock(brush, [x, y], color) {
    const [left, top] = brush.at(x, y + 0.045);
    brush.pen.beginPath();
    brush.pen.arc(left, top, 0.045 * brush.scale, Math.PI, 2 * Math.PI);
    Object.assign(brush.pen, { strokeStyle: WHITE, lineWidth: 0.026 * brush.scale });
    brush.pen.stroke();
    brush.fill([[x - 0.075, y - 0.075], [x + 0.075, y - 0.075], [x + 0.075, y + 0.05],
      [x - 0.075, y + 0.05]], WHITE);
    brush.disc([x, y - 0.012], 0.024, color);
  }

  function grips(brush, episode, step, players, things) {
    episode.at("grabbed", step).forEach((held, agent) => {
      if (held < 0) return;
      brush.line([players[agent], things[held].pose], TEAM[teams(episode)[agent]], 0.05);
    });
  }

  function sightings(brush, episode, step, players) {
    players.forEach((seeker, i) => players.forEach((hider, j) => {
      const hunted = teams(episode)[i] === SEEKERS && teams(episode)[j] === HIDERS;
      if (hunted && sees(episode, step, i, j)) brush.line([seeker, hider], TEAM[SEEKERS], 0.025,
        [0.09, 0.07]);
    }));
  }

  function player(brush, episode, step, agent, pose, chosen) {
    const color = TEAM[teams(episode)[agent]];
    const [dx, dy] = facing(pose[3]);
    const eye = (reach, hand) => [pose[0] + reach * dx - hand * dy, pose[1] + reach * dy + hand * dx];
    const asleep = resting(episode, step, agent);
    if (agent === chosen) brush.disc(pose, RADIUS + 0.05, INK);
    brush.disc(pose, RADIUS + 0.02, WHITE);
    brush.disc(pose, RADIUS, color);
    if (asleep) brush.disc(pose, RADIUS, "#ffffff80");
    for (const hand of [-0.062, 0.062]) {
      brush.disc(eye(0.085, hand), 0.048, WHITE);
      if (!asleep) brush.disc(eye(0.105, hand), 0.026, INK);
    }
    if (RADIUS * brush.scale < 9 * (window.devicePixelRatio || 1)) return; // no room for its number
    brush.text(episode.agents[agent].split("_").pop(), [pose[0] - 0.06 * dx, pose[1] - 0.06 * dy],
      0.13, WHITE);
  }

  // Marks what the chosen agent sees, and what its rays hit.
  function highlights(brush, episode, step, chosen, players, things) {
    const gold = "#f2a900";
    for (const { end, hit } of rays(episode, step, chosen, players[chosen])) {
      if (hit) brush.disc(end, 0.04, TEAM[teams(episode)[chosen]]);
    }
    players.forEach((pose, agent) => {
      if (agent === chosen || !sees(episode, step, chosen, agent)) return;
      const circle = Array.from({ length: 33 }, (_, k) => [
        pose[0] + (RADIUS + 0.06) * Math.cos(k * Math.PI / 16),
        pose[1] + (RADIUS + 0.06) * Math.sin(k * Math.PI / 16)]);
      brush.line(circle, gold, 0.04);
    });
    things.forEach(({ pose, size }, i) => {
      if (!sees(episode, step, chosen, players.length + i)) return;
      const [x, y] = size.map((length) => length / 2 + 0.04);
      const outline = [[-x, -y], [x, -y], [x, y], [-x, y], [-x, -y]];
      brush.line(outline.map((at) => corner(pose, ...at)), gold, 0.04);
    });
  }

  // ---- words and numbers ----

  const minus = (text) => text.replace("-", "\u2212");
  const number = (x) => minus((Math.round(100 * x) / 100 + 0).toFixed(2)); // + 0: no minus zero
  const signed = (x) => (x > 0 ? "+" : "")
    + (Math.abs(x - Math.round(x)) < 1e-3 ? minus(String(Math.round(x) + 0)) : number(x));
  const mean = (numbers, chosen) => {
    const own = [...numbers].filter((_, i) => chosen(i));
    return own.length ? own.reduce((a, b) => a + b, 0) / own.length : 0;
  };
  const of = (episode, name, step, team) =>
    mean(episode.at(name, step), (i) => teams(episode)[i] === team);

  // How an episode went, in a few words.
  function result(episode) {
    const last = episode.steps - 1;
    if (!isGame(episode)) return `reward ${signed(of(episode, "return", last, HIDERS))}`;
    const hunted = Array.from({ length: episode.steps }, (_, step) => step)
      .filter((step) => !preparing(episode, step));
    const unseen = mean(hunted.map((step) => (episode.at("seen", step)[0] ? 0 : 1)), () => true);
    return `hiders unseen ${Math.round(100 * unseen)} %`;
  }

  function status(episode, step) {
    const rest = preparing(episode, step);
    const seen = episode.at("seen", step)[0];
    const pill = seen ? { text: "seen", background: TEAM[SEEKERS] }
      : { text: "hidden", background: TEAM[HIDERS] };
    return [
      ...(isGame(episode) ? [{ text: rest ? "Preparation" : "Seeking", tag: "strong" },
        { ...pill, kind: "pill", ...(rest ? { background: "#8b95a3" } : {}) }] : []),
      { kind: "grow" },
      ...there(episode).map((team) => ({ kind: "number", color: TEAM[team],
        text: `${TEAM_NAME[team]} ${signed(of(episode, "return", step, team))}` })),
    ];
  }

  // The phase, whether hiders are seen, and the teams' rewards, step by step.
  function bands(episode) {
    const reward = (team, step) => {
      const given = of(episode, "reward", step, team);
      if (!given) return NOTHING;
      return given > 0 ? REWARDED : given > -2 ? PUNISHED : LOST;
    };
    return [
      ...(isGame(episode) ? [
        { name: "phase", color: (step) => (preparing(episode, step) ? PREPARING : SEEKING) },
        { name: "sight", color: (step) => (episode.at("seen", step)[0] ? SEEN : UNSEEN) },
      ] : []),
      ...there(episode).map((team) => ({ name: TEAM_NAME[team],
        color: (step) => reward(team, step) })),
    ];
  }

  const legend = (episode) => [
    ...(isGame(episode) ? [[PREPARING, "preparation"], [SEEKING, "seeking"],
      [UNSEEN, "hiders unseen"], [SEEN, "seen"]] : []),
    [REWARDED, "reward above 0"], [PUNISHED, "below"],
    [LOST, isGame(episode) ? "out of the arena" : "far below"],
  ];

  function panel(episode, step, chosen) {
    if (chosen === null) return overview(episode, step);
    const held = episode.at("grabbed", step)[chosen];
    const things = objects(episode, step);
    const own = rows(episode.at("observed", step), 10)[chosen];
    const [x, y, z, angle, vx, vy, vz, spin, , progress] = own;
    return [
      { title: episode.agents[chosen], rows: [
        { name: "reward", value: signed(episode.at("reward", step)[chosen]) },
        { name: "total", value: signed(episode.at("return", step)[chosen]) },
        { name: "holds", value: held < 0 ? "nothing" : things[held].name },
      ] },
      { title: "Last action", ...action(episode, step, chosen) },
      { title: "Sees, and observes at x, y (m)", ...seen(episode, step, chosen, things) },
      { title: "Observes of itself", rows: [
        { name: "x, y, z (m)", value: [x, y, z].map(number).join("  ") },
        { name: "angle (rad)", value: number(angle) },
        { name: "velocity (m/s)", value: [vx, vy, vz].map(number).join("  ") },
        { name: "turning (rad/s)", value: number(spin) },
        { name: "preparation done", value: `${Math.round(100 * progress)} %` },
      ] },
      { title: "Lidar (m, anticlockwise from the right)",
        text: rays(episode, step, chosen, own).map(({ length }) => number(length)).join("  ") },
    ];
  }

  // What an agent sees; as of itself, it observes the corners of unrotated bounds, not centres.
  function seen(episode, step, chosen, things) {
    const all = [
      ...agents(episode, step).map((pose, agent) =>
        ({ name: episode.agents[agent], pose, size: [2 * RADIUS, 2 * RADIUS] })),
      ...things,
    ];
    const own = teams(episode)[chosen];
    const told = all.map(({ name, pose, size }, i) => {
      const object = i - episode.agents.length;
      const team = object < 0 ? null : lockingTeam(episode, step, object);
      const lock = team === null ? "" : team === own ? "locked by us  " : "locked  ";
      const at = [0, 1].map((axis) => number(pose[axis] - size[axis] / 2));
      return { name, value: lock + at.join("  ") };
    }).filter((_, i) => sees(episode, step, chosen, i));
    return told.length ? { rows: told } : { text: "no agent and no object" };
  }

  // Forces act along the axes of the world; five choices, of which three have eleven values.
  function action(episode, step, agent) {
    if (step === 0) return { text: "none yet" };
    if (resting(episode, step, agent)) {
      return { text: "without effect: seekers wait in the preparation" };
    }
    const width = episode.at("action", 0).length / episode.agents.length;
    const taken = rows(episode.at("action", step - 1), width)[agent];
    const force = ["force to the right", "force upwards", "turning force"].map((name, i) => {
      const share = (taken[i] - 5) / 5;
      return { name, value: number(0.9 * share), share };
    });
    return { rows: [...force, { name: "grab", value: grab(episode, step, taken) },
      { name: "lock", value: taken[width - 1] ? "yes" : "no" }] };
  }

  // One choice for what is nearest, or one for each object: for as many boxes as there may be,
  // then for the ramps.
  function grab(episode, step, taken) {
    const choices = [...taken.subarray(3, taken.length - 1)];
    if (choices.length === 1) return choices[0] ? "yes" : "no";
    const things = objects(episode, step);
    const chosen = things.filter(({ ramp }, i) =>
      choices[ramp ? choices.length - things.length + i : i]);
    return chosen.map(({ name }) => name).join(", ") || "no";
  }

  function overview(episode, step) {
    const things = objects(episode, step);
    const locked = things.map((_, i) => lockingTeam(episode, step, i));
    return [
      { title: "Game", text: "Click an agent to see what it sees." },
      ...there(episode).map((team) => ({ title: TEAM_NAME[team], rows: [
        { name: "reward of this step", value: signed(of(episode, "reward", step, team)) },
        { name: "total", value: signed(of(episode, "return", step, team)) },
        { name: "has locked", value: `${locked.filter((t) => t === team).length} of ${
          things.length}` },
      ] })),
      { title: "Keys", rows: [
        { name: "play, pause", value: "space" }, { name: "a step", value: "\u2190 \u2192" },
        { name: "ten steps", value: "shift \u2190 \u2192" },
        { name: "begin, end", value: "Home, End" }, { name: "no agent", value: "Esc" },
      ] },
    ];
  }

  // The square that holds the floor and whoever leaves it, though not however far.
  function extent(episode) {
    if (!episode.extent) {
      const end = episode.at("floor_size", 0)[0];
      const [low, high] = [[-0.15, -0.15], [end + 0.15, end + 0.15]];
      for (let step = 0; step < episode.steps; step++) {
        for (const pose of agents(episode, step)) {
          for (const axis of [0, 1]) {
            low[axis] = Math.max(Math.min(low[axis], pose[axis] - 0.3), -end / 2);
            high[axis] = Math.min(Math.max(high[axis], pose[axis] + 0.3), 1.5 * end);
          }
        }
      }
      const size = Math.max(high[0] - low[0], high[1] - low[1]);
      const [x, y] = [0, 1].map((axis) => (low[axis] + high[axis] - size) / 2);
      episode.extent = { x, y, size };
    }
    return episode.extent;
  }

  // Where an agent is drawn: who has gone farther than the picture, at its edge.
  function place(episode, time, agent) {
    const pose = agents(episode, time)[agent];
    const { x, y, size } = extent(episode);
    return [x, y].map((low, axis) =>
      Math.min(Math.max(pose[axis], low + RADIUS / 2), low + size - RADIUS / 2));
  }

  return {
    stepsPerSecond: 1 / 0.075,
    reach: 2 * RADIUS,
    color: (episode, agent) => TEAM[teams(episode)[agent]],
    extent, place, view, draw, result, status, bands, legend, panel,
  };
})();
