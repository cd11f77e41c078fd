// Live cells, the pause button, the colour scheme. Pages work without this script.

const SAID_EVERY_MS = 5000; // screen readers hear of changes at most this often
const POLL_EVERY_MS = 5000; // where the console has no stream to give
const KINDS = ["ok", "idle", "busy", "gone"];
const PLACES = /(?<=\p{L}[._:@=,/]+)(?=[\p{L}\p{N}])|(?<=[\p{L}\p{N}][._:@=,/]+)(?=\p{L})|(?<=[a-z])(?=[A-Z])/u; // as in words.py

const rows = new Map();
let changed = 0;
let saidAt = 0;

function collect() {
  rows.clear();
  rows.set("", new Map());
  for (const element of document.querySelectorAll("[data-cell]")) {
    const key = element.closest("[data-row]")?.dataset.row ?? "";
    if (!rows.has(key)) rows.set(key, new Map());
    rows.get(key).set(element.dataset.cell, element);
  }
}

function chip(cell) {
  const made = document.createElement("span");
  made.className = `chip ${KINDS.includes(cell[1]) ? cell[1] : "idle"}`;
  made.textContent = cell[0];
  return made;
}

function breakable(name) {
  return name.split(PLACES).flatMap((part, index) => (index ? [document.createElement("wbr"), part] : [part]));
}

function show(element, cell) {
  if (element.dataset.cell === "newest") {
    const newer = document.getElementById("newer");
    if (newer && element.textContent !== cell) newer.hidden = false;
    return;
  }
  const text = Array.isArray(cell) ? cell[0] : cell;
  if (element.textContent === text) return;
  const shown = Array.isArray(cell) ? [chip(cell)] : element.classList.contains("wrap") ? breakable(text) : [text];
  element.replaceChildren(...shown);
  if (element.closest("[data-row]") && element.dataset.cell !== "time") {
    changed += 1;
    element.classList.remove("changed");
    requestAnimationFrame(() => element.classList.add("changed"));
  }
}

function apply(difference) {
  for (const [key, cells] of Object.entries(difference.rows ?? {})) {
    const known = rows.get(key);
    for (const [name, cell] of Object.entries(cells)) {
      const element = known?.get(name);
      if (element) show(element, cell);
    }
  }
  for (const region of document.querySelectorAll("[data-region]")) {
    const html = difference.regions?.[region.dataset.region];
    // The server has escaped all names in it, and the page's policy runs no script of it.
    if (html !== undefined && !region.contains(document.activeElement)) region.innerHTML = html;
  }
  say();
}

function say() {
  const now = Date.now();
  if (!changed || now - saidAt < SAID_EVERY_MS) return;
  document.getElementById("said").textContent = changed === 1 ? "1 value has changed" : `${changed} values have changed`;
  changed = 0;
  saidAt = now;
}

const pause = document.getElementById("pause");
let stream = null;
let polling = 0;

function isPaused() {
  return pause.getAttribute("aria-pressed") === "true";
}

function stop() {
  stream?.close();
  stream = null;
  clearInterval(polling);
  polling = 0;
}

function leave() {
  stop();
  const failure = document.querySelector(".failure");
  if (failure) failure.textContent = "The session is over. Load the page again to log in.";
}

async function poll() {
  try {
    const answer = await fetch(document.body.dataset.live, { headers: { accept: "application/json" } });
    if (answer.ok) apply(await answer.json());
    if (answer.status === 401) leave();
  } catch {
    // the next one may reach the console again
  }
}

function start() {
  stop();
  const address = document.body.dataset.live;
  if (!address || isPaused() || document.hidden) return;
  const opened = new EventSource(address);
  stream = opened;
  opened.onmessage = (event) => apply(JSON.parse(event.data));
  opened.onerror = () => {
    // A browser tries again by itself, but not after a refusal.
    if (opened.readyState === EventSource.CLOSED && stream === opened) {
      stop();
      polling = setInterval(poll, POLL_EVERY_MS);
    }
  };
}

function begin() {
  collect();
  pause.hidden = !document.body.dataset.live;
}

// The page is an outline: the cluster has not answered yet. Ask for the whole page, which comes when it has.
async function complete() {
  try {
    const answer = await fetch(location.href, { headers: { prefer: "wait=60" } });
    if (answer.redirected) location.reload(); // to the login
    else fill(new DOMParser().parseFromString(await answer.text(), "text/html"));
  } catch {
    setTimeout(complete, POLL_EVERY_MS);
  }
}

function fill(whole) {
  const [before, after] = [document, whole].map((page) => page.getElementById("main"));
  if (!after) throw new Error("this is no page of the console");
  const focused = document.activeElement;
  const link = before.contains(focused) ? focused.getAttribute("href") : null;
  before.replaceWith(after);
  if (focused === before) after.focus();
  if (link) after.querySelector(`a[href="${CSS.escape(link)}"]`)?.focus();
  document.title = whole.title;
  document.body.dataset.live = whole.body.dataset.live ?? "";
  delete document.body.dataset.outline;
  document.getElementById("said").textContent = "The page is complete";
  begin();
  start();
}

if (pause) {
  begin();
  if ("outline" in document.body.dataset) complete();
  pause.addEventListener("click", () => {
    const paused = !isPaused();
    pause.setAttribute("aria-pressed", String(paused));
    start();
  });
  document.addEventListener("visibilitychange", start);
  window.addEventListener("pagehide", stop);
  window.addEventListener("pageshow", start);
  document.querySelector("form.account")?.addEventListener("submit", stop); // a logout refuses the next reading
}

const theme = document.getElementById("theme");
const root = document.documentElement;

function isDark() {
  const chosen = root.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

function label() {
  theme.textContent = isDark() ? "Light" : "Dark";
  theme.setAttribute("aria-label", isDark() ? "Use light colours" : "Use dark colours");
}

theme.hidden = false;
label();
theme.addEventListener("click", () => {
  const chosen = isDark() ? "light" : "dark";
  root.dataset.theme = chosen;
  document.cookie = `kohort-theme=${chosen}; path=/; max-age=31536000; samesite=strict`;
  label();
});
