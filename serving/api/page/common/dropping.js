// Takes files that are dropped anywhere on the page while a panel is shown.

export function onDrop(panel, take) {
  const onFiles = (name, work) => addEventListener(name, (event) => {
    if (!event.dataTransfer.types.includes("Files")) return;
    event.preventDefault(); // else the browser would leave the page for the file
    if (!panel.hidden) work(event);
  });
  const setOver = (isOver) => panel.classList.toggle("over", isOver);
  onFiles("dragover", () => setOver(true));
  onFiles("dragleave", (event) => { if (!event.relatedTarget) setOver(false); });
  onFiles("drop", (event) => { setOver(false); take(event.dataTransfer.files); });
}
