// Figures by Vega-Embed; hidden, highlighted and chosen marks, zoom and downloads; tables that sort and copy.
const button = (text, act, title) => Object.assign(document.createElement("button"), {type: "button", textContent: text, onclick: act, title: title || text});
const figures = [];
const soft = {labelColor: "var(--soft)", titleColor: "var(--soft)", labelFontSize: 12, labelSeparation: 6, titleFontSize: 12, titleFontWeight: "normal"};
const config = {
  background: null, font: getComputedStyle(document.body).fontFamily, autosize: {type: "fit-x", contains: "padding"}, view: {stroke: null},
  axis: {...soft, gridColor: "var(--rule)", domainColor: "var(--soft)", tickColor: "var(--soft)"}, title: {color: "var(--ink)"},
  text: {color: "var(--ink)"}, legend: {...soft, labelLimit: 480, symbolLimit: 40}, scale: {continuousPadding: 7},
};
// Vega and the data of the figures are compressed; the policy of the page allows this script by its hash.
const unpacked = packed => new Response(new Blob([Uint8Array.from(atob(packed.textContent), letter => letter.charCodeAt(0))]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
const canDraw = "DecompressionStream" in window;
if (!canDraw) document.querySelectorAll(".vega").forEach(each => each.append(each.getAttribute("aria-label") + " The drawing needs a browser of 2023 or later."));
const vega = canDraw && unpacked(document.getElementById("vega")).then(text => document.head.append(Object.assign(document.createElement("script"), {textContent: text})));
const embed = (where, spec, extra) => vegaEmbed(where, spec, {ast: true, actions: false, logLevel: 1, renderer: "svg", tooltip: {theme: "page"}, config: {...config, ...extra}});
// Data come by columns, which are a third as long as rows.
function withRows(spec) {
  const columns = spec.data?.columns;
  if (columns) spec.data = {values: Object.values(columns)[0].map((_, row) => Object.fromEntries(Object.entries(columns).map(([name, values]) => [name, values[row]])))};
  (spec.layer || spec.hconcat || []).forEach(withRows);
  return spec;
}
// The parameters of a figure that another figure or the legend set; not every figure has each of them.
const setAll = (name, value) => figures.forEach(view => { try { view.signal(name, value).runAsync(); } catch {} });

function save(name, blob) {
  const link = Object.assign(document.createElement("a"), {href: URL.createObjectURL(blob), download: name});
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
// For a paper: the light colors as numbers, and the legend within the figure; hidden and highlighted runs as in `shown`.
async function download(spec, shown, name, kind) {
  const where = document.createElement("div");
  where.style.cssText = "position:absolute;left:-9999px;width:560px";
  document.body.append(where);
  const light = [...document.styleSheets].flatMap(sheet => [...sheet.cssRules]).find(rule => rule.selectorText === ":root").style;
  const plain = JSON.parse(JSON.stringify(spec).replace(/var\((--[\w-]+)\)/g, (_, color) => light.getPropertyValue(color).trim()));
  const own = JSON.parse(JSON.stringify(config).replace(/var\((--[\w-]+)\)/g, (_, color) => light.getPropertyValue(color).trim()));
  (plain.params || []).forEach(each => { each.value = shown.signal(each.name); });
  const {view} = await embed(where, plain, {...own, background: "white", font: "sans-serif"});
  if (kind === "svg") save(name + ".svg", new Blob([await view.toSVG()], {type: "image/svg+xml"}));
  else (await view.toCanvas(3)).toBlob(blob => save(name + ".png", blob));
  view.finalize();
  where.remove();
}
// A zoomed figure needs a range for both axes; that of y stays.
function setZoom(view, axis, range) {
  try {
    if (String(view.signal("zoom_" + axis)) === String(range)) return;
    view.signal("zoom_y", range && (view.signal("zoom_y") || view.scale("y").domain())).signal("zoom_" + axis, range).runAsync();
  } catch {} // a figure over another axis
}
function zoom(view, axis, factor, move) {
  const [low, high] = view.scale("x").domain().map(Number), middle = (low + high) / 2 + move * (high - low), half = (high - low) / 2 * factor;
  setZoom(view, axis, factor ? [middle - half, middle + half] : null);
}
const KEYS = {"+": [.7, 0], "=": [.7, 0], "-": [1.4, 0], ArrowLeft: [1, -.2], ArrowRight: [1, .2], "0": [0, 0]};

document.querySelectorAll(canDraw ? "figure.chart" : "unable").forEach(async figure => {
  const where = figure.querySelector(".vega"), spec = withRows(JSON.parse(await unpacked(figure.querySelector("script"))));
  await vega;
  // The page has one legend for the runs of all figures; a downloaded figure has its own.
  const {view} = await embed(where, JSON.parse(JSON.stringify(spec), (name, value) => (name === "legend" && spec.usermeta?.x ? null : value)));
  const name = figure.querySelector("figcaption b").textContent, file = name.toLowerCase().replace(/\W+/g, "-");
  figures.push(view);
  // The first layout places a legend before the width of the page is known, so that it may cover the caption.
  await view.resize().runAsync();
  const axis = spec.usermeta?.x || "x", zooms = JSON.stringify(spec).includes('"bind":"scales"');
  if (zooms) {
    if (spec.usermeta?.x) view.addSignalListener("zoom_" + axis, (_, range) => figures.forEach(other => other === view || setZoom(other, axis, range)));
    where.addEventListener("keydown", event => { const key = KEYS[event.key]; if (key) { zoom(view, axis, ...key); event.preventDefault(); } });
    where.title = "drag to move, Shift + wheel or + and - to zoom, 0 or a double click to see all";
  }
  if (spec.usermeta?.muted) {
    let lit = -1;
    const light = run => { if (run !== lit) setAll("lit", lit = run); };
    // The cells around the nearest points carry the points as their data.
    view.addEventListener("pointermove", (event, item) => light(item?.datum?.datum?.run ?? -1));
    where.addEventListener("pointerleave", () => light(-1));
  }
  view.addEventListener("click", (event, item) => { if (item?.datum?.trial >= 0) choose(item.datum.trial); });
  const tools = figure.appendChild(Object.assign(document.createElement("div"), {className: "tools"}));
  tools.append(button("SVG", () => download(spec, view, file, "svg"), "save as SVG: " + name), button("PNG", () => download(spec, view, file, "png"), "save as PNG: " + name));
  if (zooms) tools.append(button("reset zoom", () => setZoom(view, axis, null), "reset zoom: " + name));
  // The label of the figure and the table of values stand for the marks.
  where.querySelector("svg").setAttribute("aria-hidden", "true");
  where.setAttribute("data-ready", "");
});
// A trial chosen in a figure or in the table is highlighted in every figure and in the table.
function choose(trial) {
  setAll("chosen", trial);
  document.querySelectorAll("[data-trial]").forEach(each => each.toggleAttribute("aria-current", each.dataset.trial == trial));
}
document.querySelectorAll("a[data-trial]").forEach(link => link.addEventListener("click", () => choose(+link.dataset.trial)));

const runs = [...document.querySelectorAll(".legend button")];
const hide = () => setAll("hidden", [...new Set(runs.filter(each => each.getAttribute("aria-pressed") === "false").map(each => +each.dataset.run))]);
runs.forEach(each => {
  const press = state => runs.filter(other => other.dataset.run === each.dataset.run).forEach(other => other.setAttribute("aria-pressed", state));
  each.onclick = () => { press(each.getAttribute("aria-pressed") === "false"); hide(); };
  each.onmouseenter = each.onfocus = () => setAll("lit", +each.dataset.run);
  each.onmouseleave = each.onblur = () => setAll("lit", -1);
});
document.querySelectorAll(".legend").forEach(legend => ["all", "none"].forEach((text, none) => {
  if (runs.length > 2) legend.appendChild(document.createElement("li")).append(button(text, () => { runs.forEach(each => each.setAttribute("aria-pressed", !none)); hide(); }));
}));

const cells = row => [...row.cells].map(cell => cell.innerText.replace(/\s+/g, " ").trim());
const latex = text => text.replace(/[&%$#_{}]/g, "\\$&").replace(/±/g, "$\\pm$").replace(/−/g, "$-$").replace(/·/g, "");
const number = text => parseFloat(text.replace(/−/g, "-").replace(/[,\s]/g, "")) * ({k: 1e3, M: 1e6, G: 1e9, T: 1e12}[/\d\s?([kMGT])i?B/.exec(text)?.[1]] || 1);
document.querySelectorAll(".scroll > table").forEach(table => {
  const rows = () => [...table.rows].map(cells), tools = document.createElement("div"), about = table.parentElement.ariaLabel || "table";
  const copy = (text, event) => navigator.clipboard.writeText(text).then(() => { event.target.textContent = "copied"; });
  tools.className = "tools";
  tools.append(button("copy CSV", event => copy(rows().map(row => row.map(text => '"' + text.replace(/"/g, '""') + '"').join(",")).join("\n"), event), "copy as CSV: " + about),
    button("copy LaTeX", event => copy(`\\begin{tabular}{l${"r".repeat(table.rows[0].cells.length - 1)}}\n` + rows().map(row => row.map(latex).join(" & ") + " \\\\").join("\n") + "\n\\end{tabular}", event), "copy as LaTeX: " + about));
  table.parentElement.after(tools);
  if (!table.matches(".matrix, .differences")) table.querySelectorAll("thead th").forEach((head, column) => {
    const sort = button("", () => {
      const down = head.getAttribute("aria-sort") === "ascending" ? -1 : 1, key = row => row.cells[column]?.innerText.trim() || "";
      table.querySelectorAll("[aria-sort]").forEach(each => each.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down > 0 ? "ascending" : "descending");
      [...table.tBodies[0].rows].sort((a, b) => down * ((number(key(a)) - number(key(b))) || key(a).localeCompare(key(b)))).forEach(row => table.tBodies[0].append(row));
    }, "sort by " + head.textContent);
    sort.append(...head.childNodes);
    head.append(sort);
  });
});

// Maps of all validations in turn, and the robots on their way to each; without JavaScript, those of the last one.
document.querySelectorAll(".film").forEach(film => {
  const frames = [...film.querySelectorAll(".maps")], tools = document.createElement("div"), step = document.createElement("output"), last = frames.length - 1;
  const slider = Object.assign(document.createElement("input"), {type: "range", max: last, value: last, ariaLabel: "validation"});
  const rounds = frames.map(frame => JSON.parse(frame.querySelector("svg").dataset.rounds));
  let timer = 0, round = 0;
  const show = () => { frames.forEach((frame, index) => { frame.hidden = index !== +slider.value; }); step.textContent = "step " + frames[slider.value].dataset.step; };
  const move = () => {
    const [places, links] = rounds[slider.value][round] ?? [[], []], [lines, ...robots] = frames[slider.value].querySelectorAll("svg > g");
    robots.forEach((robot, index) => robot.setAttribute("transform", `translate(${places[index].join(" ")})`));
    lines.replaceChildren(...links.map(([one, other]) => {
      const line = document.createElementNS("http://www.w3.org/2000/svg", "line");
      Object.entries({x1: places[one][0], y1: places[one][1], x2: places[other][0], y2: places[other][1]}).forEach(pair => line.setAttribute(...pair));
      return line;
    }));
  };
  const next = () => {
    round += 1;
    if (round >= rounds[slider.value].length) { round = 0; slider.value = (+slider.value + 1) % frames.length; show(); }
    move();
    timer = setTimeout(next, 400 / Math.max(1, Math.min(3, rounds[slider.value].length)));
  };
  const play = button("play", () => {
    timer = timer ? clearTimeout(timer) : setTimeout(next, 0);
    play.textContent = play.title = timer ? "pause" : "play";
  });
  slider.oninput = () => { round = Math.max(0, rounds[slider.value].length - 1); show(); move(); };
  tools.className = "tools";
  tools.append(play, slider, step);
  film.append(tools);
  show();
});
