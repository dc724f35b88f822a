"""A mail server for tests: prints each mail it takes as a line of JSON."""

import argparse
import asyncio
import json
import ssl
from email import message_from_bytes, policy

from aiosmtpd.smtp import SMTP, AuthResult, LoginPassword

flags = argparse.ArgumentParser()
flags.add_argument("--port", type=int, default=0)
flags.add_argument("--certificate")
flags.add_argument("--key")
flags.add_argument("--from-the-first-byte", action="store_true", help="TLS without STARTTLS")
flags.add_argument("--user")
flags.add_argument("--password")
flags.add_argument("--answer", help="to every recipient, like 550 no such user")
flags = flags.parse_args()


def say(what):
    print(json.dumps(what), flush=True)


class Handler:
    async def handle_RCPT(self, server, session, envelope, address, options):
        if flags.answer:
            say({"refused": address})
            return flags.answer
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server, session, envelope):
        mail = message_from_bytes(envelope.content, policy=policy.default)
        say({
            "from": envelope.mail_from,
            "to": envelope.rcpt_tos,
            "headers": {name.lower(): str(value) for name, value in mail.items()},
            "plain": mail.get_body(("plain",)).get_content(),
            "html": mail.get_body(("html",)).get_content(),
            "is_protected": session.ssl is not None or flags.from_the_first_byte,
            "is_signed_in": session.authenticated,
        })
        return "250 OK"


def authenticate(server, session, envelope, mechanism, data):
    wanted = LoginPassword(flags.user.encode(), flags.password.encode())
    is_right = isinstance(data, LoginPassword) and data == wanted
    say({"sign_in": is_right})
    return AuthResult(success=is_right)


context = None
if flags.certificate:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(flags.certificate, flags.key)
options = {}
if flags.user:
    options |= {"authenticator": authenticate, "auth_required": True}
    options |= {"auth_require_tls": not flags.from_the_first_byte}
if context and not flags.from_the_first_byte:
    options |= {"tls_context": context, "require_starttls": True}


async def serve():
    loop = asyncio.get_running_loop()
    from_the_first_byte = context if flags.from_the_first_byte else None
    make = lambda: SMTP(Handler(), loop=loop, **options)
    server = await loop.create_server(make, "127.0.0.1", flags.port, ssl=from_the_first_byte)
    say({"port": server.sockets[0].getsockname()[1]})
    await server.serve_forever()


asyncio.run(serve())
