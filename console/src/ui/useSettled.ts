import { useEffect, useState } from "react";

/** What is typed, once nobody has typed for a moment. */
export function useSettled(text: string, milliseconds = 250): string {
  const [settled, setSettled] = useState(text);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(text), milliseconds);
    return () => clearTimeout(timer);
  }, [text, milliseconds]);
  return settled;
}
