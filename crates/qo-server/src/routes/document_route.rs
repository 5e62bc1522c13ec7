//! Routes that list, read, set and remove the documents of one kind: queues, limits, schedules, webhooks.

/// Defines a route for the documents of one kind, which `app.queue` has a handle for. The arguments are the operation, its attributes in the
/// OpenAPI document and, where routes differ, the type of the names and the body. Routes that change something log their [`Author`].
///
/// [`Author`]: crate::author::Author
macro_rules! document_route {
    ($(#[doc = $doc:literal])* list $documents:ident, [$($openapi:tt)*]) => {
        $(#[doc = $doc])*
        #[utoipa::path(get, $($openapi)*)]
        pub(crate) async fn list(
            axum::extract::State(app): axum::extract::State<$crate::app::App>,
        ) -> $crate::response::ApiResult {
            let documents = app.queue.$documents().list().await?;
            $crate::response::json(&std::collections::BTreeMap::from([(stringify!($documents), documents)]))
        }
    };
    ($(#[doc = $doc:literal])* read $documents:ident by $Name:ty, [$($openapi:tt)*]) => {
        $(#[doc = $doc])*
        #[utoipa::path(get, $($openapi)*)]
        pub(crate) async fn read(
            axum::extract::State(app): axum::extract::State<$crate::app::App>,
            $crate::body::PathParam(name): $crate::body::PathParam<$Name>,
        ) -> $crate::response::ApiResult {
            $crate::response::json(&app.queue.$documents().get(name.as_str()).await?)
        }
    };
    (
        $(#[doc = $doc:literal])* $set:ident $documents:ident by $Name:ty, $operation:literal, [$($openapi:tt)*],
        |$body:ident: $Body:ty| $value:expr
    ) => {
        $(#[doc = $doc])*
        #[utoipa::path(put, $($openapi)*)]
        pub(crate) async fn put(
            axum::extract::State(app): axum::extract::State<$crate::app::App>,
            $crate::body::PathParam(name): $crate::body::PathParam<$Name>,
            author: $crate::author::Author,
            $crate::body::JsonBody($body): $crate::body::JsonBody<$Body>,
        ) -> $crate::response::ApiResult {
            let info = app.queue.$documents().$set(name.as_str(), $value).await?;
            author.log($operation, &name);
            $crate::response::json(&info)
        }
    };
    ($(#[doc = $doc:literal])* remove $documents:ident by $Name:ty, $operation:literal, [$($openapi:tt)*]) => {
        $(#[doc = $doc])*
        #[utoipa::path(delete, $($openapi)*)]
        pub(crate) async fn remove(
            axum::extract::State(app): axum::extract::State<$crate::app::App>,
            $crate::body::PathParam(name): $crate::body::PathParam<$Name>,
            author: $crate::author::Author,
        ) -> $crate::response::ApiResult {
            app.queue.$documents().remove(name.as_str()).await?;
            author.log($operation, &name);
            Ok($crate::response::no_content())
        }
    };
}

pub(super) use document_route;
