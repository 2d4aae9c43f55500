// The rules of WCAG AA that a program can check without a library: names, landmarks, order of
// headings, contrast, the keyboard. Evaluates to a list of what is wrong in the page.
() => {
  const structure = () => {
    const bad = [];
    const all = (what) => [...document.querySelectorAll(what)];
    if (document.documentElement.lang !== "en") bad.push("no language");
    if (!document.title) bad.push("no title");
    if (all("main").length !== 1) bad.push("not one main");
    if (all("h1").length !== 1) bad.push("not one h1");
    const levels = all("h1, h2, h3, h4").map((it) => Number(it.tagName[1]));
    levels.forEach((level, index) => {
      if (index && level > levels[index - 1] + 1) bad.push(`h${level} after h${levels[index - 1]}`);
    });
    const ids = all("[id]").map((it) => it.id);
    ids.filter((id, index) => ids.indexOf(id) !== index).forEach((id) => bad.push(`twice: #${id}`));
    for (const attribute of ["aria-labelledby", "aria-describedby"])
      all(`[${attribute}]`).forEach((it) => {
        if (!document.getElementById(it.getAttribute(attribute))) bad.push(`no label: ${it.outerHTML}`);
      });
    const name = (it) => it.getAttribute("aria-label") || it.textContent.trim() || it.title;
    all("a, button, summary").forEach((it) => { if (!name(it)) bad.push(`no name: ${it.outerHTML}`); });
    all("img").forEach((it) => { if (!it.hasAttribute("alt")) bad.push("an image without alt"); });
    all("nav, section, [role=region], meter, svg[role]").forEach((it) => {
      if (!it.hasAttribute("aria-label") && !it.hasAttribute("aria-labelledby"))
        bad.push(`no label: ${it.tagName}`);
    });
    all("table").forEach((it) => { if (!it.querySelector("th[scope]")) bad.push("a table without headers"); });
    all("*").forEach((it) => {
      const scrolls = /auto|scroll/.test(getComputedStyle(it).overflowX) && it.scrollWidth > it.clientWidth;
      if (scrolls && it.tabIndex < 0) bad.push(`scrolls, not by keyboard: ${it.className}`);
    });
    all("[style], script:not([src])").forEach((it) => bad.push(`inline: ${it.outerHTML}`));
    return bad;
  };
  const contrast = () => {
    const parse = (text) => {
      const found = text.match(/[\d.]+/g).map(Number);
      return { rgb: found.slice(0, 3), alpha: found.length > 3 ? found[3] : 1 };
    };
    const light = (rgb) => {
      const [r, g, b] = rgb.map((it) => {
        const part = it / 255;
        return part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
      });
      return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const ground = (element) => {
      for (let it = element; it; it = it.parentElement) {
        const { rgb, alpha } = parse(getComputedStyle(it).backgroundColor);
        if (alpha === 1) return rgb;
      }
      return [255, 255, 255];
    };
    const bad = [];
    for (const element of document.querySelectorAll("body *")) {
      const own = [...element.childNodes].some((it) => it.nodeType === 3 && it.nodeValue.trim());
      if (!own || element.closest("svg") || !element.checkVisibility()) continue;
      const style = getComputedStyle(element);
      const one = light(parse(style.color).rgb), other = light(ground(element));
      const ratio = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
      if (ratio < 4.5) bad.push(`${ratio.toFixed(2)}: ${element.textContent.trim().slice(0, 40)}`);
    }
    return bad;
  };
  return [...structure(), ...contrast()];
}
