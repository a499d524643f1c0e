/* Before anything is drawn: light or dark, and asking who is there and for what the page at this address needs. */
(function () {
  "use strict";
  var root = document.documentElement;
  var chosen = null;
  try {
    chosen = localStorage.getItem("onward-theme");
  } catch (refused) {
    /* A browser that keeps nothing: the system decides. */
  }
  if (chosen === "light" || chosen === "dark") root.dataset.theme = chosen;

  window.onwardMe = fetch("./me", { headers: { "X-Onward-Page": "1", Accept: "application/json" }, credentials: "same-origin", cache: "no-store" });
  window.onwardMe.catch(function () { /* It is asked again. */ });

  /* The page is `job` for #/jobs/17, `jobs` for #/jobs, and `overview` for nothing. */
  var path = location.hash.replace(/^#\/?/, "").split("?")[0].split("/").filter(Boolean);
  var name = path.length > 1 ? path[0].replace(/s$/, "") : path[0] || "overview";
  var modules = JSON.parse(root.dataset.pages)[name] || [];
  var base = document.currentScript.src.replace(/begin\.js$/, "");
  modules.forEach(function (module) {
    var link = document.createElement("link");
    link.rel = "modulepreload";
    link.href = base + module;
    document.head.append(link);
  });
})();
