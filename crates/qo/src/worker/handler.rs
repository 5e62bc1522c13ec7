//! Handlers: async functions with a typed input, or objects for types that are known only at run time.

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

/// The input of a task type, as a Rust type.
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
    /// The task type.
    const TYPE: &'static str;
    /// Former names of the task type. Tasks submitted under them are handled as well.
    const ALIASES: &'static [&'static str] = &[];
}

/// Handles the tasks of a type that is known only at run time. [`TaskInput`] is simpler for types known at compile time.
#[async_trait]
pub trait TaskHandler: Send + Sync + 'static {
    /// The task type.
    fn task_type(&self) -> &str;

    /// Former names of the task type, which are handled as well.
    fn aliases(&self) -> Vec<String> {
        Vec::new()
    }

    /// Runs one task.
    ///
    /// It may block its thread. It can be called again for the same task, after an error or a crash of the worker. Requests to other
    /// systems should therefore carry the task's id and attempt number.
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

/// An async function that handles tasks with input `T`: `async fn(T, Context) -> Result<O, E>`, where `O` is serializable and `E`
/// converts to [`TaskError`]. Implemented for all such functions and closures.
pub trait Handler<T>: Send + Sync + 'static {
    /// Runs one task.
    fn call(
        &self,
        input: T,
        context: Context,
    ) -> BoxFuture<'static, Result<HandlerOutput, TaskError>>;
}

/// The serialized output of a [`Handler`], or the error of its serialization.
#[derive(Debug)]
pub struct HandlerOutput(Result<Json, String>);

impl<T, F, R, O, E> Handler<T> for F
where
    F: Fn(T, Context) -> R + Send + Sync + 'static,
    R: Future<Output = Result<O, E>> + Send + 'static,
    O: Serialize,
    E: Into<TaskError>,
{
    fn call(
        &self,
        input: T,
        context: Context,
    ) -> BoxFuture<'static, Result<HandlerOutput, TaskError>> {
        self(input, context)
            .map(|result| match result {
                Ok(output) => Ok(HandlerOutput::of(&output)),
                Err(error) => Err(error.into()),
            })
            .boxed()
    }
}

impl HandlerOutput {
    pub(super) fn of(output: &impl Serialize) -> Self {
        Self(Json::from_value(output).map_err(|error| error.to_string()))
    }

    /// The output to store for a task of this type.
    pub(super) fn stored(self, task_type: &str) -> Result<Option<Json>, TaskError> {
        match self.0 {
            // `()` and `None` serialize to null: there is no output to store.
            Ok(json) if json.as_str() == "null" => Ok(None),
            Ok(json) => Ok(Some(json)),
            Err(error) => Err(TaskError::permanent(format_args!(
                "cannot serialize the output of {task_type} as JSON: {error}"
            ))),
        }
    }
}

/// Deserializes an input. A failure is permanent, because a retry would fail on the same bytes.
pub(super) fn parse_input<T: TaskInput>(input: &Json) -> Result<T, TaskError> {
    serde_json::from_str(input.as_str()).map_err(|error| {
        TaskError::permanent(format_args!(
            "invalid input for {}: {error}; fix its producer or the handler's input type, and replay the task",
            T::TYPE
        ))
    })
}

/// Adapts a function to [`TaskHandler`].
pub(super) struct FunctionHandler<T, H> {
    function: H,
    input: PhantomData<fn(T)>,
}

impl<T: TaskInput, H: Handler<T>> FunctionHandler<T, H> {
    pub(super) fn new(function: H) -> Self {
        Self {
            function,
            input: PhantomData,
        }
    }
}

#[async_trait]
impl<T: TaskInput, H: Handler<T>> TaskHandler for FunctionHandler<T, H> {
    fn task_type(&self) -> &str {
        T::TYPE
    }

    fn aliases(&self) -> Vec<String> {
        T::ALIASES.iter().map(|&name| name.to_owned()).collect()
    }

    async fn handle(&self, input: Json, context: Context) -> Result<Option<Json>, TaskError> {
        let input = parse_input(&input)?;
        self.function.call(input, context).await?.stored(T::TYPE)
    }
}

impl Queue {
    /// Starts a task with a typed input, which determines the task type. Fails if the input cannot be serialized as JSON.
    pub fn task_of<T: TaskInput + Serialize>(&self, input: &T) -> Result<TaskBuilder, Error> {
        self.task(T::TYPE, input)
    }
}
