//! Routes that change the one thing that their path names.

/// A route that takes a `POST` about the one thing that its path names, such as a task, a worker or a queue, from an [`Author`], with or
/// without a body: its name, what the OpenAPI document says about it, and the change.
///
/// [`Author`]: crate::author::Author
macro_rules! change_route {
    (
        $(#[doc = $doc:literal])*
        $name:ident, [$($openapi:tt)*],
        |$app:ident, $target:ident: $Target:ty, $author:ident $(, $extract:ident($body:ident): $Body:ty)?| $change:expr
    ) => {
        $(#[doc = $doc])*
        #[utoipa::path(post, $($openapi)*)]
        pub(crate) async fn $name(
            axum::extract::State($app): axum::extract::State<$crate::app::App>,
            $crate::body::PathParam($target): $crate::body::PathParam<$Target>,
            $author: $crate::author::Author,
            $($extract($body): $extract<$Body>,)?
        ) -> $crate::response::ApiResult {
            $change.await
        }
    };
}

pub(super) use change_route;
