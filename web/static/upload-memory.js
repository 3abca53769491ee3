// Remembers in this browser which uploads of an area began and ended, so that they can continue.
const KEEP_MS = 7 * 24 * 3600 * 1000;
const PREFIX = "store-upload:";

function sign(file) {
  return `${file.size}:${file.lastModified}`;
}

export class Memory {
  constructor(area) {
    this.prefix = `${PREFIX}${area}/`;
    this.forgetOld();
  }

  forgetOld() {
    const keys = Object.keys(localStorage).filter((key) => key.startsWith(PREFIX));
    for (const key of keys) {
      if (!((this.read(key)?.at ?? 0) > Date.now() - KEEP_MS)) localStorage.removeItem(key);
    }
  }

  read(key) {
    try {
      return JSON.parse(localStorage.getItem(key));
    } catch {
      return null;
    }
  }

  find(name, file) {
    const known = this.read(this.prefix + name);
    return known && known.file === sign(file) ? known : null;
  }

  write(name, file, value) {
    try {
      const kept = { ...value, file: sign(file), at: Date.now() };
      localStorage.setItem(this.prefix + name, JSON.stringify(kept));
    } catch {
      // The room of this origin is used up: this file cannot be continued after a reload.
    }
  }

  isDone(name, file) {
    return this.find(name, file)?.done === true;
  }

  setDone(name, file) {
    this.write(name, file, { done: true });
  }

  uploadOf(name, file) {
    return this.find(name, file)?.upload ?? null;
  }

  setUpload(name, file, upload) {
    this.write(name, file, { upload });
  }

  forget(name) {
    localStorage.removeItem(this.prefix + name);
  }
}
