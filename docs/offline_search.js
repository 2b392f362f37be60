// Browsers start no workers for pages that are opened from a disk: there a hidden frame does a worker's job,
// which is to search.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(script) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.append(frame)
      this.inner = frame.contentWindow
      this.waiting = []
      this.inner.postMessage = data => this.tell(this, data)
      const part = frame.contentDocument.createElement("script")
      part.src = new URL(script, location.href).href
      part.onload = () => {
        for (const data of this.waiting) this.tell(this.inner, data)
        this.waiting = null
      }
      frame.contentDocument.head.append(part)
    }

    tell(target, data) {
      const message = new MessageEvent("message", { data })
      target.dispatchEvent(message)
      if (target === this && this.onmessage) this.onmessage(message)
    }

    postMessage(data) {
      if (this.waiting) this.waiting.push(data)
      else this.tell(this.inner, data)
    }

    terminate() {
      this.inner.frameElement.remove()
    }
  }
}
