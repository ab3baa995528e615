// Charts, the switch of the theme, keys, filters while typing. Every page works without it.
"use strict";

const root = document.documentElement;

// -- theme ---------------------------------------------------------------------------------------
for (const button of document.querySelectorAll("[data-theme-switch]")) {
  button.hidden = false;
  button.addEventListener("click", () => {
    const dark = root.dataset.theme ? root.dataset.theme === "dark"
      : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    document.cookie = `mqcore_theme=${root.dataset.theme}; path=/; max-age=31536000; samesite=strict`;
    for (const chart of charts) chart.draw();
  });
}

// -- keys: / goes to the search, g and a letter to a page ------------------------------------------
const places = {o: 0, t: 1, g: 2, m: 3, d: 4, x: 5, l: 6, r: 7, c: 8, s: 9};
let waiting = false;
document.addEventListener("keydown", event => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea")) return;
  if (event.key === "/") {
    event.preventDefault();
    document.querySelector(".filter input[type=search], .jump input").focus();
  } else if (waiting && event.key in places) {
    document.querySelectorAll("nav.pages a")[places[event.key]].click();
  }
  waiting = event.key === "g" && !waiting;
});

// -- filters ask while one types -------------------------------------------------------------------
for (const form of document.querySelectorAll("form[data-filter]")) {
  let timer = 0;
  form.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(() => form.requestSubmit(), 500);
  });
  const field = form.querySelector("input[type=search]");
  if (field.value) {
    field.focus({preventScroll: true});
    field.setSelectionRange(field.value.length, field.value.length);
  }
}

// -- charts ----------------------------------------------------------------------------------------
const charts = [];
const colours = {in: "--in", out: "--out"};

function plain(variable) {                 // a canvas knows no light-dark(): ask an element
  const probe = document.createElement("span");
  probe.style.color = `var(${variable})`;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

const colour = name => plain(colours[name] ?? "--lag");

const clock = (at, exact) => new Date(at * 1000).toLocaleTimeString(root.lang,
  {hour: "2-digit", minute: "2-digit", second: exact === true ? "2-digit" : undefined, hour12: false});
const short = new Intl.NumberFormat(root.lang, {notation: "compact", maximumFractionDigits: 1});

class Chart {
  constructor(figure) {
    this.figure = figure;
    this.names = JSON.parse(figure.dataset.names);
    this.labels = JSON.parse(figure.dataset.labels);
    this.unit = figure.dataset.unit ?? "";
    this.span = 900;
    this.box = figure.querySelector(".plot");
    this.data = [[], ...this.names.map(() => [])];
    for (const button of figure.querySelectorAll("[data-span]")) {
      button.addEventListener("click", () => {
        for (const other of figure.querySelectorAll("[data-span]")) other.setAttribute("aria-pressed", other === button);
        this.span = Number(button.dataset.span);
        this.load();
      });
    }
    figure.querySelector("details").addEventListener("toggle", () => this.table());
    new ResizeObserver(() => this.plot?.setSize(this.size())).observe(this.box);
    this.load();
  }

  size() { return {width: Math.max(this.box.clientWidth, 120), height: 176}; }

  async load() {
    const answer = await fetch(`${this.figure.dataset.chart}&span=${this.span}`);
    if (!answer.ok) return;
    const found = await answer.json();
    this.data = [found.times, ...this.names.map(name => found.values[name])];
    this.draw();
  }

  draw() {
    this.plot?.destroy();
    const soft = plain("--soft"), line = plain("--line");
    const axis = {stroke: soft, grid: {stroke: line, width: 1}, ticks: {show: false}, font: "11px system-ui", size: 26};
    this.plot = new uPlot({
      ...this.size(),
      cursor: {drag: {x: false, y: false}, points: {size: 5}},
      scales: {x: {time: true}, y: {range: (_, low, high) => [0, high > 0 ? high * 1.1 : 1]}},
      legend: {live: true},
      axes: [{...axis, space: 70, values: (_, ticks) => ticks.map(clock)}, {...axis, size: 48, values: (_, ticks) => ticks.map(value => short.format(value))}],
      series: [{label: "", value: (_, at) => at == null ? "" : clock(at, true)},
        ...this.names.map((name, number) => ({
          label: this.labels[number], stroke: colour(name), width: 1.6, spanGaps: true, points: {show: false},
          value: (_, value) => value == null ? "–" : short.format(value) + this.unit}))],
    }, this.data, this.box);
    this.table();
  }

  add(sample) {
    if (this.span !== 900 || !this.plot) return;
    const times = this.data[0];
    if (times.length && times.at(-1) >= sample.at) return;
    times.push(sample.at);
    this.names.forEach((name, number) => this.data[number + 1].push(sample.values[name] ?? null));
    while (times.length && times[0] < sample.at - 900) for (const column of this.data) column.shift();
    this.plot.setData(this.data);
  }

  table() {
    const details = this.figure.querySelector("details");
    if (!details.open) return;
    const table = document.createElement("table");
    const head = table.createTHead().insertRow();
    for (const text of ["", ...this.labels]) head.append(Object.assign(document.createElement("th"), {textContent: text}));
    const body = table.createTBody(), times = this.data[0];
    for (let at = times.length - 1; at >= 0 && body.rows.length < 60; at--) {
      if (this.data.slice(1).every(column => column[at] == null)) continue;
      const row = body.insertRow();
      row.insertCell().textContent = clock(times[at], true);
      for (const column of this.data.slice(1)) {
        const cell = row.insertCell();
        cell.className = "right";
        cell.textContent = column[at] == null ? "–" : short.format(column[at]) + this.unit;
      }
    }
    details.querySelector(".values").replaceChildren(table);
  }
}

for (const figure of document.querySelectorAll("figure[data-chart]")) charts.push(new Chart(figure));

// -- tables that fill themselves keep their newest rows ---------------------------------------------
for (const body of document.querySelectorAll("tbody[data-rows-max]")) {
  new MutationObserver(() => {
    while (body.rows.length > Number(body.dataset.rowsMax)) body.deleteRow(-1);
  }).observe(body, {childList: true});
}

// -- what the server tells as it happens: hx-sse makes DOM events of named messages -----------------
document.addEventListener("sample", event => {
  const sample = JSON.parse(event.detail.data);
  for (const chart of charts) if ("live" in chart.figure.dataset) chart.add(sample);
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => charts.forEach(chart => chart.draw()));
