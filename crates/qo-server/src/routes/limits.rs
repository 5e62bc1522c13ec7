//! Limits.

use qo_core::DocumentName;
use qo_remote::wire::limit::forms::{LimitForm, LimitsForm};
use qo_remote::wire::{LimitBody, schema};

use crate::routes::document_route::document_route;

document_route!(
    /// List limits
    ///
    /// Ordered by name.
    list limits, [
        path = "/v1/limits", tag = "limits", operation_id = "limits",
        responses((status = 200, description = "The limits", body = LimitsForm))
    ]
);
document_route!(
    /// Read a limit
    read limits by DocumentName, [
        path = "/v1/limits/{name}", tag = "limits", operation_id = "limit",
        params(("name" = schema::Name, Path, description = "The limit")),
        responses((status = 200, description = "The limit", body = LimitForm))
    ]
);
document_route!(
    /// Set a limit
    ///
    /// Creates the limit, or replaces the one with this name. Running tasks continue, even if there are more of them than allowed.
    put limits by DocumentName, "set limit", [
        path = "/v1/limits/{name}", tag = "limits", operation_id = "put_limit", request_body = LimitBody,
        params(("name" = schema::Name, Path, description = "The limit")),
        responses((status = 200, description = "The limit", body = LimitForm))
    ],
    |body: LimitBody| body.into_limit()
);
document_route!(
    /// Remove a limit
    ///
    /// The tasks that waited for it can start.
    remove limits by DocumentName, "remove limit", [
        path = "/v1/limits/{name}", tag = "limits", operation_id = "remove_limit",
        params(("name" = schema::Name, Path, description = "The limit")),
        responses((status = 204, description = "The limit is removed"))
    ]
);
