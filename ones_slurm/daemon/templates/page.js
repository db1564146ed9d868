// The server sends the whole changing part as HTML, already escaped; we only put it in place and say how old it is.
"use strict";

const state = document.getElementById("state");
const link = document.getElementById("link");
let over = false;

const source = new EventSource("events");
source.addEventListener("state", (event) => {
  state.innerHTML = event.data;
  link.textContent = "";
});
source.addEventListener("over", () => {
  over = true;
  source.close();
  link.textContent = "Your twelve hours are over. For a new link type: ones page";
});
source.addEventListener("error", () => {
  if (over) return;
  // CLOSED: refused, and the browser does not try again by itself.
  link.textContent = source.readyState === EventSource.CLOSED
    ? "onesd does not let this browser in any more. For a new link type: ones page"
    : "onesd does not answer; trying again …";
});
