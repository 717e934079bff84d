// Shows what a mark or a symbol stands for, on hover and on tap. The words are already in the page.
"use strict";
(() => {
  const box = document.getElementById("hover");
  const wordsOf = (node) =>
    node.dataset?.say ?? (node.closest?.("svg[role=img]") ? node.getAttribute?.("aria-label") : null);
  const show = (event) => {
    const node = event.target.closest?.("[data-say], svg[role=img] [aria-label]");
    const words = node && wordsOf(node);
    if (!words || node.getAttribute("aria-roledescription") === "axis") return hide();
    box.textContent = words;
    box.hidden = false;
    const at = node.getBoundingClientRect();
    const left = at.left + at.width / 2 - box.offsetWidth / 2;
    const above = at.top - box.offsetHeight - 8;
    box.style.left = Math.max(8, Math.min(left, document.documentElement.clientWidth - box.offsetWidth - 8)) + "px";
    box.style.top = (above > 8 ? above : at.bottom + 8) + "px";
  };
  const hide = () => {
    box.hidden = true;
  };
  document.addEventListener("pointerover", show);
  document.addEventListener("click", show);
  document.addEventListener("scroll", hide, { capture: true, passive: true });
})();
