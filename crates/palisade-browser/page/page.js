// The page: what is written goes to the engine, and its response is shown as text, never as markup.
// A response that does not come is an error, and never a verdict.
const element = (id) => document.getElementById(id);
const manifest = element("manifest"), outcome = element("outcome");
const WORDS = {
  clean: ["good", "Every object is allowed."],
  findings: ["bad", "Not allowed, or not readable."],
  undecided: ["warn", "Undecided: nothing is wrong with what is known, and not all is known."],
  nothing: ["warn", "Nothing was checked: the text has no pods and no workloads."],
};
let engine = null, module = null, timer = 0;

const bytes = (base64) => Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));

async function start() {
  if (!PALISADE_ENGINE) throw new Error("this copy of the page was made without its engine");
  const packed = new Blob([bytes(PALISADE_ENGINE)]).stream().pipeThrough(new DecompressionStream("gzip"));
  module = await WebAssembly.compile(await new Response(packed).arrayBuffer());
  engine = (await WebAssembly.instantiate(module, {})).exports;
}

function ask(request) {
  const text = new TextEncoder().encode(JSON.stringify(request));
  engine.palisade_start();
  for (let at = 0; at < text.length; at += 4) {
    const count = Math.min(4, text.length - at);
    let word = 0;
    for (let i = 0; i < count; i++) word |= text[at + i] << (8 * i);
    if (engine.palisade_write(word, count) !== count) throw new Error("the manifest is too large for this page");
  }
  const length = engine.palisade_run() >>> 0;
  const response = new Uint8Array(Math.ceil(length / 4) * 4);
  for (let i = 0; i < response.length / 4; i++) {
    const word = engine.palisade_read(i);
    for (let j = 0; j < 4; j++) response[4 * i + j] = (word >>> (8 * j)) & 255;
  }
  const answer = JSON.parse(new TextDecoder().decode(response.subarray(0, length)));
  if (answer.error) throw new Error(answer.error);
  return answer;
}

function show(kind, text) {
  outcome.className = "outcome " + kind;
  outcome.textContent = text;
}

function add(parent, name, className, text) {
  const child = document.createElement(name);
  if (className) child.className = className;
  if (text !== undefined) child.textContent = text;
  parent.append(child);
  return child;
}

function numberLines(marked) {
  const lines = element("lines"), count = manifest.value.split("\n").length;
  lines.replaceChildren();
  for (let line = 1; line <= count; line++) {
    if (marked.has(line)) add(lines, "b", "", String(line));
    else lines.append(String(line));
    lines.append("\n");
  }
  lines.scrollTop = manifest.scrollTop;
}

function goTo(first, last) {
  const lines = manifest.value.split("\n");
  const offset = (line) => lines.slice(0, line - 1).reduce((sum, text) => sum + text.length + 1, 0);
  manifest.focus();
  manifest.setSelectionRange(offset(first), offset(last + 1) - 1);
  manifest.scrollTop = Math.max(0, (first - 5) * parseFloat(getComputedStyle(manifest).lineHeight));
}

function draw(answer) {
  const [kind, words] = WORDS[answer.outcome] || ["bad", "The engine returned no verdict."];
  const skipped = answer.skipped ? ` ${answer.skipped} without pods.` : "";
  const accepted = answer.suppressed ? ` ${answer.suppressed} findings accepted in the text.` : "";
  show(kind, `${words} ${answer.judgedAt}.${skipped}${accepted}`);
  for (const object of answer.objects) {
    const item = add(element("objects"), "li");
    add(item, "span", "badge " + object.verdict, object.verdict);
    item.append(" " + object.title);
  }
  for (const note of answer.notes) add(element("notes"), "li", "", note);
  for (const finding of answer.findings) {
    const item = add(element("findings"), "li", finding.severity);
    const title = add(item, "p");
    add(title, "code", "", finding.code);
    title.append(" " + finding.message);
    const place = add(item, "p", "place");
    if (finding.line) {
      const button = add(place, "button", "", `line ${finding.line}`);
      button.type = "button";
      button.addEventListener("click", () => goTo(finding.line, Math.max(finding.line, finding.endLine || 0)));
    }
    place.append([finding.subject, finding.label].filter(Boolean).map((text) => " · " + text).join(""));
    for (const reason of finding.because) add(item, "p", "place", reason);
    if (finding.help) add(item, "p", "", (finding.fix ? "Fix: " : "") + finding.help);
  }
  element("safe").disabled = !answer.canFix.safe;
  element("all").disabled = !answer.canFix.all;
  numberLines(new Set(answer.findings.map((finding) => finding.line)));
}

function clear() {
  for (const id of ["objects", "notes", "findings"]) element(id).replaceChildren();
  element("safe").disabled = element("all").disabled = true;
}

function check(fix) {
  clearTimeout(timer);
  clear();
  numberLines(new Set());
  if (!engine) return;
  const now = new Date(), two = (number) => String(number).padStart(2, "0");
  const today = `${now.getFullYear()}-${two(now.getMonth() + 1)}-${two(now.getDate())}`;
  const request = { text: manifest.value, level: element("level").value, policyVersion: element("version").value,
    kubernetesVersion: element("release").value, today, fix };
  try {
    const answer = ask(request);
    if (fix !== "none" && answer.fixed !== null) {
      manifest.value = answer.fixed;
      const after = ask({ ...request, text: answer.fixed, fix: "none" });
      draw({ ...after, notes: answer.notes });
    } else {
      draw(answer);
    }
  } catch (problem) {
    clear();
    show("bad", "Not checked: " + problem.message);
    // A module that stopped is not used again.
    if (problem instanceof WebAssembly.RuntimeError) {
      engine = null;
      WebAssembly.instantiate(module, {}).then((instance) => { engine = instance.exports; });
    }
  }
}

for (const release of PALISADE_RELEASES) {
  add(element("release"), "option", "", release);
  if (release !== "extended") add(element("version"), "option", "", release);
}
element("version").prepend(new Option("latest", "latest", true, true));
element("form").addEventListener("submit", (event) => { event.preventDefault(); check("none"); });
element("safe").addEventListener("click", () => check("safe"));
element("all").addEventListener("click", () => check("all"));
for (const id of ["level", "release", "version"]) element(id).addEventListener("change", () => check("none"));
manifest.addEventListener("input", () => {
  // What is on the screen is about another text now.
  clear();
  show("", "Checking.");
  clearTimeout(timer);
  timer = setTimeout(() => check("none"), 150);
});
manifest.addEventListener("scroll", () => { element("lines").scrollTop = manifest.scrollTop; });
numberLines(new Set());
start().then(() => check("none"), (problem) => show("bad", "Not checked: " + problem.message));
