"""Requests to AWS, a line of JSON each, by the model of AWS's own client: their bodies have what it has and nothing else,
and their signatures are those that it computes."""

import hashlib
import json
import sys
from datetime import datetime, timezone

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.model import ServiceModel
from botocore.session import get_session
from botocore.validate import ParamValidator

SERVICES = {"AWSMPMeteringService": "meteringmarketplace", "AmazonSQS": "sqs"}
NUMBERS = {"integer", "long"}
loader = get_session().get_component("data_loader")


def as_the_client_takes_it(shape, value):
    """Times are numbers in JSON, and a member that no model knows is an error."""
    if shape.type_name == "structure":
        unknown = set(value) - set(shape.members)
        assert not unknown, f"{shape.name} has no {unknown}"
        return {name: as_the_client_takes_it(shape.members[name], one) for name, one in value.items()}
    if shape.type_name == "list":
        return [as_the_client_takes_it(shape.member, one) for one in value]
    if shape.type_name == "timestamp":
        assert isinstance(value, int), value
        return datetime.fromtimestamp(value, timezone.utc)
    if shape.type_name in NUMBERS:
        assert isinstance(value, int), value
    elif pattern := shape.metadata.get("pattern"):
        import re

        assert re.search(pattern, value), f"{value} is no {shape.name}"
    return value


def check(line):
    prefix, operation = line["target"].split(".")
    service = SERVICES[prefix]
    model = ServiceModel(loader.load_service_model(service, "service-2"), service)
    assert model.metadata["targetPrefix"] == prefix
    shape = model.operation_model(operation).input_shape
    report = ParamValidator().validate(as_the_client_takes_it(shape, json.loads(line["body"])), shape)
    assert not report.has_errors(), report.generate_report()

    headers = {name.lower(): value for name, value in line["headers"]}
    assert headers["content-type"] == f"application/x-amz-json-{model.metadata['jsonVersion']}"
    assert headers["x-amz-content-sha256"] == hashlib.sha256(line["body"].encode()).hexdigest()
    algorithm, rest = headers["authorization"].split(" ", 1)
    parts = dict(part.split("=", 1) for part in rest.split(", "))
    key, date, region, signing_name, end = parts["Credential"].split("/")
    assert (algorithm, end) == ("AWS4-HMAC-SHA256", "aws4_request")
    assert signing_name == model.metadata.get("signingName", model.metadata["endpointPrefix"]), signing_name
    signed = parts["SignedHeaders"].split(";")
    assert {"host", "x-amz-date", "x-amz-target"} <= set(signed), signed
    request = AWSRequest("POST", line["url"] + "/", data=line["body"], headers={name: headers[name] for name in signed})
    request.context["timestamp"] = headers["x-amz-date"]
    signer = SigV4Auth(Credentials(key, line["secret"]), signing_name, region)
    text = signer.string_to_sign(request, signer.canonical_request(request))
    assert parts["Signature"] == signer.signature(text, request), "another signature"
    return operation


lines = [json.loads(line) for line in sys.stdin]
assert any(line["status"] != 200 for line in lines), "one was refused"
print(*sorted({check(line) for line in lines}))
