// The search of the site, also from a file system: browsers start no worker from a file, so its script runs in a hidden frame.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.documentElement.append(frame);
      const inside = frame.contentWindow;
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      this.started = new Promise((resolve) => {
        const script = inside.document.createElement("script");
        script.src = new URL(url, location.href);
        script.onload = () => resolve(inside);
        inside.document.documentElement.append(script);
      });
    }

    postMessage(data) {
      this.started.then((inside) => inside.dispatchEvent(new inside.MessageEvent("message", { data })));
    }
  };
}
