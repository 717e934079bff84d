// What the page shows of the events that come to it. It compares nothing: that is the report's part.
"use strict";
(() => {
  const study = STUDY;
  const PANELS_MAX = 12;
  const RECENT_S = 240;
  const at = (id) => document.getElementById(id);
  let points = [];
  let samples = [];
  let total = 1;
  let shown = "iops";

  const three = (value) => (value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2));
  const scaled = (value, units) => {
    const [size, unit] = units.find(([each]) => value >= each * 0.9995) ?? units[units.length - 1];
    return three(value / size) + unit;
  };
  const RATES = [[1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""]];
  const TIMES = [[1e9, " s"], [1e6, " ms"], [1e3, " µs"], [1, " ns"]];
  const rate = (value) => (value === null ? "–" : scaled(value, RATES));
  const time = (value) => (value === null ? "–" : scaled(value, TIMES));
  const minutes = (seconds) => {
    const whole = Math.max(0, Math.round(seconds));
    const [h, m, s] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
    return h ? `${h} h ${m} min` : m ? `${m} min ${s} s` : `${s} s`;
  };
  const written = (value) => (shown === "iops" ? rate(value) : time(value));

  const make = (name, attributes = {}, ...inside) => {
    const node = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) {
      // The page's policy takes no style from attributes.
      if (key === "style") node.style.cssText = value;
      else node.setAttribute(key, value);
    }
    node.append(...inside);
    return node;
  };
  const draw = (name, attributes, ...inside) => {
    const node = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    node.append(...inside);
    return node;
  };
  const colour = (arm) => `var(--${study.arms[arm].colour})`;

  const figures = (each) => [rate(each.iops), time(each.p50_ns), time(each.p99_ns)].map(
    (words) => make("td", { class: "num" }, words));

  // Values that divide a range of values; by decades where the range spans several.
  const axis = (values) => {
    const low = Math.min(...values), high = Math.max(...values);
    if (low > 0 && high / low > 5) {
      const all = [];
      for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high) + 1; power++)
        for (const step of [1, 2, 5]) all.push(step * 10 ** power);
      const first = all.filter((each) => each <= low).pop();
      const last = all.find((each) => each >= high);
      let ticks = all.filter((each) => each >= first && each <= last);
      if (ticks.length > 5) ticks = ticks.filter((each) => Math.abs(Math.log10(each) % 1) < 1e-9);
      const place = (value) => (Math.log(value) - Math.log(first)) / (Math.log(last) - Math.log(first));
      return { ticks, place };
    }
    const room = Math.max(high - low, high * 0.1) * 0.15;
    const from = Math.max(0, low - room), to = high + room || 1;
    const rough = (to - from) / 3, power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= rough);
    const ticks = [];
    for (let tick = Math.ceil(from / step) * step; tick <= to; tick += step) ticks.push(tick);
    return { ticks, place: (value) => (value - from) / (to - from) };
  };

  // dots: {x, y, arm, hollow, words}, x from 0 to 1.
  const plot = (dots, words, { width, height, ends, label }) => {
    const [left, top, bottom] = [52, 8, height - 22];
    const { ticks, place } = axis(dots.map((dot) => dot.y));
    const x = (share) => left + 6 + share * (width - left - 14);
    const y = (value) => bottom - place(value) * (bottom - top);
    const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${study.simulated ? "Simulated. " : ""}${words}` });
    for (const tick of ticks) {
      svg.append(draw("line", { class: "grid", x1: left, x2: width, y1: y(tick), y2: y(tick) }));
      svg.append(draw("text", { x: left - 6, y: y(tick) + 4, "text-anchor": "end" }, label(tick)));
    }
    svg.append(draw("line", { class: "axis", x1: left, x2: width, y1: bottom, y2: bottom }));
    svg.append(draw("text", { x: left, y: height - 6 }, ends[0]));
    svg.append(draw("text", { x: width, y: height - 6, "text-anchor": "end" }, ends[1]));
    if (study.simulated)
      svg.append(draw("text", { x: (left + width) / 2, y: height - 6, "text-anchor": "middle" }, "simulated"));
    for (const dot of dots) {
      const fill = dot.hollow ? "var(--page)" : colour(dot.arm);
      const mark = { cx: x(dot.x), cy: y(dot.y), r: 3.5, fill, stroke: colour(dot.arm), "stroke-width": 1.5 };
      svg.append(draw("circle", mark, draw("title", {}, dot.words)));
    }
    return svg;
  };

  const showRates = (news) => {
    const since = news.under_way.length ? ` for ${minutes(news.under_way_s)}` : "";
    const round = Math.max(0, ...news.rates.map((each) => each.round));
    const what = news.under_way.length > 1 ? `${news.under_way.length} treatments in turns` : (news.under_way[0] ?? "");
    const share = news.step_fraction === null ? "" : ` ${Math.round(100 * news.step_fraction)} %`;
    at("trial").textContent =
      [what && what + since, round && `round ${round}`, news.attempt > 1 ? `attempt ${news.attempt}` : "",
       news.step && news.step + share].filter(Boolean).join("; ") || "Nothing.";
    at("rates").replaceChildren(
      ...news.rates
        .sort((a, b) => a.arm - b.arm)
        .map((each) => {
          const swatch = make("i", { class: "swatch", style: `background:${colour(each.arm)}` });
          const age = each.age_s > 3 ? `${Math.round(each.age_s)} s ago` : each.warmup ? "warming up" : "";
          return make(
            "div",
            { class: "card", style: `--arm:${colour(each.arm)}` },
            make("h3", {}, swatch, study.arms[each.arm].title, make("small", {}, age)),
            make("p", { class: "big" }, `${rate(each.iops)} IOPS`),
            make("p", { class: "what" }, each.p99_ns === null
              ? (each.hosts.length > 1 ? `${each.hosts.length} hosts together` : "")
              : `p50 ${time(each.p50_ns)}, p99 ${time(each.p99_ns)}`),
            make("p", { class: "what" }, Object.entries(each.cores).map(
              ([role, busy]) => `${role} ${three(busy)}`).join(", ").replace(/^(?=.)/, "busy processors: ")),
            make("p", { class: "what" }, each.condition),
          );
        }),
    );
    const hosts = news.rates.flatMap((each) => each.hosts);
    at("hosts").hidden = hosts.length < 2;
    at("hosts").querySelector("tbody").replaceChildren(
      ...hosts.map((each) => make("tr", {}, make("td", {}, each.host), ...figures(each))),
    );
    const now = news.elapsed_s;
    samples = samples.filter((each) => now - each.at_s <= RECENT_S);
    at("recent").hidden = !samples.length;
    if (!samples.length) return;
    const span = Math.min(RECENT_S, Math.max(30, now - Math.min(...samples.map((each) => each.at_s))));
    const dots = samples.filter((each) => each.iops !== null).map((each) => ({
      x: 1 - (now - each.at_s) / span, y: each.iops, arm: each.arm, hollow: each.warmup,
      words: `${study.arms[each.arm].title}: ${rate(each.iops)} IOPS`,
    }));
    const width = at("recent").parentElement.clientWidth < 600 ? 360 : 1056;
    const svg = plot(dots, "IOPS of the run under way over time", {
      width, height: 170, ends: [`${minutes(span)} ago`, "now"], label: rate,
    });
    at("recent").querySelector(".plot").replaceChildren(svg);
    showBusy(now, span);
  };

  const showBusy = (now, span) => {
    const roles = [...new Set(samples.flatMap((each) => Object.keys(each.cores)))];
    at("busy").hidden = !roles.length;
    at("busy").querySelector(".panels").replaceChildren(...roles.map((role) => {
      const dots = samples.filter((each) => role in each.cores).map((each) => ({
        x: 1 - (now - each.at_s) / span, y: each.cores[role], arm: each.arm, hollow: each.warmup,
        words: `${study.arms[each.arm].title}: ${three(each.cores[role])} processors`,
      }));
      const svg = plot(dots, `Processors that the ${role} kept busy over time`, {
        width: 340, height: 150, ends: [`${minutes(span)} ago`, "now"], label: three,
      });
      return make("div", { class: "panel" }, make("h3", {}, role[0].toUpperCase() + role.slice(1)), svg);
    }));
  };

  const showRuns = () => {
    for (const button of document.querySelectorAll(".choice button"))
      button.hidden = points.length > 0 && points.every((each) => each[button.dataset.of] === null);
    const known = points.filter((each) => each[shown] !== null);
    const conditions = [...new Set(known.map((each) => each.condition))].sort(
      (a, b) => a.localeCompare(b, "en", { numeric: true }));
    const panels = conditions.slice(0, PANELS_MAX).map((condition) => {
      const dots = known
        .filter((each) => each.condition === condition)
        .map((each) => ({
          x: total > 1 ? (each.order - 1) / (total - 1) : 0.5, y: each[shown], arm: each.arm,
          hollow: each.doubts.length > 0,
          words: [`${each.trial}: ${written(each[shown])}`, ...each.doubts,
            ...each.hosts.map((host) => `${host.host}: ${rate(host.iops)} IOPS`)].join("\n"),
        }));
      const svg = plot(dots, `Runs so far${condition && `, ${condition}`}`, {
        width: 340, height: 190, ends: ["run 1", `run ${total}`], label: written,
      });
      return make("div", { class: "panel" }, make("h3", {}, condition || "All runs"), svg);
    });
    at("panels").replaceChildren(...panels);
    at("beyond").textContent =
      conditions.length > PANELS_MAX ? ` ${conditions.length - PANELS_MAX} more conditions are in the list.` : "";
    at("list").hidden = !points.length;
    at("list").querySelector("tbody").replaceChildren(
      ...points.map((each) =>
        make("tr", {}, make("td", {}, each.trial), ...figures(each), make("td", {}, each.doubts.join("; ")))),
    );
  };

  const listed = (id, lines) => at(id).replaceChildren(...lines.map((line) => make("li", {}, ...line)));
  const showFindings = (news) => {
    const found = news.findings.map((each) => [
      make("b", {}, each.title), `: ${each.flagged} of ${each.runs} runs flagged, e.g. “${each.example}”.`,
    ]);
    listed("findings", found.length ? found : [[points.length ? "No run was flagged." : "No run has ended yet."]]);
    listed("warnings", news.warnings.map((each) => [each]));
    at("failed").hidden = !news.warnings.length;
  };

  const STATES = {
    starting: "Preparing", running: "Running", ended: "The plan has ended", interrupted: "Interrupted",
    stopped: "Stopped",
  };
  const show = (news) => {
    if (news.first) [points, samples] = [[], []];
    points.push(...news.points);
    points.sort((a, b) => a.order - b.order);
    samples.push(...news.samples);
    total = Math.max(news.total, points.length, 1);
    at("state").textContent = STATES[news.state];
    const share = news.total ? news.done / news.total : 0;
    at("bar").setAttribute("aria-valuenow", news.done);
    at("bar").setAttribute("aria-valuemax", news.total);
    at("bar").firstElementChild.style.width = `${100 * share}%`;
    const left = news.left_s === null ? news.words : `about ${minutes(news.left_s)} left`;
    at("progress").textContent = [`${news.done} of ${news.total} trials`, left].filter(Boolean).join("; ");
    document.title = `${study.simulated ? "Simulated: " : ""}${news.done}/${news.total} ${study.name}`;
    at("verdict").hidden = news.state === "ended";
    showRates(news);
    if (news.first || news.points.length) showRuns();
    showFindings(news);
  };

  for (const legend of document.querySelectorAll(".legend"))
    legend.append(...study.arms.map((each) => {
      return make("span", {}, make("i", { style: `background:var(--${each.colour})` }), each.title);
    }));
  for (const button of document.querySelectorAll(".choice button"))
    button.addEventListener("click", () => {
      shown = button.dataset.of;
      for (const each of document.querySelectorAll(".choice button"))
        each.setAttribute("aria-pressed", each === button);
      showRuns();
    });
  const events = new EventSource("/events");
  events.addEventListener("message", (event) => {
    const news = JSON.parse(event.data);
    show(news);
    if (news.last) {
      events.close();
      at("state").textContent += ". iotax no longer serves this page";
    }
  });
  events.addEventListener("error", () => {
    if (events.readyState !== EventSource.CLOSED) at("state").textContent = "Connection lost; trying again";
  });
})();
