// Updates the part of the page that changes while a run is under way. The server makes the part anew; nothing of an event
// is put into the page here.
"use strict";
const live = () => document.getElementById("live");
const address = live()?.dataset.events;
if (address) {
  const source = new EventSource(address);
  let busy = false;
  let again = false;
  const update = async () => {
    if (busy) {
      again = true;
      return;
    }
    busy = true;
    do {
      again = false;
      const answer = await fetch(location.href, { headers: { "Harness-Live": "1" }, redirect: "manual" }).catch(() => null);
      if (!answer || !answer.ok) {
        source.close();
        break;
      }
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const next = page.getElementById("live");
      if (!next) {
        break;
      }
      const open = [...document.querySelectorAll("#live details[open][id]")].map((one) => one.id);
      live().replaceWith(document.adoptNode(next));
      for (const id of open) {
        document.getElementById(id)?.setAttribute("open", "");
      }
      if (!next.dataset.events) {
        source.close();
        break;
      }
      // Many events together are one update.
      await new Promise((resolve) => setTimeout(resolve, 250));
    } while (again);
    busy = false;
  };
  for (const kind of live().dataset.kinds.split(" ")) {
    source.addEventListener(kind, update);
  }
  // The server ends the stream with the run or the session; the page then shows which.
  source.addEventListener("error", () => {
    if (source.readyState === EventSource.CLOSED) {
      update();
    }
  });
}
