'use strict';

// Light, dark or as in the system: one button, whose state is stored where the browser allows it.
// The page needs <button id="theme" type="button"> with a <span> for its text.
(() => {
  const root = document.documentElement;
  const key = 'probagg-theme';
  const system = matchMedia('(prefers-color-scheme: dark)');

  const stored = () => {
    try { return localStorage.getItem(key); } catch { return null; }
  };
  const store = (theme) => {
    try { localStorage.setItem(key, theme); } catch { /* private window: for this visit only */ }
  };
  const current = () => root.dataset.theme || (system.matches ? 'dark' : 'light');
  const announce = () => {
    const button = document.getElementById('theme');
    if (button) button.querySelector('span').textContent = current() === 'dark' ? 'Light' : 'Dark';
    document.dispatchEvent(new Event('themechange'));
  };

  const saved = stored();
  if (saved === 'dark' || saved === 'light') root.dataset.theme = saved;

  document.addEventListener('DOMContentLoaded', () => {
    announce();
    document.getElementById('theme')?.addEventListener('click', () => {
      root.dataset.theme = current() === 'dark' ? 'light' : 'dark';
      store(root.dataset.theme);
      announce();
    });
  });
  system.addEventListener('change', announce);
})();
