// What a resolver and port 443 would do for a driver that is told nothing.
import net from 'node:net';

const { connect } = net.Socket.prototype;

/** Lets names below `domain` lead to the platform at `api`; returns those that were called, with their ports. */
export function lead(domain, api) {
  const { hostname, port } = new URL(api);
  const called = new Set();
  net.Socket.prototype.connect = function (...given) {
    const options = Array.isArray(given[0]) ? given[0][0] : given[0];
    if (options?.host?.endsWith(`.${domain}`)) {
      called.add(`${options.host}:${options.port}`);
      Object.assign(options, { host: hostname, port: Number(port) });
    }
    return connect.apply(this, given);
  };
  return called;
}
