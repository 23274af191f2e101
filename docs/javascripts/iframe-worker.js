// Lets the site's search work from a file system, where browsers start no Worker: the worker's script runs in a hidden
// frame instead. The name tells mkdocs-material's plugin 'offline' that it need not load such a script from elsewhere.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.waiting = []; // messages from before the script has run
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.appendChild(frame);
      this.inner = frame.contentWindow;
      this.inner.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      const script = frame.contentDocument.createElement("script");
      script.src = url;
      script.onload = () => {
        const messages = this.waiting;
        this.waiting = null;
        messages.forEach((data) => this.postMessage(data));
      };
      frame.contentDocument.head.appendChild(script);
    }
    postMessage(data) {
      if (this.waiting) {
        this.waiting.push(data);
      } else {
        this.inner.dispatchEvent(new MessageEvent("message", { data }));
      }
    }
    terminate() {}
  };
}
