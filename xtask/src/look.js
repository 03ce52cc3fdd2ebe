// Look at a page as a person does, on a phone above all, and tell the page around it what cannot
// be read. The first line counts the labels of plots and the verdicts; every other line is a
// complaint.
addEventListener("load", () => {
  if (typeof show === "function") show(sample); // the live page has nobody to ask here
  document.querySelectorAll("details").forEach(details => { details.open = true; });
  const wide = document.documentElement.clientWidth;
  const complaints = [];
  const complain = (what, element) => {
    const text = element.textContent.trim().replace(/\s+/g, " ").slice(0, 80);
    complaints.push(`${what}: ${text}`);
  };
  const outside = box => box.left < -0.5 || box.right > wide + 0.5;
  const all = Math.max(document.documentElement.scrollWidth, document.body.scrollWidth);
  if (all > wide) complaints.push(`the page is ${all} px wide, the screen ${wide}`);
  for (const element of document.body.querySelectorAll("*")) {
    if (["SCRIPT", "STYLE", "TITLE"].includes(element.tagName.toUpperCase())) continue;
    const written = node => node.nodeType === Node.TEXT_NODE && node.data.trim();
    if (![...element.childNodes].some(written)) continue;
    const style = getComputedStyle(element);
    if (element.getClientRects().length === 0) continue;
    const matrix = element.getScreenCTM ? element.getScreenCTM() : null;
    const size = parseFloat(style.fontSize) * (matrix ? Math.hypot(matrix.a, matrix.b) : 1);
    if (size < 11) complain(`letters of ${size.toFixed(1)} px`, element);
    if (element.textContent.trim().endsWith("…")) complain("a text is cut", element);
    if (style.textOverflow === "ellipsis" && element.scrollWidth > element.clientWidth) {
      complain("a text is cut", element);
    }
  }
  const plots = [...document.querySelectorAll("svg[role=img]")];
  let labels = 0;
  for (const plot of plots) {
    const shown = text => text.getClientRects().length > 0;
    const texts = [...plot.querySelectorAll("text")].filter(shown);
    labels += texts.length;
    for (const text of texts) {
      if (outside(text.getBoundingClientRect())) complain("a label is off the page", text);
    }
    // Slanting labels overlap as boxes, not as letters.
    const level = texts
      .filter(text => !text.hasAttribute("transform"))
      .map(text => [text, text.getBoundingClientRect()]);
    for (const [k, [text, a]] of level.entries()) {
      for (const [other, b] of level.slice(k + 1)) {
        const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
        const down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
        if (across > 1 && down > 4) complain(`a label lies over \`${other.textContent}\``, text);
      }
    }
  }
  const verdicts = [...document.querySelectorAll("td.verdict")];
  for (const verdict of verdicts) {
    if (outside(verdict.getBoundingClientRect())) complain("a verdict is off the screen", verdict);
  }
  parent.postMessage([`${wide} ${labels} ${verdicts.length}`, ...complaints].join("\n"), "*");
});
