//! The settings of queues.

use qo::QueueName;
use qo_remote::wire::queue_settings::forms::{QueueForm, QueuesForm};
use qo_remote::wire::{QueueSettingsBody, schema};

use crate::routes::document_route::document_route;

document_route!(
    /// List the settings of queues
    ///
    /// The queues that have settings, ordered by name. `/v1/stats` lists all queues that have tasks.
    list queues, [
        path = "/v1/queues", tag = "operate", operation_id = "queues",
        responses((status = 200, description = "The queues", body = QueuesForm))
    ]
);
document_route!(
    /// Read the settings of a queue
    read queues by QueueName, [
        path = "/v1/queues/{queue}", tag = "operate", operation_id = "queue",
        params(("queue" = schema::Name, Path, description = "The queue")),
        responses((status = 200, description = "The queue", body = QueueForm))
    ]
);
document_route!(
    /// Set the settings of a queue
    ///
    /// Replaces all settings: absent ones get their defaults, and `{}` removes them all. They apply to tasks that are submitted from now on; in
    /// direct mode, other processes see them within ten seconds. Waiting tasks keep the settings that they were submitted with.
    set queues by QueueName, "set queue", [
        path = "/v1/queues/{queue}", tag = "operate", operation_id = "put_queue", request_body = QueueSettingsBody,
        params(("queue" = schema::Name, Path, description = "The queue")),
        responses((status = 200, description = "The queue", body = QueueForm))
    ],
    |body: QueueSettingsBody| body.into_settings()
);
