"use strict";
var heapwright = (function () {
  var all = function (selector, root) { return Array.from((root || document).querySelectorAll(selector)); };
  var studies = null, tip = null;

  function copy(button) {
    var box = document.getElementById(button.dataset.copy);
    function done() {
      button.textContent = "Copied";
      setTimeout(function () { button.textContent = "Copy"; }, 1500);
    }
    function select() {
      var range = document.createRange(), chosen = getSelection();
      range.selectNodeContents(box);
      chosen.removeAllRanges();
      chosen.addRange(range);
      if (document.execCommand("copy")) done();
    }
    if (navigator.clipboard && isSecureContext) navigator.clipboard.writeText(box.textContent).then(done, select);
    else select();
  }

  /* The page has as many rows of the table as its size permits; the embedded data have all. `fill` adds the others. */
  function cell(row, kind, text, name) {
    var made = row.appendChild(document.createElement(kind));
    made.textContent = text;
    if (name) made.className = name;
    return made;
  }
  function change(ratio) {
    if (ratio === null) return "n/a";
    var value = 100 * (ratio - 1);
    return (value < 0 ? "\u2212" : "+") + Math.abs(value).toFixed(1) + "%";
  }
  function fill(section) {
    var table = section.querySelector("table.sortable"), left = section.querySelector(".left");
    if (!table || !left) return;
    if (!studies) studies = JSON.parse(document.getElementById("heapwright-data").textContent).studies;
    var study = studies[section.id.slice(1) - 1], packed = study.evaluations, body = document.createDocumentFragment();
    packed.rows.forEach(function (e) {
      if (document.getElementById(section.id + "-e" + e[0])) return;
      var row = body.appendChild(document.createElement("tr")), words = [], i;
      row.id = section.id + "-e" + e[0];
      cell(row, "th", e[0], "n").scope = "row";
      e[5].forEach(function (ratio) { cell(row, "td", packed.reasons[e[4]] ? "n/a" : change(ratio), "n"); });
      for (i = 0; i < e[6].length; i += 2) words.push(packed.keys[e[6][i]] + "=" + e[6][i + 1]);
      words = words.join(", ");
      var name = packed.allocators[e[1]];
      if (name !== study.default.allocator) words = words ? name + ": " + words : name;
      cell(row, "td", "", "set").appendChild(document.createElement("code")).textContent = words || "nothing set";
      cell(row, "td", e[2], "n");
      cell(row, "td", packed.reasons[e[4]] || ["", "Pareto front", "predicted"][e[3]]);
      cell(row, "td", "", "cmd");
    });
    table.tBodies[0].appendChild(body);
    left.remove();
    var sorted = table.querySelector("th[aria-sort]");
    if (sorted) order(sorted, sorted.getAttribute("aria-sort") === "ascending");
  }
  function show(section, number) {
    var id = section.id + "-e" + number, row = document.getElementById(id);
    if (!row) { fill(section); row = document.getElementById(id); }
    if (!row) return;
    all(".hit,.on").forEach(function (x) { x.classList.remove("hit", "on"); });
    row.hidden = false;
    row.classList.add("hit");
    row.closest("details").open = true;
    row.scrollIntoView({ block: "center" });
    row.tabIndex = -1;
    row.focus({ preventScroll: true });
  }
  function value(row, column) {
    var text = row.cells[column].textContent.trim(), number = parseFloat(text.replace("\u2212", "-"));
    return isNaN(number) || /[a-z]/i.test(text) ? text : number;
  }
  function order(head, up) {
    var body = head.closest("table").tBodies[0], column = head.cellIndex, sign = up ? 1 : -1;
    body.append.apply(body, Array.from(body.rows)
      .map(function (row) { return [value(row, column), row]; })
      .sort(function (a, b) {
        var x = a[0], y = b[0];
        if (typeof x !== typeof y) return typeof x === "number" ? -1 : 1;
        if (x === "" || y === "") return x === y ? 0 : x === "" ? 1 : -1;
        return sign * (typeof x === "number" ? x - y : x.localeCompare(y));
      })
      .map(function (pair) { return pair[1]; }));
  }
  function sort(button) {
    var head = button.closest("th"), up = head.getAttribute("aria-sort") !== "ascending";
    all("th", head.parentNode).forEach(function (x) { x.removeAttribute("aria-sort"); });
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    order(head, up);
  }
  function filter(input) {
    var section = input.closest("section"), shown = 0, rows;
    fill(section);
    var words = input.value.toLowerCase().split(/\s+/).filter(function (w) { return w && w !== "-"; });
    rows = Array.from(section.querySelector("table.sortable").tBodies[0].rows);
    rows.forEach(function (row) {
      var cells = row.cells, text = "";
      for (var i = 0; i < cells.length - 1; i++) text += cells[i].textContent + " ";
      text = text.toLowerCase();
      row.hidden = !words.every(function (w) {
        return w[0] === "-" ? text.indexOf(w.slice(1)) < 0 : text.indexOf(w) >= 0;
      });
      shown += !row.hidden;
    });
    section.querySelector("[data-count]").textContent = words.length ? shown + " of " + rows.length : "";
  }

  /* A dot shows its tooltip when pointed at, or when selected with the arrow keys. */
  function showTip(dot, x, y) {
    if (!tip) {
      tip = document.body.appendChild(document.createElement("div"));
      tip.id = "tip";
      tip.setAttribute("role", "status");
    }
    tip.hidden = !dot;
    if (!dot) return;
    tip.textContent = dot.dataset.tip;
    var box = tip.getBoundingClientRect();
    tip.style.left = Math.max(4, Math.min(x + 12, innerWidth - box.width - 8)) + "px";
    tip.style.top = (y + 18 + box.height > innerHeight ? y - box.height - 10 : y + 18) + "px";
  }
  function opened(dot) {
    var number = (dot.id.match(/-e(\d+)$/) || [])[1];
    if (!number) return;
    show(dot.closest("section"), number);
    dot.classList.add("on");
  }
  function step(picture, by) {
    var dots = all(".pt", picture), at = dots.findIndex(function (d) { return d.classList.contains("on"); });
    if (!dots.length) return;
    if (at >= 0) dots[at].classList.remove("on");
    var dot = dots[at < 0 ? 0 : (at + by + dots.length) % dots.length], box = dot.getBoundingClientRect();
    dot.classList.add("on");
    showTip(dot, box.right, box.bottom);
  }

  /* Shows the controls that need this script. Called again after live.js replaced the page. */
  function prepare() {
    studies = null;
    all("table.sortable thead th[data-sort]").forEach(function (head) {
      if (head.querySelector("button")) return;
      var button = document.createElement("button");
      button.type = "button";
      button.dataset.sortBy = "";
      button.append.apply(button, Array.from(head.childNodes));
      head.append(button);
    });
    all("button[hidden],.filter[hidden]").forEach(function (x) { x.hidden = false; });
    all("svg .pt>title").forEach(function (title) {
      var dot = title.parentNode;
      dot.dataset.tip = title.textContent;
      title.remove();
    });
    all("figure>svg.wide").forEach(function (picture) {
      if (picture.querySelector(".pt")) picture.setAttribute("tabindex", "0");
    });
    all("details.tried").forEach(function (x) {
      x.addEventListener("toggle", function () { if (x.open) fill(x.closest("section")); });
    });
  }
  prepare();

  document.addEventListener("click", function (event) {
    var hit = event.target.closest("[data-copy],[data-sort-by],.pt,a[href^='#']"), found;
    if (!hit) return;
    if (hit.dataset.copy) return copy(hit);
    if ("sortBy" in hit.dataset) return sort(hit);
    if (!hit.matches("a")) return opened(hit);
    found = hit.getAttribute("href").match(/^#(s\d+)-e(\d+)$/);
    if (found) { event.preventDefault(); show(document.getElementById(found[1]), found[2]); }
  });
  document.addEventListener("input", function (event) {
    if (event.target.matches("[data-filter]")) filter(event.target);
  });
  document.addEventListener("pointermove", function (event) {
    var dot = event.target.closest && event.target.closest(".pt");
    if (dot || (tip && !tip.hidden)) showTip(dot, event.clientX, event.clientY);
  });
  document.addEventListener("focusout", function (event) {
    if (event.target.matches("figure>svg")) {
      all(".pt.on", event.target).forEach(function (x) { x.classList.remove("on"); });
      showTip(null);
    }
  });
  document.addEventListener("keydown", function (event) {
    var picture = event.target.closest("figure>svg"), by, dot, box;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape") return showTip(null);
    if (event.key === "/" && !event.target.matches("input")) {
      var near = event.target.closest("section");
      box = (near && near.querySelector("[data-filter]")) || document.querySelector("[data-filter]");
      if (!box) return;
      event.preventDefault();
      box.closest("details").open = true;
      return box.focus();
    }
    if (!picture) return;
    by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    dot = picture.querySelector(".pt.on");
    if (by) step(picture, by);
    else if (event.key === "Enter" && dot) opened(dot);
    else return;
    event.preventDefault();
  });
  addEventListener("beforeprint", function () {
    all("section details:not(td details)").forEach(function (x) { x.open = true; });
  });
  return { prepare: prepare, filter: filter };
})();
