// Sets the colours before the page is drawn, so it is no module.

{
  const KEY = "attendant-theme";
  const set = (theme) => { document.documentElement.dataset.theme = theme; };

  set(localStorage.getItem(KEY) ?? "system");
  addEventListener("DOMContentLoaded", () => {
    const select = document.getElementById("theme");
    select.value = document.documentElement.dataset.theme;
    select.addEventListener("change", () => {
      localStorage.setItem(KEY, select.value);
      set(select.value);
      dispatchEvent(new Event("themechange"));
    });
  });
}
