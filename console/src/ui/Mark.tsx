/** The house's sign: a stump with a shoot. */
export function Mark({ size = 24 }: { size?: number }) {
  return (
    <svg className="mark" viewBox="3 0 26 30" width={size} height={size} aria-hidden="true" focusable="false">
      <path className="stump-side" d="M8.5 19.5V25c0 1.6-1.2 2.7-3 3.5h21c-1.8-.8-3-1.9-3-3.5v-5.5Z" />
      <ellipse className="stump-cut" cx="16" cy="19.5" rx="7.5" ry="3" />
      <path className="stump-ring" d="M12.2 19.6c0-.7 1.7-1.2 3.8-1.2s3.8.5 3.8 1.2" />
      <path className="stem" d="M16 19.3V9" />
      <path className="leaf" d="M16 14.6c-4.3.2-7-2.1-7.3-6.6 4.5-.1 7.1 2.2 7.3 6.6Z" />
      <path className="leaf" d="M16 10.3c-.2-4.3 2-6.9 6.3-7.5.3 4.5-1.9 7.2-6.3 7.5Z" />
    </svg>
  );
}
