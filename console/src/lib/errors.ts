// How what was asked can go wrong.

/** What the server said no with, and what people need to find it in its log. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly id: string,
    message: string,
    readonly requestId: string | null,
    readonly retryAfter: number | null,
  ) {
    super(message);
  }
}

/** The server is not there, or the way to it is broken. */
export class Unreachable extends Error {
  constructor() {
    super("The server can't be reached.");
  }
}
