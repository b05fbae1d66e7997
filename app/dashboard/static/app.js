// Three things that a page without a script cannot do: show times in the viewer's zone, stay current, check a form early.
"use strict";

// The server writes all times; it only has to know the zone.
function tellZone() {
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  if (!zone || zone === document.documentElement.dataset.zone) return;
  if (document.cookie.includes("pgtick_zone=" + zone)) return; // the server does not know it
  document.cookie = `pgtick_zone=${zone}; path=/; max-age=31536000; samesite=lax`;
  if (document.cookie.includes("pgtick_zone=") && !document.querySelector("form[method=post] input:not([type=hidden])")) refresh(true);
}

async function fetchPage() {
  const answer = await fetch(location.href, { headers: { Accept: "text/html" }, redirect: "manual" });
  if (answer.type === "opaqueredirect") location.reload(); // the login has ended
  if (!answer.ok && answer.status !== 503) throw new Error(answer.status);
  return new DOMParser().parseFromString(await answer.text(), "text/html");
}

// Replaces what carries data-live, but leaves alone what somebody is in the middle of: an opened or focused part.
function replaceLive(page) {
  for (const part of page.querySelectorAll("[data-live][id]")) {
    const old = document.getElementById(part.id);
    if (!old || old.innerHTML === part.innerHTML && old.className === part.className) continue;
    if (old.querySelector("details[open]") || selects(old)) continue;
    const focused = old.contains(document.activeElement) ? document.activeElement : null;
    const address = focused && focused.getAttribute("href");
    const scrolled = [old.scrollLeft, old.scrollTop];
    old.replaceWith(part);
    [part.scrollLeft, part.scrollTop] = scrolled;
    if (focused === old) part.focus({ preventScroll: true });
    else if (address) [...part.querySelectorAll("a")].find((link) => link.getAttribute("href") === address)?.focus({ preventScroll: true });
  }
}

function selects(part) {
  const selection = getSelection();
  return selection && !selection.isCollapsed && part.contains(selection.anchorNode);
}

// A page whose parts changed (an error went away, a section came) is taken whole.
function sameParts(page) {
  const ids = (root) => [...root.querySelectorAll("main [data-live][id]")].map((part) => part.id).join();
  return ids(page) === ids(document);
}

let refreshing = false;
async function refresh(whole) {
  if (refreshing) return true;
  refreshing = true;
  try {
    const page = await fetchPage();
    if (page.documentElement.dataset.zone !== document.documentElement.dataset.zone) whole = true;
    if (whole || !sameParts(page)) {
      document.querySelector("main").replaceWith(page.querySelector("main"));
      document.querySelector("footer span").replaceWith(page.querySelector("footer span"));
      document.documentElement.dataset.zone = page.documentElement.dataset.zone;
    } else {
      replaceLive(page);
      const main = document.querySelector("main"), next = page.querySelector("main").dataset.refresh;
      if (next) main.dataset.refresh = next;
      else delete main.dataset.refresh;
    }
    return true;
  } catch {
    return false;
  } finally {
    refreshing = false;
  }
}

function live() {
  const button = document.getElementById("live"), note = document.getElementById("live-note");
  let on = sessionStorage.getItem("pgtick-live") !== "off", timer, failures = 0, took = 0;
  const pause = () => Number(document.querySelector("main").dataset.refresh || 0) * 1000;
  const show = () => {
    button.hidden = !pause();
    const trouble = failures > 0 || "trouble" in document.querySelector("main").dataset;
    button.setAttribute("aria-pressed", on);
    button.textContent = !on ? "Paused" : trouble ? "Trying again" : "Live";
    button.classList.toggle("trouble", trouble);
  };
  const wait = () => {
    clearTimeout(timer);
    show();
    // A hidden tab asks for nothing, and is brought up to date when it is looked at again.
    // A page that is costly to make is asked for less often.
    if (on && pause() && !document.hidden) timer = setTimeout(tick, Math.max(pause() * Math.min(2 ** failures, 8), 10 * took));
  };
  const tick = async () => {
    const began = performance.now();
    failures = (await refresh(false)) ? 0 : failures + 1;
    took = performance.now() - began;
    note.textContent = failures ? "No answer from the server; trying again." : "";
    wait();
  };
  button.addEventListener("click", () => {
    on = !on;
    sessionStorage.setItem("pgtick-live", on ? "on" : "off");
    if (on) tick();
    else wait();
  });
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) clearTimeout(timer);
    else if (on && pause()) tick();
  });
  wait();
}

// The form of a new job: shows the fields that count, and asks the server what it would do.
function jobForm(form) {
  const chosen = () => form.elements.when?.value;
  const arrange = () => {
    for (const field of form.querySelectorAll("[data-when]")) field.hidden = !field.dataset.when.split(" ").includes(chosen());
  };
  let asked = 0, timer;
  const touched = new Set();
  const check = async () => {
    const turn = ++asked;
    const answer = await fetch(form.dataset.preview, { method: "POST", body: new URLSearchParams(new FormData(form)) }).catch(() => null);
    if (!answer?.ok || turn !== asked) return;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const preview = page.getElementById("preview");
    document.getElementById("preview").replaceWith(preview);
    for (const place of form.querySelectorAll("[data-fault]")) {
      const name = place.dataset.fault;
      const rules = [...preview.querySelectorAll("li[data-field]")].filter((line) => line.dataset.field === name);
      const told = touched.has(name) ? rules.map((line) => line.lastChild.textContent.trim()).join("; ") : "";
      place.textContent = told;
      const input = document.getElementById(name);
      if (told) input?.setAttribute("aria-invalid", "true");
      else input?.removeAttribute("aria-invalid");
    }
  };
  // What a task begins with goes in where nobody has typed anything else.
  const task = form.elements.task_id, parameters = form.elements.parameters;
  let begun = task?.selectedOptions?.[0]?.dataset.parameters ?? "{}";
  const begin = () => {
    const { parameters: sample = "{}", members = "" } = task.selectedOptions[0].dataset;
    if (["", "{}", begun].includes(parameters.value.trim())) parameters.value = sample;
    document.getElementById("hint-parameters").textContent = members;
    begun = sample;
  };
  form.addEventListener("input", (event) => {
    if (event.target === task) begin();
    touched.add(event.target.name);
    arrange();
    clearTimeout(timer);
    if ([...touched].some(Boolean)) timer = setTimeout(check, 250);
  });
  arrange();
}

document.querySelector("nav [aria-current]")?.scrollIntoView({ inline: "center", block: "nearest" });
tellZone();
live();
document.querySelectorAll("form[data-preview]").forEach(jobForm);
