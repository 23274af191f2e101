"use strict";
/* Asks the server every two seconds whether the studies have changed, and then replaces the content of the page. Open
   details stay open, typed text and the scroll position stay. A page in a hidden tab does not ask. */
(function () {
  var sign = document.getElementById("live"), seen = sign.dataset.state, parser = new DOMParser();
  function say(text, stale) {
    sign.textContent = text;
    sign.classList.toggle("stale", stale);
  }
  function renew(text) {
    var fresh = parser.parseFromString(text, "text/html"), old = document.getElementById("content");
    var open = Array.from(old.querySelectorAll("details")).map(function (x) { return x.open; });
    var typed = Array.from(old.querySelectorAll("[data-filter]")).map(function (x) { return x.value; });
    var focused = document.activeElement, id = focused && (focused.id || (focused.closest("[id]") || {}).id);
    var field = focused && focused.matches("[data-filter]"), x = scrollX, y = scrollY;
    var made = document.adoptNode(fresh.getElementById("content"));
    var same = made.querySelectorAll("details").length === open.length;
    if (same) made.querySelectorAll("details").forEach(function (d, i) { d.open = open[i]; });
    else made.querySelectorAll("details.tried").forEach(function (d, i) {
      var was = old.querySelectorAll("details.tried")[i];
      d.open = !!was && was.open;
    });
    old.replaceWith(made);
    document.getElementById("heapwright-data").textContent = fresh.getElementById("heapwright-data").textContent;
    document.title = fresh.title;
    heapwright.prepare();
    made.querySelectorAll("[data-filter]").forEach(function (input, i) {
      if (!typed[i]) return;
      input.value = typed[i];
      heapwright.filter(input);
    });
    if (id && document.getElementById(id)) {
      var target = document.getElementById(id);
      if (field) target = made.querySelector("[data-filter]");
      if (target) target.focus({ preventScroll: true });
    }
    scrollTo(x, y);
  }
  function text(answer) {
    return answer.text().then(function (body) {
      if (!answer.ok) throw { said: body.trim() };
      return body;
    });
  }
  function ask() {
    if (document.hidden) return later();
    fetch("state", { cache: "no-store" })
      .then(text)
      .then(function (state) {
        if (state === seen) return say("live", false);
        return fetch(location.pathname, { cache: "no-store" })
          .then(text)
          .then(function (page) {
            renew(page);
            seen = state;
            say("live", false);
          });
      })
      .catch(function (error) { say(error.said || "no answer: heapwright watch has ended", true); })
      .then(later);
  }
  function later() { setTimeout(ask, 2000); }
  later();
})();
