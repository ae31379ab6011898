// Lets the search run on pages that are opened as files, from which browsers start no worker.
if (location.protocol === "file:") {
  window.IFrameWorker = window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.scope = frame.contentWindow;
      this.scope.postMessage = (data) =>
        this.dispatchEvent(new MessageEvent("message", {data}));
      this.loaded = new Promise((done) => {
        const script = frame.contentDocument.createElement("script");
        script.src = url;
        script.onload = done;
        frame.contentDocument.head.append(script);
      });
    }

    postMessage(data) {
      this.loaded.then(() =>
        this.scope.dispatchEvent(new this.scope.MessageEvent("message", {data})));
    }

    terminate() {
      this.scope.frameElement.remove();
    }
  };
}
