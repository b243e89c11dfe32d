"""Refresh: the script of a node's page, which fetches the page again and shows what has changed.

Why     the page is made by the node alone, so a browser without scripts has the same facts; there is no
        second rendering that could escape less or say something else
Holds   nothing is asked of any other address; what is fetched is parsed, never run. A part that is being
        copied from, or has not changed, stays as it is, so that neither a selection nor the focus is lost
Tests   tests/common/page/test_browser.py
"""

from __future__ import annotations

from typing import Final

from tidb_binlog.page.markup import Markup, element

REFRESH_S: Final = 5
SCRIPT: Final = """
"use strict";
(() => {
  const every = SECONDS * 1000;
  const bar = document.getElementById("refresh");
  const said = bar.querySelector("span");
  const button = bar.querySelector("button");
  // The refreshing that goes on: its next turn, and what ends an answer that is under way.
  let timer = 0, stop = new AbortController();
  let shown = parts(document);
  button.hidden = false;

  function parts(from) {
    return new Map([...from.querySelectorAll("main > [id]")].map((one) => [one.id, one.outerHTML]));
  }

  function selects(part) {
    const selection = document.getSelection();
    return selection && !selection.isCollapsed && selection.containsNode(part, true);
  }

  function show(fresh) {
    const fetched = parts(fresh);
    const before = [...shown.keys()].join(), after = [...fetched.keys()].join();
    for (const [id, html] of fetched) {
      const old = document.getElementById(id);
      if (id === "refresh" || before !== after || shown.get(id) === html || selects(old)) {
        continue;
      }
      const kept = old.contains(document.activeElement) ? path(document.activeElement, old) : null;
      const made = document.importNode(fresh.getElementById(id), true);
      old.replaceWith(made);
      if (kept) {
        const again = kept.reduce((at, number) => at && at.children[number], made);
        if (again) again.focus({ preventScroll: true });
      }
      shown.set(id, html);
    }
    if (before !== after && !selects(document.querySelector("main"))) {
      const old = [...document.querySelectorAll("main > [id]:not(#refresh)")];
      const made = [...fresh.querySelectorAll("main > [id]:not(#refresh)")];
      old.forEach((one) => one.remove());
      document.querySelector("main").append(...made.map((one) => document.importNode(one, true)));
      document.querySelector("main").append(bar);
      shown = fetched;
    }
    document.title = fresh.title;
  }

  function path(node, top) {
    const numbers = [];
    for (; node !== top; node = node.parentElement) {
      numbers.unshift([...node.parentElement.children].indexOf(node));
    }
    return numbers;
  }

  async function refresh(signal) {
    try {
      const answer = await fetch(location.pathname, { cache: "no-store", redirect: "error", signal });
      const text = await answer.text();
      const fresh = new DOMParser().parseFromString(text, "text/html");
      if (!fresh.getElementById("refresh")) throw new Error("HTTP " + answer.status);
      show(fresh);
      said.textContent = "Refreshed at " + new Date().toLocaleTimeString() + ".";
      bar.classList.remove("wrong");
    } catch (error) {
      if (signal.aborted) return;
      said.textContent = "The node does not answer since " + (bar.dataset.since ||
        (bar.dataset.since = new Date().toLocaleTimeString())) + "; what is shown is older.";
      bar.classList.add("wrong");
      return;
    }
    delete bar.dataset.since;
  }

  async function turn(signal) {
    if (!document.hidden) await refresh(signal);
    if (!signal.aborted) timer = setTimeout(() => turn(signal), every);
  }

  function begin() {
    const { signal } = stop = new AbortController();
    timer = setTimeout(() => turn(signal), every);
    button.textContent = "Stop refreshing";
    said.textContent = "Refreshes every SECONDS s.";
  }

  button.addEventListener("click", () => {
    if (stop.signal.aborted) return begin();
    stop.abort();
    clearTimeout(timer);
    button.textContent = "Refresh again";
    said.textContent = "Not refreshed since " + new Date().toLocaleTimeString() + ".";
  });
  begin();
})();
""".replace("SECONDS", str(REFRESH_S))


def bar() -> Markup:
    """The last element of such a page."""
    return element(
        "div",
        element("span", "Load the page again to see what has changed since."),
        element("button", "Stop refreshing", type="button", hidden="hidden"),
        id="refresh",
    )
