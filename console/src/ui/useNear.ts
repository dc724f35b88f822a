import { type RefObject, useEffect, useState } from "react";

/** How far from what is in view something is drawn already. */
const MARGIN = "600px 0px";

const hears = new Map<Element, (isNear: boolean) => void>();
// One for all: it tells of many elements at a time.
const observer = new IntersectionObserver(
  (entries) => {
    for (const { target, isIntersecting } of entries) hears.get(target)?.(isIntersecting);
  },
  { rootMargin: MARGIN },
);

/** Whether an element is in view, or nearly. */
export function useNear(element: RefObject<Element | null>, isNearAtFirst: boolean): boolean {
  const [isNear, setNear] = useState(isNearAtFirst);
  useEffect(() => {
    const seen = element.current;
    if (!seen) return;
    hears.set(seen, setNear);
    observer.observe(seen);
    return () => {
      observer.unobserve(seen);
      hears.delete(seen);
    };
  }, [element]);
  return isNear;
}
