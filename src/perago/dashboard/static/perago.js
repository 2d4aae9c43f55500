// Keeps an open page current: the server sends its changing part, and what differs is changed in
// place, so that focus, selection, scrolling and opened details stay as they are.
"use strict";

function patch(old, fresh) {
  if (old.nodeType !== fresh.nodeType || old.nodeName !== fresh.nodeName) {
    old.replaceWith(fresh);
    return;
  }
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.nodeValue !== fresh.nodeValue) old.nodeValue = fresh.nodeValue;
    return;
  }
  for (const { name } of [...old.attributes]) {
    // Whether details are open is the reader's choice.
    if (!fresh.hasAttribute(name) && name !== "open") old.removeAttribute(name);
  }
  for (const { name, value } of fresh.attributes) {
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  const before = [...old.childNodes];
  const after = [...fresh.childNodes];
  after.forEach((node, index) => {
    if (index < before.length) patch(before[index], node);
    else old.append(node);
  });
  before.slice(after.length).forEach((node) => node.remove());
}

function show(html) {
  const part = document.getElementById("part");
  const fresh = document.createElement("div");
  fresh.id = "part";
  fresh.innerHTML = html;
  part.normalize();
  fresh.normalize();
  patch(part, fresh);
}

function tell(text, tone) {
  const state = document.getElementById("state");
  const words = document.getElementById("state-text");
  if (!state || words.textContent === text) return;
  state.className = `state ${tone}`;
  words.textContent = text;
}

// A browser gives up at an answer such as 503 (too many open pages); the page does not.
const AGAIN_MILLISECONDS = 10000;

function follow(address) {
  const source = new EventSource(address);
  source.onopen = () => tell("live", "");
  source.onmessage = (event) => {
    show(JSON.parse(event.data));
    tell("live", "");
  };
  source.addEventListener("over", () => {
    source.close();
    tell("finished", "quiet");
  });
  source.onerror = () => {
    tell("connection lost", "lost");
    if (source.readyState === EventSource.CLOSED) {
      setTimeout(() => follow(address), AGAIN_MILLISECONDS);
    }
  };
  window.addEventListener("pagehide", () => source.close());
}

const live = document.body.dataset.live;
if (live) follow(live + window.location.search);
