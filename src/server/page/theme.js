// Before the page is drawn, so that it does not flash: the colours that were chosen here last.
// Without a choice they are the system's.
{
  const chosen = localStorage.getItem('inferscale-theme');
  if (chosen === 'light' || chosen === 'dark') document.documentElement.dataset.theme = chosen;
}
