//! What does the tasks of a type: a function with a typed input, or an object that is chosen at run time.

use std::future::Future;
use std::marker::PhantomData;

use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use qo_core::Json;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Context, TaskError};
use crate::error::Error;
use crate::queue::Queue;
use crate::submit::TaskBuilder;

/// The input of a task type, as a type of Rust.
///
/// ```
/// #[derive(serde::Serialize, serde::Deserialize)]
/// struct Email { to: String }
///
/// impl qo::TaskInput for Email {
///     const TYPE: &'static str = "send_email";
///     const ALIASES: &'static [&'static str] = &["email"];
/// }
/// ```
pub trait TaskInput: DeserializeOwned + Send + 'static {
    /// The task type that has this input.
    const TYPE: &'static str;
    /// Names that the type had before. Tasks that were submitted under them are still handled.
    const ALIASES: &'static [&'static str] = &[];
}

/// What does the tasks of one type, where the type is known only when the program runs.
#[async_trait]
pub trait TaskHandler: Send + Sync + 'static {
    /// The type of the tasks that it does.
    fn task_type(&self) -> &str;

    /// Other types that it does as well: earlier names.
    fn aliases(&self) -> Vec<String> {
        Vec::new()
    }

    /// Does one task. The input and the output are JSON texts.
    ///
    /// It runs on a thread of the worker that it may block. It may be called again for the same task, after an error, or because
    /// its worker died: what it does elsewhere should carry the task's id and its attempt.
    async fn handle(&self, input: Json, context: Context) -> Result<Option<Json>, TaskError>;
}

#[async_trait]
impl<H: TaskHandler + ?Sized> TaskHandler for Box<H> {
    fn task_type(&self) -> &str {
        (**self).task_type()
    }

    fn aliases(&self) -> Vec<String> {
        (**self).aliases()
    }

    async fn handle(&self, input: Json, context: Context) -> Result<Option<Json>, TaskError> {
        (**self).handle(input, context).await
    }
}

/// A function that does tasks with an input of the type `T`. Every `async fn(T, Context) -> Result<O, E>` is one, whose output can
/// be written as JSON and whose error is a [`TaskError`] or becomes one.
pub trait Handler<T>: Send + Sync + 'static {
    /// Does one task.
    fn call(&self, input: T, context: Context) -> BoxFuture<'static, Result<Answer, TaskError>>;
}

/// What a function gave: its output, or why that could not be written as JSON.
#[derive(Debug)]
pub struct Answer(Result<Json, String>);

impl<T, F, R, O, E> Handler<T> for F
where
    F: Fn(T, Context) -> R + Send + Sync + 'static,
    R: Future<Output = Result<O, E>> + Send + 'static,
    O: Serialize,
    E: Into<TaskError>,
{
    fn call(&self, input: T, context: Context) -> BoxFuture<'static, Result<Answer, TaskError>> {
        self(input, context)
            .map(|result| match result {
                Ok(output) => Ok(Answer(
                    Json::from_value(&output).map_err(|error| error.to_string()),
                )),
                Err(error) => Err(error.into()),
            })
            .boxed()
    }
}

/// A function as a [`TaskHandler`].
pub(super) struct Typed<T, H> {
    function: H,
    input: PhantomData<fn(T)>,
}

impl<T: TaskInput, H: Handler<T>> Typed<T, H> {
    pub(super) fn new(function: H) -> Self {
        Self {
            function,
            input: PhantomData,
        }
    }
}

#[async_trait]
impl<T: TaskInput, H: Handler<T>> TaskHandler for Typed<T, H> {
    fn task_type(&self) -> &str {
        T::TYPE
    }

    fn aliases(&self) -> Vec<String> {
        T::ALIASES.iter().map(|&name| name.to_owned()).collect()
    }

    async fn handle(&self, input: Json, context: Context) -> Result<Option<Json>, TaskError> {
        // The same bytes would fail again, so that no retry can help.
        let input = serde_json::from_str(input.as_str()).map_err(|error| {
            TaskError::permanent(format_args!(
                "the input is no {}: {error}; fix what submits it, or the handler's input type, and replay the task",
                T::TYPE
            ))
        })?;
        let Answer(output) = self.function.call(input, context).await?;
        match output {
            // The unit type and an absent value are written as null, and mean that there is nothing to keep.
            Ok(json) if json.as_str() == "null" => Ok(None),
            Ok(json) => Ok(Some(json)),
            Err(error) => Err(TaskError::permanent(format_args!(
                "the output of {} cannot be written as JSON: {error}",
                T::TYPE
            ))),
        }
    }
}

impl Queue {
    /// Begins to describe a task by its typed input, whose type it has. Fails if the input cannot be written as JSON.
    pub fn task_of<T: TaskInput + Serialize>(&self, input: &T) -> Result<TaskBuilder, Error> {
        self.task(T::TYPE, input)
    }
}
