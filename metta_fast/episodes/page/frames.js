/* Shows worlds recorded as rendered images, and worlds without pictures. */

class PlainWorld {
  constructor(recording) {
    this.r = recording;
    this.charted = true;  // charts.js
  }

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
    const k = picked?.agent ?? 0, value = this.r.value?.[step]?.[k];
    return `<h2>agent ${k}</h2>${facts({
      action: this.action(step, k) || "–", reward: signed(this.r.rewardAt(step, k)), return: short(this.r.returns[k][step]),
      ...(value === undefined || value === null ? {} : { value: number(value) }),
      ...seen(this.r, step, k),
    })}`;
  }
}

/** Shows single images. */
class Stills {
  constructor(sources) {
    this.images = sources.map((source) => Object.assign(new Image(), { src: source }));
  }

  show(index, paint) {
    const image = this.images[Math.min(index, this.images.length - 1)];
    if (image.complete) paint(image);
    else image.onload = () => paint(image);
  }
}

/** Shows images of an mp4: seeks to the image's time, and paints when the seek has ended. */
class Film {
  constructor({ film, film_fps, count }, broken) {
    const bytes = Uint8Array.from(atob(film), (c) => c.charCodeAt(0));
    Object.assign(this, { fps: film_fps, count, ready: false, wanted: 0, going: -1, shown: -1, paint: null });
    this.video = Object.assign(document.createElement("video"), { muted: true, playsInline: true, preload: "auto" });
    this.video.onloadeddata = () => { this.ready = true; this.go(); };
    this.video.onseeked = () => { this.shown = this.going; this.paint(this.video); this.go(); };
    this.video.onerror = () => broken();
    this.video.src = URL.createObjectURL(new Blob([bytes], { type: "video/mp4" }));
  }

  show(index, paint) {
    this.wanted = Math.min(index, this.count - 1);
    this.paint = paint;
    if (this.shown === this.wanted && !this.video.seeking) paint(this.video);
    else this.go();
  }

  /** Seeks to the wanted image; one seek at a time, so that scrubbing shows intermediate images. */
  go() {
    if (!this.ready || this.video.seeking || this.shown === this.wanted) return;
    this.going = this.wanted;
    this.video.currentTime = (this.going + 0.5) / this.fps;
  }
}

class FramesWorld extends PlainWorld {
  constructor(recording) {
    super(recording);
    const { images, width, height, every } = recording.world.facts;
    Object.assign(this, { width, height, every });
    this.source = images ? new Stills(images) : new Film(recording.world.facts, () => this.tell());
  }

  tell() {
    $("map").hidden = true;
    $("world").insertAdjacentHTML("beforeend", "<p>This browser cannot play the pictures, which are H.264 video.</p>");
  }

  /** Returns the device pixels per pixel of the images. */
  fit(width, height) { return Math.min(width / this.width, height / this.height); }

  draw(canvas, step, picked, scale) {
    const width = Math.round(this.width * scale), height = Math.round(this.height * scale);
    if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
    this.source.show(Math.floor(step / this.every), (image) => {
      canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    });
  }
}
