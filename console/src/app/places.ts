// Where somebody was last in this browser. Ids only; they let nobody in.

interface Place {
  org?: string | undefined;
  project?: string | undefined;
}

const KEY = "coppice-place";

export function lastPlace(): Place {
  try {
    return JSON.parse(localStorage.getItem(KEY) ?? "{}") as Place;
  } catch {
    return {};
  }
}

export function notePlace(place: Place) {
  localStorage.setItem(KEY, JSON.stringify(place));
}
