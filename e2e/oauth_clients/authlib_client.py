"""Signs in through Authlib, unmodified: code with PKCE, refresh, revocation, and the check of an id
token. A line `VISIT <address>` asks whoever runs this to do what a person does in a browser; the
answer is the address it ended at."""

import os
import sys
import time

from authlib.integrations.requests_client import OAuth2Session
from authlib.oauth2.rfc6749.errors import OAuth2Error
from authlib.integrations.base_client.errors import OAuthError
from joserfc import jwt
from joserfc.jwk import KeySet

ISSUER, API_URL = os.environ["ISSUER"], os.environ["API_URL"]
CLIENT_ID, CLIENT_SECRET = os.environ["CLIENT_ID"], os.environ["CLIENT_SECRET"]
REDIRECT = os.environ["REDIRECT"]
DEVICE = "urn:ietf:params:oauth:grant-type:device_code"


def visit(address):
    print(f"VISIT {address}", flush=True)
    return sys.stdin.readline().strip()


def session(**more):
    return OAuth2Session(CLIENT_ID, CLIENT_SECRET, scope="openid offline_access org:read", **more)


def use(client):
    answer = client.get(f"{API_URL}/organizations")
    assert answer.status_code == 200, answer.text
    assert len(answer.json()["organizations"]) == 1


def code_flow(metadata):
    client = session(redirect_uri=REDIRECT, code_challenge_method="S256")
    verifier = "v" * 64
    address, state = client.create_authorization_url(
        metadata["authorization_endpoint"], code_verifier=verifier, nonce="a nonce"
    )
    back = visit(address)
    token = client.fetch_token(
        metadata["token_endpoint"], authorization_response=back, code_verifier=verifier, state=state
    )
    use(client)
    keys = KeySet.import_key_set(session().get(metadata["jwks_uri"], withhold_token=True).json())
    claims = jwt.decode(token["id_token"], keys, algorithms=["RS256"]).claims
    registry = jwt.JWTClaimsRegistry(
        iss={"essential": True, "value": ISSUER},
        aud={"essential": True, "value": CLIENT_ID},
        exp={"essential": True},
        nonce={"essential": True, "value": "a nonce"},
    )
    registry.validate(claims)
    # A code works once, and whoever used it twice loses what it brought.
    try:
        session(redirect_uri=REDIRECT).fetch_token(
            metadata["token_endpoint"], authorization_response=back, code_verifier=verifier, state=state
        )
        raise AssertionError("a code was taken twice")
    except (OAuth2Error, OAuthError) as error:
        assert error.error == "invalid_grant", error.error
    try:
        client.refresh_token(metadata["token_endpoint"])
        raise AssertionError("tokens of a code that was used twice go on")
    except (OAuth2Error, OAuthError) as error:
        assert error.error == "invalid_grant", error.error


def device_flow(metadata):
    client = session()
    started = client.post(
        metadata["device_authorization_endpoint"],
        data={"client_id": CLIENT_ID, "client_secret": CLIENT_SECRET, "scope": "openid offline_access"},
        withhold_token=True,
    ).json()
    visit(started["verification_uri_complete"])
    deadline = time.monotonic() + started["expires_in"]
    while time.monotonic() < deadline:
        try:
            client.fetch_token(
                metadata["token_endpoint"], grant_type=DEVICE, device_code=started["device_code"]
            )
            break
        except (OAuth2Error, OAuthError) as error:
            assert error.error == "authorization_pending", error.error
            time.sleep(started["interval"])
    use(client)
    client.refresh_token(metadata["token_endpoint"])
    use(client)
    revoked = client.revoke_token(metadata["revocation_endpoint"], token=client.token["refresh_token"])
    assert revoked.status_code == 200, revoked.text
    refused = client.get(f"{API_URL}/organizations")
    assert refused.status_code == 401, refused.text


metadata = session().get(f"{ISSUER}/.well-known/openid-configuration", withhold_token=True).json()
assert metadata["issuer"] == ISSUER, metadata
code_flow(metadata)
device_flow(metadata)
print("DONE", flush=True)
