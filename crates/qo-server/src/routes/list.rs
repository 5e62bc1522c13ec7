//! Lists tasks, page by page.

use axum::Extension;
use axum::extract::State;
use qo::Task;
use qo_core::limits::INLINE_PAYLOAD_MAX_BYTES;
use qo_engine::api::TaskQuery;
use qo_engine::sorted::{SortedTasks, list_sorted};
use qo_remote::wire::{ListQuery, PageResponse, SortedAmong, schema};
use serde::Serialize;
use utoipa::openapi::schema::AnyOfBuilder;
use utoipa::openapi::{Ref, RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use crate::app::App;
use crate::body::QueryParams;
use crate::response::ApiResult;
use crate::response_room::TakenRoom;
use crate::routes::tasks::{RECORD_BYTES, size_of};
use crate::task_fields::{SelectedTask, TaskFields};
use crate::tokens::Caller;

/// The approximate maximum size of a task in a response: its record with an input and an output.
pub(super) const TASK_MAX_BYTES: usize = RECORD_BYTES + 2 * INLINE_PAYLOAD_MAX_BYTES;
/// The number of tasks in the first part of a page.
const FIRST_TASKS: usize = 16;

/// List tasks
///
/// Page by page: `next` is the `cursor` of the next page. The newest come first, unless `sort` says otherwise. In direct mode that is the
/// order of the ids that qo generates; tasks with ids that callers chose come last. A sort by a column has no index: it sorts the newest 1,000
/// tasks that match, returns the first of them, and says in `sorted` among how many, and whether these were all.
#[utoipa::path(
    get, path = "/v1/tasks", tag = "tasks", operation_id = "list", params(ListQuery),
    responses((status = 200, description = "A page of the matching tasks", body = PageForm))
)]
pub(crate) async fn list(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    QueryParams(query): QueryParams<ListQuery>,
) -> ApiResult {
    let mut filter = query.filter(app.now())?;
    caller.limits.narrow_filter(&mut filter)?;
    let limit = query.limit()?;
    let fields = query.fields.as_deref().map(TaskFields::parse).transpose()?;
    let column = query.column_order()?;
    let max_bytes = app.limits.response_max_bytes;
    let room = app
        .response_room
        .take(max_bytes.min(limit * TASK_MAX_BYTES))?;
    if let Some(order) = column {
        let found = list_sorted(app.engine(), &filter, order, limit).await?;
        return sorted_page(found, fields.as_ref(), max_bytes, room);
    }
    let (mut tasks, mut selected) = (Vec::new(), Vec::new());
    let mut next = query.cursor;
    let (mut bytes, mut listed) = (0, 0);
    let mut examined = Some(0);
    // The first part shows how large the tasks are, and so how many more fit into a page.
    let mut count = limit.min(FIRST_TASKS);
    loop {
        let part = TaskQuery::first(&filter, count).at(next.as_deref());
        let part = app.engine().list(part).await?;
        let is_full = part.tasks.len() >= count;
        listed += part.tasks.len();
        next = part.next;
        examined = examined.zip(part.examined).map(|(sum, more)| sum + more);
        let part_max = match &fields {
            None => {
                let part = part.tasks.into_iter().map(Task::without_logs);
                let first = tasks.len();
                tasks.extend(part);
                bytes += tasks[first..].iter().map(size_of).sum::<usize>();
                limit
            }
            Some(fields) => {
                for task in part.tasks {
                    bytes += fields.size_of(&task);
                    selected.push(fields.select(task)?);
                }
                // The fields that are left out take memory until the part is read.
                (max_bytes / TASK_MAX_BYTES).max(1)
            }
        };
        let average = bytes / listed.max(1);
        count = (limit - listed)
            .min(max_bytes.saturating_sub(bytes) / average.max(1))
            .min(part_max);
        if !is_full || count == 0 || next.is_none() {
            break;
        }
    }
    if fields.is_some() {
        let page = SelectedPage {
            tasks: selected,
            next,
            sorted: None,
            examined,
        };
        return room.json(bytes, &page);
    }
    let page = PageResponse {
        tasks,
        next,
        sorted: None,
        examined,
    };
    room.json(bytes, &page)
}

/// The first tasks by a column, as many as fit into a response.
fn sorted_page(
    found: SortedTasks,
    fields: Option<&TaskFields>,
    max_bytes: usize,
    room: TakenRoom,
) -> ApiResult {
    let mut tasks = found.tasks;
    let size = |task: &Task| fields.map_or_else(|| size_of(task), |fields| fields.size_of(task));
    let mut bytes = 0;
    let fitting = tasks.iter().take_while(|task| {
        bytes += size(task);
        bytes <= max_bytes
    });
    let count = fitting.count();
    tasks.truncate(count);
    let sorted = Some(SortedAmong {
        among: found.among,
        complete: found.is_complete,
    });
    let next = None;
    match fields {
        None => {
            let page = PageResponse {
                tasks,
                next,
                sorted,
                examined: None,
            };
            room.json(bytes, &page)
        }
        Some(fields) => {
            let selected = tasks.into_iter().map(|task| fields.select(task));
            let page = SelectedPage {
                tasks: selected.collect::<Result<_, _>>()?,
                next,
                sorted,
                examined: None,
            };
            room.json(bytes, &page)
        }
    }
}

/// A page with the selected fields of tasks.
#[derive(Serialize)]
struct SelectedPage {
    tasks: Vec<SelectedTask>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sorted: Option<SortedAmong>,
    #[serde(skip_serializing_if = "Option::is_none")]
    examined: Option<u64>,
}

/// A page of tasks, or of their selected fields. An empty page is both, so one of them is not excluded by the other.
pub(crate) struct PageForm;

impl PartialSchema for PageForm {
    fn schema() -> RefOr<Schema> {
        let forms = AnyOfBuilder::new()
            .item(Ref::from_schema_name(PageResponse::name()))
            .item(Ref::from_schema_name(SelectedPageForm::name()));
        RefOr::T(Schema::AnyOf(forms.build()))
    }
}

impl ToSchema for PageForm {
    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        schemas.push((PageResponse::name().into(), PageResponse::schema()));
        schemas.push((SelectedPageForm::name().into(), SelectedPageForm::schema()));
        PageResponse::schemas(schemas);
        SelectedPageForm::schemas(schemas);
    }
}

/// A page with the selected fields of tasks.
#[derive(ToSchema)]
#[expect(dead_code, reason = "only its schema is used")]
pub(crate) struct SelectedPageForm {
    /// The fields of each task that the request names and the task has.
    #[schema(value_type = Vec<std::collections::HashMap<String, schema::AnyJson>>)]
    tasks: Vec<SelectedTask>,
    /// The `cursor` of the next page, if there may be one.
    next: Option<String>,
    /// What was sorted, if the list is sorted by a column.
    sorted: Option<SortedAmong>,
    /// How many tasks the server read to find these.
    examined: Option<u64>,
}
