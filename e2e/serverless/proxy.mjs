// What stands between a driver that is told nothing and a branch: names below a domain that lead
// here, and a proxy with TLS on port 443 that passes on what comes to the API.
import { readFileSync } from 'node:fs';
import net from 'node:net';
import tls from 'node:tls';

/** Lets names below `domain` lead to a proxy that shows this certificate; `api` is behind it. */
export async function standInFor(domain, api, certificate, key) {
  const { hostname, port } = new URL(api);
  const proxy = tls.createServer({ cert: readFileSync(certificate), key: readFileSync(key) }, (client) => {
    const server = connect.call(new net.Socket(), { host: hostname, port: Number(port) });
    for (const [from, to] of [[client, server], [server, client]]) {
      from.pipe(to);
      from.on('error', () => to.destroy());
    }
  });
  proxy.listen(0, '127.0.0.1').unref();
  await new Promise((resolve) => proxy.on('listening', resolve));
  const called = new Set();
  net.Socket.prototype.connect = function (...given) {
    const options = Array.isArray(given[0]) ? given[0][0] : given[0];
    if (options?.host?.endsWith(`.${domain}`)) {
      called.add(`${options.host}:${options.port}`);
      Object.assign(options, { host: '127.0.0.1', port: proxy.address().port });
    }
    return connect.apply(this, given);
  };
  return called;
}

const { connect } = net.Socket.prototype;
