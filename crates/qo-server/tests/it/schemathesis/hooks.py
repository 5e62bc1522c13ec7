"""The refusals of valid requests that are right, because a schema cannot express the rule that the request breaks.

Each exception names an operation and the text of the refusal. Every other refusal of a valid request fails the test.
"""

import re

import schemathesis
from schemathesis.core.failures import ServerError
from schemathesis.openapi.checks import RejectedPositiveData

# For all operations.
EVERYWHERE = [
    # JSON Schema calls 5.0 an integer.
    r"the body is invalid: invalid type: floating point `-?[0-9.e+]+`, expected [ui](size|[0-9]+)",
    # The format of times has no bounds.
    r'(the body is invalid: |.*: )?"(0|1[0-8]|19[0-6])[0-9-]+T.*" is not a time: expected RFC 3339 between 1970 and 9999',
    # A schema counts characters, not bytes.
    r".*at most \d+ bytes",
    r".*has 1 to \d+ bytes",
]

# A submit, alone or with a change of a document.
SUBMIT = [
    # A time or an interval must not be before another one.
    r"(the task is rejected: )?expires_at must be",
    r".*initial_interval_ms must not be larger than max_interval_ms",
    # The header `Idempotency-Key` could give the key, so the fields do not need it.
    r"idempotency_(scope|hold) and idempotency_\w+ require idempotency_key",
]

BY_OPERATION = {
    "GET /v1/tasks": [
        # Parameters that exclude each other.
        r"reverse needs a sort by a column",
        r"a list that is sorted by a column has no pages",
        # The server draws cursors.
        r"invalid cursor",
        # The language of searches has no schema.
        r"search: ",
    ],
    # `raw` is for binary payloads.
    "GET /v1/tasks/{id}/input": [r"this payload is JSON, not bytes"],
    "GET /v1/tasks/{id}/output": [r"this payload is JSON, not bytes"],
    # The header is for a single task, and excludes the field.
    "POST /v1/tasks": [
        r"the header Idempotency-Key is for a single task",
        r"the header Idempotency-Key and the body's idempotency_key differ",
    ]
    + SUBMIT,
    "POST /v1/bulk": [
        r"a filter with ids cannot have other fields",
        r"search: ",
    ],
    # Blobs must exist, bytes must have their address, and queuey-queue responds with 400 to reports on jobs that have ended.
    "POST /jobs/create": [r"there is no blob "],
    "POST /jobs/{id}/complete": [r"there is no blob ", r"the job is \w+; only an active job"],
    "POST /jobs/{id}/tickle": [r"the job is \w+; only an active job"],
    "PUT /blobs/{address}": [r"the uploaded bytes have the address"],
    "PUT /v1/cluster/members/{node}": [
        r"the address for nodes must be HOST:PORT",
        r"the URL for clients must be",
    ],
    # Cron lines and time zones have no schema, and times must be in order.
    "PUT /v1/schedules/{name}": [
        r".* is not a cron line",
        r".* is not a time zone",
        r"the end must be after the start",
        r"the schedule never fires",
        r".*initial_interval_ms must not be larger than max_interval_ms",
    ],
    # The range must be in the past, in order, and without too many ticks.
    "POST /v1/schedules/{name}/backfill": [r"a backfill needs a range in the past", r"the range has more than"],
    # The documents of each kind have rules of their own.
    "POST /v1/settings/{kind}": [
        r"tasks that are submitted with a document need ids",
        r"the (settings of the queue|limit|webhook|document) .* (is|are) invalid",
        r"a new webhook needs a secret",
    ]
    + SUBMIT,
    # The path and the body name the worker.
    "PUT /v1/workers/{worker}": [r"the body's worker_id differs"],
}

# A document of any kind is stored as it is, through the route for remote engines. It may be no schedule.
UNREADABLE = [r"the record of the schedule .* cannot be read"]


@schemathesis.hook
def filter_failure(context, failure, case, response):
    """Whether a failure counts."""
    if isinstance(failure, RejectedPositiveData):
        exceptions = EVERYWHERE + BY_OPERATION.get(case.operation.label, [])
    elif isinstance(failure, ServerError):
        exceptions = UNREADABLE
    else:
        return True
    detail = response.json()["detail"]
    return not any(re.match(exception, detail) for exception in exceptions)
