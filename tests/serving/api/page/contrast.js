// Finds texts with less contrast than 4.5 to what lies behind them.
// A canvas reads colours of any notation, and lays one over the other.
const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
const paint = (colours) => {
    canvas.clearRect(0, 0, 1, 1);
    for (const colour of colours) { canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1); }
    return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
};
const light = (rgb) => rgb
    .map((each) => each / 255)
    .map((each) => (each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4))
    .reduce((sum, each, place) => sum + each * [0.2126, 0.7152, 0.0722][place], 0);
const behind = (element) => (element
    ? [...behind(element.parentElement), getComputedStyle(element).backgroundColor] : ["Canvas"]);
const ratio = (element) => {
    const under = behind(element), ink = getComputedStyle(element).color;
    const [low, high] = [light(paint(under)), light(paint([...under, ink]))].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
};
const hasText = (element) => [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
return [...document.querySelectorAll("body *")]
    .filter((each) => each.checkVisibility({ visibilityProperty: true }) && !each.matches(":disabled, :disabled *, option"))
    .filter((each) => !each.matches(".hidden, #marks, #marks *")) // of screen readers alone, and what lies behind a text
    .filter((each) => hasText(each) || each.matches("input, textarea, select"))
    .filter((each) => ratio(each) < 4.5)
    .map((each) => `${each.tagName} ${each.id} ${each.textContent.slice(0, 40)} ${ratio(each).toFixed(2)}`);
