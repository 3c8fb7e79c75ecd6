// Runs before anything is drawn: the colours that were chosen, so that no page flashes.
try {
  const theme = localStorage.getItem("grls-theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // A browser that keeps nothing follows the system.
}
