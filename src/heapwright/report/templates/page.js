"use strict";
(function () {
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
  function show(row) {
    document.querySelectorAll(".hit,.on").forEach(function (x) { x.classList.remove("hit", "on"); });
    row.classList.add("hit");
    row.closest("details").open = true;
    row.scrollIntoView({ block: "center" });
  }
  function value(row, column) {
    var text = row.cells[column].textContent.trim(), number = parseFloat(text.replace("\u2212", "-"));
    return isNaN(number) || /[a-z]/i.test(text) ? text : number;
  }
  function sort(button) {
    var head = button.closest("th"), body = head.closest("table").tBodies[0], column = head.cellIndex;
    var up = head.getAttribute("aria-sort") !== "ascending", sign = up ? 1 : -1;
    head.parentNode.querySelectorAll("th").forEach(function (x) { x.removeAttribute("aria-sort"); });
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    Array.from(body.rows)
      .map(function (row) { return [value(row, column), row]; })
      .sort(function (a, b) {
        var x = a[0], y = b[0];
        if (typeof x !== typeof y) return typeof x === "number" ? -1 : 1;
        if (x === "" || y === "") return x === y ? 0 : x === "" ? 1 : -1;
        return sign * (typeof x === "number" ? x - y : x.localeCompare(y));
      })
      .forEach(function (pair) { body.appendChild(pair[1]); });
  }
  document.querySelectorAll("table.sortable thead th[data-sort]").forEach(function (head) {
    var button = document.createElement("button");
    button.type = "button";
    button.dataset.sortBy = "";
    button.append.apply(button, Array.from(head.childNodes));
    head.append(button);
  });
  document.querySelectorAll("button[hidden]").forEach(function (button) { button.hidden = false; });
  document.addEventListener("click", function (event) {
    var hit = event.target.closest("[data-copy],[data-sort-by],.pt,a[href^='#']"), number, row;
    if (!hit) return;
    if (hit.dataset.copy) return copy(hit);
    if ("sortBy" in hit.dataset) return sort(hit);
    if (hit.matches("a")) {
      row = document.getElementById(hit.getAttribute("href").slice(1));
      if (row && row.matches("tr")) { event.preventDefault(); show(row); }
      return;
    }
    number = (hit.id.match(/-e(\d+)$/) || [])[1];
    row = number && document.getElementById(hit.closest("section").id + "-e" + number);
    if (row) { show(row); hit.classList.add("on"); }
  });
  addEventListener("beforeprint", function () {
    document.querySelectorAll("section>details").forEach(function (x) { x.open = true; });
  });
})();
