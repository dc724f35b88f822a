"""As verify.mjs, with the library that PyPI has."""

import base64
import json
import sys

from standardwebhooks.webhooks import Webhook, WebhookVerificationError


def refuses(secret, body, headers):
    try:
        Webhook(secret).verify(body, headers)
    except WebhookVerificationError:
        return True
    return False


deliveries = json.load(sys.stdin)
stranger = "whsec_" + base64.b64encode(bytes([7] * 32)).decode()
for delivery in deliveries:
    body, headers = delivery["body"], delivery["headers"]
    for secret in delivery["secrets"]:
        assert Webhook(secret).verify(body, headers) == json.loads(body), body
        assert refuses(secret, body + " ", headers), body
    assert refuses(stranger, body, headers), body
print(f"{len(deliveries)} deliveries are genuine")
