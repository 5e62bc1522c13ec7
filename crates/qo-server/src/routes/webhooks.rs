//! Webhooks. Only operators see them: the path of a URL is often a secret of its own.

use qo_core::DocumentName;
use qo_remote::wire::webhook::forms::{WebhookForm, WebhooksForm};
use qo_remote::wire::{WebhookBody, WebhookTestResponse, schema};

use crate::response::json;
use crate::routes::change_route::change_route;
use crate::routes::document_route::document_route;

document_route!(
    /// List webhooks
    ///
    /// Ordered by name, without their secrets.
    list webhooks, [
        path = "/v1/webhooks", tag = "webhooks", operation_id = "webhooks",
        responses((status = 200, description = "The webhooks", body = WebhooksForm))
    ]
);
document_route!(
    /// Read a webhook
    ///
    /// Without its secret.
    read webhooks by DocumentName, [
        path = "/v1/webhooks/{name}", tag = "webhooks", operation_id = "webhook",
        params(("name" = schema::Name, Path, description = "The webhook")),
        responses((status = 200, description = "The webhook", body = WebhookForm))
    ]
);
document_route!(
    /// Set a webhook
    ///
    /// Creates the webhook, or replaces the one with this name. If its secret is new, the response contains it; no other response does. At
    /// most 32 webhooks can exist. A process must deliver the notifications: `qo serve --webhooks` or `qo worker --webhooks`.
    put webhooks by DocumentName, "set webhook", [
        path = "/v1/webhooks/{name}", tag = "webhooks", operation_id = "put_webhook", request_body = WebhookBody,
        params(("name" = schema::Name, Path, description = "The webhook")),
        responses((status = 200, description = "The webhook, with its secret if that is new", body = WebhookForm))
    ],
    |body: WebhookBody| body.into_webhook().map_err(qo::Error::from)?
);
document_route!(
    /// Remove a webhook
    ///
    /// Waiting notifications are no longer sent.
    remove webhooks by DocumentName, "remove webhook", [
        path = "/v1/webhooks/{name}", tag = "webhooks", operation_id = "remove_webhook",
        params(("name" = schema::Name, Path, description = "The webhook")),
        responses((status = 204, description = "The webhook is removed"))
    ]
);
change_route!(
    /// Test a webhook
    ///
    /// Sends a notification of the type `webhook.test`, as a task like any other delivery. The response names that task.
    test, [
        path = "/v1/webhooks/{name}/test", tag = "webhooks", operation_id = "test_webhook",
        params(("name" = schema::Name, Path, description = "The webhook")),
        responses((status = 200, description = "The notification is submitted", body = WebhookTestResponse))
    ],
    |app, name: DocumentName, author| async {
        let delivery = app.queue.webhooks().test(name.as_str()).await?;
        author.log("test webhook", &name);
        json(&WebhookTestResponse { delivery })
    }
);
