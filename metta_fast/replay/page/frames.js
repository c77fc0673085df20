/* Worlds that are seen by rendered images, and worlds that are not seen at all. */

class PlainWorld {
  constructor(recording) { this.r = recording; }

  fit() { return 0; }
  draw(canvas) { canvas.parentElement.hidden = true; }
  pick() { return null; }
  drawView() {}
  legend() { return ""; }

  action(step, k) {
    const values = this.r.actionAt(step, k);
    return values ? values.map((value, head) => short(value + (this.r.actions.start[head] || 0))).join(", ") : "";
  }

  detail(step, picked) {
    if (picked?.agent === undefined) return "";
    const k = picked.agent;
    return `<h2>agent ${k}</h2>${facts({
      action: this.action(step, k) || "–", reward: signed(this.r.rewardAt(step, k)), return: short(this.r.returns[k][step]),
    })}`;
  }
}

class FramesWorld extends PlainWorld {
  constructor(recording) {
    super(recording);
    const { images, width, height, every } = recording.world.facts;
    Object.assign(this, { width, height, every });
    this.images = images.map((source) => Object.assign(new Image(), { src: source }));
  }

  /** Device pixels for one pixel of the images. */
  fit(width, height) { return Math.min(width / this.width, height / this.height); }

  draw(canvas, step, picked, scale) {
    const image = this.images[Math.min(Math.floor(step / this.every), this.images.length - 1)];
    const paint = () => {
      canvas.width = Math.round(this.width * scale);
      canvas.height = Math.round(this.height * scale);
      canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    };
    if (image.complete) paint();
    else image.onload = () => paint();
  }
}
