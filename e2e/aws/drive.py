"""Asks the double of AWS by AWS's own client, which has to understand what it answers."""

import sys
from datetime import datetime, timedelta, timezone

import boto3

url, key, secret = sys.argv[1:]


def client(service):
    return boto3.client(
        service,
        region_name="us-east-1",
        endpoint_url=url,
        aws_access_key_id=key,
        aws_secret_access_key=secret,
    )


def refused(ask, kind):
    try:
        ask()
    except marketplace.exceptions.ClientError as error:
        assert error.response["Error"]["Code"] == kind, error
        assert isinstance(error, getattr(marketplace.exceptions, kind)), error
        return
    raise AssertionError(f"not refused with {kind}")


marketplace = client("meteringmarketplace")
buyer = marketplace.resolve_customer(RegistrationToken="token")
assert buyer["CustomerAWSAccountId"] == "123456789012", buyer
ended = marketplace.resolve_customer(RegistrationToken="token-ended")
refused(lambda: marketplace.resolve_customer(RegistrationToken="made-up"), "InvalidTokenException")

hour = datetime.now(timezone.utc).replace(minute=0, second=0, microsecond=0)


def record(of=buyer, **other):
    return {
        "Timestamp": hour,
        "CustomerAWSAccountId": of["CustomerAWSAccountId"],
        "LicenseArn": of["LicenseArn"],
        "Dimension": "micro_hours",
        "QuantityAsDecimal": "1.500000",
    } | other


def meter(*records):
    return marketplace.batch_meter_usage(UsageRecords=records)


results = meter(record(), record(ended))["Results"]
assert [one["Status"] for one in results] == ["Success", "CustomerNotSubscribed"], results
assert results[0]["UsageRecord"]["Timestamp"] == hour and results[0]["MeteringRecordId"], results
assert meter(record())["Results"][0]["Status"] == "Success", "the same again"
assert meter(record(QuantityAsDecimal="2"))["Results"][0]["Status"] == "DuplicateRecord"
old = hour - timedelta(hours=25)
refused(lambda: meter(record(), record(Timestamp=old)), "TimestampOutOfBoundsException")
refused(lambda: meter(record(Dimension="other")), "InvalidUsageDimensionException")
refused(lambda: meter(record(LicenseArn=buyer["LicenseArn"] + "0")), "InvalidLicenseException")

queue = client("sqs")
place = f"{url}/123456789012/coppice"
received = queue.receive_message(QueueUrl=place, MaxNumberOfMessages=10)["Messages"]
assert [one["Body"] for one in received] == ["a message"], received
queue.delete_message(QueueUrl=place, ReceiptHandle=received[0]["ReceiptHandle"])
assert "Messages" not in queue.receive_message(QueueUrl=place)
