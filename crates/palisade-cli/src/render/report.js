"use strict";
(() => {
  const by = (id) => document.getElementById(id);
  const findings = Array.from(document.querySelectorAll("article.finding"));
  const files = Array.from(document.querySelectorAll("section.file"));
  if (findings.length === 0) return;
  const texts = findings.map((finding) => finding.parentElement.dataset.file.toLowerCase() + "\n" + finding.textContent.toLowerCase());
  const folder = (file) => (file.includes("/") ? file.slice(0, file.lastIndexOf("/")) : ".");
  const fill = (select, values) => {
    for (const value of Array.from(new Set(values)).sort()) {
      const option = document.createElement("option");
      option.value = value;
      option.textContent = value;
      select.append(option);
    }
  };
  fill(by("rule"), findings.map((finding) => finding.dataset.code));
  fill(by("folder"), files.map((file) => folder(file.dataset.file)));
  const apply = () => {
    const words = by("words").value.toLowerCase().split(/\s+/).filter(Boolean);
    const [severity, rule, place, fixable] = [by("severity").value, by("rule").value, by("folder").value, by("fixable").checked];
    let shown = 0;
    findings.forEach((finding, index) => {
      const visible =
        (severity === "" || finding.dataset.severity === severity) &&
        (rule === "" || finding.dataset.code === rule) &&
        (place === "" || folder(finding.parentElement.dataset.file) === place) &&
        (!fixable || finding.dataset.fix !== "none") &&
        words.every((word) => texts[index].includes(word));
      finding.hidden = !visible;
      shown += visible ? 1 : 0;
    });
    for (const file of files) file.hidden = file.querySelector("article.finding:not([hidden])") === null;
    by("shown").textContent = shown + " of " + findings.length + " findings";
  };
  // The address keeps what is chosen, so that it can be shared and reloaded.
  const chosen = new URLSearchParams(location.hash.slice(1));
  const names = ["words", "severity", "rule", "folder"];
  for (const id of names) if (chosen.has(id)) by(id).value = chosen.get(id);
  by("fixable").checked = chosen.has("fixable");
  const changed = () => {
    const now = new URLSearchParams(names.filter((id) => by(id).value !== "").map((id) => [id, by(id).value]));
    if (by("fixable").checked) now.set("fixable", "");
    history.replaceState(null, "", "#" + now);
    apply();
  };
  for (const id of names.concat("fixable")) by(id).addEventListener("input", changed);
  by("filters").hidden = false;
  apply();
})();
